//! Right program sets, some of them near a wrong one.

use crate::cards::{connected, dragonfly};
use crate::verified;

const RIGHT: &[(u32, &str)] = &[
    (1, ""),
    (1, "nop"),
    (4, "barrier"),
    (4, "if rank == 2\n delay extent 1000\n barrier\nelse\n barrier\nend"),
    (1, "delay extent 1 << 36"),
    (1, "fill destination 8GiB - 64, bytes 64, extent 5"),
    (1, "copy source 0, destination 64, bytes 64"),
    (1, "copy source 64, destination 0, bytes 64"),
    (2, "if rank == 0\n send peer 1, source 0, bytes 64\nelse\n recv peer 0, destination 0, bytes 64\nend"),
    (2, "if rank == 0\n send peer 1, source 0, bytes 0\nelse\n recv peer 0, destination 0, bytes 0\nend"),
    // What is empty is neither sent nor waited for.
    (2, "if rank == 0\n send peer 1, source 0, bytes 0\nend"),
    (3, "if rank == 2\n recv peer 0, destination 0, bytes 0\nend\nbarrier"),
    (2, "send peer 1 - rank, source 0, bytes 0\nrecv peer 1 - rank, destination 64, bytes 0"),
    (3, "sendrecv peer (rank + 1) % 3, root (rank + 1) % 3, source 0, destination 64, bytes 0"),
    (2, "if rank == 1\n recv_reduce peer 0, source 0, destination 64, bytes 0, element f32, reduction sum\nend"),
    (1, "copy source host 0, destination host 64, bytes 64"),
    (
        2,
        "if rank == 0\n send peer 1, source 0, bytes 1MiB\nelse\n recv peer 0, destination 0, bytes 1MiB, rendezvous\nend",
    ),
    (2, "if rank == 0\n send peer 1, source 0, bytes 64, eager\nelse\n recv peer 0, destination 0, bytes 64\nend"),
    (
        2,
        "if rank == 0\n send peer 1, source 0, bytes 16384, eager\nelse\n recv peer 0, destination 0, bytes 16384\nend",
    ),
    (2, "if rank == 0\n send peer 1, source 0, bytes 8, tag 7\nelse\n recv peer 0, destination 0, bytes 8, tag 7\nend"),
    (2, "if rank == 0\n send peer 1, source 0, bytes 8, tag 7\nelse\n recv peer 0, destination 0, bytes 8\nend"),
    (2, "nop tag rank"),
    (
        2,
        "for k in 0 .. 9\n if (rank + k) % 2 == 0\n  send peer 1 - rank, source 0, bytes 64\n else\n  recv peer 1 - rank, destination 64, bytes 64\n end\nend",
    ),
    (
        2,
        "if rank == 0\n send peer 1, source 0, bytes 8\n recv peer 1, destination 8, bytes 8\nelse\n recv peer 0, destination 8, bytes 8\n send peer 0, source 0, bytes 8\nend",
    ),
    (2, "sendrecv peer 1 - rank, root 1 - rank, source 0, destination 64, bytes 64"),
    (4, "sendrecv peer (rank + 1) % 4, root (rank - 1) % 4, source 0, destination 4096, bytes 64"),
    (4, "sendrecv peer rank, root rank, source 0, destination 4096, bytes 64"),
    (
        3,
        "if rank == 0\n send peer 1, source 0, bytes 8\nelse if rank == 1\n sendrecv peer 2, root 0, source 0, destination 8, bytes 8\nelse\n recv peer 1, destination 0, bytes 8\nend",
    ),
    (
        4,
        "for k in 1 .. ranks\n sendrecv peer (rank + k) % ranks, root (rank - k) % ranks, source rank * 4KiB, destination 1MiB + ((rank - k) % ranks) * 4KiB, bytes 4KiB, tag k\nend",
    ),
    (
        4,
        "sendrecv peer rank ^ 1, root rank ^ 1, source 0, destination 64, bytes 64\nsendrecv peer rank ^ 2, root rank ^ 2, source 0, destination 64, bytes 64",
    ),
    (
        5,
        "if rank % 2 == 0 and rank < 4\n recv peer rank + 1, destination 0, bytes 8\nelse if rank < 4\n send peer rank - 1, source 0, bytes 8\nend",
    ),
    (4, "scatter root 2, source 0, destination 4096, bytes 64"),
    (4, "scatter root 2, source 0, destination 128, bytes 64\nif rank == 3\n nop\nend"),
    (4, "scatter root 0, source 0, destination 0, bytes 64"),
    (4, "gather root 3, source 0, destination 4096, bytes 64"),
    (4, "gather root 0, source 0, destination 0, bytes 64"),
    (4, "gather root 0, source 0, destination 4096, bytes 64, extent 256"),
    (4, "gather root 0, source 0, destination 4096, bytes 64, extent 1"),
    (3, "broadcast root 1, source 0, destination 0, bytes 64"),
    (3, "broadcast root 1, source 0, destination 64, bytes 64"),
    (4, "alltoall source 0, destination 256, bytes 64"),
    (4, "alltoall source 0 striped, destination 0x1000_0000 striped, bytes 64KiB"),
    (4, "alltoall_scan source 0, destination 256, bytes 64, element bf16, reduction sum"),
    (4, "alltoall_scan source 0 striped, destination 64KiB striped, bytes 64KiB, element f32, reduction sum"),
    (1, "alltoall_scan source 0, destination 0, bytes 64, element u8, reduction xor"),
    (
        3,
        "if rank == 1\n rdma_write peer 2, source 0, destination 0x8000, bytes 64\nend\nalltoall_scan source 0, destination 0x1000, bytes 64, element u8, reduction xor\nif rank == 2\n fill destination 0x8000, bytes 64, extent 7\nend",
    ),
    (4, "allgather source 0, destination 64, bytes 64"),
    (4, "allgather source 64 * rank, destination 0, bytes 64"),
    (4, "allgather source 0, destination 4096, bytes 64, extent 100"),
    (4, "allgather source 0, destination 0x1000_0000 striped, bytes 256MiB"),
    (4, "reduce root 2, source 0, destination 0, bytes 64, element f32, reduction sum"),
    (4, "reduce root 2, source 0, destination 64, bytes 64, element i64i32, reduction minloc"),
    (4, "allreduce source 0, destination 64, bytes 64, element bf16, reduction prod"),
    (4, "allreduce source 0 striped, destination 0x1000_0000 striped, bytes 64, element u8, reduction lxor"),
    (4, "reduce_scatter source 0, destination 256, bytes 64, element f64, reduction max"),
    (4, "reduce_scatter source 0, destination 64 * rank, bytes 64, element f64, reduction max"),
    (4, "scan source 0, destination 64, bytes 64, element i8, reduction sum"),
    (4, "exscan source 0, destination 64, bytes 64, element u32, reduction or"),
    (
        2,
        "if rank == 0\n send peer 1, source 0, bytes 64\nelse\n recv_reduce peer 0, source 64, destination 64, bytes 64, element f32, reduction sum\nend",
    ),
    (
        4,
        "sendrecv_reduce peer (rank + 1) % 4, root (rank - 1) % 4, source 0, extent 64, destination 64, bytes 64, element f32, reduction sum",
    ),
    (4, "communicator pair = 1 of rank - rank % 2, rank - rank % 2 + 1\nbarrier communicator pair"),
    (
        8,
        "communicator rows = 1 of (rank / 4) * 4 .. (rank / 4) * 4 + 4\ncommunicator columns = 2 of rank % 4 .. ranks step 4\nallgather communicator rows, source 0, destination 4096, bytes 64\nbroadcast communicator columns, root 1, source 0, destination 0, bytes 64",
    ),
    (
        4,
        "communicator odd = 3 of 3, 1\nif rank % 2 == 1\n allgather communicator odd, source 0, destination 64, bytes 8\nend\nif rank == 1\n nop\nend",
    ),
    (2, "communicator pair = 1 of 0, 1\nbarrier communicator pair\nfree communicator pair\nbarrier"),
    (
        2,
        "if rank == 0\n rdma_write peer 1, source 0, destination 64, bytes 64\nend\nbarrier\nif rank == 1\n copy source 64, destination 4096, bytes 64\nend",
    ),
    (2, "if rank == 0\n rdma_read peer 1, source 64, destination 0, bytes 64\nend"),
    (
        3,
        "if rank < 2\n rdma_read peer 2, source 64, destination 0, bytes 64\nelse\n copy source 64, destination 4096, bytes 64\nend",
    ),
    (
        3,
        "if rank < 2\n rdma_write peer 2, source 0, destination 64 * rank, bytes 64\nelse\n fill destination 128, bytes 64, extent 0\nend",
    ),
    (2, "rdma_write peer 1 - rank, source 0, destination 64, bytes 64"),
    (
        2,
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n barrier\nelse\n open window 3, key 7, rights write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 7\nend",
    ),
    (
        2,
        "if rank == 0\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 7\n rdma_read peer 1, source 0x1020, destination 0x2000, bytes 32, window 3, key 7\n barrier\n barrier\n rdma_write peer 1, source 0, destination 0x1000, bytes 64, window 3, key 8\n barrier\nelse\n open window 3, key 7, rights read_write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 7\n open window 3, key 8, rights write, destination 0x1000, bytes 64\n barrier\n barrier\n close window 3, key 8\nend",
    ),
    (
        2,
        "if rank == 0\n wait_signal signal 1, value 1\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1, window 3, key 7\nelse\n open window 3, key 7, rights write_signal, destination 0x1000, bytes 64\n put_signal peer 0, source 0, destination 0, bytes 0, signal 1, value 1\n wait_signal signal 0, value 1\n close window 3, key 7\nend",
    ),
    (
        2,
        "if rank == 0\n rdma_write peer 1, source 0, destination 64, bytes 64\n rdma_write peer 1, source 64, destination 64, bytes 64\n rdma_read peer 1, source 64, destination 128, bytes 64\nend",
    ),
    (
        2,
        "if rank == 0\n rdma_write peer 1, source 0, destination 64, bytes 64\n send peer 1, source 0, bytes 8\nelse\n recv peer 0, destination 0, bytes 8\n copy source 64, destination 4096, bytes 64\nend",
    ),
    (
        3,
        "if rank == 0\n rdma_write peer 2, source 0, destination 64, bytes 64\n send peer 1, source 0, bytes 8\nelse if rank == 1\n recv peer 0, destination 0, bytes 8\n send peer 2, source 0, bytes 8\nelse\n recv peer 1, destination 0, bytes 8\n fill destination 64, bytes 64, extent 0\nend",
    ),
    (
        2,
        "if rank == 0\n put_signal peer 1, source 0, destination 4096, bytes 64, signal 0, value 1\nelse\n wait_signal signal 0, value 1\n copy source 4096, destination 8192, bytes 64\nend",
    ),
    (
        2,
        "if rank == 0\n put_signal peer 1, source 0, destination 0, bytes 0, signal 63, value 5\nelse\n wait_signal signal 63, value 2\n wait_signal signal 63, value 3\nend",
    ),
    (
        2,
        "if rank == 0\n put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1\n put_signal peer 1, source 64, destination 0x1040, bytes 64, signal 0, value 1\nelse\n wait_signal signal 0, value 1\n copy source 0x1000, destination 0x2000, bytes 64\n wait_signal signal 0, value 1\n copy source 0x1040, destination 0x2040, bytes 64\nend",
    ),
    (
        4,
        "if rank == 3\n wait_signal signal 0, value 3\n fill destination 0x1000, bytes 192, extent 0\nelse\n put_signal peer 3, source 0, destination 0x1000 + 64 * rank, bytes 64, signal 0, value 1\nend",
    ),
    // Round after round into the same buffer: the next put only after the card has said that it may come.
    (
        2,
        "for k in 0 .. 5\n if rank == 0\n  put_signal peer 1, source 0, destination 0x1000, bytes 64, signal 0, value 1\n  wait_signal signal 1, value 1\n else\n  wait_signal signal 0, value 1\n  copy source 0x1000, destination 0x2000 + 64 * k, bytes 64\n  put_signal peer 0, source 0, destination 0, bytes 0, signal 1, value 1\n end\nend",
    ),
    // The same of several into one signal, which only a second look can tell.
    (
        3,
        "for k in 0 .. 3\n if rank < 2\n  put_signal peer 2, source 0, destination 0x1000 + 64 * rank, bytes 64, signal 0, value 1\n  wait_signal signal 1, value 1\n else\n  wait_signal signal 0, value 2\n  copy source 0x1000, destination 0x2000, bytes 128\n  put_signal peer 0, source 0, destination 0, bytes 0, signal 1, value 1\n  put_signal peer 1, source 0, destination 0, bytes 0, signal 1, value 1\n end\nend",
    ),
    // Lengths of their own, in place, in any order, and of nothing.
    (3, "blocks b = 0 of 8 * i for i in 0 .. ranks\nallgatherv source 0, destination 4096, bytes 8 * rank, extent b"),
    (
        3,
        "blocks b = 0 of 64 at 128, 64 at 64, 64 at 0\nallgatherv source 4096 + 128 - 64 * rank, destination 4096, bytes 64, extent b",
    ),
    (
        4,
        "if rank == 2\n blocks b = 15 of 16 * (i + 1) for i in 0 .. ranks\n gatherv root 2, source 0, destination 4096, bytes 16 * (rank + 1), extent b\nelse\n gatherv root 2, source 0, destination 4096, bytes 16 * (rank + 1), extent 0\nend",
    ),
    (3, "blocks b = 0 of 8, 8 at 64, 8 at 72\ngatherv root 1, source 4096 + 64, destination 4096, bytes 8, extent b"),
    // Blocks that are sent may overlap, and an own one lie in place among them.
    (
        3,
        "if rank == 0\n blocks b = 0 of 64, 64 at 32, 64 at 16\nend\nscatterv root 0, source 4096, destination 4096, bytes 64, extent 0",
    ),
    // Where an empty block would be does not matter.
    (
        2,
        "blocks b = 0 of 8, 0 at 0xffff_ffff_ffff_0000\nallgatherv source 0, destination 4096, bytes 8 - 8 * rank, extent b",
    ),
    (2, "blocks b = 0 of 0, 0\nalltoallv source 0, destination 0, extent b | b << 16"),
    (
        4,
        "blocks sends = 0 of 8 * (rank + 2 * i) for i in 0 .. ranks\nblocks receives = 1 of 8 * (i + 2 * rank) for i in 0 .. ranks\nalltoallv source 0, destination 4096, extent sends | receives << 16",
    ),
    (
        2,
        "blocks sends = 0 of 8 at 8 * rank, 8 at 64 - 56 * rank\nif rank == 0\n blocks receives = 1 of 8, 8 at 4096\nelse\n blocks receives = 1 of 8 at 4096, 8 at 8\nend\nalltoallv source 0, destination 0, extent 1 << 16",
    ),
    (
        2,
        "blocks b = 0 of 16385, 20000\ngatherv root 0, source 0, destination 1MiB, bytes 16385 + 3615 * rank, extent b",
    ),
    (2, "blocks b = 0 of 16384, 16384\ngatherv root 0, source 0, destination 1MiB, bytes 16384, extent b, eager"),
    (
        3,
        "communicator pair = 1 of 2, 0\nif rank != 1\n blocks b = 3 of 8, 24\n allgatherv communicator pair, source 0, destination 4096, bytes 24 - 8 * rank, extent b\nend",
    ),
    // The same bytes of both ends, which lie elsewhere and in slots of another number.
    (
        2,
        "blocks b = rank + 3 of 8 at 512 * rank, 16 at 4096\nallgatherv source 0, destination 4096, bytes 8 + 8 * rank, extent b",
    ),
    (
        2,
        "blocks b = 0 of 8, 8\nif rank == 0\n rdma_write peer 1, source 0, destination 0x8000, bytes 64\nend\nallgatherv source 0, destination 4096, bytes 8, extent b\nif rank == 1\n fill destination 0x8000, bytes 64, extent 0\nend",
    ),
    (
        64,
        "for k in 0 .. 8\n sendrecv peer (rank + 1) % ranks, root (rank - 1) % ranks, source 4096 * k, destination 1MiB + 4096 * k, bytes 4096\nend\nbarrier",
    ),
];

#[test]
fn every_right_set_is_accepted() {
    let mut wrong = Vec::new();
    for (ranks, text) in RIGHT {
        if let Err(refusal) = verified(*ranks, text, &connected(*ranks)) {
            wrong.push(format!("{text}\n{refusal}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    println!("{} right sets", RIGHT.len());
    assert!(RIGHT.len() >= 75);
}

#[test]
fn what_is_linked_on_a_dragonfly_is_accepted() {
    for text in [
        "communicator row = 1 of (rank / 4) * 4 .. (rank / 4) * 4 + 4\nbarrier communicator row",
        "communicator column = 2 of rank % 4 .. ranks step 4\nalltoall communicator column, source 0, destination 4096, bytes 64",
        "if rank == 0\n send peer 12, source 0, bytes 64\nelse if rank == 12\n recv peer 0, destination 0, bytes 64\nend",
    ] {
        verified(16, text, &dragonfly(4, 4)).unwrap_or_else(|refusal| panic!("{text}\n{refusal}"));
    }
}
