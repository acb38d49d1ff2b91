//! Profiles with numbers that no system has: refused, or built into a fabric that works.

use cmdseq::{Combine, Element, Instruction, Operand, Reduction, Status, Topology};
use fpga_mock::{Fabric, MemoryError, Profile};
use fpga_tests::raw_host::RawHost;
use proptest::prelude::*;

/// Sets one number of a profile.
type Set = fn(&mut Profile, u64);

macro_rules! numbers {
    ($($field:ident),* $(,)?) => {
        [$((stringify!($field), (|profile, value| profile.$field = value as _) as Set)),*]
    };
}

/// Sets numbers of switches that compute, or of routers, if the profile has them.
macro_rules! parts {
    ($part:ident: $($field:ident),* $(,)?) => {
        [$((
            concat!(stringify!($part), ".", stringify!($field)),
            (|profile, value| profile.$part.iter_mut().for_each(|part| part.$field = value as _)) as Set,
        )),*]
    };
}

const OF_SWITCHES: [(&str, Set); 15] = parts![
    switch: clock_hertz,
    route_cycles,
    channel_cycles,
    allocation_cycles,
    traversal_cycles,
    virtual_channels,
    input_phits,
    output_phits,
    link_ps,
    link_bps,
    host_ps,
    dma_phits,
    overhead_ps,
    control_cycles,
    float_cycles,
];

const OF_ROUTERS: [(&str, Set); 9] = parts![
    router: router_hertz,
    link_ps,
    link_sd_ps,
    link_min_ps,
    link_max_ps,
    lane_sd_ps,
    clock_ppm,
    input_packets,
    queue_packets,
];

/// Every number of a profile but those of its hardware, its routers and its switches that compute.
const NUMBERS: [(&str, Set); 23] = numbers![
    published_nodes,
    nodes,
    cycle_ps,
    dispatch_cycles,
    memory_read_cycles,
    switch_cycles,
    link_management_cycles,
    link_ps,
    hop_ps,
    size_check_cycles,
    handover_cycles,
    link_mbps,
    channel_mbps,
    host_mbps,
    beat_bytes,
    receive_buffer_bytes,
    memory_bytes,
    memory_channels,
    reduce_beat_cycles,
    reduce_unit_cycles,
    lanes,
    version,
    windows,
];

const CARDS: u32 = 4;
const ODD: [u64; 19] = [
    0,
    1,
    2,
    3,
    7,
    8,
    64,
    1_000,
    4_096,
    10_000,
    65_536,
    100_000,
    1 << 20,
    100_000_000,
    1 << 30,
    1 << 32,
    1 << 44,
    (1 << 63) + 1,
    u64::MAX,
];

fn profiles() -> [Profile; 4] {
    [
        Profile::optweb(CARDS),
        Profile::optweb_dragonfly(2, CARDS / 2),
        Profile::circus(2, CARDS / 2),
        Profile::bluelink(2, CARDS / 2),
    ]
}

/// Builds the fabric, and has its cards work; `Ok(false)` if the profile is refused. Without a clock, a completion is there when the
/// doorbell has been rung.
fn works(profile: &Profile) -> Result<bool, String> {
    if profile.check().is_err() {
        return Ok(false);
    }
    let fabric = Fabric::new(profile.clone()).unwrap();
    let mut hosts: Vec<_> = (0..profile.nodes).map(|node| RawHost::attach(fabric.endpoint(node), 4096)).collect();
    let host = hosts[0].address();
    let copies = [
        Instruction::copy(Operand::card(0), Operand::card(8192), 5_000),
        Instruction::copy(Operand::host(host), Operand::card(0), 4_096),
    ];
    let check = |host: &mut RawHost, instruction: &Instruction| match (host.take(), fabric.failure()) {
        (Some(completion), None) if completion.status == Status::Done => Ok(()),
        ended => Err(format!("{:?}: {ended:?}: {profile:?}", instruction.operation)),
    };
    for copy in copies {
        hosts[0].push(&copy);
        check(&mut hosts[0], &copy)?;
    }
    // Only linked cards meet in a barrier.
    let is_whole = !matches!(profile.topology, Topology::Dragonfly { .. });
    let sum = Combine::new(Reduction::Sum, Element::U8);
    let meetings = [
        Instruction::barrier(),
        Instruction::broadcast(0, Operand::card(0), Operand::card(8192), 5_000),
        Instruction::reduce(sum, 0, Operand::card(0), Operand::card(8192), 5_000),
    ];
    for meeting in meetings.into_iter().filter(|_| is_whole) {
        hosts.iter_mut().for_each(|host| host.push(&meeting));
        hosts.iter_mut().try_for_each(|host| check(host, &meeting))?;
    }
    Ok(true)
}

/// Sets each number of a profile that works to each odd value, and makes sure that the profile is refused or works.
fn check_each(profile: &Profile, numbers: &[(&str, Set)]) {
    assert_eq!(works(profile), Ok(true));
    let mut failed = Vec::new();
    for ((name, set), value) in numbers.iter().flat_map(|number| ODD.map(|value| (number, value))) {
        let mut odd = profile.clone();
        set(&mut odd, value);
        failed.extend(works(&odd).err().map(|error| format!("{name} = {value}: {error}")));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_profile_with_one_odd_number_is_refused_or_works() {
    profiles().iter().for_each(|profile| check_each(profile, &NUMBERS));
}

#[test]
fn switches_and_routers_with_one_odd_number_are_refused_or_work() {
    check_each(&Profile::mpi_fpga_of("2x2x1").unwrap(), &OF_SWITCHES);
    check_each(&Profile::mpi_fpga_of("fat:4").unwrap(), &OF_SWITCHES);
    check_each(&Profile::novo_g_of("2x2x1").unwrap(), &OF_ROUTERS);
}

#[test]
fn rows_and_groups_of_unequal_size_are_refused() {
    for rows in [0, 3, 5, 9, u32::MAX] {
        for topology in [Topology::Dragonfly { groups: rows }, Topology::Torus { rows }] {
            let profile = Profile { topology, nodes: 10, ..Profile::circus(2, 5) };
            assert_eq!(profile.check().is_ok(), rows == 5, "{topology:?}");
        }
    }
    assert!(Profile { nodes: 7, ..Profile::mpi_fpga_of("2x2x2").unwrap() }.check().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_profile_with_odd_numbers_is_refused_or_works(
        of in 0..4_usize,
        odd in prop::collection::vec((0..NUMBERS.len(), prop::sample::select(ODD.to_vec())), 1..6),
    ) {
        let mut profile = profiles()[of].clone();
        odd.iter().for_each(|(number, value)| NUMBERS[*number].1(&mut profile, *value));
        prop_assert!(works(&profile).is_ok(), "{:?}", works(&profile));
    }
}

#[test]
fn a_fabric_has_no_memory_of_a_card_that_it_does_not_have() {
    let fabric = Fabric::new(Profile::optweb(CARDS)).unwrap();
    for node in [CARDS, 9, u32::MAX] {
        assert_eq!(fabric.read_memory(node, 0, 1), Err(MemoryError::NoCard { node }));
        assert_eq!(fabric.write_memory(node, 0, &[1]), Err(MemoryError::NoCard { node }));
    }
    assert_eq!(fabric.failure(), None);
}
