//! The policies of `overlays/policies` and the webhook have the same rules: both change any run and any pod in the same way,
//! and reject with the same messages.
//!
//! Both are installed on one API server, each for its own namespace, and each document is sent to both namespaces as a dry
//! run. `POD_AFFINITY_CORPUS_SEED` and `POD_AFFINITY_CORPUS_SIZE` select other random documents, and more of them.

use crate::policies_and_webhook::{
    Answer, LABELLED, Outcome, POLICIES, WEBHOOK, create_held, created, created_in, each, install_both,
    patched, pod, send,
};
use crate::policies_corpus::{Corpus, with_reserve};
use crate::support::SOON;
use crate::support::testbeds::{fresh_by, start_controllers, stop_controllers};
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::env;
use testbed::{Admission, Testbed};

const SEED: u64 = 20_261_123;
/// Number of random documents of each kind.
const SIZE: usize = 500;
/// The kinds of outcomes, and how often each must occur at least.
const EXPECTED: [(&str, usize); 17] = [
    ("held", 100),
    ("stripped", 20),
    ("run untouched", 50),
    ("terms", 200),
    ("relaxed", 50),
    ("pod untouched", 50),
    ("invalid", 20),
    (" has the unknown value ", 20),
    (" requires other pods ", 5),
    (" is not of the form ", 5),
    (" is not a resource ", 10),
    (" is not a quantity ", 10),
    (" is larger than ", 10),
    (" is not more than zero", 10),
    (" is not a whole number", 10),
    (" is outside of ", 10),
    (" is there more than once", 2),
];
const MOST_TELLING: usize = 5;
/// Number of documents for a label of a Namespace if another label was tested with all documents.
const FEW: usize = 30;

#[e2e_test(policies)]
async fn policies_make_the_same_changes_and_rejections_of_any_run_and_pod_as_the_webhook() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let corpus = Corpus::read();
    let (mut rng, size) = settings();
    let documents = [corpus.runs(&mut rng, size), corpus.pods(&mut rng, size)].concat();
    let outcomes = each(documents, async |document| created(&client, document).await).await;

    let tally = tally(&outcomes);
    println!("{} documents: {tally:?}", outcomes.len());
    are_equal(&outcomes);
    for (kind, least) in EXPECTED {
        let seen = tally.get(kind).copied().unwrap_or_default();
        assert!(seen >= least, "{kind}: {seen} of {least}, {tally:?}");
    }
}

#[e2e_test(policies, second)]
async fn policies_make_the_same_changes_of_any_run_in_a_labelled_namespace_as_the_webhook() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let corpus = Corpus::read();
    let (mut rng, size) = settings();
    let all = corpus.runs(&mut rng, size * 2 / 5);
    let every = all.len() / FEW;
    // Each label of the Namespaces: the label that runs get, the documents, and the minimum number of them that are held.
    let labels = [
        ("", Some("true"), 1, 50),
        ("isolateAlways", Some("isolateAlways"), every, 5),
        ("sometimes", None, every, 0),
        ("false", None, every, 0),
    ];
    for (label, given, every, least) in labels {
        relabel(&bed, &client, label, given).await;
        let documents = mostly_unlabelled(all.iter().step_by(every).cloned().collect());
        let outcomes = each(documents, async |document| {
            created_in(&client, LABELLED, document).await
        })
        .await;
        let held = outcomes
            .iter()
            .filter(|it| is_given(&it.policies, given) && is_held(&it.policies));
        let held = held.count();
        println!("{label:?}: {} runs, {held} held by it", outcomes.len());
        are_equal(&outcomes);
        assert!(held >= least, "{label}: {held}");
    }
}

/// Removes the label from two of three runs.
fn mostly_unlabelled(mut runs: Vec<Value>) -> Vec<Value> {
    for (number, run) in runs.iter_mut().enumerate() {
        let labels = run.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
        if let Some(labels) = labels.filter(|_| number % 3 != 0) {
            labels.remove(keys::OPT_IN);
        }
    }
    runs
}

/// Labels both Namespaces, and waits until webhook and policies apply the label.
async fn relabel(bed: &Testbed, client: &Client, label: &str, given: Option<&str>) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: label}}}));
    for namespace in LABELLED {
        namespaces
            .patch(namespace, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    let mut run = with_reserve("");
    run["metadata"]["labels"] = json!({"team": "blue"});
    bed.until("the label of a Namespace to apply", SOON, async || {
        let outcome = created_in(client, LABELLED, run.clone()).await;
        if is_given(&outcome.policies, given) && is_given(&outcome.webhook, given) {
            Ok(())
        } else {
            Err(outcome)
        }
    })
    .await
    .unwrap();
}

/// Whether a run got this label from its Namespace, or no label.
fn is_given(answer: &Answer, label: Option<&str>) -> bool {
    let Answer::Accepted(run) = answer else {
        return false;
    };
    let metadata = &run["metadata"];
    let by = metadata["annotations"].get(keys::OPTED_IN_BY);
    match label {
        Some(label) => {
            metadata["labels"][keys::OPT_IN] == label && by.is_some_and(|by| by == keys::BY_NAMESPACE)
        }
        None => metadata["labels"].get(keys::OPT_IN).is_none() && by.is_none(),
    }
}

fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted(run) if run["metadata"]["annotations"][keys::HOLD] == "true")
}

/// Tekton's webhook adds the template to each run after policies that change runs, and before policies that reject them.
#[e2e_test(policies)]
async fn policies_and_webhook_reject_no_run_for_the_default_template_of_tekton() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let term = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let template = json!({"affinity": {"podAffinity": required}});
    bed.tekton_config(
        "config-defaults",
        &[("default-pod-template", &template.to_string())],
    )
    .await
    .unwrap();
    let is_added = |answer: &Answer| match answer {
        Answer::Accepted(run) => {
            run["spec"]["taskRunTemplate"]["podTemplate"]["affinity"] == template["affinity"]
        }
        Answer::Rejected(_) | Answer::Invalid(_) => false,
    };
    bed.until("Tekton to add its template", SOON, async || {
        let outcome = created(&client, with_reserve("")).await;
        if is_added(&outcome.policies) && outcome.policies == outcome.webhook {
            Ok(())
        } else {
            Err(outcome)
        }
    })
    .await
    .unwrap();
}

#[e2e_test(policies)]
async fn policies_hold_changed_runs_as_the_webhook_does() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    // The controllers would change the runs meanwhile, one before the other.
    stop_controllers(&bed);
    let corpus = Corpus::read();
    for (number, held) in corpus.held.iter().enumerate() {
        for namespace in [POLICIES, WEBHOOK] {
            create_held(&client, namespace, number, held).await;
        }
    }
    let changes =
        (0..corpus.held.len()).flat_map(|run| corpus.changes.iter().map(move |change| (run, change.clone())));
    let outcomes = each(changes.collect(), async |(run, change)| {
        patched(&client, run, change).await
    })
    .await;
    start_controllers(&bed).await;

    are_equal(&outcomes);
    let held = outcomes
        .iter()
        .filter(|outcome| is_released_and_held(&outcome.policies))
        .count();
    println!("{} changes, {held} of them held", outcomes.len());
    assert!(
        (20..outcomes.len() / 2).contains(&held),
        "{held} of {}",
        outcomes.len()
    );
}

#[e2e_test(policies)]
async fn policies_differ_from_the_webhook_as_their_page_says() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let corpus = Corpus::read();
    for document in corpus.rejected_in_other_words() {
        let outcome = created(&client, document).await;
        let (Answer::Rejected(policies), Answer::Rejected(webhook)) = (&outcome.policies, &outcome.webhook)
        else {
            panic!("{outcome:?}")
        };
        assert_ne!(policies, webhook);
    }
    for (document, message) in corpus.rejected_only_by_policy() {
        let outcome = created(&client, document).await;
        let rejected = |answer: &Answer| matches!(answer, Answer::Rejected(text) if text.contains(message));
        assert!(rejected(&outcome.policies), "{outcome:?}");
        assert!(matches!(outcome.webhook, Answer::Accepted(_)), "{outcome:?}");
    }
    let entries: Vec<_> = (0..65).map(|number| format!("example.com/x{number}=1")).collect();
    let at_most = created(&client, with_reserve(&entries[..64].join(","))).await;
    assert_eq!(at_most.policies, at_most.webhook);
    let too_many = created(&client, with_reserve(&entries.join(","))).await;
    let Answer::Rejected(message) = &too_many.policies else {
        panic!("{too_many:?}")
    };
    assert!(message.contains("more than 64 entries"), "{message}");
    let long = format!("cpu=1,{}memory=1Gi", " ".repeat(2048));
    let too_long = created(&client, with_reserve(&long)).await;
    for answer in [too_long.policies, too_long.webhook] {
        let is_rejected =
            matches!(&answer, Answer::Rejected(text) if text.contains("it is longer than 2048 characters"));
        assert!(is_rejected, "{answer:?}");
    }
}

#[e2e_test(policies)]
async fn without_the_service_account_of_the_controller_policies_hold_and_reject_no_run_and_pods_get_their_terms()
 {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), keys::NAMESPACE);
    accounts
        .delete("pod-affinity-controller", &DeleteParams::default())
        .await
        .unwrap();
    let run = with_reserve("nonsense");
    bed.until("the policies to let a run pass", SOON, async || {
        match send(&client, POLICIES, &run).await {
            Answer::Accepted(run) if run["spec"].get("status").is_none() => Ok(()),
            other => Err(other),
        }
    })
    .await
    .unwrap();
    let pod = created(&client, pod()).await;
    assert_eq!(
        pod.kind(),
        "terms",
        "the pods of runs that have started keep together"
    );
    are_equal(&[pod]);
}

/// The random generator of the documents, and the number of documents.
fn settings() -> (Rng, usize) {
    let seed = setting("POD_AFFINITY_CORPUS_SEED").unwrap_or(SEED);
    let size = setting("POD_AFFINITY_CORPUS_SIZE").unwrap_or(SIZE);
    (Rng::with_seed(seed), size)
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

fn is_released_and_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted(run) if run["spec"]["status"] == keys::PENDING && run["annotations"][keys::HOLD] == "released")
}

fn are_equal(outcomes: &[Outcome]) {
    let different: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_equal()).collect();
    for outcome in different.iter().take(MOST_TELLING) {
        println!(
            "{}\n  policies: {:?}\n  webhook:  {:?}",
            outcome.document, outcome.policies, outcome.webhook
        );
    }
    assert!(
        different.is_empty(),
        "{} of {} differ",
        different.len(),
        outcomes.len()
    );
}

impl Outcome {
    fn is_equal(&self) -> bool {
        match (&self.policies, &self.webhook) {
            // Other components reject the run as well. The order differs: the webhook is called before them, and the policy
            // that rejects after some of them.
            (Answer::Invalid(_), Answer::Rejected(_)) | (Answer::Rejected(_), Answer::Invalid(_)) => true,
            // Tekton cannot convert the run to v1. The status code of this error differs.
            (Answer::Invalid(403), Answer::Invalid(500)) => {
                self.document["apiVersion"] == "tekton.dev/v1beta1"
            }
            (policies, webhook) => policies == webhook,
        }
    }

    fn kind(&self) -> &'static str {
        match (&self.policies, self.document["kind"] == "Pod") {
            (Answer::Accepted(pod), true) => self.kind_of_pod(pod),
            (Answer::Accepted(run), false) => self.kind_of_run(run),
            (Answer::Rejected(message), _) => kind_of_rejection(message),
            (Answer::Invalid(_), _) => "invalid",
        }
    }

    fn kind_of_pod(&self, pod: &Value) -> &'static str {
        let relaxed = |pod: &Value| pod["metadata"]["annotations"][keys::RELAXED] == "true";
        if relaxed(pod) && !relaxed(&self.document) {
            "relaxed"
        } else if pod["spec"]["affinity"] == self.document["spec"]["affinity"] {
            "pod untouched"
        } else {
            "terms"
        }
    }

    fn kind_of_run(&self, run: &Value) -> &'static str {
        let in_a_group = |run: &Value| run["metadata"]["labels"].get(keys::GROUP).is_some();
        if in_a_group(&self.document) && !in_a_group(run) {
            "stripped"
        } else if run["metadata"]["annotations"][keys::HOLD] == "true" {
            "held"
        } else {
            "run untouched"
        }
    }
}

/// The kind of a rejection, by its message.
fn kind_of_rejection(message: &str) -> &'static str {
    let mut known = EXPECTED.into_iter().map(|(kind, _)| kind);
    known
        .find(|kind| kind.starts_with(' ') && message.contains(kind))
        .unwrap_or("rejected otherwise")
}

fn tally(outcomes: &[Outcome]) -> BTreeMap<&'static str, usize> {
    outcomes.iter().fold(BTreeMap::new(), |mut tally, outcome| {
        *tally.entry(outcome.kind()).or_default() += 1;
        tally
    })
}
