//! However a testbed ends, no process of it is left, and two of them do not meet.

use rustix::process::{Pid, test_kill_process};
use testbed::{Error, Nodes, Options, Part, Testbed};

const PARTS: [Part; 5] = [
    Part::Etcd,
    Part::ApiServer,
    Part::ControllerManager,
    Part::Scheduler,
    Part::Kwok,
];

fn pids(bed: &Testbed) -> Vec<Pid> {
    PARTS
        .iter()
        .filter_map(|part| Pid::from_raw(bed.pid(*part)?.cast_signed()))
        .collect()
}

fn alive(pids: &[Pid]) -> usize {
    pids.iter().filter(|pid| test_kill_process(**pid).is_ok()).count()
}

fn small() -> Options {
    Options {
        tekton: false,
        keep: false,
        ..Options::default()
    }
}

#[e2e_test]
async fn a_dropped_testbed_leaves_no_process_and_no_folder() {
    let bed = Testbed::start(small()).await.unwrap();
    let (pids, folder) = (pids(&bed), bed.folder().to_owned());
    assert_eq!(alive(&pids), PARTS.len());
    drop(bed);
    assert_eq!(alive(&pids), 0);
    assert!(!folder.exists());
}

#[e2e_test]
fn a_panic_leaves_nothing_either() {
    let (tell, told) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let bed = Testbed::start(small()).await.unwrap();
            tell.send(pids(&bed)).unwrap();
            panic!("as a failing test does");
        });
    });
    assert!(test.join().is_err());
    assert_eq!(alive(&told.recv().unwrap()), 0);
}

#[e2e_test]
async fn two_testbeds_run_side_by_side() {
    let (one, two) = tokio::join!(Testbed::start(small()), Testbed::start(small()));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.add_nodes(&Nodes::new("only-here", 1)).await.unwrap();
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(two.client().await.unwrap());
    assert!(nodes.get_opt("only-here-0").await.unwrap().is_none());
}

#[e2e_test]
async fn a_part_that_dies_is_told_instead_of_waited_for() {
    let bed = Testbed::start(small()).await.unwrap();
    let pid = Pid::from_raw(bed.pid(Part::Scheduler).unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let death = bed.until_a_part_dies().await.unwrap_err();
    assert!(
        matches!(&death, Error::Died { part, .. } if part == "kube-scheduler"),
        "{death}"
    );
}
