//! The testbeds that tests share, and words that many of them use.

use std::time::Duration;
use testbed::{Nodes, Options, Testbed};
use tokio::sync::OnceCell;

/// Longest wait for anything that should take seconds; only a failing test takes this long.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// Tekton and nodes, without pod-affinity and without other tests' flags.
pub(crate) async fn plain() -> &'static Testbed {
    static BED: OnceCell<Testbed> = OnceCell::const_new();
    BED.get_or_init(|| async {
        let bed = Testbed::start(Options::default()).await.expect("a testbed");
        bed.add_nodes(&Nodes::new("plain", 4)).await.expect("nodes");
        bed
    })
    .await
}
