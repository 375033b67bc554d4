//! Who asked what of the API server, by its audit record.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use testbed::{product, tekton};

/// Requests about the objects of one namespace, from one moment to another.
pub(crate) struct Window {
    pub(crate) namespace: String,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Window {
    /// How many there were by client, then by kind of request.
    pub(crate) fn count(&self, record: &[Value]) -> Result<BTreeMap<&'static str, BTreeMap<String, usize>>> {
        let mut counts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for asked in record {
            if self.has(asked)? {
                let of_client = counts.entry(client(asked)).or_default();
                *of_client.entry(kind(asked)).or_default() += 1;
            }
        }
        Ok(counts)
    }

    fn has(&self, asked: &Value) -> Result<bool> {
        if text(asked, "/objectRef/namespace") != self.namespace {
            return Ok(false);
        }
        let at: Timestamp = text(asked, "/requestReceivedTimestamp")
            .parse()
            .context("reading the time of a request in the audit record")?;
        Ok(self.from <= at && at < self.to)
    }
}

/// The verb, what it was about, and an answer that was none.
fn kind(asked: &Value) -> String {
    let (verb, resource) = (text(asked, "/verb"), text(asked, "/objectRef/resource"));
    let kind = match text(asked, "/objectRef/subresource") {
        "" => format!("{verb} {resource}"),
        subresource => format!("{verb} {resource}/{subresource}"),
    };
    match asked.pointer("/responseStatus/code").and_then(Value::as_u64) {
        Some(code) if code >= 400 => kind + &format!(", answered {code}"),
        _ => kind,
    }
}

fn client(asked: &Value) -> &'static str {
    let user = text(asked, "/user/username");
    let account = user.strip_prefix("system:serviceaccount:");
    match account.and_then(|account| account.split_once(':')) {
        Some(("kube-system", _)) => "controller manager",
        Some((tekton::NAMESPACE, "tekton-pipelines-controller")) => "Tekton controller",
        Some((tekton::NAMESPACE, "tekton-pipelines-webhook")) => "Tekton webhook",
        Some((product::NAMESPACE, _)) => "pod-affinity",
        Some(_) | None => match user {
            "system:kube-scheduler" => "scheduler",
            "system:kube-controller-manager" => "controller manager",
            _ if text(asked, "/userAgent").starts_with("kwok") => "KWOK",
            _ => "the measuring program",
        },
    }
}

fn text<'a>(asked: &'a Value, pointer: &str) -> &'a str {
    asked.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(user: &str, subresource: &str, code: u32, second: u32) -> Value {
        json!({
            "verb": "update",
            "user": {"username": user},
            "objectRef": {"namespace": "here", "resource": "pods", "subresource": subresource},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": format!("2026-01-01T00:00:{second:02}.000001Z"),
        })
    }

    fn window(namespace: &str) -> Window {
        Window {
            namespace: namespace.to_owned(),
            from: "2026-01-01T00:00:10Z".parse().unwrap(),
            to: "2026-01-01T00:00:20Z".parse().unwrap(),
        }
    }

    #[test]
    fn requests_are_counted_by_client_and_kind_in_their_namespace_and_time_only() {
        let manager = "system:serviceaccount:kube-system:statefulset-controller";
        let record = [
            asked(manager, "status", 200, 11),
            asked(manager, "status", 200, 12),
            asked(manager, "", 409, 13),
            asked("system:kube-scheduler", "", 200, 9),
            asked("system:kube-scheduler", "", 200, 20),
        ];
        let counts = window("here").count(&record).unwrap();
        let kinds = BTreeMap::from([
            ("update pods/status".to_owned(), 2),
            ("update pods, answered 409".to_owned(), 1),
        ]);
        assert_eq!(counts, BTreeMap::from([("controller manager", kinds)]));
        assert!(window("there").count(&record).unwrap().is_empty());
    }
}
