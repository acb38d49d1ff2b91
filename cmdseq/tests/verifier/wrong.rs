//! Wrong program sets. Each is refused where its author has to look.

use std::collections::BTreeSet;

use cmdseq::Reason;
use cmdseq::plan::ProgramSet;
use cmdseq::switch::Shape;

use crate::cards::{connected, dragonfly, mpi_fpga};
use crate::verified;

struct Wrong {
    name: &'static str,
    ranks: u32,
    text: &'static str,
    at: (u32, usize),
    reason: Reason,
    says: &'static str,
}

macro_rules! wrong {
    ($($name:literal: $ranks:literal ranks, $rank:literal at $index:literal, $reason:ident, $says:literal, $text:literal;)*) => {
        &[$(Wrong {
            name: $name, ranks: $ranks, text: $text, at: ($rank, $index), reason: Reason::$reason, says: $says
        },)*]
    };
}

const WRONG: &[Wrong] = wrong! {
    "a collective that one leaves out for another": 4 ranks, 2 at 0, OperationMismatch, "operation gather here, operation scatter there",
        "if rank == 2\n gather root 0, source 0, destination 4096, bytes 64\nelse\n scatter root 0, source 0, destination 4096, bytes 64\nend";
    "a barrier instead of an allgather": 3 ranks, 1 at 1, OperationMismatch, "operation barrier here",
        "nop\nif rank == 1\n barrier\nelse\n allgather source 0, destination 4096, bytes 64\nend";
    "allreduce and reduce": 2 ranks, 1 at 0, OperationMismatch, "operation allreduce here, operation reduce there",
        "if rank == 1\n allreduce source 0, destination 4096, bytes 64, element f32, reduction sum\nelse\n reduce root 0, source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "a wrong operation that still waits for another rank": 3 ranks, 1 at 0, OperationMismatch, "operation alltoall here, operation barrier there",
        "if rank == 1\n alltoall source 0, destination 4096, bytes 64\nelse if rank == 0\n barrier\nelse\n recv peer 1, destination 0, bytes 8\n barrier\nend";
    "more bytes received than sent": 2 ranks, 1 at 0, BytesMismatch, "blocks of 128 B here, blocks of 64 B there",
        "if rank == 0\n send peer 1, source 0, bytes 64\nelse\n recv peer 0, destination 0, bytes 128\nend";
    "one block shorter in an alltoall": 4 ranks, 3 at 0, BytesMismatch, "blocks of 60 B here, blocks of 64 B there",
        "if rank == 3\n alltoall source 0, destination 4096, bytes 60\nelse\n alltoall source 0, destination 4096, bytes 64\nend";
    "an exchange of two lengths": 2 ranks, 0 at 0, BytesMismatch, "blocks of 8 B",
        "sendrecv peer 1 - rank, root 1 - rank, source 0, destination 64, bytes 8 + 8 * rank";
    "a broadcast of two lengths": 3 ranks, 1 at 0, BytesMismatch, "blocks of 65 B here",
        "if rank == 1\n broadcast root 0, source 0, destination 0, bytes 65\nelse\n broadcast root 0, source 0, destination 0, bytes 64\nend";
    "a fold of two lengths": 2 ranks, 1 at 0, BytesMismatch, "blocks of 16 B",
        "if rank == 0\n send peer 1, source 0, bytes 8\nelse\n recv_reduce peer 0, source 0, destination 64, bytes 16, element u32, reduction sum\nend";
    "f32 and i32": 4 ranks, 1 at 0, TypeMismatch, "sum of i32 here, sum of f32 there",
        "if rank == 1\n allreduce source 0, destination 4096, bytes 64, element i32, reduction sum\nelse\n allreduce source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "f16 and bf16 at the root": 3 ranks, 0 at 0, TypeMismatch, "max of bf16 here",
        "if rank == 0\n reduce root 0, source 0, destination 4096, bytes 64, element bf16, reduction max\nelse\n reduce root 0, source 0, destination 4096, bytes 64, element f16, reduction max\nend";
    "sum and max": 4 ranks, 3 at 0, ReductionMismatch, "max of f32 here, sum of f32 there",
        "if rank == 3\n reduce_scatter source 0, destination 4096, bytes 64, element f32, reduction max\nelse\n reduce_scatter source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "scan and scan by another reduction": 3 ranks, 2 at 0, ReductionMismatch, "xor of u8 here",
        "if rank == 2\n scan source 0, destination 64, bytes 8, element u8, reduction xor\nelse\n scan source 0, destination 64, bytes 8, element u8, reduction or\nend";
    "alltoall_scan and alltoall": 3 ranks, 1 at 0, OperationMismatch, "operation alltoall here, operation alltoall_scan there",
        "if rank == 1\n alltoall source 0, destination 4096, bytes 64\nelse\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "an alltoall_scan of two lengths": 3 ranks, 2 at 0, BytesMismatch, "blocks of 60 B here, blocks of 64 B there",
        "if rank == 2\n alltoall_scan source 0, destination 4096, bytes 60, element f32, reduction sum\nelse\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "an alltoall_scan by two reductions": 4 ranks, 3 at 0, ReductionMismatch, "max of f32 here, sum of f32 there",
        "if rank == 3\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction max\nelse\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "a partial result onto a contribution": 4 ranks, 2 at 1, Overlap, "overlap, and one of them is written",
        "barrier\nif rank == 2\n alltoall_scan source 0, destination 192, bytes 64, element f32, reduction sum\nelse\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "the own partial result onto the own contribution": 3 ranks, 1 at 0, Overlap, "overlap, and one of them is written",
        "if rank == 1\n alltoall_scan source 0 striped, destination 512MiB - 64, bytes 64, element f32, reduction sum\nelse\n alltoall_scan source 0, destination 4096, bytes 64, element f32, reduction sum\nend";
    "a partial result past the end of memory": 2 ranks, 0 at 0, Memory, "exceed card memory",
        "alltoall_scan source 0, destination 8GiB - 64, bytes 64, element f32, reduction sum";
    "a block of an alltoall_scan beyond its half of a stripe": 2 ranks, 0 at 0, Stripe, "half a stripe",
        "alltoall_scan source 0 striped, destination 4GiB, bytes 256MiB + 64, element f32, reduction sum";
    "an alltoall_scan that writes what another writes": 3 ranks, 1 at 0, Race, "which instruction 0 of rank 2 (alltoall_scan) writes",
        "if rank == 1\n rdma_write peer 2, source 0, destination 0x1040, bytes 64\nend\nif rank == 2\n alltoall_scan source 0, destination 0x1000, bytes 64, element u8, reduction xor\nelse\n alltoall_scan source 0, destination 0x8000, bytes 64, element u8, reduction xor\nend";
    "two roots of a scatter": 4 ranks, 2 at 0, RootMismatch, "root 1 here, root 0 there",
        "if rank == 2\n scatter root 1, source 0, destination 4096, bytes 64\nelse\n scatter root 0, source 0, destination 4096, bytes 64\nend";
    "everyone is root": 3 ranks, 2 at 0, RootMismatch, "root 2 here",
        "broadcast root rank, source 0, destination 0, bytes 64";
    "another vector to divide": 4 ranks, 0 at 0, ExtentMismatch, "200 B to divide here, 250 B to divide there",
        "if rank == 0\n allgather source 0, destination 4096, bytes 64, extent 200\nelse\n allgather source 0, destination 4096, bytes 64, extent 250\nend";
    "eager here and rendezvous there": 2 ranks, 1 at 0, TransportMismatch, "rendezvous here, eager there",
        "if rank == 0\n send peer 1, source 0, bytes 64\nelse\n recv peer 0, destination 0, bytes 64, rendezvous\nend";
    "one forced to be eager": 3 ranks, 1 at 0, TransportMismatch, "eager here, rendezvous there",
        "if rank == 1\n alltoall source 0, destination 1MiB, bytes 64, eager\nelse\n alltoall source 0, destination 1MiB, bytes 64, rendezvous\nend";
    "tags that do not fit": 2 ranks, 1 at 0, TagMismatch, "tag 8 here, tag 7 there",
        "if rank == 0\n send peer 1, source 0, bytes 64, tag 7\nelse\n recv peer 0, destination 0, bytes 64, tag 8\nend";
    "a collective with another tag": 4 ranks, 2 at 1, TagMismatch, "tag 5 here, tag 2 there",
        "barrier tag 1\nif rank == 2\n barrier tag 5\nelse\n barrier tag 2\nend";
    "two communicators of the same ranks": 2 ranks, 1 at 0, CommunicatorMismatch, "which is on communicator 1",
        "communicator a = 1 of 0, 1\nif rank == 0\n send peer 1, source 0, bytes 64, communicator a\nelse\n recv peer 0, destination 0, bytes 64\nend";
    "a barrier on another communicator": 3 ranks, 2 at 0, CommunicatorMismatch, "which is on communicator 1",
        "communicator a = 1 of 0, 1, 2\nif rank == 2\n barrier\nelse\n barrier communicator a\nend";
    "an empty send for a receive that is not": 2 ranks, 1 at 0, Unmatched, "rank 0 has no further send to this rank",
        "if rank == 0\n send peer 1, source 0, bytes 0\nelse\n recv peer 0, destination 0, bytes 8\nend";
    "an empty send orders nothing": 2 ranks, 0 at 0, Race, "which instruction 1 of rank 1 (fill) writes",
        "if rank == 0\n rdma_write peer 1, source 0, destination 0x8000, bytes 64\n send peer 1, source 0, bytes 0\nelse\n recv peer 0, destination 0, bytes 0\n fill destination 0x8000, bytes 64, extent 7\nend";
    "a copy within host memory onto itself": 2 ranks, 1 at 1, Overlap, "64 B of host memory at 0x1020 and at 0x1000 overlap",
        "nop\nif rank == 1\n copy source host 0x1020, destination host 0x1000, bytes 64\nend";
    "a send without receive": 2 ranks, 0 at 0, Unmatched, "rank 1 has no further recv from this rank; the program of rank 1 has ended",
        "if rank == 0\n send peer 1, source 0, bytes 64\nend";
    "a receive without send": 3 ranks, 2 at 1, Unmatched, "rank 1 has no further send to this rank",
        "barrier\nif rank == 2\n recv peer 1, destination 0, bytes 64\nend";
    "a send too many": 2 ranks, 0 at 2, Unmatched, "the program of rank 1 has ended",
        "for k in 0 .. 2\n if rank == 0\n  send peer 1, source 0, bytes 64\n else\n  recv peer 0, destination 0, bytes 64\n end\nend\nif rank == 0\n send peer 1, source 0, bytes 64\nend";
    "one receives from the wrong rank": 3 ranks, 1 at 0, Unmatched, "recv from 2 has no partner",
        "if rank == 0\n send peer 1, source 0, bytes 64\nelse if rank == 1\n recv peer 2, destination 0, bytes 64\nend";
    "a barrier that one rank leaves out": 4 ranks, 0 at 0, Unmatched, "rank 3 has no further collective on communicator 0",
        "if rank != 3\n barrier\nend";
    "a ring with a wrong neighbour": 4 ranks, 2 at 0, Unmatched, "sendrecv to 0, from 1",
        "if rank == 2\n sendrecv peer 0, root 1, source 0, destination 4096, bytes 64\nelse\n sendrecv peer (rank + 1) % 4, root (rank - 1) % 4, source 0, destination 4096, bytes 64\nend";
    "two that both send": 2 ranks, 1 at 0, Unmatched, "send to 0 has no partner",
        "send peer 1 - rank, source 0, bytes 64";
    "a fold that nobody sends to": 2 ranks, 1 at 0, Unmatched, "recv_reduce from 0 has no partner",
        "if rank == 1\n recv_reduce peer 0, source 0, destination 64, bytes 64, element f32, reduction sum\nend";
    "two that send before they receive": 2 ranks, 0 at 0, Deadlock, "rank 0 instruction 0 (send to 1) waits for rank 1 instruction 0 (send to 0), which waits for rank 0 instruction 0",
        "send peer 1 - rank, source 0, bytes 64\nrecv peer 1 - rank, destination 64, bytes 64";
    "two that receive before they send": 2 ranks, 0 at 1, Deadlock, "(recv from 1) waits for rank 1 instruction 1 (recv from 0), which waits for rank 0 instruction 1",
        "nop\nrecv peer 1 - rank, destination 64, bytes 64\nsend peer 1 - rank, source 0, bytes 64";
    "a ring in which all receive first": 4 ranks, 0 at 0, Deadlock, "rank 0 instruction 0 (recv from 3) waits for rank 3 instruction 0 (recv from 2), which waits for rank 2 instruction 0 (recv from 1), which waits for rank 1 instruction 0 (recv from 0), which waits for rank 0",
        "recv peer (rank - 1) % 4, destination 64, bytes 64\nsend peer (rank + 1) % 4, source 0, bytes 64";
    "a barrier before the send on one side": 2 ranks, 0 at 0, Deadlock, "(barrier) waits for rank 1 instruction 0 (recv from 0)",
        "if rank == 0\n barrier\n send peer 1, source 0, bytes 64\nelse\n recv peer 0, destination 0, bytes 64\n barrier\nend";
    "two barriers in two orders": 2 ranks, 0 at 0, Deadlock, "(barrier) waits for rank 1 instruction 0 (barrier)",
        "communicator a = 1 of 0, 1\ncommunicator b = 2 of 0, 1\nif rank == 0\n barrier communicator a\n barrier communicator b\nelse\n barrier communicator b\n barrier communicator a\nend";
    "a cycle of three, and one that waits for it": 4 ranks, 1 at 0, Deadlock, "rank 1 instruction 0 (send to 2) waits for rank 2 instruction 0 (send to 3), which waits for rank 3 instruction 0 (send to 1)",
        "if rank == 0\n recv peer 1, destination 0, bytes 8\nelse if rank == 1\n send peer 2, source 0, bytes 8\n recv peer 3, destination 8, bytes 8\n send peer 0, source 0, bytes 8\nelse if rank == 2\n send peer 3, source 0, bytes 8\n recv peer 1, destination 8, bytes 8\nelse\n send peer 1, source 0, bytes 8\n recv peer 2, destination 8, bytes 8\nend";
    "a wait whose put comes behind another wait": 2 ranks, 0 at 0, Deadlock, "rank 0 instruction 0 (wait_signal 3) waits for rank 1 instruction 0 (wait_signal 4), which waits for rank 0",
        "wait_signal signal 3 + rank, value 1\nput_signal peer 1 - rank, source 0, destination 64, bytes 8, signal 4 - rank, value 1";
    "a wait for a barrier that waits for the put": 2 ranks, 0 at 0, Deadlock, "(wait_signal 0) waits for rank 1 instruction 0 (barrier)",
        "if rank == 0\n wait_signal signal 0, value 1\n barrier\nelse\n barrier\n put_signal peer 0, source 0, destination 64, bytes 8, signal 0, value 1\nend";
    "a wait that nobody signals": 2 ranks, 1 at 0, NoSignal, "which is 0, and no put_signal to it follows",
        "if rank == 1\n wait_signal signal 2, value 1\nend";
    "a wait for more than comes": 2 ranks, 1 at 0, NoSignal, "waits for 3 of signal 2, which is 2",
        "if rank == 1\n wait_signal signal 2, value 3\nelse\n put_signal peer 1, source 0, destination 0, bytes 0, signal 2, value 2\nend";
    "a wait for another signal": 2 ranks, 1 at 0, NoSignal, "waits for 1 of signal 3, which is 0",
        "if rank == 1\n wait_signal signal 3, value 1\nelse\n put_signal peer 1, source 0, destination 0, bytes 8, signal 2, value 1\nend";
    "a signal that is left": 2 ranks, 0 at 1, SignalLeft, "signal 2 of rank 1, which is 1 at the end",
        "if rank == 1\n wait_signal signal 2, value 1\nelse\n put_signal peer 1, source 0, destination 0, bytes 8, signal 2, value 1\n put_signal peer 1, source 0, destination 8, bytes 8, signal 2, value 1\nend";
    "a signal past 32 bits": 3 ranks, 1 at 0, SignalOverflow, "signal 0 of rank 2",
        "if rank == 2\n wait_signal signal 0, value 0xffff_ffff\n wait_signal signal 0, value 1\nelse\n put_signal peer 2, source 0, destination 8 * rank, bytes 8, signal 0, value 0x8000_0000\nend";
    "what a put brings, sent on before the wait": 3 ranks, 1 at 0, UseBeforeSignal, "send reads 0x1000, which instruction 0 of rank 0 (put_signal) writes",
        "if rank == 0\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1\nelse if rank == 1\n send peer 2, source 0x1000, bytes 64\n wait_signal signal 0, value 1\nelse\n recv peer 1, destination 0, bytes 64\nend";
    "a second piece read after the wait for the first": 2 ranks, 1 at 1, UseBeforeSignal, "copy reads 0x1040",
        "if rank == 0\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1\n put_signal peer 1, source 64, destination 0x1040, bytes 64, signal 0, value 1\nelse\n wait_signal signal 0, value 1\n copy source 0x1000, destination 0x2000, bytes 128\n wait_signal signal 0, value 1\nend";
    "a buffer filled again before it was used": 2 ranks, 1 at 1, UseBeforeSignal, "copy reads 0x1000",
        "if rank == 0\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1\n put_signal peer 1, source 64, destination 0x1000, bytes 64, signal 0, value 1\nelse\n wait_signal signal 0, value 1\n copy source 0x1000, destination 0x2000, bytes 64\n wait_signal signal 0, value 1\nend";
    "one of two puts waited for": 3 ranks, 2 at 1, UseBeforeSignal, "fill writes 0x1000",
        "if rank == 2\n wait_signal signal 0, value 1\n fill destination 0x1000, bytes 128, extent 0\n wait_signal signal 0, value 1\nelse\n put_signal peer 2, source 0, destination 0x1000 + 64 * rank, bytes 64, signal 0, value 1\nend";
    "a write while the other sends": 3 ranks, 0 at 0, Race, "rdma_write writes 0x20 of rank 1, which instruction 0 of rank 1 (send) reads",
        "if rank == 0\n rdma_write peer 1, source 0, destination 32, bytes 64\nelse if rank == 1\n send peer 2, source 0, bytes 64\nelse\n recv peer 1, destination 0, bytes 64\nend\nbarrier";
    "a read while the other fills": 2 ranks, 0 at 0, Race, "rdma_read reads 0x0 of rank 1, which instruction 0 of rank 1 (fill) writes",
        "if rank == 0\n rdma_read peer 1, source 0, destination 0, bytes 64\nelse\n fill destination 0, bytes 8, extent 1\nend\nbarrier";
    "two that write the same bytes of a third": 3 ranks, 0 at 0, Race, "of rank 2, which instruction 0 of rank 1 (rdma_write) writes",
        "if rank < 2\n rdma_write peer 2, source 0, destination 0, bytes 64\nend\nbarrier";
    "a barrier too late": 2 ranks, 0 at 1, Race, "which instruction 1 of rank 1 (fill) writes",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0, bytes 64\nelse\n barrier\n fill destination 0, bytes 64, extent 7\nend\nbarrier";
    "an empty transfer orders nothing": 2 ranks, 0 at 0, Race, "which instruction 1 of rank 1 (fill) writes",
        "if rank == 0\n rdma_write peer 1, source 0, destination 0, bytes 64\n send peer 1, source 0, bytes 0\nelse\n recv peer 0, destination 0, bytes 0\n fill destination 0, bytes 64, extent 7\nend";
    "leaves of a scatter do not wait for each other": 3 ranks, 1 at 0, Race, "which instruction 1 of rank 2 (fill) writes",
        "if rank == 1\n rdma_write peer 2, source 0, destination 0x8000, bytes 64\nend\nscatter root 0, source 0, destination 0x1000, bytes 64\nif rank == 2\n fill destination 0x8000, bytes 64, extent 7\nend";
    "a window that nobody opens": 2 ranks, 0 at 0, Window, "rank 1 opens no window 3 with key 0x7",
        "if rank == 0\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\nend";
    "a window that may not be open yet": 2 ranks, 0 at 0, Window, "window 3 of rank 1 may be closed when this instruction runs",
        "if rank == 0\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n close window 3, key 7\nend";
    "a window opened after the access": 2 ranks, 0 at 1, Window, "window 3 of rank 1 may be closed when this instruction runs",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\n barrier\nelse\n barrier\n barrier\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n close window 3, key 7\nend";
    "a window closed too early": 2 ranks, 0 at 2, Window, "instruction 1 of rank 1 may still use window 3",
        "if rank == 1\n barrier\n rdma_write peer 0, source 0, destination 0x1000, bytes 64, window 3, key 7\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n close window 3, key 7\nend";
    "a window closed before the access": 2 ranks, 0 at 2, Window, "window 3 of rank 1 may be closed when this instruction runs",
        "if rank == 0\n barrier\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n close window 3, key 7\n barrier\nend";
    "another key": 2 ranks, 0 at 1, Window, "rank 1 opens no window 3 with key 0x8",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 8\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 7\nend";
    "the key of the window before": 2 ranks, 0 at 1, Window, "window 3 of rank 1 may be closed when this instruction runs",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n close window 3, key 7\n open window 3, key 9, rights write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 9\nend";
    "a write into a window to read": 2 ranks, 0 at 1, Window, "window 3 of rank 1 has no right write",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights read, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 7\nend";
    "a signal without the right": 2 ranks, 0 at 1, Window, "has no right signal",
        "if rank == 0\n barrier\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n wait_signal signal 0, value 1\n barrier\n close window 3, key 7\nend";
    "one byte past a window": 2 ranks, 0 at 1, Window, "64 B at 0x1000 exceed window 3 of rank 1, which has 63 B at 0x1000",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 63\n barrier\n barrier\n close window 3, key 7\nend";
    "one byte before a window": 2 ranks, 0 at 1, Window, "exceed window 3 of rank 1, which has 64 B at 0x1001",
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1001, bytes 64\n barrier\n barrier\n close window 3, key 7\nend";
    "a window opened twice": 2 ranks, 1 at 2, Window, "instruction 0 opened window 3; close it first",
        "if rank == 1\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n nop\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n close window 3, key 7\nend";
    "a window closed twice": 2 ranks, 1 at 2, Window, "window 3 with key 0x7 is not open",
        "if rank == 1\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n close window 3, key 7\n close window 3, key 7\nend";
    "a window closed with another key": 2 ranks, 1 at 1, Window, "window 3 with key 0x8 is not open",
        "if rank == 1\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n close window 3, key 8\n close window 3, key 7\nend";
    "a window that is left open": 3 ranks, 2 at 1, Window, "window 3 is open after the programs; close it",
        "if rank == 2\n nop\n open window 3, key 7, rights write, destination 0x1000, bytes 64\nend";
    "a window for others": 3 ranks, 0 at 1, Window, "window 3 of rank 1 is for members of communicator 1 only",
        "communicator pair = 1 of 1, 2\nif rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse if rank == 1\n open communicator pair, window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 7\nelse\n barrier\n barrier\nend";
    "a window past the end of memory": 2 ranks, 1 at 0, Memory, "exceed card memory",
        "if rank == 1\n open window 3, key 7, rights write, destination 8GiB - 8, bytes 16\n close window 3, key 7\nend";
    "a window slot that no card has": 2 ranks, 1 at 0, Unsupported, "no window slot 16 (the card has 16 slots)",
        "if rank == 1\n open window 16, key 7, rights write, destination 0, bytes 16\n close window 16, key 7\nend";
    "a window of a communicator that is not there": 2 ranks, 1 at 0, Membership, "communicator 9 is not defined",
        "if rank == 1\n open communicator 9, window 3, key 7, rights write, destination 0, bytes 16\n close window 3, key 7\nend";
    "a range past the end of memory": 2 ranks, 1 at 0, Memory, "64 B at 0x1ffffffe0 exceed card memory",
        "if rank == 1\n recv peer 0, destination 8GiB - 32, bytes 64\nelse\n send peer 1, source 0, bytes 64\nend";
    "the last block past the end of memory": 4 ranks, 0 at 0, Memory, "exceed card memory",
        "gather root 0, source 0, destination 8GiB - 200, bytes 64";
    "a range that wraps": 2 ranks, 0 at 0, Memory, "exceeds 64-bit addresses",
        "alltoall source 0xffff_ffff_ffff_fff0, destination 0, bytes 64";
    "past the end of the peer's memory": 2 ranks, 0 at 0, Memory, "at rank 1, 64 B",
        "if rank == 0\n rdma_write peer 1, source 0, destination 8GiB - 8, bytes 64\nend";
    "a put past the end of the peer's memory": 2 ranks, 1 at 0, Memory, "at rank 0, 16 B",
        "if rank == 1\n put_signal peer 0, source 0, destination 8GiB, bytes 16, signal 0, value 1\nelse\n wait_signal signal 0, value 1\nend";
    "a block longer than half a stripe": 2 ranks, 0 at 0, Stripe, "striped blocks have at most 268435456 B",
        "scatter root 0, source 0 striped, destination 0x1000_0000, bytes 257MiB";
    "an exchange in place": 4 ranks, 0 at 0, Overlap, "alltoall does not work in place",
        "alltoall source 0, destination 0, bytes 64";
    "a result over what is sent": 4 ranks, 0 at 0, Overlap, "overlap, and one of them is written",
        "allreduce source 0, destination 32, bytes 64, element f32, reduction sum";
    "a copy over itself": 1 ranks, 0 at 1, Overlap, "overlap",
        "nop\ncopy source 0, destination 32, bytes 64";
    "a fold over a part of its operand": 2 ranks, 1 at 1, Overlap, "fold: 64 B at 0x0 and 64 B at 0x20 overlap, and one of them is written",
        "nop\nif rank == 1\n fold source 0, extent 64, destination 32, bytes 64, element f32, reduction sum\nend";
    "a fold of nothing, from beyond the memory": 2 ranks, 0 at 0, Memory, "0x240000000",
        "fold source 0, extent 0x240000000, destination 64, bytes 0, element f32, reduction sum";
    "a fold of what a neighbour writes": 2 ranks, 0 at 0, Race, "(fold) reads",
        "if rank == 0\n rdma_write peer 1, source 0, destination 64, bytes 64\nelse\n fold source 0, extent 64, destination 128, bytes 64, element u8, reduction max\nend";
    "a ring that writes what it sends": 3 ranks, 0 at 0, Overlap, "overlap",
        "sendrecv peer (rank + 1) % 3, root (rank - 1) % 3, source 0, destination 63, bytes 64";
    "an eager piece too long": 2 ranks, 0 at 0, EagerOverrun, "16385 B exceed the receive buffer",
        "if rank == 0\n send peer 1, source 0, bytes 16385, eager\nelse\n recv peer 0, destination 0, bytes 16385, eager\nend";
    "a rank that is not there": 2 ranks, 1 at 0, Rank, "peer 2 is not a rank of communicator 0 (the last is 1)",
        "if rank == 1\n recv peer 2, destination 0, bytes 64\nend";
    "a root that is not there": 2 ranks, 0 at 0, Rank, "root 2 is not a rank",
        "scatter root 2, source 0, destination 4096, bytes 64";
    "a send to oneself": 2 ranks, 0 at 0, Rank, "peer 0 is the own rank",
        "send peer 0, source 0, bytes 64";
    "a rank that is not in the communicator": 3 ranks, 0 at 0, Rank, "peer 2 is not a rank of communicator 1",
        "communicator pair = 1 of 0, 1\nif rank < 2\n send peer 2, source 0, bytes 64, communicator pair\nend";
    "a communicator of others": 3 ranks, 2 at 0, Membership, "communicator 1 is not defined on this card",
        "communicator pair = 1 of 0, 1\nbarrier communicator pair";
    "a communicator that was freed": 2 ranks, 0 at 1, Membership, "instruction 0 freed communicator 1",
        "communicator pair = 1 of 0, 1\nfree communicator pair\nbarrier communicator pair";
    "a communicator that was freed twice": 2 ranks, 0 at 1, Membership, "already freed communicator 1",
        "communicator pair = 1 of 0, 1\nfree communicator pair\nfree communicator pair";
    "a communicator that is not there cannot be freed": 2 ranks, 0 at 0, Membership, "communicator 5 is not defined",
        "free communicator 5";
    "a communicator in the place of another": 2 ranks, 0 at 0, Communicators, "communicator 1 occupies the same table entry",
        "communicator pair = 1 of 0, 1\nbuffer nodes = host size 64\ngroup communicator 33, source nodes, bytes 4";
    "a communicator that the program defines itself": 2 ranks, 0 at 1, Membership, "communicator 3 is not defined on this card",
        "buffer nodes = host size 64\ngroup communicator 3, source nodes, bytes 4\nbarrier communicator 3";
    "the world cannot be freed": 2 ranks, 0 at 0, Communicators, "cannot be freed",
        "free communicator 0";
    "more to divide than there are blocks": 4 ranks, 0 at 0, Field, "expected blocks of at least 65 B",
        "gather root 0, source 0, destination 4096, bytes 64, extent 257";
    "an argument without a launch": 2 ranks, 0 at 0, Field, "only valid in a resident program",
        "copy source 0 argument 1, destination 4096, bytes 64";
    "too long a delay": 1 ranks, 0 at 0, Field, "exceed the longest delay",
        "delay extent 1 << 40";
    "a signal that the card does not have": 2 ranks, 0 at 0, Unsupported, "no signal 64 (the card has 64 signals)",
        "wait_signal signal 64, value 1";
    "a slot that the card does not have": 1 ranks, 0 at 0, Unsupported, "no program slot 8 (the card has 8 slots)",
        "launch source 0, destination 0, bytes 0, extent 8";
    "a program that nobody has stored": 1 ranks, 0 at 0, Stored, "no program in slot 3",
        "launch source 0, destination 0, bytes 0, extent 3";
    "a loop outside of a resident program": 1 ranks, 0 at 0, Stored, "only valid in a resident program",
        "loop count 2, body 1, extent 0\nnop";
    "a vector form without a table": 3 ranks, 0 at 0, Stored, "no table in slot 4",
        "allgatherv source 0, destination 4096, bytes 64, extent 4";
    "a root without its table": 3 ranks, 1 at 1, Stored, "no table in slot 2",
        "nop\nif rank == 0\n blocks b = 2 of 8, 8, 8\nend\nscatterv root 1, source 0, destination 4096, bytes 8, extent 2";
    "an exchange with one table of two": 3 ranks, 0 at 0, Stored, "no table in slot 3",
        "blocks b = 0 of 8, 8, 8\nalltoallv source 0, destination 4096, extent b | 3 << 16";
    "an exchange with bits that name no slot": 3 ranks, 0 at 0, Stored, "no table in slot 65537",
        "blocks a = 0 of 8, 8, 8\nblocks b = 1 of 8, 8, 8\nalltoallv source 0, destination 4096, extent a | b << 16 | 1 << 32";
    "a table that the program stores itself": 2 ranks, 0 at 1, Stored, "stored table 0 from host memory",
        "buffer lengths = host size 64\nblocks b = 0 of 8, 8\ntable source lengths, bytes 32, extent b\nallgatherv source 0, destination 4096, bytes 8, extent b";
    "a table too short": 3 ranks, 0 at 0, TableMismatch, "the table in slot 0 has 2 entries for 3 ranks",
        "blocks b = 0 of 8, 8\nallgatherv source 0, destination 4096, bytes 8, extent b";
    "a table of all ranks for a pair": 3 ranks, 1 at 0, TableMismatch, "the table in slot 7 has 3 entries for 2 ranks",
        "communicator pair = 1 of 0, 1\nif rank < 2\n blocks b = 7 of 8, 8, 8\n gatherv communicator pair, root 1, source 0, destination 4096, bytes 8, extent b\nend";
    "a scatterv of two lengths": 3 ranks, 2 at 0, TableMismatch, "scatterv expects 32 B from rank 0 of communicator 0, which sends 24 B",
        "if rank == 0\n blocks b = 0 of 8, 16, 24\nend\nif rank == 2\n scatterv root 0, source 0, destination 4096, bytes 32, extent 0\nelse\n scatterv root 0, source 0, destination 4096, bytes 8 * (rank + 1), extent 0\nend";
    "a scatterv to one who wants nothing": 3 ranks, 1 at 0, TableMismatch, "expects 0 B from rank 0 of communicator 0, which sends 16 B",
        "if rank == 0\n blocks b = 0 of 0, 16, 0\nend\nscatterv root 0, source 0, destination 4096, bytes 0, extent 0";
    "a gatherv of two lengths": 3 ranks, 0 at 0, TableMismatch, "gatherv expects 24 B from rank 2 of communicator 0, which sends 16 B",
        "if rank == 0\n blocks b = 0 of 8, 16, 24\n gatherv root 0, source 0, destination 4096, bytes 8, extent b\nelse\n gatherv root 0, source 0, destination 4096, bytes 16, extent 0\nend";
    "a gatherv from one who has nothing": 3 ranks, 1 at 1, TableMismatch, "expects 16 B from rank 0 of communicator 0, which sends 0 B",
        "nop\nif rank == 1\n blocks b = 0 of 16, 0, 0\nend\ngatherv root 1, source 0, destination 4096, bytes 0, extent 0";
    "an allgatherv in which one has more": 4 ranks, 2 at 0, TableMismatch, "allgatherv sends 80 B to rank 0 of communicator 0, which expects 64 B",
        "if rank == 2\n blocks b = 0 of 64, 64, 80, 64\n allgatherv source 0, destination 4096, bytes 80, extent b\nelse\n blocks b = 0 of 64, 64, 64, 64\n allgatherv source 0, destination 4096, bytes 64, extent b\nend";
    "an allgatherv with a length of its own": 4 ranks, 2 at 0, TableMismatch, "allgatherv expects 60 B from rank 0 of communicator 0, which sends 64 B",
        "if rank == 2\n blocks b = 0 of 60, 64, 64, 64\nelse\n blocks b = 0 of 64, 64, 64, 64\nend\nallgatherv source 0, destination 4096, bytes 64, extent 0";
    "an alltoallv of two lengths": 3 ranks, 1 at 0, TableMismatch, "alltoallv expects 9 B from rank 2 of communicator 0, which sends 8 B",
        "blocks sends = 0 of 8, 8, 8\nif rank == 1\n blocks receives = 1 of 8, 8, 9\nelse\n blocks receives = 1 of 8, 8, 8\nend\nalltoallv source 0, destination 4096, extent 1 << 16";
    "an alltoallv that sends all another length": 4 ranks, 3 at 0, TableMismatch, "alltoallv sends 4 B to rank 0 of communicator 0, which expects 8 B",
        "if rank == 3\n blocks sends = 0 of 4, 4, 4, 8\nelse\n blocks sends = 0 of 8, 8, 8, 8\nend\nblocks receives = 1 of 8, 8, 8, 8\nalltoallv source 0, destination 4096, extent 1 << 16";
    "an alltoallv whose own block has two lengths": 3 ranks, 2 at 0, TableMismatch, "the own block has 9 B in the table in slot 1, but 8 B in the instruction",
        "blocks sends = 0 of 8, 8, 8\nif rank == 2\n blocks receives = 1 of 8, 8, 9\nelse\n blocks receives = 1 of 8, 8, 8\nend\nalltoallv source 0, destination 4096, extent 1 << 16";
    "an own length that is not the own entry": 3 ranks, 1 at 0, TableMismatch, "the own block has 64 B in the table in slot 0, but 65 B in the instruction",
        "blocks b = 0 of 64, 64, 64\nif rank == 1\n allgatherv source 0, destination 4096, bytes 65, extent b\nelse\n allgatherv source 0, destination 4096, bytes 64, extent b\nend";
    "a root's own length that is not its entry": 3 ranks, 2 at 0, TableMismatch, "but 8 B in the instruction",
        "blocks b = 0 of 8, 8, 24\ngatherv root 2, source 0, destination 4096, bytes 8, extent b";
    "a block that is received past the end of memory": 3 ranks, 0 at 0, Memory, "8 B at 0x1fffffffc exceed card memory",
        "blocks b = 0 of 8, 8 at 4GiB, 8 at 8GiB - 4100\nallgatherv source 0, destination 4096, bytes 8, extent b";
    "a block that is sent past the end of memory": 3 ranks, 1 at 0, Memory, "exceed card memory",
        "blocks b = 0 of 8, 8, 8 at 8GiB\nif rank == 1\n scatterv root 1, source 0, destination 4096, bytes 8, extent b\nelse\n scatterv root 1, source 0, destination 4096, bytes 8, extent 0\nend";
    "a block that wraps": 2 ranks, 0 at 0, Memory, "exceeds 64-bit addresses",
        "blocks b = 0 of 8, 8 at 0xffff_ffff_ffff_f000\nallgatherv source 0, destination 4096, bytes 8, extent b";
    "received blocks that overlap": 3 ranks, 1 at 0, Overlap, "overlap, and one of them is written",
        "if rank == 1\n blocks b = 0 of 8, 8, 8 at 15\nelse\n blocks b = 0 of 8, 8, 8\nend\nallgatherv source 0, destination 4096, bytes 8, extent b";
    "a received block over what is sent": 3 ranks, 0 at 0, Overlap, "overlap, and one of them is written",
        "blocks sends = 0 of 8, 8, 8\nblocks receives = 1 of 8 at 4096, 8 at 0, 8 at 4200\nalltoallv source 0, destination 8, extent 1 << 16";
    "a received block over the own one in place": 3 ranks, 1 at 0, Overlap, "the own block, which is in place",
        "blocks b = 0 of 8, 8 at 64, 8 at 68\ngatherv root 1, source 4096 + 64, destination 4096, bytes 8, extent b";
    "an exchange over an own block in place": 2 ranks, 0 at 0, Overlap, "the own block, which is in place",
        "blocks sends = 0 of 8 at 8 * rank, 8 at 64 - 56 * rank\nif rank == 0\n blocks receives = 1 of 8, 8 at 4\nelse\n blocks receives = 1 of 8 at 4096, 8 at 1024\nend\nalltoallv source 0, destination 0, extent 1 << 16";
    "an eager block that only the root knows": 3 ranks, 0 at 0, EagerOverrun, "16385 B exceed the receive buffer",
        "blocks b = 0 of 8, 8, 16385\ngatherv root 0, source 0, destination 4096, bytes 8, extent b, eager";
    "a scatterv and a gatherv": 3 ranks, 2 at 0, OperationMismatch, "operation gatherv here, operation scatterv there",
        "blocks b = 0 of 8, 8, 8\nif rank == 2\n gatherv root 0, source 0, destination 4096, bytes 8, extent b\nelse\n scatterv root 0, source 0, destination 4096, bytes 8, extent b\nend";
    "a vector form and a plain one": 3 ranks, 1 at 0, OperationMismatch, "operation allgather here, operation allgatherv there",
        "blocks b = 0 of 8, 8, 8\nif rank == 1\n allgather source 0, destination 4096, bytes 8\nelse\n allgatherv source 0, destination 4096, bytes 8, extent b\nend";
    "two roots of a gatherv": 3 ranks, 1 at 0, RootMismatch, "root 1 here, root 0 there",
        "blocks b = 0 of 8, 8, 8\nif rank == 1\n gatherv root 1, source 0, destination 4096, bytes 8, extent b\nelse\n gatherv root 0, source 0, destination 4096, bytes 8, extent b\nend";
    "a vector form that one forces to be eager": 3 ranks, 2 at 0, TransportMismatch, "eager here, rendezvous there",
        "blocks b = 0 of 8, 8, 8\nif rank == 2\n allgatherv source 0, destination 4096, bytes 8, extent b, eager\nelse\n allgatherv source 0, destination 4096, bytes 8, extent b\nend";
    "an empty block of a vector form orders nothing": 3 ranks, 0 at 0, Race, "which instruction 1 of rank 2 (fill) writes",
        "blocks b = 0 of 8, 8, 0\nif rank == 0\n rdma_write peer 2, source 0, destination 0x8000, bytes 64\nend\nif rank == 2\n scatterv root 0, source 0, destination 0x1000, bytes 0, extent 0\n fill destination 0x8000, bytes 64, extent 7\nelse\n scatterv root 0, source 0, destination 0x1000, bytes 8, extent 0\nend";
};

#[test]
fn every_wrong_set_is_refused_where_it_is_wrong() {
    let mut missed = Vec::new();
    for Wrong { name, ranks, text, at, reason, says } in WRONG {
        match verified(*ranks, text, &connected(*ranks)) {
            Ok(()) => missed.push(format!("{name}: accepted")),
            Err(refusal) => {
                let found = (refusal.rank.unwrap_or(u32::MAX), refusal.instruction.unwrap_or(usize::MAX));
                if (found, refusal.reason) != (*at, *reason) || !refusal.cause.contains(says) {
                    missed.push(format!("{name}: {}: {refusal}", refusal.reason));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    println!("{} wrong sets", WRONG.len());
    assert!(WRONG.len() >= 110);
}

/// What a table of programs of linked cards cannot show stands in tests of its own, here and in `stored`.
#[test]
fn every_reason_is_tried() {
    let tried: BTreeSet<Reason> = WRONG.iter().map(|one| one.reason).collect();
    let elsewhere = [Reason::Request, Reason::Programs, Reason::Link, Reason::TooLong, Reason::Expectation];
    for reason in Reason::ALL {
        assert!(tried.contains(reason) || elsewhere.contains(reason), "{reason}");
    }
}

#[test]
fn cards_without_a_link_exchange_nothing() {
    let capabilities = dragonfly(2, 2);
    for (text, at) in [
        (
            "if rank == 0\n send peer 3, source 0, bytes 64\nelse if rank == 3\n recv peer 0, destination 0, bytes 64\nend",
            (0, 0),
        ),
        ("barrier", (0, 0)),
        ("if rank == 2\n rdma_read peer 1, source 0, destination 0, bytes 64\nend", (2, 0)),
        // A card looks at its link before it looks at the bytes.
        ("if rank == 2\n rdma_read peer 1, source 0, destination 0, bytes 0\nend", (2, 0)),
        ("if rank == 0\n rdma_write peer 3, source 0, destination 0, bytes 0\nend", (0, 0)),
        (
            "if rank == 0\n put_signal peer 3, source 0, destination 0, bytes 0, signal 1, value 1\nelse if rank == 3\n wait_signal signal 1, value 1\nend",
            (0, 0),
        ),
    ] {
        let refusal = verified(4, text, &capabilities).expect_err(text);
        assert_eq!((refusal.rank.unwrap(), refusal.instruction.unwrap(), refusal.reason), (at.0, at.1, Reason::Link));
    }
}

/// Who only gives data to switches that compute goes on without the others.
#[test]
fn collectives_in_switches_hold_up_whoever_gets_data_and_nobody_else() {
    let capabilities = mpi_fpga(Shape::Fat { processors: 2, radix: 16 });
    let program = |root: u32, way: &str| {
        format!(
            "barrier\nif rank == 1\n copy source 0x1000, destination 0x2000, bytes 64\nend\n\
             reduce root {root}, source 0x3000, destination 0x4000, bytes 64, element u64, reduction sum{way}\n\
             if rank == 0\n rdma_write peer 1, source 0x3000, destination 0x1000, bytes 64\nend\nbarrier"
        )
    };
    verified(2, &program(1, ""), &capabilities).unwrap();
    verified(2, &program(0, ", tree"), &capabilities).unwrap();
    let refusal = verified(2, &program(1, ", tree"), &capabilities).unwrap_err();
    assert_eq!(refusal.reason, Reason::Race, "{refusal}");
}

#[test]
fn blocks_too_long_for_switches_are_refused_with_the_limit() {
    let capabilities = mpi_fpga(Shape::Torus { sides: [4, 1, 1] });
    for bytes in ["2GiB", "4GiB"] {
        let text = format!("broadcast root 0, source 0, destination 0, bytes {bytes}, tree");
        let refusal = verified(4, &text, &capabilities).unwrap_err();
        assert!(refusal.cause.contains("(expected 1 to 15728640 bytes, in whole elements of 1)"), "{refusal}");
    }
}

#[test]
fn sets_that_are_none_are_refused() {
    let capabilities = connected(2);
    let none = cmdseq::verify(&ProgramSet { nodes: vec![0, 1], ..ProgramSet::default() }, &capabilities).unwrap_err();
    assert_eq!(none.reason, Reason::Programs);
    let set = ProgramSet { nodes: vec![0, 2], ..crate::programs(2, "nop") };
    assert_eq!(cmdseq::verify(&set, &capabilities).unwrap_err().reason, Reason::Programs);
    let twice = ProgramSet { nodes: vec![1, 1], ..crate::programs(2, "nop") };
    let refusal = cmdseq::verify(&twice, &capabilities).unwrap_err();
    assert_eq!((refusal.rank, refusal.reason), (Some(1), Reason::Programs), "{refusal}");
    let refusal = cmdseq::verify(&crate::programs(1, "barrier"), &capabilities).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Programs), "{refusal}");
}

/// Nobody knows what else uses the memory of a card that no program is given for.
#[test]
fn cards_without_a_program_are_not_reached() {
    let capabilities = connected(3);
    for operation in [
        "rdma_write peer 2, source 0, destination 0, bytes 64",
        "rdma_read peer 2, source 0, destination 0, bytes 64",
        "put_signal peer 2, source 0, destination 0, bytes 0, signal 1, value 1",
    ] {
        let mut set = crate::programs(2, &format!("nop\nif rank == 1\n {operation}\nend"));
        let refusal = cmdseq::verify(&set, &capabilities).unwrap_err();
        assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(1), Some(1), Reason::Programs));
        assert!(refusal.cause.contains("rank 2 of communicator 0 has no program"), "{refusal}");
        // An empty one says that it uses nothing.
        set.nodes.push(2);
        set.programs.push(cmdseq::plan::Program::default());
        let found = cmdseq::verify(&set, &capabilities);
        assert!(found.is_ok() || operation.starts_with("put"), "{found:?}");
    }
}

/// Tables are loaded before any instruction runs, so none is named.
#[test]
fn tables_that_a_card_does_not_take_are_refused() {
    let mut aligned = connected(2);
    aligned.address_align = 32;
    let mut few = connected(2);
    few.communicator_ranks = 2;
    for (text, capabilities, says) in [
        ("if rank == 1\n blocks b = 16 of 8, 8\nend", &connected(2), "no table slot 16 (the card has 16 slots)"),
        ("if rank == 1\n blocks b = 0 of 8, 8\nend", &aligned, "the block of rank 1 has displacement 8"),
        ("if rank == 1\n blocks b = 0 of 8, 8, 8\nend", &few, "table of 3 entries"),
    ] {
        let refusal = verified(2, text, capabilities).expect_err(text);
        assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(1), None, Reason::Stored), "{refusal}");
        assert!(refusal.cause.contains(says), "{refusal}");
    }
}

/// Old cards have neither the operations nor the reductions of later ones.
#[test]
fn what_the_card_does_not_have_is_refused() {
    let text = "allreduce source 0, destination 64, bytes 64, element f32, reduction sum";
    let mut old = connected(2);
    old.operations &= !(1 << cmdseq::Operation::Allreduce as u8);
    assert_eq!(verified(2, text, &old).unwrap_err().reason, Reason::Unsupported);
    let mut old = connected(2);
    old.reductions = 0;
    assert_eq!(verified(2, text, &old).unwrap_err().reason, Reason::Unsupported);
}

#[test]
fn the_document_lists_every_reason() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verifier.md")).unwrap();
    for reason in Reason::ALL {
        let row = format!("| `{reason}` | {} |", reason.meaning());
        assert!(document.contains(&row), "{row}");
    }
}
