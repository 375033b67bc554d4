//! Testbeds that several tests share, and helpers for their processes.

use crate::support::pool::{self, PooledTestbed};
use crate::support::usage::Counted;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use testbed::{Admission, Nodes, Options, Part, Testbed};
use tokio::sync::Mutex;

/// Number of nodes at which two pods meet by chance very rarely, and at which tests do not wait for each other's nodes.
const MANY_NODES: usize = 60;
/// The zones of these nodes, in equal parts.
pub(crate) const ZONES: [&str; 2] = ["east", "west"];

/// A testbed that several tests use at the same time. It ends when the last of these tests ends.
struct SharedSlot(Mutex<Weak<PooledTestbed>>);

impl SharedSlot {
    const fn new() -> Self {
        Self(Mutex::const_new(Weak::new()))
    }

    async fn get(&self, new: impl AsyncFnOnce() -> PooledTestbed) -> SharedTestbed {
        let mut shared = self.0.lock().await;
        if let Some(bed) = shared.upgrade().filter(|bed| !bed.is_broken()) {
            return SharedTestbed(bed);
        }
        let bed = Arc::new(new().await);
        add_many_nodes(&bed).await;
        *shared = Arc::downgrade(&bed);
        SharedTestbed(bed)
    }
}

/// A testbed that other tests use at the same time. After a test failed, new tests get another testbed.
pub(crate) struct SharedTestbed(Arc<PooledTestbed>);

impl Deref for SharedTestbed {
    type Target = PooledTestbed;

    fn deref(&self) -> &PooledTestbed {
        &self.0
    }
}

impl Drop for SharedTestbed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken();
        }
    }
}

/// A testbed with Tekton and nodes, without pod-affinity.
pub(crate) async fn plain() -> SharedTestbed {
    static SLOT: SharedSlot = SharedSlot::new();
    SLOT.get(pool::bare).await
}

/// A testbed with Tekton, nodes and pod-affinity in its default configuration.
pub(crate) async fn installed() -> SharedTestbed {
    static SLOT: SharedSlot = SharedSlot::new();
    SLOT.get(pool::installed).await
}

pub(crate) async fn add_many_nodes(bed: &Testbed) {
    for zone in ZONES {
        bed.add_nodes(&Nodes::new(zone, MANY_NODES / ZONES.len()).zone(zone))
            .await
            .expect("nodes");
    }
}

/// As `installed`, for a test that would disturb other tests.
pub(crate) async fn fresh(nodes: usize) -> PooledTestbed {
    with_nodes(pool::installed().await, nodes).await
}

/// As `fresh`, for a test of one kind of admission.
pub(crate) async fn fresh_by(admission: Admission, nodes: usize) -> PooledTestbed {
    with_nodes(pool::installed_by(admission).await, nodes).await
}

/// As `fresh`, for a test that compares with Tekton.
pub(crate) async fn shipped(nodes: usize) -> PooledTestbed {
    with_nodes(pool::shipped().await, nodes).await
}

async fn with_nodes(bed: PooledTestbed, nodes: usize) -> PooledTestbed {
    bed.add_nodes(&Nodes::new("node", nodes)).await.expect("nodes");
    bed
}

/// Stops both controllers. No controller leads until the test starts them again.
pub(crate) fn stop_controllers(bed: &Testbed) {
    for replica in 0..2 {
        bed.stop(Part::Controller(replica)).unwrap();
    }
}

/// Starts the controllers that `stop_controllers` stopped.
pub(crate) async fn start_controllers(bed: &Testbed) {
    for replica in 0..2 {
        bed.start_again(Part::Controller(replica)).await.unwrap();
    }
}

/// Kills both webhooks. No webhook answers until the test starts them again.
pub(crate) fn kill_webhooks(bed: &Testbed) {
    for replica in 0..2 {
        bed.kill(Part::Webhook(replica)).unwrap();
    }
}

#[e2e_test(second)]
async fn a_shared_testbed_is_not_used_again_after_a_test_failed() {
    static SLOT: SharedSlot = SharedSlot::new();
    let [first, failing] = [SLOT.get(pool::bare).await, SLOT.get(pool::bare).await];
    assert!(Arc::ptr_eq(&first.0, &failing.0));
    let failed = std::thread::spawn(move || {
        let _share = failing;
        panic!("as a failing test does");
    });
    assert!(failed.join().is_err());
    let next = SLOT.get(pool::bare).await;
    assert!(first.is_broken() && !Arc::ptr_eq(&first.0, &next.0));
}

/// An installation as `cargo testbed up --pod-affinity` creates it.
pub(crate) async fn whole(nodes: usize) -> Counted {
    let options = Options {
        deployments: true,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    bed.add_nodes(&Nodes::new("node", nodes)).await.unwrap();
    bed.install_pod_affinity().await.unwrap();
    bed
}
