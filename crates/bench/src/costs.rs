//! The requests that one run causes, by client and kind, from the API server's audit log, and what it writes to etcd.

use crate::admission;
use crate::batch::{Batch, RunVariant, Workload, variants};
use crate::cluster;
use crate::part::{BenchPart, Effort};
use crate::scenario::Scenario;
use crate::stats::number;
use crate::stored::{self, AFTERWARDS, EVENTS, HIGHEST, Stored, WRITTEN, kilobytes};
use crate::variants::{BY_POLICIES, COMPLETED, DISABLED, ISOLATE};
use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testbed::{Audit, Limits, Nodes, Options, Testbed, product, tekton};

const ALL: &str = "all requests";
const OURS: &str = "pod-affinity";
const TEKTON: &str = "Tekton's controller";
const TEKTON_WEBHOOK: &str = "Tekton's webhook";
const MANAGER: &str = "controller manager";
const SCHEDULER: &str = "scheduler";
const KWOK: &str = "KWOK";
const BENCH: &str = "measuring program";
/// Longer than the runs take, and what follows their end.
const WINDOW: Duration = Duration::from_secs(40);
const QUICK_WINDOW: Duration = Duration::from_secs(20);

pub(crate) const PART: BenchPart = BenchPart {
    name: "costs",
    title: "Requests and storage of a run",
    method: "runs of four tasks in three levels are created at the same time, client limits raised. All requests for objects in their \
        namespace are counted from the API server's audit log, from the creation of the runs until forty seconds later. This \
        includes what follows the end of a run, but not the deletion of the runs. Leases, watches and nodes are left out. \
        Sizes are those of the keys and values of the namespace in etcd, divided by the runs. They are read each second, and a last time \
        after the forty seconds. Written is what etcd counts for the whole cluster meanwhile, leases and the \
        status of nodes included. [results.json](results.json) has the requests of each client by verb, resource and status, and the \
        sizes by resource.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[
        ALL, OURS, TEKTON, MANAGER, SCHEDULER, KWOK, BENCH, HIGHEST, AFTERWARDS, WRITTEN, EVENTS,
    ],
    ratios: &[
        (ALL, ISOLATE),
        (ALL, DISABLED),
        (HIGHEST, ISOLATE),
        (HIGHEST, DISABLED),
        (WRITTEN, ISOLATE),
        (WRITTEN, DISABLED),
    ],
    aims: &[],
    chart: Some(ALL),
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(Options {
        audit: Audit::Everybody,
        ..effort.options(Limits::Raised)
    });
    let bed = bed.await?;
    admission::install(&bed).await?;
    let size = effort.pick(20, 2);
    bed.add_nodes(&Nodes::new("node", size + size / 5 + 2)).await?;
    let all = variants(&[DISABLED, COMPLETED, BY_POLICIES, ISOLATE]);
    Batch::rehearse(&bed, &all, Workload::diamonds(effort, size)).await?;
    let mut windows = Vec::new();
    for round in 0..effort.rounds {
        let mut order = all.clone();
        fastrand::shuffle(&mut order);
        for variant in order {
            let window = one_round(effort, &bed, round, variant, size).await;
            windows.push((variant.name, window.context(variant.name)?));
            eprintln!("   round {}: {}", round + 1, variant.name);
        }
    }
    let log = bed.audit()?;
    let rows = windows
        .into_iter()
        .map(|(variant, window)| Ok((variant, window.rows(&log, size)?)));
    let title = format!("one run, of {size} at once");
    Ok(vec![scenario(title, &rows.collect::<Result<Vec<_>>>()?)?])
}

async fn one_round(
    effort: &Effort,
    bed: &Testbed,
    round: u32,
    variant: RunVariant,
    size: usize,
) -> Result<Window> {
    let batch = Batch::prepare(
        bed,
        &format!("costs-{round}"),
        variant,
        Workload::diamonds(effort, size),
    )
    .await?;
    cluster::delete_events(bed, &batch.namespace).await?;
    let length = effort.pick(WINDOW, QUICK_WINDOW);
    let (from, written) = (Timestamp::now(), stored::written(bed).await?);
    let run = stored::highest_during(bed, &batch.namespace, batch.run());
    let (ended, ()) = futures::join!(run, tokio::time::sleep(length));
    let (outcome, highest) = ended?;
    let at_end = Stored::read(bed, &batch.namespace).await?;
    let window = Window {
        namespace: batch.namespace.clone(),
        from,
        to: Timestamp::now(),
        highest: kilobytes(highest.max(at_end.total())),
        at_end,
        written: (stored::written(bed).await? - written) / 1e3,
    };
    let outcome = outcome?;
    outcome.check()?;
    if outcome.duration()? > length {
        bail!("the runs took longer than {length:?}");
    }
    batch.delete().await?;
    Ok(window)
}

type Rows = BTreeMap<String, f64>;

/// A row that a variant does not have is zero there.
fn scenario(title: String, rows: &[(&str, Rows)]) -> Result<Scenario> {
    let mut scenario = Scenario::new(title);
    let names: BTreeSet<_> = rows.iter().flat_map(|(_, rows)| rows.keys()).collect();
    for (variant, rows) in rows {
        let figures = names
            .iter()
            .map(|name| (name.as_str(), rows.get(*name).copied().unwrap_or_default()));
        scenario.add(variant, figures)?;
    }
    Ok(scenario)
}

/// A namespace, a period, and what was in etcd.
struct Window {
    namespace: String,
    from: Timestamp,
    to: Timestamp,
    /// Kilobytes.
    highest: f64,
    at_end: Stored,
    /// Kilobytes.
    written: f64,
}

impl Window {
    /// All rows per run.
    fn rows(&self, log: &[Value], size: usize) -> Result<Rows> {
        let of_resource =
            |(resource, bytes): (&String, &usize)| (format!("{AFTERWARDS}: {resource}"), kilobytes(*bytes));
        let sums = [
            (HIGHEST, self.highest),
            (AFTERWARDS, kilobytes(self.at_end.total())),
            (WRITTEN, self.written),
            (EVENTS, number(self.at_end.events)),
        ];
        let sums = sums.map(|(name, sum)| (name.to_owned(), sum));
        let stored = self.at_end.bytes.iter().map(of_resource).chain(sums);
        let mut rows: Rows = stored.map(|(name, sum)| (name, sum / number(size))).collect();
        rows.extend(self.requests_per_run(log, size)?);
        Ok(rows)
    }

    /// The requests per run: all, of each client, and of each client by kind.
    fn requests_per_run(&self, log: &[Value], size: usize) -> Result<Rows> {
        let mut rows = Rows::new();
        for request in log {
            if self.contains(request)? {
                let client = client(request);
                for row in [
                    ALL.to_owned(),
                    client.to_owned(),
                    format!("{client}: {}", kind(request)),
                ] {
                    *rows.entry(row).or_default() += 1.0 / number(size);
                }
            }
        }
        Ok(rows)
    }

    fn contains(&self, request: &Value) -> Result<bool> {
        if text(request, "/objectRef/namespace") != self.namespace {
            return Ok(false);
        }
        let at = text(request, "/requestReceivedTimestamp").parse::<Timestamp>();
        let at = at.context("reading the time of a request in the audit log")?;
        Ok(self.from <= at && at < self.to)
    }
}

/// The verb and the resource, and the status of a request that failed.
fn kind(request: &Value) -> String {
    let resource = text(request, "/objectRef/resource");
    let resource = match text(request, "/objectRef/subresource") {
        "" => resource.to_owned(),
        subresource => format!("{resource}/{subresource}"),
    };
    let status = request.pointer("/responseStatus/code").and_then(Value::as_u64);
    let failed = status.filter(|status| *status >= 400);
    let failed = failed.map_or_else(String::new, |status| format!(", status {status}"));
    format!("{} {resource}{failed}", text(request, "/verb"))
}

fn client(request: &Value) -> &'static str {
    let user = text(request, "/user/username");
    let account = user.strip_prefix("system:serviceaccount:");
    match account.and_then(|account| account.split_once(':')) {
        Some(("kube-system", _)) => MANAGER,
        Some((tekton::NAMESPACE, "tekton-pipelines-controller")) => TEKTON,
        Some((tekton::NAMESPACE, "tekton-pipelines-webhook")) => TEKTON_WEBHOOK,
        Some((product::NAMESPACE, _)) => OURS,
        Some(_) | None => match user {
            "system:kube-scheduler" => SCHEDULER,
            "system:kube-controller-manager" => MANAGER,
            _ if text(request, "/userAgent").starts_with("kwok") => KWOK,
            _ => BENCH,
        },
    }
}

fn text<'a>(request: &'a Value, pointer: &str) -> &'a str {
    request
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(user: &str, subresource: &str, code: u32, second: u32) -> Value {
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
            highest: 8.0,
            at_end: Stored {
                bytes: [("pods".to_owned(), 6000)].into(),
                events: 4,
            },
            written: 9.0,
        }
    }

    #[test]
    fn requests_are_counted_by_client_and_kind_in_their_namespace_and_period_only() {
        let manager = "system:serviceaccount:kube-system:statefulset-controller";
        let log = [
            request(manager, "status", 200, 11),
            request(manager, "status", 200, 12),
            request(manager, "", 409, 13),
            request("system:kube-scheduler", "", 200, 9),
            request("system:kube-scheduler", "", 200, 20),
        ];
        let rows = window("here").requests_per_run(&log, 2).unwrap();
        let expected = [
            ("all requests", 1.5),
            ("controller manager", 1.5),
            ("controller manager: update pods, status 409", 0.5),
            ("controller manager: update pods/status", 1.0),
        ];
        assert_eq!(
            rows,
            expected.map(|(name, count)| (name.to_owned(), count)).into()
        );
        assert_eq!(window("there").requests_per_run(&log, 2).unwrap(), Rows::new());
    }

    #[test]
    fn what_is_in_etcd_is_divided_among_the_runs() {
        let rows = window("here").rows(&[], 2).unwrap();
        let expected = [
            ("Event objects", 2.0),
            ("kB in etcd at the end", 3.0),
            ("kB in etcd at the end: pods", 3.0),
            ("kB in etcd, highest sum", 4.0),
            ("kB written to etcd", 4.5),
        ];
        assert_eq!(rows, expected.map(|(name, sum)| (name.to_owned(), sum)).into());
    }

    #[test]
    fn a_row_that_a_variant_does_not_have_is_zero() {
        let row = |name: &str, count| Rows::from([(name.to_owned(), count)]);
        let scenario = scenario("t".to_owned(), &[("a", row("x", 1.0)), ("b", row("y", 2.0))]).unwrap();
        let median = |figure| scenario.spread("a", figure).map(|spread| spread.median);
        assert_eq!((median("x"), median("y")), (Some(1.0), Some(0.0)));
    }
}
