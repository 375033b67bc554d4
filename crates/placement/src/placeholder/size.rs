//! How much a placeholder asks for: its usual size, and while its run is held the run's reserve.

use crate::config::Config;
use crate::keys;
use crate::limits::Bounds;
use crate::quantity::Quantity;
use crate::reserve::{self, BadReserve, Reserve, Wish};
use crate::resources::Resources;
use crate::run::Run;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use std::fmt;

/// What a placeholder is made to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    amounts: BTreeMap<String, String>,
    reserves: bool,
}

/// A reserve annotation that the webhook would have refused, and that was written later: it counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub cause: BadReserve,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, cause } = self;
        write!(
            f,
            "annotation {} has the bad value {value:?}: {cause}",
            keys::RESERVE
        )
    }
}

/// What a task's run may start beside.
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

/// As near to the usual size as a `LimitRange` lets in.
pub(crate) fn within(bounds: &Bounds, config: &Config) -> Size {
    let allowed = bounds.nearest(usual(config).requests());
    let amounts = allowed
        .iter()
        .map(|(name, amount)| (name.to_owned(), amount.to_string()));
    Size {
        amounts: amounts.collect(),
        reserves: false,
    }
}

/// What the placeholder of a run is made with. Only our own hold waits for it to be made small again.
pub(super) fn of_new(run: &Run, config: &Config) -> Size {
    if run.is_held_by_us() {
        reserved(run, config)
    } else {
        usual(config)
    }
}

/// The usual size, and of each resource in the reserve as much as that on top: when the tasks come, the placeholder and an
/// assistant of Tekton's are still beside them.
pub fn reserved(run: &Run, config: &Config) -> Size {
    let mut size = usual(config);
    let (own, reserve) = (size.requests(), Resources::of(&reserve_of(run, config)));
    for (name, amount) in reserve.iter() {
        let amount = amount + own.get(name) + of_assistant(name);
        size.amounts.insert(name.to_owned(), amount.to_string());
        size.reserves = true;
    }
    size
}

/// What Tekton's assistant asks for, which it makes for a run with a PVC.
fn of_assistant(resource: &str) -> Quantity {
    match resource {
        "cpu" => Quantity::of_milli(50),
        "memory" => Quantity::of(100 << 20),
        _ => Quantity::default(),
    }
}

/// An automatic one has amounts only once they are known: they then stand in the place of the annotation.
fn reserve_of(run: &Run, config: &Config) -> Reserve {
    match wish(run, config) {
        Wish::Amounts(reserve) => reserve,
        Wish::Automatic => Reserve::new(),
    }
}

/// Whether the run's reserve is what it is expected to need.
pub fn is_automatic(run: &Run, config: &Config) -> bool {
    wish(run, config) == Wish::Automatic
}

/// The run's annotation, or else the configured default; an empty annotation reserves nothing.
fn wish(run: &Run, config: &Config) -> Wish {
    annotated(run)
        .and_then(Result::ok)
        .unwrap_or_else(|| config.default_reserve.clone())
}

fn annotated(run: &Run) -> Option<Result<Wish, BadReserve>> {
    run.reserve.as_deref().map(reserve::wish)
}

/// The run's annotation, if it cannot be honoured.
pub fn ignored(run: &Run) -> Option<Ignored> {
    let cause = annotated(run)?.err()?;
    let value = run.reserve.clone()?;
    Some(Ignored { value, cause })
}

impl Size {
    /// Whether it is more than usual, for a reserve's sake.
    pub fn reserves(&self) -> bool {
        self.reserves
    }

    /// The amounts, to be compared.
    pub fn requests(&self) -> Resources {
        Resources::of(&self.amounts)
    }

    /// The resources of the placeholder's container.
    pub fn resources(&self) -> ResourceRequirements {
        guaranteed(&self.requests())
    }

    /// What tells a placeholder that was made with a reserve from one whose usual size was configured otherwise.
    pub(super) fn mark(&self) -> Option<String> {
        let pairs: Vec<_> = self
            .amounts
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        self.reserves.then(|| pairs.join(","))
    }
}

/// Requests equal to limits make the pod Guaranteed: the last that a kubelet short of memory evicts, and what lets a resize keep
/// its class.
pub(super) fn guaranteed(size: &Resources) -> ResourceRequirements {
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

/// Whether a running pod can be brought from one size to the other: Kubernetes resizes nothing but these two.
pub fn can_resize(from: &Resources, to: &Resources) -> bool {
    from.beyond(to).all(|name| matches!(name, "cpu" | "memory"))
}
