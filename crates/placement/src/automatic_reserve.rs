//! What a run will request at the same time, as far as that is known before the run starts: an automatic reserve.
//!
//! The best source is a record: what the tasks of an earlier run of the same Pipeline requested at the same time on the
//! same node. The controller writes the record on that run when it ends. Without a record, the source is the largest
//! task by its definition. A wrong record does no more harm than a reserve that does not fit: the run moves, or starts
//! on a node without the reserve.

use crate::reserve::{self, Reserve};
use crate::resources::Resources;
use jiff::Timestamp;

/// What a run is expected to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRequests {
    /// The amount of each resource; empty if nothing is known.
    pub requests: Resources,
    /// Where the amounts come from.
    pub source: Source,
}

/// Where an expected amount comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nothing is known.
    #[default]
    Nothing,
    /// The definitions of the tasks: the amounts are those of the largest task.
    Definitions,
    /// The record on this run, the latest run of the same Pipeline that has a record.
    Record(String),
}

/// The time that a task's pod spent on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// The node.
    pub node: String,
    /// When the pod was bound.
    pub from: Timestamp,
    /// When the pod ended.
    pub to: Timestamp,
    /// The requests of the pod.
    pub requests: Resources,
}

/// The largest amounts that tasks requested at the same time on one node, resource by resource.
pub fn peak(stints: &[PodUsage]) -> Resources {
    let at_start = |one: &PodUsage| {
        let beside = stints.iter().filter(|other| !std::ptr::eq(*other, one));
        let beside = beside.filter(|other| other.node == one.node && other.is_running(one.from));
        beside.fold(one.requests.clone(), |sum, other| sum.and(&other.requests))
    };
    let sums = stints.iter().map(at_start);
    sums.fold(Resources::default(), Resources::or_more)
}

impl PodUsage {
    /// Times have whole seconds. A task that ended in the second in which another task began does not overlap with it.
    fn is_running(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Formats amounts as a reserve, without resources that cannot be reserved.
pub fn format_record(requests: &Resources) -> String {
    let all = requests.iter().map(|(name, amount)| (name, amount.to_string()));
    let pairs = all.filter(|(name, amount)| reserve::check(name, amount).is_ok());
    let pairs: Vec<_> = pairs.map(|(name, amount)| format!("{name}={amount}")).collect();
    pairs.join(",")
}

/// Parses the record on a run; `None` if another client changed the record.
pub fn parse_record(text: &str) -> Option<Resources> {
    reserve::parse(text)
        .ok()
        .map(|reserve| Resources::from_texts(&reserve))
}

impl ExpectedRequests {
    /// The amounts as a reserve, limited by the configured maximum.
    pub fn reserve(&self, most: &Reserve) -> String {
        format_record(&self.requests.at_most(&Resources::from_texts(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(text: &str) -> Resources {
        parse_record(text).unwrap()
    }

    fn stint(node: &str, from: i64, to: i64, requests: &str) -> PodUsage {
        let at = |second| Timestamp::from_second(second).unwrap();
        PodUsage {
            node: node.to_owned(),
            from: at(from),
            to: at(to),
            requests: amounts(requests),
        }
    }

    #[test]
    fn requests_of_tasks_that_share_a_node_at_the_same_time_are_summed_up() {
        let stints = [
            stint("n1", 0, 10, "cpu=1,memory=1Gi"),
            stint("n1", 5, 20, "cpu=2,memory=8Gi"),
            stint("n1", 12, 20, "cpu=2"),
            stint("n2", 5, 20, "cpu=9,nvidia.com/gpu=1"),
        ];
        assert_eq!(format_record(&peak(&stints[..3])), "cpu=4,memory=9Gi");
        assert_eq!(format_record(&peak(&stints)), "cpu=9,memory=9Gi,nvidia.com/gpu=1");
        assert_eq!(peak(&[]), Resources::default());
    }

    #[test]
    fn requests_of_sequential_tasks_are_not_summed_up_and_short_tasks_count() {
        let stints = [
            stint("n", 0, 5, "cpu=1"),
            stint("n", 5, 5, "cpu=2"),
            stint("n", 6, 7, "cpu=1"),
        ];
        assert_eq!(format_record(&peak(&stints)), "cpu=2");
    }

    #[test]
    fn a_usage_record_has_only_reservable_resources_and_can_be_parsed() {
        let pod = serde_json::json!({"containers": [{"name": "c", "resources": {"requests": {
            "cpu": "1500m", "memory": "3Gi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "0",
        }}}]});
        let requests = Resources::from_pod_spec(&serde_json::from_value(pod).unwrap());
        assert_eq!(format_record(&requests), "cpu=1500m,memory=3Gi");
        assert_eq!(
            parse_record(&format_record(&requests)),
            Some(amounts("cpu=1500m,memory=3Gi"))
        );
        assert_eq!(parse_record("lots"), None);
        assert_eq!(parse_record(""), Some(Resources::default()));
    }

    #[test]
    fn the_maximum_limits_only_the_resources_that_it_names() {
        let need = ExpectedRequests {
            requests: amounts("cpu=8,memory=4Gi"),
            ..ExpectedRequests::default()
        };
        let most = reserve::parse("cpu=4,memory=16Gi,nvidia.com/gpu=1").unwrap();
        assert_eq!(need.reserve(&most), "cpu=4,memory=4Gi");
        assert_eq!(need.reserve(&Reserve::new()), "cpu=8,memory=4Gi");
    }
}
