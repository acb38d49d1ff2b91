//! Commands on mock cards that do what hardware does.

use crate::{json, run, stdout};

/// All of it. One posted write at a time: the command waits for a card with its next write.
const ALL: &str = "mock:optweb:4+posted=1+split=7+drift=300+errors=1000000000000+reset=100";

#[test]
fn collectives_run_on_cards_that_do_all_that_hardware_does() {
    for arguments in [
        &["coll", "allgather", "--bytes", "100K"] as &[&str],
        &["coll", "allreduce", "--bytes", "4KiB", "--dtype", "f32", "--op", "sum"],
        &["coll", "alltoallv", "--counts", "1KiB,0,64,3KiB"],
    ] {
        let text = stdout(&[arguments, &["--cards", ALL]].concat());
        assert!(text.contains("verified") || text.contains("ok"), "{text}");
    }
    assert_eq!(
        json(&["list", "--cards", ALL])["cards"][3]["selector"],
        "mock:optweb:4/3+posted=1+split=7+drift=300+errors=1000000000000+reset=100"
    );
}

/// The last card comes 20 ms after the others. Its clock is 60 ppm fast, that of the first as slow: 2.4 us between them.
#[test]
fn a_barrier_on_clocks_that_drift_is_one() {
    let text = stdout(&["coll", "barrier", "--start-delay", "0,0,0,20000", "--cards", "mock:optweb:4+drift=60"]);
    assert!(text.contains("no card released before all arrived"), "{text}");
}

#[test]
fn data_that_is_lost_is_reported_with_its_cause() {
    for (fault, cause) in [
        ("unanswered=2@1", "completion timeout"),
        ("poisoned=2@1", "poisoned"),
        ("garble=2-0@3", "bit error, and was lost (node 2)"),
        ("flip=2@64", "cannot be corrected (node 2)"),
    ] {
        let cards = format!("mock:optweb:4+{fault}");
        let output = run(&["coll", "allgather", "--bytes", "64KiB", "--cards", &cards]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(cause), "{text}");
    }
}

#[test]
fn a_signal_that_is_lost_is_reported_with_its_cause() {
    let cards = "mock:optweb:4+garble=2-0@0";
    let output = run(&["coll", "barrier", "--timeout", "0.2", "--cards", cards]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("LINK_ERROR") && text.contains("lost on links by bit errors: 1"), "{text}");
}
