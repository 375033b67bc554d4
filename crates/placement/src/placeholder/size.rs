//! The size of a placeholder: the usual size, or while its run is held, the usual size and the run's reserve.

use crate::config::Config;
use crate::keys;
use crate::quantity::Quantity;
use crate::reserve::{self, BadReserve, Reserve, ReserveSetting};
use crate::resources::Resources;
use crate::run::Run;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use std::fmt;

/// The requests of a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    amounts: BTreeMap<String, String>,
    reserves: bool,
}

/// A reserve annotation with a bad value, which was written after the creation of the run. The annotation counts as
/// absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReserve {
    /// The value.
    pub value: String,
    /// The mistake in the value.
    pub cause: BadReserve,
}

impl fmt::Display for InvalidReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, cause } = self;
        write!(
            f,
            "annotation {} has the bad value {value:?}: {cause}",
            keys::RESERVE
        )
    }
}

/// The usual size, beside which the run's tasks start.
pub fn usual(config: &Config) -> Size {
    let amounts = [
        ("cpu", &config.placeholder_cpu),
        ("memory", &config.placeholder_memory),
    ];
    Size {
        amounts: amounts
            .map(|(name, amount)| (name.to_owned(), amount.clone()))
            .into(),
        reserves: false,
    }
}

/// The size of a new placeholder. Only a run that pod-affinity holds gets its reserve, because a running run does not
/// wait until the placeholder is small again.
pub(super) fn for_new(run: &Run, config: &Config) -> Size {
    if run.is_held_by_us() {
        reserved(run, config)
    } else {
        usual(config)
    }
}

/// The usual size, the reserve, and for each resource of the reserve the request of one affinity assistant: when the
/// tasks start, the placeholder and an assistant are still on the node.
pub fn reserved(run: &Run, config: &Config) -> Size {
    let mut size = usual(config);
    let (own, reserve) = (
        size.requests(),
        Resources::from_texts(&reserve_amounts(run, config)),
    );
    for (name, amount) in reserve.iter() {
        let amount = amount + own.get(name) + assistant_request(name);
        size.amounts.insert(name.to_owned(), amount.to_string());
        size.reserves = true;
    }
    size
}

/// The requests of an affinity assistant, which Tekton creates for a run with a PVC.
fn assistant_request(resource: &str) -> Quantity {
    match resource {
        "cpu" => Quantity::of_milli(50),
        "memory" => Quantity::of(100 << 20),
        _ => Quantity::default(),
    }
}

/// The reserve. An automatic reserve has no amounts until they were read; then they replace the annotation.
fn reserve_amounts(run: &Run, config: &Config) -> Reserve {
    match reserve_setting(run, config) {
        ReserveSetting::Amounts(reserve) => reserve,
        ReserveSetting::Automatic => Reserve::new(),
    }
}

/// Whether the run has an automatic reserve: the amounts that the run is expected to request.
pub fn is_automatic(run: &Run, config: &Config) -> bool {
    reserve_setting(run, config) == ReserveSetting::Automatic
}

/// The run's annotation, or else the configured default. An empty annotation reserves nothing.
fn reserve_setting(run: &Run, config: &Config) -> ReserveSetting {
    parse_annotation(run)
        .and_then(Result::ok)
        .unwrap_or_else(|| config.default_reserve.clone())
}

fn parse_annotation(run: &Run) -> Option<Result<ReserveSetting, BadReserve>> {
    run.reserve.as_deref().map(reserve::parse_setting)
}

/// The run's annotation, if its value is bad.
pub fn invalid_reserve(run: &Run) -> Option<InvalidReserve> {
    let cause = parse_annotation(run)?.err()?;
    let value = run.reserve.clone()?;
    Some(InvalidReserve { value, cause })
}

impl Size {
    /// Whether the size has a reserve.
    pub fn reserves(&self) -> bool {
        self.reserves
    }

    /// The requests, which can be compared.
    pub fn requests(&self) -> Resources {
        Resources::from_texts(&self.amounts)
    }

    /// The resources of the placeholder's container.
    pub fn resources(&self) -> ResourceRequirements {
        requests_and_limits(&self.requests())
    }

    /// The value of the annotation `reserve`. It distinguishes a placeholder with a reserve from a placeholder whose
    /// usual size was larger in an earlier configuration.
    pub(super) fn annotation_value(&self) -> Option<String> {
        let pairs: Vec<_> = self
            .amounts
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        self.reserves.then(|| pairs.join(","))
    }
}

/// Requests equal to limits make the pod Guaranteed. The kubelet evicts such a pod last, and a resize keeps the class.
pub(super) fn requests_and_limits(size: &Resources) -> ResourceRequirements {
    let amounts: BTreeMap<_, _> = size
        .iter()
        .map(|(name, amount)| (name.to_owned(), Text(amount.to_string())))
        .collect();
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        claims: None,
    }
}

/// Whether a running pod can be resized from one size to the other: Kubernetes resizes only CPU and memory.
pub fn can_resize(from: &Resources, to: &Resources) -> bool {
    from.beyond(to).all(|name| matches!(name, "cpu" | "memory"))
}
