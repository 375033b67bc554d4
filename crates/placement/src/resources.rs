//! Amounts of resources by name: the requests of a pod, the resources of a node.

use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceQuota, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use std::fmt;

/// Amounts by resource. The amount of a missing resource is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources(BTreeMap<String, Quantity>);

impl Resources {
    /// The hard limits and the usage of a quota. A new quota has no usage yet.
    pub fn limit_and_usage(quota: &ResourceQuota) -> (Self, Self) {
        let status = quota.status.as_ref();
        let hard = status.and_then(|status| status.hard.as_ref());
        let hard = hard.or_else(|| quota.spec.as_ref()?.hard.as_ref());
        let used = status.and_then(|status| status.used.as_ref());
        let read = |amounts: Option<&_>| amounts.map(Self::from_quantities).unwrap_or_default();
        (read(hard), read(used))
    }

    /// Reads the amounts of a Kubernetes object, without amounts that cannot be parsed.
    pub fn from_quantities(amounts: &BTreeMap<String, Text>) -> Self {
        Self::from_texts(amounts.iter().map(|(name, amount)| (name, &amount.0)))
    }

    /// Reads configured amounts, without amounts that cannot be parsed.
    pub fn from_texts<'a>(amounts: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let readable = |(name, amount): (&String, &String)| Some((name.clone(), amount.parse().ok()?));
        Self(amounts.into_iter().filter_map(readable).collect())
    }

    /// The requests of a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        pod.spec.as_ref().map(Self::from_pod_spec).unwrap_or_default()
    }

    /// The requests of a pod, as the scheduler counts them: the sum of the containers, or the largest request while the
    /// pod starts.
    pub fn from_pod_spec(spec: &PodSpec) -> Self {
        let containers = spec
            .containers
            .iter()
            .map(container_requests)
            .fold(Self::default(), |sum, more| sum.and(&more));
        let (sidecars, start) = startup_requests(spec.init_containers.as_deref().unwrap_or_default());
        let mut pod = containers.and(&sidecars).or_more(start);
        pod.0.extend(requests(spec.resources.as_ref()).0);
        pod.and(
            &spec
                .overhead
                .as_ref()
                .map(Self::from_quantities)
                .unwrap_or_default(),
        )
    }

    /// The requests of the container with this name.
    pub fn of_container(containers: &[Container], name: &str) -> Self {
        let mut containers = containers.iter();
        let container = containers.find(|container| container.name == name);
        let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref());
        requests.map(Self::from_quantities).unwrap_or_default()
    }

    /// The amount of one resource.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Names and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The resources of which this has more than the other.
    pub fn beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        self.iter()
            .filter(|(name, amount)| *amount > other.get(name))
            .map(|(name, _)| name)
    }

    /// The sum.
    #[must_use]
    pub fn and(mut self, more: &Self) -> Self {
        for (name, amount) in &more.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = *own + *amount;
        }
        self
    }

    /// These amounts, limited by the other's. A resource that the other lacks is not limited.
    #[must_use]
    pub fn at_most(&self, most: &Self) -> Self {
        let bounded = |(name, amount): (&String, &Quantity)| {
            let most = most.0.get(name).unwrap_or(amount);
            (name.clone(), *amount.min(most))
        };
        Self(self.0.iter().map(bounded).collect())
    }

    /// The larger amount of each resource.
    #[must_use]
    pub fn or_more(mut self, other: Self) -> Self {
        for (name, amount) in other.0 {
            let own = self.0.entry(name).or_default();
            *own = amount.max(*own);
        }
        self
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<_> = self
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        f.write_str(&pairs.join(", "))
    }
}

/// The sum of the sidecars, and the largest request while the pod starts. Init containers run one by one, each beside
/// the sidecars before it.
fn startup_requests(containers: &[Container]) -> (Resources, Resources) {
    let mut sidecars = Resources::default();
    let mut most = Resources::default();
    for container in containers {
        let beside = sidecars.clone().and(&container_requests(container));
        most = most.or_more(beside.clone());
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = beside;
        }
    }
    (sidecars, most)
}

fn container_requests(container: &Container) -> Resources {
    requests(container.resources.as_ref())
}

fn requests(resources: Option<&ResourceRequirements>) -> Resources {
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    requests.map(Resources::from_quantities).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asks(spec: Value) -> String {
        Resources::from_pod_spec(&serde_json::from_value(spec).unwrap()).to_string()
    }

    fn container(requests: &Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    fn amounts(pairs: &[(&str, &str)]) -> Resources {
        let pairs: BTreeMap<_, _> = pairs
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
            .collect();
        Resources::from_texts(&pairs)
    }

    #[test]
    fn a_pod_requests_the_sum_of_its_containers() {
        let pod = json!({"containers": [
            container(&json!({"cpu": "500m", "memory": "1Gi"})),
            container(&json!({"cpu": "1.5", "nvidia.com/gpu": 1.to_string()})),
            {"name": "plain"},
        ]});
        assert_eq!(asks(pod), "cpu=2, memory=1Gi, nvidia.com/gpu=1");
    }

    #[test]
    fn an_init_container_counts_if_it_requests_more_than_all_containers_together() {
        let pod = json!({
            "containers": [container(&json!({"cpu": "1", "memory": "1Gi"}))],
            "initContainers": [container(&json!({"cpu": "3"})), container(&json!({"memory": "2Gi"}))],
        });
        assert_eq!(asks(pod), "cpu=3, memory=2Gi");
    }

    #[test]
    fn a_sidecar_is_added_to_the_containers_and_to_later_init_containers() {
        let mut sidecar = container(&json!({"cpu": "1"}));
        sidecar["restartPolicy"] = json!("Always");
        let pod = |last: &str| {
            json!({
                "containers": [container(&json!({"cpu": "2"}))],
                "initContainers": [sidecar, container(&json!({"cpu": last}))],
            })
        };
        assert_eq!((asks(pod("1")), asks(pod("4"))), ("cpu=3".into(), "cpu=5".into()));
    }

    #[test]
    fn pod_level_requests_replace_the_sum_and_overhead_is_added() {
        let pod = json!({
            "containers": [container(&json!({"cpu": "2", "memory": "1Gi"}))],
            "resources": {"requests": {"cpu": "3"}},
            "overhead": {"cpu": "250m"},
        });
        assert_eq!(asks(pod), "cpu=3250m, memory=1Gi");
    }

    #[test]
    fn amounts_are_compared_for_each_resource() {
        let big = amounts(&[("cpu", "1"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")]);
        let small = amounts(&[("cpu", "1000m"), ("memory", "1000Mi"), ("disk", "1")]);
        assert_eq!(
            big.beyond(&small).collect::<Vec<_>>(),
            ["memory", "nvidia.com/gpu"]
        );
        assert_eq!(small.beyond(&big).collect::<Vec<_>>(), ["disk"]);
    }

    #[test]
    fn a_malformed_amount_counts_as_zero() {
        let odd = amounts(&[("cpu", "much"), ("memory", "1Gi")]);
        assert_eq!(odd, amounts(&[("memory", "1Gi")]));
        assert_eq!(odd.get("cpu"), Quantity::of(0));
    }
}
