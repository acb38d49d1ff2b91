//! Collectives on cards of a selector: in process, and on sockets, where the fabric goes on by itself.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cmdseq::plan::Collective;
use fpga_collective::{Cards, Class, Error, Request, Times};
use fpga_hal::vfio_user::Server;
use fpga_select::Selector;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Generous, for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

const ALLREDUCE: Request<'_> = Request {
    operation: "allreduce",
    reduction: Some("sum"),
    element: Some("u32"),
    algorithm: None,
    root: 0,
    peer: 0,
    bytes: 1 << 16,
};

/// Element `index` of the input of a rank.
fn element(rank: u32, index: u32) -> u32 {
    (rank + 1).wrapping_mul(index ^ 0x9e37_79b9)
}

fn bytes_of(value: impl Fn(u32) -> u32, bytes: u64) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|index| value(index).to_le_bytes()).collect()
}

/// Runs an allreduce, waits with `wait`, and checks all outputs.
fn allreduce(
    cards: &mut Cards,
    wait: impl Fn(&mut Cards, fpga_collective::CollectiveId) -> Result<Times, Error>,
) -> Result<(), Error> {
    let collective = cards.plan(&ALLREDUCE)?;
    let ranks = cards.count();
    for rank in 0..ranks {
        let input = bytes_of(|index| element(rank, index), ALLREDUCE.bytes);
        cards.write_input(collective, rank, 0, &input)?;
    }
    let sum = |index| (0..ranks).fold(0u32, |sum, rank| sum.wrapping_add(element(rank, index)));
    let expected = bytes_of(sum, ALLREDUCE.bytes);
    for _ in 0..3 {
        cards.launch(collective)?;
        let times = wait(cards, collective)?;
        assert!(times.t1_us > 0.0 && times.t2_us >= times.t1_us, "{times:?}");
        assert_eq!(cards.times(collective)?, Some(times));
        // A launch that is done is done at once.
        assert_eq!(cards.test(collective)?, Some(times));
        assert_eq!(cards.wait(collective, Duration::ZERO)?, times);
        assert_eq!(cards.wait_part(collective, Instant::now(), Duration::ZERO)?, Some(times));
        for rank in 0..ranks {
            let mut output = vec![0; expected.len()];
            cards.read_output(collective, rank, 0, &mut output)?;
            assert!(output == expected, "rank {rank}");
        }
    }
    cards.release(collective)
}

#[test]
fn a_wait_ends_when_all_ranks_are_done() {
    for selector in ["mock:optweb:4", "mock:circus:2x4", "mock:bluelink:2x4"] {
        let mut cards = Cards::open(selector).unwrap();
        allreduce(&mut cards, |cards, collective| cards.wait(collective, PATIENCE))
            .unwrap_or_else(|error| panic!("{selector}: {error}"));
    }
}

#[test]
fn a_test_never_waits() {
    let mut cards = Cards::open("mock:optweb:4").unwrap();
    let wait = |cards: &mut Cards, collective| {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(times) = cards.test(collective)? {
                return Ok(times);
            }
            assert!(Instant::now() < until, "not done");
        }
    };
    allreduce(&mut cards, wait).unwrap();
}

/// Sleeps on the descriptor alone: no sleep ends by its time limit.
fn by_descriptor(cards: &mut Cards, collective: fpga_collective::CollectiveId) -> Result<Times, Error> {
    let event: OwnedFd = cards.event()?.try_clone_to_owned().unwrap();
    loop {
        if let Some(times) = cards.test(collective)? {
            return Ok(times);
        }
        let limit = PollTimeout::try_from(PATIENCE).unwrap();
        let raised = poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], limit).unwrap();
        assert_eq!(raised, 1, "no event within {PATIENCE:?}");
    }
}

/// Serves mock cards whose fabric goes on by itself, and opens them. They are gone once the second value is dropped.
fn served(selector: &str) -> (Cards, impl Sized + use<>) {
    let selector = Selector::parse(selector).unwrap();
    let (fabric, endpoints) = selector.fabric().unwrap();
    selector.plant_faults(&fabric);
    let clock = fabric.start_clock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = |node: u32| directory.path().join(format!("{node}.sock"));
    let serve = |(node, card)| Server::bind(socket(node), card).and_then(Server::spawn).unwrap();
    let servers: Vec<_> = endpoints.into_iter().map(serve).collect();
    let cards = Cards::open(&format!("vfio-user:{}", directory.path().display())).unwrap();
    (cards, (servers, clock, fabric, directory))
}

#[test]
fn the_descriptor_wakes_who_sleeps_on_it() {
    let (mut cards, _servers) = served("mock:optweb:4");
    assert_eq!(cards.info(3).unwrap().kind, "vfio-user");
    allreduce(&mut cards, by_descriptor).unwrap();
    let mut in_process = Cards::open("mock:optweb:4").unwrap();
    allreduce(&mut in_process, by_descriptor).unwrap();
}

/// Clears the descriptor, also of interrupts that come late.
fn is_quiet(cards: &mut Cards, event: &OwnedFd) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        cards.clear_event();
        if poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 0 {
            return true;
        }
    }
    false
}

/// And the next launch raises it.
#[test]
fn the_descriptor_can_be_cleared_once_a_launch_is_over() {
    let (served, _servers) = served("mock:optweb:4");
    for mut cards in [Cards::open("mock:optweb:4").unwrap(), served] {
        let event: OwnedFd = cards.event().unwrap().try_clone_to_owned().unwrap();
        let collective = cards.plan(&Request { operation: "allgather", bytes: 4096, ..Request::default() }).unwrap();
        for _ in 0..3 {
            cards.launch(collective).unwrap();
            by_descriptor(&mut cards, collective).unwrap();
            assert!(is_quiet(&mut cards, &event), "after a launch that is done");
            cards.launch(collective).unwrap();
            cards.wait(collective, PATIENCE).unwrap();
            assert!(is_quiet(&mut cards, &event), "after a wait");
            cards.launch(collective).unwrap();
            cards.abort(collective).unwrap();
            assert!(is_quiet(&mut cards, &event), "after an abort");
        }
        // What is in flight keeps its event.
        cards.launch(collective).unwrap();
        let limit = PollTimeout::try_from(PATIENCE).unwrap();
        assert_eq!(poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], limit).unwrap(), 1);
        cards.clear_event();
        assert_eq!(poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], limit).unwrap(), 1);
    }
}

/// Its wait takes what the launch in flight has raised.
#[test]
fn data_that_is_moved_meanwhile_takes_no_event() {
    for moves in [
        |cards: &mut Cards, card| cards.write_memory(card, 1 << 30, &[1; 64]),
        |cards: &mut Cards, card| cards.read_memory(card, 1 << 30, &mut [0; 64]),
        |cards: &mut Cards, card| {
            let memory = cards.allocate(64)?;
            cards.load_memory(card, 1 << 30, &memory, 0, 64)?;
            cards.store_memory(card, 1 << 30, &memory, 0, 64)
        },
    ] {
        let mut cards = Cards::open("mock:optweb:4+late=100").unwrap();
        let event: OwnedFd = cards.event().unwrap().try_clone_to_owned().unwrap();
        let collective = cards.plan(&Request { operation: "allgather", bytes: 1 << 16, ..Request::default() }).unwrap();
        for _ in 0..3 {
            cards.launch(collective).unwrap();
            (0..4).for_each(|card| moves(&mut cards, card).unwrap());
            let until = Instant::now() + PATIENCE;
            loop {
                let limit = PollTimeout::try_from(PATIENCE).unwrap();
                assert_eq!(poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], limit).unwrap(), 1);
                if cards.test(collective).unwrap().is_some() {
                    break;
                }
                assert!(Instant::now() < until);
            }
            assert!(is_quiet(&mut cards, &event));
        }
    }
}

/// With a descriptor and without, and the launch is over then.
#[test]
fn a_test_finds_out_that_a_card_is_gone() {
    for has_descriptor in [false, true] {
        let (mut cards, servers) = served("mock:optweb:4+stop=2@1.0.65536");
        if has_descriptor {
            cards.event().unwrap();
        }
        let request = Request { operation: "allgather", bytes: 1 << 20, ..Request::default() };
        let collective = cards.plan(&request).unwrap();
        cards.launch(collective).unwrap();
        assert_eq!(cards.test(collective).unwrap(), None);
        drop(servers);
        let until = Instant::now() + PATIENCE;
        let error = loop {
            match cards.test(collective) {
                Err(error) => break error,
                Ok(times) => assert!(times.is_none() && Instant::now() < until, "{times:?}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(error.class == Class::Gone && error.rank.is_some(), "{error:?}");
        assert_eq!(cards.in_flight(), None);
        assert_eq!(cards.test(collective).unwrap_err().class, Class::Refused);
        let error = cards.plan(&request).unwrap_err();
        assert!(error.class == Class::Gone && error.rank.is_some(), "{error:?}");
    }
}

#[test]
fn a_launch_that_fails_has_no_times_of_the_one_before() {
    let (mut cards, servers) = served("mock:optweb:4");
    cards.event().unwrap();
    let collective = cards.plan(&Request { operation: "barrier", ..Request::default() }).unwrap();
    cards.launch(collective).unwrap();
    cards.wait(collective, PATIENCE).unwrap();
    drop(servers);
    assert_eq!(cards.launch(collective).unwrap_err().class, Class::Gone);
    assert_eq!(cards.times(collective).unwrap(), None);
    assert_eq!(cards.test(collective).unwrap_err().class, Class::Refused);
    assert_eq!(cards.wait(collective, PATIENCE).unwrap_err().class, Class::Refused);
}

#[test]
fn a_card_that_stopped_ends_a_wait_but_not_the_launch() {
    let mut cards = Cards::open("mock:optweb:4+stop=2@1.0.65536").unwrap();
    let request = Request { operation: "allgather", bytes: 1 << 20, ..Request::default() };
    let collective = cards.plan(&request).unwrap();
    cards.launch(collective).unwrap();
    assert_eq!(cards.test(collective).unwrap(), None);
    for _ in 0..2 {
        let error = cards.wait(collective, Duration::from_millis(20)).unwrap_err();
        assert_eq!((error.class, error.rank), (Class::Timeout, Some(2)), "{error}");
        let error = cards.launch(collective).unwrap_err();
        assert!(error.class == Class::Refused && error.message.contains("in flight"), "{error}");
        let error = cards.write_input(collective, 0, 0, &[0]).unwrap_err();
        assert_eq!(error.class, Class::Refused, "{error}");
    }
    // The stopped card does not stop, so the abort fails, and says so; the others are free.
    assert!(cards.abort(collective).is_err());
    assert_eq!(cards.wait(collective, PATIENCE).unwrap_err().class, Class::Refused);
}

#[test]
fn a_wait_in_parts_has_one_limit() {
    let mut cards = Cards::open("mock:optweb:4+stop=2@1.0.65536").unwrap();
    let request = Request { operation: "allgather", bytes: 1 << 20, ..Request::default() };
    let collective = cards.plan(&request).unwrap();
    cards.launch(collective).unwrap();
    assert_eq!(cards.wait_part(collective, Instant::now(), PATIENCE).unwrap(), None);
    let began = Instant::now();
    let error = loop {
        match cards.wait_part(collective, began, Duration::from_millis(180)) {
            Ok(times) => assert_eq!(times, None),
            Err(error) => break error,
        }
    };
    assert_eq!((error.class, error.rank), (Class::Timeout, Some(2)), "{error}");
    // At least the limit: of the whole wait, not of its last part.
    let waited = error.message.split_once("ms for").and_then(|(waited, _)| waited.strip_prefix("Waited "));
    assert!(waited.is_none_or(|ms| ms.parse::<f64>().unwrap() >= 180.0), "{error}");
    let mut cards = Cards::open("mock:optweb:4").unwrap();
    let collective = cards.plan(&request).unwrap();
    cards.launch(collective).unwrap();
    let began = Instant::now();
    let times = loop {
        if let Some(times) = cards.wait_part(collective, began, PATIENCE).unwrap() {
            break times;
        }
    };
    assert!(times.t2_cycles >= times.t1_cycles && times.t1_cycles > 0, "{times:?}");
    let clock_khz = cards.info(0).unwrap().clock_khz;
    assert_eq!(times.t2_us, times.t2_cycles as f64 * 1e3 / f64::from(clock_khz));
}

/// Cards that fetch host memory themselves, and one whose sequencer reaches none; addresses that suit the cards, and others.
#[test]
fn data_in_memory_that_the_cards_reach_is_the_same() {
    for selector in ["mock:optweb:4", "mock:alveo-xdma:4", "mock:bluelink:2x2"] {
        for (at, bytes) in [(0, 4096), (64, 1 << 16), (4, 4096), (0, 100)] {
            let mut cards = Cards::open(selector).unwrap();
            let request = Request { bytes, ..ALLREDUCE };
            let collective = cards.plan(&request).unwrap();
            let memory = cards.allocate(4 * (at + bytes as usize)).unwrap();
            let place = |rank: u32| rank as usize * bytes as usize + at;
            for rank in 0..4 {
                memory.write(place(rank), &bytes_of(|index| element(rank, index), bytes)).unwrap();
                cards.load_input(collective, rank, &memory, place(rank)).unwrap();
            }
            cards.launch(collective).unwrap();
            cards.wait(collective, PATIENCE).unwrap();
            memory.fill(0, memory.len(), 0xee).unwrap();
            let sum = |index| (0..4).fold(0u32, |sum, rank| sum.wrapping_add(element(rank, index)));
            let expected = bytes_of(sum, bytes);
            let mut found = vec![0; memory.len()];
            for rank in 0..4 {
                cards.store_output(collective, rank, &memory, place(rank)).unwrap();
            }
            memory.read(0, &mut found).unwrap();
            let all = [vec![0xee; at], expected.repeat(4), vec![0xee; 3 * at]].concat();
            assert!(found == all, "{selector}, byte {at}, {bytes} bytes");
            cards.load_memory(3, 1 << 20, &memory, at, bytes).unwrap();
            let mut read = vec![0; bytes as usize];
            cards.read_memory(3, 1 << 20, &mut read).unwrap();
            assert!(read == expected, "{selector}, byte {at}, {bytes} bytes");
            memory.fill(0, memory.len(), 0).unwrap();
            cards.store_memory(3, 1 << 20, &memory, at, bytes).unwrap();
            memory.read(at, &mut read).unwrap();
            assert!(read == expected, "{selector}, byte {at}, {bytes} bytes");
            for (at, bytes) in [(1, u64::MAX), (usize::MAX, 1), (memory.len(), 1), (1, memory.len() as u64)] {
                let error = cards.load_memory(0, 0, &memory, at, bytes).unwrap_err();
                assert_eq!(error.class, Class::Usage, "{error}");
            }
            let error = cards.store_output(collective, 0, &memory, memory.len() - 1).unwrap_err();
            assert_eq!(error.class, Class::Usage, "{error}");
            let error = cards.store_memory(0, u64::MAX - 63, &memory, 0, 64).unwrap_err();
            assert_eq!(error.class, Class::Refused, "{error}");
        }
    }
}

#[test]
fn capabilities_have_names() {
    let cards = Cards::open("mock:optweb:4").unwrap();
    let info = cards.info(0).unwrap();
    assert!(info.operation_names().contains(&"copy") && info.operation_names().len() < 64, "{info:?}");
    assert!(info.element_names().contains(&"f32") && info.reduction_names().contains(&"sum"), "{info:?}");
    assert_eq!(info.reduction_names().len(), info.reductions.count_ones() as usize);
    let status = cards.status(0).unwrap();
    assert_eq!(status.queue, "running");
    assert_eq!(cards.status(4).unwrap_err().class, Class::Usage);
}

#[test]
fn a_failed_launch_is_over() {
    let mut cards = Cards::open("mock:optweb:4+cut=0-1").unwrap();
    let collective = cards.plan(&ALLREDUCE).unwrap();
    cards.launch(collective).unwrap();
    let error = cards.wait(collective, PATIENCE).unwrap_err();
    assert_eq!(error.class, Class::Gone, "{error}");
    assert_eq!(cards.times(collective).unwrap(), None);
    assert_eq!(cards.wait(collective, PATIENCE).unwrap_err().class, Class::Refused);
}

/// Whatever read of host memory fails, in a copy, a store or a launch, and whatever call finds out.
#[test]
fn a_card_that_halted_takes_the_next_collective() {
    let by_wait = |cards: &mut Cards, collective| cards.wait(collective, PATIENCE);
    let by_write = |cards: &mut Cards, collective| {
        let written = cards.write_memory(1, 1 << 24, &[1; 64]);
        if cards.in_flight().is_none() {
            return Err(written.unwrap_err());
        }
        // A write that fails without a halt leaves the launch alone.
        assert!(written.is_ok() || cards.status(1)?.queue == "running", "{written:?}");
        let times = cards.wait(collective, PATIENCE)?;
        written.map(|()| times)
    };
    for (way, waited) in [by_wait, by_descriptor, by_write].into_iter().enumerate() {
        for fault in ["poisoned", "unanswered"] {
            let mut halted = 0;
            for read in 0..16 {
                let mut cards = Cards::open(&format!("mock:optweb:3+{fault}=1@{read}")).unwrap();
                for run in 0..6 {
                    let Err(error) = allreduce(&mut cards, waited) else { continue };
                    let case = format!("way {way}, {fault}, read {read}, run {run}: {error}");
                    assert_eq!((error.class, error.rank), (Class::Failed, Some(1)), "{case}");
                    halted += u32::from(error.message.contains("halted"));
                    assert_eq!(cards.in_flight(), None, "{case}");
                    assert_eq!(cards.status(1).unwrap().queue, "running", "{case}");
                    allreduce(&mut cards, waited).unwrap_or_else(|error| panic!("{case}; then {error}"));
                }
            }
            assert!(halted > 3, "{halted}");
        }
    }
}

/// The launch was done before the card halted.
#[test]
fn a_launch_that_was_done_stays_done() {
    let mut done = 0;
    for read in 0..16 {
        let mut cards = Cards::open(&format!("mock:optweb:3+poisoned=1@{read}")).unwrap();
        let Ok(collective) = cards.plan(&Request { operation: "barrier", ..Request::default() }) else { continue };
        cards.launch(collective).unwrap();
        let Err(error) = cards.write_memory(1, 0, &[1; 300_000]) else { continue };
        if !error.message.contains("halted") {
            continue;
        }
        done += u32::from(cards.times(collective).unwrap().is_some());
        assert_eq!((cards.in_flight(), &*cards.status(1).unwrap().queue), (None, "running"), "read {read}: {error}");
        cards.write_memory(1, 0, &[1; 64]).unwrap();
    }
    assert!(done > 0);
}

/// An instruction has failed before, or the time limit has passed.
#[test]
fn a_card_that_halted_behind_another_error_takes_the_next_call() {
    let data = vec![1; 300_000];
    for (faults, limit) in [("poisoned=1@1+poisoned=1@2", PATIENCE), ("poisoned=1@0", Duration::ZERO)] {
        let mut cards = Cards::open(&format!("mock:optweb:3+{faults}")).unwrap();
        cards.set_timeout(limit);
        let error = cards.write_memory(1, 0, &data).unwrap_err();
        assert!(!error.message.contains("the sequencer halted"), "{faults}: {error}");
        assert_eq!((error.rank, &*cards.status(1).unwrap().queue), (Some(1), "running"), "{faults}: {error}");
        cards.set_timeout(PATIENCE);
        cards.write_memory(1, 0, &data).unwrap_or_else(|error| panic!("{faults}: {error}"));
        let mut read = vec![0; data.len()];
        cards.read_memory(1, 0, &mut read).unwrap();
        assert!(read == data, "{faults}");
    }
}

#[test]
fn errors_of_a_card_name_its_rank() {
    let calls = [
        |cards: &mut Cards| cards.write_memory(1, 0, &[1; 64]),
        |cards: &mut Cards| {
            let memory = cards.allocate(64)?;
            cards.load_memory(1, 0, &memory, 0, 64)
        },
        |cards: &mut Cards| cards.plan(&ALLREDUCE).and_then(|collective| cards.release(collective)),
    ];
    for (call, read) in calls.into_iter().flat_map(|call| (0..4).map(move |read| (call, read))) {
        let mut cards = Cards::open(&format!("mock:optweb:3+poisoned=1@{read}")).unwrap();
        let error = (0..16).find_map(|_| call(&mut cards).err()).expect("a read fails");
        assert_eq!((error.class, error.rank), (Class::Failed, Some(1)), "read {read}: {error}");
        call(&mut cards).unwrap_or_else(|error| panic!("read {read}: {error}"));
    }
}

/// The error of a DMA engine names no card.
#[test]
fn errors_of_an_engine_name_its_rank() {
    let mut cards = Cards::open("mock:alveo-xdma:2+flip=1@64").unwrap();
    let error = cards.read_memory(1, 64, &mut [0; 32]).unwrap_err();
    assert_eq!((error.class, error.rank), (Class::Failed, Some(1)), "{error}");
    let memory = cards.allocate(64).unwrap();
    let error = cards.store_memory(1, 64, &memory, 0, 32).unwrap_err();
    assert_eq!((error.class, error.rank), (Class::Failed, Some(1)), "{error}");
}

#[test]
fn other_cards_have_other_collectives() {
    let open = || Cards::open("mock:optweb:2").unwrap();
    let (mut these, mut others) = (open(), open());
    let plan = |cards: &mut Cards, bytes| cards.plan(&Request { bytes, ..ALLREDUCE }).unwrap();
    let (id, other) = (plan(&mut these, 64), plan(&mut others, 128));
    assert_ne!(id, other);
    assert_eq!((these.data_bytes(id, 0), others.data_bytes(other, 0)), (Ok((64, 64)), Ok((128, 128))));
    for refused in [these.launch(other), others.launch(id)] {
        let error = refused.unwrap_err();
        assert!(error.class == Class::Usage && error.message.contains("other cards"), "{error:?}");
    }
}

#[test]
fn bad_requests_are_refused_by_name() {
    let mut cards = Cards::open("mock:optweb:4").unwrap();
    let request = |operation| Request { operation, bytes: 4096, ..Request::default() };
    let reduction = |reduction, element| Request { reduction, element, ..request("reduce") };
    for (request, class, text) in [
        (request(""), Class::Usage, "available: barrier"),
        (request("allgatherv"), Class::Usage, "several lengths"),
        (request("reduce"), Class::Usage, "needs a reduction"),
        (reduction(Some("mean"), Some("f32")), Class::Usage, "unknown reduction"),
        (reduction(Some("sum"), Some("float")), Class::Usage, "unknown element type"),
        (Request { reduction: Some("sum"), ..request("gather") }, Class::Usage, "does not reduce"),
        (Request { algorithm: Some("fast"), ..request("gather") }, Class::Usage, "unknown algorithm"),
        (Request { root: 4, ..request("gather") }, Class::Refused, "root 4 is not a rank"),
        (Request { bytes: 4097, ..reduction(Some("sum"), Some("f32")) }, Class::Refused, "4097"),
    ] {
        let error = cards.plan(&request).unwrap_err();
        assert!(error.class == class && error.message.contains(text), "{request:?}: {error:?}");
    }
    let released = cards.plan(&request("barrier")).unwrap();
    cards.release(released).unwrap();
    assert_eq!(cards.launch(released).unwrap_err().class, Class::Usage);
    // What the text names is accepted.
    let error = cards.plan(&request("allgater")).unwrap_err().message;
    let (_, names) = error.trim_end_matches(')').split_once("available: ").unwrap();
    for name in names.split(", ") {
        let refused = cards.plan(&request(name)).err().map_or(String::new(), |error| error.message);
        assert!(refused.is_empty() || refused.contains("needs a reduction"), "{name}: {refused}");
    }
}

#[path = "../../../examples/rust/allreduce.rs"]
mod allreduce;

#[test]
fn the_example_runs() {
    allreduce::main().unwrap();
}

/// Cards store collectives, so the planner must not choose programs that they cannot store.
#[test]
fn every_collective_is_stored_on_every_fabric() {
    for selector in ["mock:optweb:4", "mock:optweb:2x2", "mock:optweb:2x3", "mock:circus:2x2", "mock:mpi-fpga:2x2x2"] {
        let mut cards = Cards::open(selector).unwrap();
        for operation in Collective::ALL.iter().filter(|one| !one.has_counts()) {
            for bytes in [64, 4 << 10, 64 << 10, 1 << 20] {
                let has = |name| operation.reduces().then_some(name);
                let (reduction, element) = (has("sum"), has("u32"));
                let request =
                    Request { operation: operation.name(), reduction, element, peer: 1, bytes, ..Request::default() };
                let planned = cards.plan(&request);
                let stored = planned.unwrap_or_else(|error| panic!("{operation} of {bytes} B on {selector}: {error}"));
                cards.release(stored).unwrap();
            }
        }
    }
}

#[test]
fn an_alltoall_on_a_dragonfly_is_right() {
    const BYTES: u64 = 16 << 10;
    let mut cards = Cards::open("mock:optweb:2x3").unwrap();
    let ranks = cards.count();
    let collective = cards.plan(&Request { operation: "alltoall", bytes: BYTES, ..Request::default() }).unwrap();
    let block = |from: u32, to: u32| bytes_of(|index| element(from * ranks + to, index), BYTES);
    for from in 0..ranks {
        let input: Vec<u8> = (0..ranks).flat_map(|to| block(from, to)).collect();
        cards.write_input(collective, from, 0, &input).unwrap();
    }
    cards.launch(collective).unwrap();
    cards.wait(collective, PATIENCE).unwrap();
    for to in 0..ranks {
        let mut output = vec![0; BYTES as usize * ranks as usize];
        cards.read_output(collective, to, 0, &mut output).unwrap();
        let expected: Vec<u8> = (0..ranks).flat_map(|from| block(from, to)).collect();
        assert!(output == expected, "rank {to}");
    }
}
