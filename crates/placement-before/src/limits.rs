//! What the API server says of a pod that a `LimitRange` does not let in: enough that nobody needs the right to read that.

use crate::resources::Resources;
use std::collections::BTreeMap;

/// What a pod may ask for, as far as it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    least: Resources,
    most: Resources,
}

impl Bounds {
    /// Those in a message; `None` if it is about something else.
    pub fn told_by(message: &str) -> Option<Self> {
        let bounds = Self {
            least: told("minimum ", message),
            most: told("maximum ", message),
        };
        (bounds != Self::default()).then_some(bounds)
    }

    /// As near to this as they allow.
    pub fn nearest(&self, asks: Resources) -> Resources {
        asks.or_more(self.least.clone()).at_most(&self.most)
    }
}

/// Such as `minimum cpu usage per Container is 100m, but request is 50m`.
fn told(bound: &str, message: &str) -> Resources {
    let told = message.split(bound).skip(1).filter_map(|rest| {
        let (resource, rest) = rest.split_once(" usage per ")?;
        let (_, amount) = rest.split_once(" is ")?;
        let end = amount.find([',', '.', ' ', ']']).unwrap_or(amount.len());
        Some((resource.to_owned(), amount[..end].to_owned()))
    });
    Resources::of(&told.collect::<BTreeMap<_, _>>())
}
