//! All parts of the measurements.

use crate::part::BenchPart;
use crate::{contention, controller, costs, growth, pod_creation, runs, scheduling};

/// In the order of the page.
pub(crate) const PARTS: [BenchPart; 9] = [
    runs::FEW,
    runs::MANY_RUNS,
    runs::AS_SHIPPED,
    contention::PART,
    scheduling::PART,
    costs::PART,
    pod_creation::PART,
    controller::PART,
    growth::PART,
];
