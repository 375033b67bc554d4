//! With policies, kills of controllers and API servers lose nothing: no pod and no run is admitted without the policies, and
//! each run succeeds on one node.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::faulted_runs::{CONTROLLERS, OURS, Runs, is_held};
use crate::support::load::{GENTLE, Load, Lost, WITHOUT_TERMS};
use crate::support::testbeds::{fresh_by, start_controllers};
use std::time::Duration;
use testbed::runs::RunSpec;
use testbed::{Admission, Part, Testbed};
use tokio::time::{Instant, sleep};

const KILLS: usize = 3;
/// Time between kill and restart.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The time from the kill of the only API server until it is ready.
struct Outage {
    begun: Instant,
    ended: Instant,
}

impl Outage {
    async fn measure(bed: &Testbed) -> Self {
        let begun = Instant::now();
        bed.kill(Part::ApiServer).unwrap();
        sleep(RESTART_PAUSE).await;
        bed.start_again(Part::ApiServer).await.unwrap();
        let ended = Instant::now();
        Self { begun, ended }
    }

    /// Whether the call was made during the outage, when no API server could answer it.
    fn hit(&self, call: &Lost) -> bool {
        call.ended > self.begun && call.begun < self.ended
    }
}

#[e2e_test(nightly, policies)]
async fn with_policies_nothing_is_lost_when_controllers_and_the_api_server_are_killed() {
    let bed = fresh_by(Admission::Policies, OURS * 3).await;
    let auditor = Auditor::start(&bed).await;
    for controller in CONTROLLERS {
        bed.keep_alive(controller);
    }
    let mut runs = Runs::in_namespace(&bed, &auditor, "killed").await;
    let load = Load::with_rate(&bed, GENTLE).await;
    runs.create_held_by_users().await;
    runs.create(OURS / 2).await;
    for controller in CONTROLLERS {
        bed.kill(controller).unwrap();
    }
    runs.create(OURS / 2).await;
    start_controllers(&bed).await;
    let (mut outages, mut late) = (Vec::new(), Vec::new());
    for _ in 0..KILLS {
        outages.push(Outage::measure(&bed).await);
        late.push(accepted(&bed, &runs.next()).await);
    }
    let recovered = runs.until_none_is_held().await;
    let outcome = load.end().await;
    let unavoidable = |lost: &&Lost| outages.iter().any(|outage| outage.hit(lost));
    let (struck, lost): (Vec<_>, Vec<_>) = outcome.lost.iter().partition(unavoidable);
    println!(
        "{KILLS} kills of the API server and one of all controllers: {} of {} pods lost, {} while there was no API server; \
         labelled runs accepted {late:.1?} after it was ready; none held {recovered:.1?} after it",
        lost.len(),
        outcome.calls,
        struck.len(),
    );
    assert!(lost.is_empty(), "{lost:?}");
    assert!(
        struck.iter().all(|call| call.cause != WITHOUT_TERMS),
        "{struck:?}"
    );
    runs.all_succeed().await;
    auditor.assert_no_violation();
}

/// Creates a run as soon as the API server accepts it, and returns how long that took.
async fn accepted(bed: &Testbed, run: &RunSpec) -> Duration {
    let (start, client) = (Instant::now(), bed.client().await.unwrap());
    let created = bed.until("a labelled run to be accepted", SOON, async || {
        run.create(&client).await.map_err(|error| error.to_string())
    });
    assert!(is_held(&created.await.unwrap()));
    start.elapsed()
}
