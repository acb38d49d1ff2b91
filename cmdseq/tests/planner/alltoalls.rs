//! Alltoalls on Dragonflies whose memory is nearly full.

use proptest::prelude::*;

use super::*;

/// Cards with a channel and a stripe of 2 KiB for each row and column, and no more memory.
fn narrow(rows: u32, columns: u32) -> Capabilities {
    let memory_channels = rows + columns - 1;
    let memory_bytes = 2048 * u64::from(memory_channels);
    Capabilities { stripe_half_bytes: 1024, memory_bytes, memory_channels, ..dragonfly(rows, columns) }
}

/// Cards with no room for input and output beside what lies between: the output of an alltoall replaces the input, in passes.
#[test]
fn an_alltoall_without_room_runs_in_place() {
    for (rows, columns, bytes) in [(3, 5, 352), (3, 5, 384), (2, 5, 544), (2, 5, 700)] {
        let mut narrow = narrow(rows, columns);
        let request = request(Collective::Alltoall, rows * columns, bytes, None);
        let chosen = plan(&request, &narrow).unwrap();
        check(&chosen, &narrow);
        assert!(chosen.replaces_input && chosen.notes.iter().any(|note| note.contains("replaces the input")));
        let input = data(&request);
        assert_eq!(run(&chosen, &narrow, &input), expected(&request, &input), "{rows}x{columns}, {bytes} B");
        narrow.memory_bytes *= 4;
        assert!(!plan(&request, &narrow).unwrap().replaces_input);
    }
}

/// Input and output have room beside each other, and what lies between only if it goes in passes: the input stays.
#[test]
fn an_alltoall_with_little_room_keeps_its_input() {
    for (rows, columns, bytes) in [(2, 5, 416), (2, 5, 410), (3, 5, 320), (2, 4, 440), (2, 7, 470), (3, 8, 300)] {
        let narrow = narrow(rows, columns);
        let request = request(Collective::Alltoall, rows * columns, bytes, None);
        let chosen = plan(&request, &narrow).unwrap();
        check(&chosen, &narrow);
        assert!(!chosen.replaces_input);
        let of_passes = chosen.set.programs[0].instructions.len() as u32 / (rows + columns);
        assert!(of_passes > 1, "{rows}x{columns}, {bytes} B: {of_passes} passes");
        let input = data(&request);
        assert_eq!(run(&chosen, &narrow, &input), expected(&request, &input), "{rows}x{columns}, {bytes} B");
    }
}

/// No size is much worse than its neighbours, as long as stripes have room for input and output.
#[test]
fn an_alltoall_on_a_large_dragonfly_is_within_twice_the_bound() {
    for ((rows, columns), most) in
        [((10, 20), 2.0), ((12, 12), 2.0), ((16, 16), 2.0), ((12, 20), 2.0), ((20, 4), 4.0), ((22, 44), 1.5)]
    {
        let capabilities = dragonfly(rows, columns);
        let longest = capabilities.stripe_bytes() / u64::from(2 * rows);
        for bytes in [1 << 20, longest / 10 * 3, longest / 10 * 6, longest / 10 * 9] {
            let request = request(Collective::Alltoall, rows * columns, bytes, None);
            let chosen = plan(&request, &capabilities).unwrap();
            let bound = request.lower_bound(&capabilities).unwrap().total_ps();
            let ratio = chosen.predicted.arrival_ps as f64 / bound as f64;
            assert!(ratio < most, "{rows}x{columns}, {bytes} B: {ratio:.2} times the bound");
            assert!(!chosen.replaces_input);
        }
    }
}

/// Cards with so many channels of 8 KiB, which stripes share.
fn crowded(rows: u32, columns: u32, channels: u32) -> Capabilities {
    let memory_bytes = 8192 * u64::from(channels);
    let stripe_half_bytes = memory_bytes / u64::from(rows + columns - 1) / 128 * 64;
    Capabilities { stripe_half_bytes, memory_bytes, memory_channels: channels, ..dragonfly(rows, columns) }
}

/// The parts of a block are equally long, so they overlap where its length is no multiple of theirs.
#[test]
fn passes_over_tables_cover_all_of_each_block() {
    let crowded = crowded(4, 6, 8);
    for bytes in [1000, 1024, 1030, 1090, 1150] {
        let request = request(Collective::Alltoall, 24, bytes, None);
        let chosen = plan(&request, &crowded).unwrap();
        check(&chosen, &crowded);
        let program = &chosen.set.programs[0];
        let of_passes = program.instructions.len() / 10;
        assert!(of_passes > 1 && program.tables.len() > 4, "{bytes} B: {of_passes} passes");
        assert!(!chosen.replaces_input);
        let input = data(&request);
        assert_eq!(run(&chosen, &crowded, &input), expected(&request, &input), "{bytes} B");
    }
}

proptest! {
    /// Whatever fits gives the right result, and says whether its input is spent.
    #[test]
    fn an_alltoall_that_fits_is_right(rows in 2_u32..6, columns in 2_u32..9, bytes in 0_u64..1100, more in 0_u64..3) {
        let mut narrow = narrow(rows, columns);
        narrow.memory_bytes += 2048 * more;
        let request = request(Collective::Alltoall, rows * columns, bytes, None);
        if let Ok(chosen) = plan(&request, &narrow) {
            check(&chosen, &narrow);
            let program = &chosen.set.programs[0];
            let meets = |one: &Piece, other: &Piece| {
                one.address < other.address + other.bytes && other.address < one.address + one.bytes
            };
            let is_spent = program.input.iter().any(|input| program.output.iter().any(|output| meets(input, output)));
            prop_assert_eq!(chosen.replaces_input, is_spent);
            let input = data(&request);
            prop_assert_eq!(run(&chosen, &narrow, &input), expected(&request, &input));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same where stripes share channels, and blocks have places of their own.
    #[test]
    fn an_alltoall_on_shared_channels_is_right(
        rows in 2_u32..6,
        columns in 2_u32..7,
        channels in 4_u32..9,
        bytes in 0_u64..1300,
    ) {
        let crowded = crowded(rows, columns, channels);
        let request = request(Collective::Alltoall, rows * columns, bytes, None);
        if let Ok(chosen) = plan(&request, &crowded) {
            check(&chosen, &crowded);
            let input = data(&request);
            prop_assert_eq!(run(&chosen, &crowded, &input), expected(&request, &input));
        }
    }
}

/// Programs that cards store have no tables, and no more instructions than a card stores.
#[test]
fn a_resident_alltoall_has_no_tables() {
    for (rows, columns, bytes) in [(2, 2, 4 << 10), (2, 3, 4 << 10), (4, 4, 2 << 10)] {
        let capabilities = dragonfly(rows, columns);
        let once = request(Collective::Alltoall, rows * columns, bytes, None);
        let has_tables = |plan: &Plan| plan.set.programs.iter().any(|program| !program.tables.is_empty());
        assert!(has_tables(&plan(&once, &capabilities).unwrap()), "{rows}x{columns}, {bytes} B");
        let stored = Request { resident: true, ..once };
        let chosen = plan(&stored, &capabilities).unwrap();
        check(&chosen, &capabilities);
        assert!(!has_tables(&chosen), "{rows}x{columns}, {bytes} B");
        let input = data(&stored);
        assert!(run(&chosen, &capabilities, &input) == expected(&stored, &input), "{rows}x{columns}, {bytes} B");
        let short = Capabilities { resident_words: 1, ..capabilities };
        let cause = plan(&stored, &short).unwrap_err().to_string();
        assert!(cause.contains("a resident program has at most 1"), "{cause}");
    }
    let blocks = Request { counts: vec![64; 4], resident: true, ..request(Collective::Allgatherv, 4, 0, None) };
    let cause = plan(&blocks, &dragonfly(2, 2)).unwrap_err().to_string();
    assert!(cause.contains("needs tables"), "{cause}");
}
