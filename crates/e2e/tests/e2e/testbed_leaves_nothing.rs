//! However a testbed ends, its processes end, and two testbeds do not disturb each other.

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
async fn two_testbeds_run_side_by_side_and_leave_no_process_however_they_end() {
    let (one, two) = tokio::join!(Testbed::start(small()), Testbed::start(small()));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.add_nodes(&Nodes::new("only-here", 1)).await.unwrap();
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(two.client().await.unwrap());
    assert!(nodes.get_opt("only-here-0").await.unwrap().is_none());

    let (its_pids, folder) = (pids(&one), one.folder().to_owned());
    assert_eq!(alive(&its_pids), PARTS.len());
    drop(one);
    assert_eq!(alive(&its_pids), 0);
    assert!(!folder.exists());

    let pid = Pid::from_raw(two.pid(Part::Scheduler).unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let death = two.until_a_part_dies().await.unwrap_err();
    assert!(
        matches!(&death, Error::Died { part, .. } if part == "kube-scheduler"),
        "{death}"
    );

    let its_pids = pids(&two);
    assert!(alive(&its_pids) >= PARTS.len() - 1);
    let failing = tokio::spawn(async move {
        let _two = two;
        panic!("as a failing test does");
    });
    assert!(failing.await.unwrap_err().is_panic());
    assert_eq!(alive(&its_pids), 0);
}
