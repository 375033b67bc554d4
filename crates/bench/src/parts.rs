//! All parts of the measurements.

use crate::part::BenchPart;
use crate::{contention, controller, costs, growth, math, pod_creation, runs, scheduling, warm};

/// In the order of the page.
pub(crate) const PARTS: [BenchPart; 12] = [
    runs::FEW,
    runs::MANY_RUNS,
    runs::AS_SHIPPED,
    math::RAISED,
    math::AS_SHIPPED,
    contention::PART,
    warm::PART,
    scheduling::PART,
    costs::PART,
    pod_creation::PART,
    controller::PART,
    growth::PART,
];
