//! Large calls, cut into parts on mock cards: the same data as in one part, with a doorbell for each part.

use std::sync::Arc;

use cmdseq::plan::Collective;

use crate::counted::{Accesses, RANKS, call, ranks, shape};
use crate::data::InPlace;
use crate::engine::Ends;
use crate::memory::Memory;
use crate::shape::Shape;

/// Bytes of a part here. Blocks are cut at multiples of 4 KiB, or of 32 KiB in a reduction of elements of 8 B.
const PART: u64 = 64 << 10;

const COLLECTIVES: [Collective; 10] = [
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::Scatter,
    Collective::Gather,
    Collective::Allgather,
    Collective::Alltoall,
    Collective::ReduceScatter,
    Collective::Scan,
    Collective::Exscan,
];

/// Calls of several parts, whose last part is as long as the others, a page or less, or not a multiple of what addresses are aligned to.
fn shapes() -> Vec<Shape> {
    let lengths = |collective: Collective| {
        let odd = if collective.reduces() { 8 } else { 3 };
        [4 * PART, 4 * PART + odd, 3 * PART - odd]
    };
    COLLECTIVES.into_iter().flat_map(|one| lengths(one).map(|bytes| shape(one, bytes))).collect()
}

/// Bytes that differ by rank and by place.
fn data(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31) ^ (at >> 9) ^ (rank * 77)) as u8).collect()
}

#[test]
fn parts_give_what_the_whole_gives() {
    let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
    let calls = ranks(&accesses, true, |rank, engine, registered| {
        let mut calls = Vec::new();
        for shape in shapes() {
            let mut found: Vec<(u64, u64, Vec<u8>)> = Vec::new();
            for part in [u64::MAX / 2, PART] {
                engine.cut_into(part);
                registered.forget_plans();
                assert!(engine.plan(registered, &shape).unwrap());
                let (given, taken) = registered.bytes(&shape);
                let (input, mut output) = (data(rank, given), vec![0; taken]);
                let before = accesses[rank].doorbells();
                call(engine, registered, &shape, &input, &mut output);
                let doorbells = accesses[rank].doorbells() - before;
                found.push((registered.parts(&shape), doorbells, output));
                // As one buffer.
                let mut both = data(rank, given);
                both.resize(given.max(taken), 0);
                engine.call(registered, &shape, &Ends::default(), &mut InPlace(&mut both), &|| {}).unwrap();
                both.truncate(taken);
                found.push((registered.parts(&shape), doorbells, both));
            }
            calls.push((shape, found));
        }
        calls
    });
    for (shape, found) in calls.into_iter().flatten() {
        let what = format!("{} of {} B", shape.collective, shape.bytes);
        let [(one, doorbell, whole), (.., again), (parts, doorbells, cut), (.., in_place)] = &found[..] else {
            panic!()
        };
        assert_eq!((*one, *doorbell), (1, 1), "{what}");
        assert!(*parts > 1 && doorbells == parts, "{what}: {parts} parts, {doorbells} doorbells");
        assert!(whole == again && whole == cut && whole == in_place, "{what}");
    }
}

/// Once it was made, a large call allocates nothing either. Parts of memory that the card reaches are not copied.
#[test]
fn parts_allocate_nothing_and_are_used_in_place() {
    const BYTES: usize = 4 * PART as usize;
    let accesses: Vec<Arc<Accesses>> = (0..RANKS).map(|_| Arc::default()).collect();
    let calls = ranks(&accesses, true, |rank, engine, registered| {
        engine.cut_into(PART);
        let alltoall = shape(Collective::Alltoall, (BYTES / RANKS as usize) as u64);
        assert!(engine.plan(registered, &alltoall).unwrap());
        let memory = || Memory::of(engine.allocate(BYTES).unwrap()).unwrap();
        let (given, taken) = (memory(), memory());
        let reached = |memory: &Memory| memory.reach(memory.address(), BYTES);
        let input = data(rank, BYTES);
        let mut calls = Vec::new();
        for is_reached in [false, false, true, true] {
            let ends =
                if is_reached { Ends { input: reached(&given), output: reached(&taken) } } else { Ends::default() };
            if let Some(end) = &ends.input {
                end.buffer.write(0, &input).unwrap();
            }
            let mut both = if is_reached { vec![0xff; BYTES] } else { input.clone() };
            let mut copied = 0;
            let counted = allocation_counter::measure(|| {
                let finished = engine.call(registered, &alltoall, &ends, &mut InPlace(&mut both), &|| {}).unwrap();
                copied = finished.copied;
            });
            if let Some(end) = &ends.output {
                assert!(both.iter().all(|byte| *byte == 0xff), "the host has copied the output");
                end.buffer.read(0, &mut both).unwrap();
            }
            calls.push((rank, copied, counted.count_total, both));
        }
        calls
    });
    let half = BYTES / 2;
    for calls in calls {
        for (index, (rank, copied, allocations, found)) in calls.into_iter().enumerate() {
            let blocks = |from: usize| data(from, BYTES)[rank * half..][..half].to_vec();
            assert!(found == [blocks(0), blocks(1)].concat(), "call {index}");
            assert_eq!(copied, if index < 2 { 2 * BYTES as u64 } else { 0 }, "call {index}");
            // The first call of each kind has memory allocated.
            assert!(index % 2 == 0 || allocations == 0, "call {index}: {allocations} allocations");
        }
    }
}
