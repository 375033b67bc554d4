//! How often each step of an answer allocates, and how much: one line a step and size. Not timed: the counting
//! allocator is slower than the real one.

#![expect(clippy::unwrap_used, reason = "a step that fails measures nothing")]

mod reviews;
mod steps;

use allocation_counter::measure;
use steps::Steps;

fn main() {
    for (name, step) in steps::ALL {
        for size in steps::SIZES {
            let steps = Steps::of(size);
            // The first answer fills caches, such as those of metrics.
            step(&steps);
            let counted = measure(|| step(&steps));
            println!(
                "{name} {} {} {}",
                size / 1000,
                counted.count_total,
                counted.bytes_total
            );
        }
    }
}
