//! Programs for cards with several lanes.

use cmdseq::verify::verify_resident;
use cmdseq::{Capabilities, Reason, Refusal};

use crate::cards::{connected, dragonfly};
use crate::{programs, verified};

fn with_lanes(lanes: u32, capabilities: Capabilities) -> Capabilities {
    Capabilities { lanes, ..capabilities }
}

#[test]
fn lanes_and_fences_that_the_card_does_not_have_are_refused() {
    for (lanes, text, says) in [
        (2, "barrier lane 2", "no lane 2 (the card has 2 lanes)"),
        (1, "nop\nbarrier lane 1", "no lane 1 (the card has 1 lanes)"),
        (1, "barrier fence", "the flag fence needs a card with more than one lane"),
    ] {
        let refusal = verified(2, text, &with_lanes(lanes, connected(2))).unwrap_err();
        assert_eq!(refusal.reason, Reason::Unsupported, "{text}: {refusal}");
        assert!(refusal.instruction.is_some() && refusal.cause.contains(says), "{text}: {refusal}");
    }
}

/// Rows and columns of 2 x 2 cards.
const GRID: &str = "communicator row = 1 of rank / 2 * 2, rank / 2 * 2 + 1
communicator column = 2 of rank % 2, rank % 2 + 2
";

fn on_grid(text: &str) -> Result<(), Refusal> {
    verified(4, &format!("{GRID}{text}"), &with_lanes(2, dragonfly(2, 2)))
}

#[test]
fn exchanges_that_run_at_once_use_different_memory() {
    let row = "allgather communicator row, source 0, destination 4096, bytes 64";
    for column in [
        // The same lane, a fence, or other bytes.
        "allgather communicator column, source 0, destination 4096, bytes 64",
        "allgather communicator column, source 0, destination 4096, bytes 64, lane 1, fence",
        "allgather communicator column, source 0, destination 8192, bytes 64, lane 1",
        "allgather communicator column, source 64, destination 4224, bytes 64, lane 1",
        "nop\nallgather communicator column, source 0, destination 4096, bytes 64, lane 1",
    ] {
        on_grid(&format!("{row}\n{column}")).unwrap_or_else(|refusal| panic!("{column}: {refusal}"));
    }
    for (column, says) in [
        (
            "allgather communicator column, source 0, destination 4096, bytes 64, lane 1",
            "allgather in lane 1 writes 64 B at 0x1000, and instruction 0 (allgather in lane 0), which may run at the same time, \
             writes 64 B at 0x1000; use one lane for both, or the flag fence",
        ),
        ("allgather communicator column, source 4096, destination 8192, bytes 64, lane 1", "reads 64 B at 0x1000"),
        ("allgather communicator column, source 512, destination 0, bytes 64, lane 1", "reads 64 B at 0x0"),
        // What an instruction between the two waits for ends nothing of the first.
        (
            "barrier communicator column, lane 1\nallgather communicator column, source 0, destination 4096, bytes 64, lane 1",
            "instruction 0 (allgather in lane 0)",
        ),
    ] {
        let refusal = on_grid(&format!("{row}\n{column}")).unwrap_err();
        assert_eq!(refusal.reason, Reason::Race, "{column}: {refusal}");
        assert!(refusal.cause.contains(says), "{column}: {refusal}");
    }
}

/// Each direction of a link serves one exchange at a time, so the second waits.
#[test]
fn exchanges_that_share_a_direction_do_not_run_at_once() {
    let text = "allgather source 0, destination 4096, bytes 64\nallgather source 0, destination 4096, bytes 64, lane 1";
    verified(4, text, &with_lanes(2, connected(4))).unwrap();
    let twice = |one: &str| format!("{one}\n {one}, lane 1\n");
    let (sends, receives) = (twice("send peer 1, source 0, bytes 64"), twice("recv peer 0, destination 0, bytes 64"));
    verified(2, &format!("if rank == 0\n {sends}else\n {receives}end"), &with_lanes(2, connected(2))).unwrap();
    let text = "if rank == 0\n send peer 1, source 0, bytes 64\n recv peer 1, destination 0, bytes 64, lane 1\nelse\n \
                recv peer 0, destination 64, bytes 64\n send peer 0, source 0, bytes 64, lane 1\nend";
    let refusal = verified(2, text, &with_lanes(2, connected(2))).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(1), Reason::Race), "{refusal}");
    // Over other links, they may.
    let text = "if rank == 0\n send peer 1, source 0, bytes 64\n recv peer 2, destination 0, bytes 64, lane 1\nelse if rank == 1\n \
                recv peer 0, destination 0, bytes 64\nelse\n send peer 0, source 0, bytes 64, lane 1\nend";
    let refusal = verified(3, text, &with_lanes(2, connected(3))).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(1), Reason::Race), "{refusal}");
}

#[test]
fn lanes_that_wait_for_each_other_are_refused_by_name() {
    // Over one link, in another order at its ends.
    let text = "if rank == 0\n send peer 1, source 0, bytes 64\n send peer 1, source 64, bytes 64, lane 1\nelse\n \
                recv peer 0, destination 0, bytes 64, lane 1\n recv peer 0, destination 64, bytes 64\nend";
    let refusal = verified(2, text, &with_lanes(2, connected(2))).unwrap_err();
    assert_eq!(refusal.reason, Reason::Deadlock, "{refusal}");
    assert_eq!(
        refusal.to_string(),
        "rank 0, instruction 0: deadlock: rank 0 lane 0 instruction 0 (send to 1) waits for rank 1 lane 0 instruction 1 (recv \
         from 0), which waits for rank 1 lane 1 instruction 0 (recv from 0), which waits for rank 0 lane 1 instruction 1 (send to \
         1), which waits for rank 0 lane 0 instruction 0 (send to 1); change the order of one of them"
    );
    let text =
        "if rank == 0\n send peer 1, source 0, bytes 64, lane 1\nelse\n recv peer 0, destination 0, bytes 64\nend";
    let refusal = verified(2, text, &with_lanes(2, connected(2))).unwrap_err();
    assert_eq!(refusal.reason, Reason::Unmatched, "{refusal}");
    assert!(
        refusal.cause.contains(
            "rank 1 has no further recv from this rank in lane 1; rank 1 lane 0 is at instruction 0 (recv from 0)"
        ),
        "{refusal}"
    );
}

/// Of communicators that are not the first, in the last of three lanes.
#[test]
fn collectives_of_any_lane_are_told_of_by_name() {
    let capabilities = with_lanes(3, connected(3));
    for (text, at, reason, says) in [
        (
            "communicator pair = 1 of 2, 1\nif rank > 0\n blocks b = 0 of 8, 8 * rank\n allgatherv communicator pair, source 0, \
             destination 4096, bytes 8 * (rank % 2) + 8 * (rank / 2), extent b, lane 2\nend",
            (2, 0),
            Reason::TableMismatch,
            "allgatherv expects 16 B from rank 1 of communicator 1, which sends 8 B",
        ),
        (
            "communicator pair = 1 of 2, 1\nif rank == 1\n barrier communicator pair, lane 2\nelse if rank == 2\n nop\n broadcast \
             communicator pair, root 0, source 0, destination 0, bytes 8, lane 2\nend",
            (1, 0),
            Reason::OperationMismatch,
            "barrier differs from instruction 1 of rank 2 (broadcast)",
        ),
        (
            "communicator a = 1 of 0, 1, 2\ncommunicator b = 2 of 0, 1, 2\nif rank == 2\n recv peer 0, destination 0, bytes 8, lane \
             2\nend\nbarrier communicator b, lane 2\nif rank == 0\n send peer 2, source 0, bytes 8, lane 2\nend",
            (0, 0),
            Reason::Deadlock,
            "rank 0 lane 2 instruction 0 (barrier) waits for rank 2 lane 2 instruction 0 (recv from 0), which waits for rank 0 \
             lane 2 instruction 0 (barrier)",
        ),
    ] {
        let refusal = verified(3, text, &capabilities).expect_err(text);
        let found = (refusal.rank.unwrap(), refusal.instruction.unwrap());
        assert_eq!((found, refusal.reason), (at, reason), "{refusal}");
        assert!(refusal.cause.contains(says), "{refusal}");
    }
}

/// Rank 0 sends to 1, which waits for 2, which waits for 0.
#[test]
fn a_lane_passes_one_that_waits() {
    let text = |lane| {
        format!(
            "if rank == 0\n send peer 1, source 0, bytes 64\n send peer 2, source 0, bytes 64, lane {lane}\n\
             else if rank == 1\n recv peer 2, destination 0, bytes 64\n recv peer 0, destination 0, bytes 64\n\
             else\n recv peer 0, destination 0, bytes 64, lane {lane}\n send peer 1, source 0, bytes 64\nend"
        )
    };
    let capabilities = with_lanes(2, connected(3));
    assert_eq!(verified(3, &text(0), &capabilities).unwrap_err().reason, Reason::Deadlock);
    let race = verified(3, &text(1), &capabilities).unwrap_err();
    assert_eq!((race.rank, race.reason), (Some(2), Reason::Race), "{race}");
    let apart = text(1).replace("send peer 1, source 0, bytes 64\nend", "send peer 1, source 64, bytes 64\nend");
    verified(3, &apart, &capabilities).unwrap();
}

#[test]
fn one_sided_operations_stay_in_lane_0() {
    let text = "if rank == 0\n rdma_write peer 1, source 0, destination 0, bytes 64\nend\nbarrier lane 1";
    let refusal = verified(2, text, &with_lanes(2, connected(2))).unwrap_err();
    assert_eq!(refusal.reason, Reason::Unsupported, "{refusal}");
    assert!(refusal.cause.contains("one-sided operations or windows use lane 0 only"), "{refusal}");
}

/// Rounds of a loop, and what is before and after it: only the first of each round waits for all.
#[test]
fn rounds_wait_for_the_round_before() {
    let capabilities = with_lanes(2, dragonfly(2, 2));
    let resident = |text: &str| verify_resident(&programs(4, &format!("{GRID}{text}")), &[[0; 3]; 4], &capabilities);
    // The row reads in the next round what the column writes.
    let round = "allgather communicator row, source 8192, destination 4096, bytes 64
        barrier communicator column, lane 1, fence
        allgather communicator column, source 0, destination 8192, bytes 64, lane 1";
    resident(&format!("repeat 3\n {round}\nend")).unwrap();
    resident(&format!("repeat 3\n {round}\nend\nnop\n{round}")).unwrap();
    let refusal = resident(&format!("{round}\n{round}")).unwrap_err();
    assert_eq!((refusal.instruction, refusal.reason), (Some(3), Reason::Race), "{refusal}");
    let refusal = resident(&format!("repeat 3\n {round}\n {round}\nend")).unwrap_err();
    assert_eq!((refusal.instruction, refusal.reason), (Some(4), Reason::Race), "{refusal}");
}
