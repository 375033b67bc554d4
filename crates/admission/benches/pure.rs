//! What an answer costs, step by step, for pods of 2, 10 and 50 KB.

#![expect(clippy::unwrap_used, reason = "a step that fails measures nothing")]

mod reviews;
mod steps;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use steps::Steps;

fn benches(criterion: &mut Criterion) {
    for (name, step) in steps::ALL {
        let mut group = criterion.benchmark_group(name);
        for size in steps::SIZES {
            let steps = Steps::of(size);
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(
                BenchmarkId::from_parameter(size / 1000),
                &steps,
                |bencher, steps| {
                    bencher.iter(|| step(black_box(steps)));
                },
            );
        }
    }
}

criterion_group!(all, benches);
criterion_main!(all);
