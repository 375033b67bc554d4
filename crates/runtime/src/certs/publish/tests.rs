//! Patches of the webhook configurations.

use super::*;

fn configuration(bundles: &[Option<&str>]) -> MutatingWebhookConfiguration {
    let encoded = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    let webhook = |(index, bundle): (usize, Option<&str>)| {
        json!({
            "name": format!("webhook-{index}"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": bundle.map_or(json!({}), |text| json!({"caBundle": encoded(text)})),
        })
    };
    let webhooks: Vec<Value> = bundles.iter().copied().enumerate().map(webhook).collect();
    serde_json::from_value(json!({"metadata": {"name": "x"}, "webhooks": webhooks})).unwrap()
}

#[test]
fn a_webhook_with_the_bundle_needs_no_patch() {
    assert!(
        patch_of_bundle(&configuration(&[Some("bundle")]), "bundle")
            .unwrap()
            .0
            .is_empty()
    );
    assert!(
        patch_of_bundle(&configuration(&[]), "bundle")
            .unwrap()
            .0
            .is_empty()
    );
}

#[test]
fn only_missing_and_outdated_bundles_change() {
    let before = configuration(&[None, Some("bundle"), Some("old")]);
    let mut document = serde_json::to_value(&before).unwrap();
    json_patch::patch(&mut document, &patch_of_bundle(&before, "bundle").unwrap()).unwrap();
    let after = serde_json::to_value(configuration(&[Some("bundle"); 3])).unwrap();
    assert_eq!(document, after);
}

#[test]
fn the_owner_is_the_current_namespace_and_replaces_an_earlier_one() {
    let namespace = |uid: &str| OwnerReference {
        api_version: "v1".into(),
        kind: NAMESPACE.into(),
        name: "ns".into(),
        uid: uid.into(),
        ..OwnerReference::default()
    };
    let other = OwnerReference {
        kind: "Other".into(),
        ..namespace("u9")
    };
    let table = [
        (vec![], Some(vec![namespace("u2")])),
        (vec![namespace("u2")], None),
        (
            vec![namespace("u1"), other.clone()],
            Some(vec![other, namespace("u2")]),
        ),
    ];
    for (before, after) in table {
        let mut one = configuration(&[]);
        one.metadata.owner_references = Some(before);
        let value =
            patch_of_owner(&one, &namespace("u2")).map(|operation| serde_json::to_value(operation).unwrap());
        let expected = after.map(|owners| serde_json::to_value(owners).unwrap());
        assert_eq!(value.map(|value| value["value"].clone()), expected);
    }
}

#[test]
fn a_configuration_that_argo_cd_applied_gets_no_owner() {
    let mut one = configuration(&[]);
    assert!(patch_of_owner(&one, &OwnerReference::default()).is_some());
    one.annotations_mut()
        .insert(ARGO_CD.into(), "pod-affinity:...".into());
    assert!(patch_of_owner(&one, &OwnerReference::default()).is_none());
}

#[test]
fn the_patch_fails_on_a_list_that_was_reordered_after_the_read() {
    let patch = patch_of_bundle(&configuration(&[None, Some("bundle")]), "bundle").unwrap();
    let mut reordered = serde_json::to_value(configuration(&[None, None])).unwrap();
    reordered["webhooks"].as_array_mut().unwrap().reverse();
    assert!(json_patch::patch(&mut reordered, &patch).is_err());
}
