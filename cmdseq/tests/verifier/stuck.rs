//! What is said of programs that do not go on: in full, because it is all that their author gets.

use cmdseq::Reason;

use crate::cards::connected;
use crate::verified;

#[test]
#[expect(clippy::too_many_lines, reason = "a table of programs and messages")]
fn who_waits_for_whom_is_told() {
    for (ranks, text, reason, expected) in [
        (
            2,
            "nop\nif rank == 0\n sendrecv peer 1, root 1, source 0, destination 64, bytes 8\nend",
            Reason::Unmatched,
            "rank 0, instruction 1: sendrecv to 1, from 1 has no partner: rank 1 has no further matching instruction; \
             the program of rank 1 has ended",
        ),
        (
            3,
            "if rank == 1\n sendrecv_reduce peer 2, root 2, source 0, extent 64, destination 128, bytes 8, element u8, \
             reduction sum\nend\nbarrier",
            Reason::Unmatched,
            "rank 1, instruction 0: sendrecv_reduce to 2, from 2 has no partner: rank 2 has no further matching \
             instruction; rank 2 is at instruction 0 (barrier)",
        ),
        // What each waits for is on a communicator that the other does not know, or is another operation.
        (
            3,
            "communicator a = 1 of 0, 1\ncommunicator b = 2 of 1, 2\ncommunicator c = 3 of 0, 2\nif rank == 0\n barrier \
             communicator a\n barrier communicator c\nelse if rank == 1\n barrier communicator b\nelse\n barrier \
             communicator c\n barrier communicator b\nend",
            Reason::Unmatched,
            "rank 0, instruction 0: barrier has no partner: member rank 1 has no further collective on communicator \
             1; rank 1 is at instruction 0 (barrier)",
        ),
        (
            2,
            "communicator a = 1 of 0, 1\nif rank == 0\n barrier communicator a\n broadcast root 0, source 0, destination 0, \
             bytes 8\nelse\n broadcast root 0, source 0, destination 0, bytes 8\nend",
            Reason::Unmatched,
            "rank 0, instruction 0: barrier has no partner: member rank 1 has no further collective on communicator \
             1; rank 1 is at instruction 0 (broadcast)",
        ),
        (
            2,
            "communicator a = 1 of 1, 0\nif rank == 0\n send peer 0, source 0, bytes 8, communicator a\nelse\n recv peer 0, \
             destination 0, bytes 8\nend",
            Reason::CommunicatorMismatch,
            "rank 1, instruction 0: recv on communicator 0 does not meet instruction 0 of rank 0 (send), which is on \
             communicator 1; all partners must name the same",
        ),
        // The other receives too, but from a third; or sends as well.
        (
            3,
            "communicator a = 1 of 0, 1\nif rank == 0\n send peer 1, source 0, bytes 8, communicator a\n send peer 2, source \
             0, bytes 8\nelse if rank == 1\n recv peer 2, destination 0, bytes 8\nelse\n recv peer 0, destination 0, bytes \
             8\n send peer 1, source 0, bytes 8\nend",
            Reason::Unmatched,
            "rank 0, instruction 0: send to 1 has no partner: rank 1 has no further recv from this rank; rank 1 is at \
             instruction 0 (recv from 2)",
        ),
        (
            2,
            "communicator a = 1 of 0, 1\nif rank == 0\n send peer 1, source 0, bytes 8, communicator a\n recv peer 1, \
             destination 64, bytes 8\nelse\n send peer 0, source 0, bytes 8\nend",
            Reason::Unmatched,
            "rank 0, instruction 0: send to 1 has no partner: rank 1 has no further recv from this rank; rank 1 is at \
             instruction 0 (send to 0)",
        ),
        // One that has all it needs does not end before those that it runs together with.
        (
            2,
            "if rank == 0\n sendrecv peer 1, root 1, source 0, destination 64, bytes 8\nelse\n send peer 0, source 0, bytes \
             8\n recv peer 0, destination 64, bytes 8\nend",
            Reason::Deadlock,
            "rank 0, instruction 0: deadlock: rank 0 instruction 0 (sendrecv to 1, from 1) waits for rank 1 \
             instruction 0 (send to 0), which waits for rank 0 instruction 0 (sendrecv to 1, from 1); change the \
             order of one of them",
        ),
        (
            4,
            "if rank == 0\n send peer 1, source 0, bytes 8\nelse if rank == 1\n sendrecv peer 2, root 0, source 0, \
             destination 64, bytes 8\n send peer 3, source 0, bytes 8\nelse if rank == 2\n recv peer 3, destination 0, bytes \
             8\n recv peer 1, destination 0, bytes 8\nelse\n recv peer 1, destination 0, bytes 8\n send peer 2, source 0, \
             bytes 8\nend",
            Reason::Deadlock,
            "rank 1, instruction 0: deadlock: rank 1 instruction 0 (sendrecv to 2, from 0) waits for rank 2 \
             instruction 0 (recv from 3), which waits for rank 3 instruction 0 (recv from 1), which waits for rank 1 \
             instruction 0 (sendrecv to 2, from 0); change the order of one of them",
        ),
        (
            5,
            "if rank == 0\n recv peer 4, destination 0, bytes 8\n send peer 1, source 0, bytes 8\nelse if rank == 1\n recv \
             peer 0, destination 0, bytes 8\n recv peer 2, destination 0, bytes 8\nelse if rank == 2\n sendrecv peer 1, root \
             3, source 0, destination 64, bytes 8\nelse if rank == 3\n sendrecv peer 2, root 4, source 0, destination 64, \
             bytes 8\nelse\n send peer 3, source 0, bytes 8\n send peer 0, source 0, bytes 8\nend",
            Reason::Deadlock,
            "rank 0, instruction 0: deadlock: rank 0 instruction 0 (recv from 4) waits for rank 4 instruction 0 (send \
             to 3), which waits for rank 2 instruction 0 (sendrecv to 1, from 3), which waits for rank 1 instruction \
             0 (recv from 0), which waits for rank 0 instruction 0 (recv from 4); change the order of one of them",
        ),
        // Named is the last put to that very signal of that very rank.
        (
            4,
            "if rank == 0\n put_signal peer 3, source 0, destination 0, bytes 0, signal 5, value 1\n put_signal peer 1, \
             source 0, destination 0, bytes 0, signal 4, value 1\nelse if rank == 1\n wait_signal signal 4, value 1\n \
             wait_signal signal 5, value 2\nelse if rank == 2\n nop\n put_signal peer 1, source 0, destination 0, bytes 0, \
             signal 5, value 2\n nop\n put_signal peer 1, source 0, destination 0, bytes 0, signal 5, value 3\n \
             nop\nelse\n wait_signal signal 5, value 1\nend",
            Reason::SignalLeft,
            "rank 2, instruction 3: put_signal adds to signal 5 of rank 1, which is 3 at the end and would release a \
             later wait early; add a wait_signal on rank 1",
        ),
    ] {
        let refusal = verified(ranks, text, &connected(ranks)).expect_err(text);
        assert_eq!((refusal.to_string().as_str(), refusal.reason), (expected, reason), "{text}");
    }
}

#[test]
fn a_long_cycle_is_cut_short() {
    let ring = |ranks: u32| {
        let text =
            "recv peer (rank - 1) % ranks, destination 64, bytes 64\nsend peer (rank + 1) % ranks, source 0, bytes 64";
        let refusal = verified(ranks, text, &connected(ranks)).unwrap_err();
        assert_eq!(refusal.reason, Reason::Deadlock);
        refusal.cause
    };
    for (ranks, cut) in [(16, None), (17, Some(1)), (64, Some(48))] {
        let cause = ring(ranks);
        assert_eq!(cause.matches(" waits for ").count(), 16, "{cause}");
        match cut {
            None => assert!(!cause.contains("and so on"), "{cause}"),
            Some(more) => {
                assert!(cause.contains(&format!(", and so on through {more} more, which waits for rank 0 ")), "{cause}")
            }
        }
    }
}
