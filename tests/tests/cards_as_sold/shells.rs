//! Cards behind the shells of real cards: what a bus sees is the real card's, and the fabric's times stay the same.

use cmdseq::plan::{Collective, Request, plan};
use cmdseq::{Combine, Element, Reduction};
use fpga_driver::{Card, Cluster, Execution};
use fpga_hal::endpoint::BarLayout;
use fpga_hal::{BarIndex, Domain, Function, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Profile, Shell};

const CARDS: u32 = 4;

fn functions(shell: Shell) -> (Fabric, Vec<Function>) {
    let fabric = Fabric::new(Profile { shell, ..Profile::optweb(CARDS) }).unwrap();
    let domain = Domain::in_process();
    let engines = shell.has_engine().then(|| XdmaCards::before(&fabric, Shape::default()));
    let endpoint = |node| match (&engines, shell) {
        (Some(cards), _) => cards.endpoint(node),
        (None, Shell::S10Dfl | Shell::S10Pac) => {
            let card = D5005::new(&fabric, node);
            card.release();
            card.accelerator()
        }
        (None, _) => fabric.endpoint(node),
    };
    let attach = |node| in_process::attach(endpoint(node), &domain, &format!("node {node}")).unwrap();
    let functions = (0..CARDS).map(attach).collect();
    (fabric, functions)
}

fn u32_at(function: &Function, offset: u16) -> u32 {
    function.config_read_u32(offset).unwrap()
}

/// Retyped by hand: OFS `pcie_ep_g3x16.ip` and `msix_csr.sv`.
#[test]
fn the_configuration_space_is_that_of_a_pac_d5005() {
    let (_fabric, functions) = functions(Shell::S10Dfl);
    let function = &functions[1];
    assert_eq!(u32_at(function, 0x00), 0xbccf_8086);
    assert_eq!(u32_at(function, 0x08), 0x1200_0001);
    assert_eq!(u32_at(function, 0x2c), 0x138d_8086);
    let bar = |index| function.bar(BarIndex::new(index).unwrap());
    let layout = |bytes| Some(BarLayout { bytes, is_64_bit: true, prefetchable: true });
    assert_eq!([bar(0), bar(2), bar(4)], [layout(0x4_0000), None, layout(0x4000)]);
    // Five vectors, table at 0x3000 and pending bits at 0x2000 of BAR 4.
    assert_eq!(u32_at(function, 0x80) >> 16 & 0x7ff, 4);
    assert_eq!((u32_at(function, 0x84), u32_at(function, 0x88)), (0x3004, 0x2004));
    // An accelerator's header begins the feature list, and the sequencer's comes next.
    let window = function.window(BarIndex::new(0).unwrap()).unwrap();
    assert_eq!(window.read_u64(0).unwrap() >> 60, 1);
    assert_eq!(window.read_u64(0).unwrap() >> 16 & 0xff_ffff, 0x1000);
    assert_eq!(window.read_u32(0x3_fffc).unwrap(), 0);
}

/// The other functions of a PAC D5005. Retyped by hand: OFS `pcie_ep_g3x16.ip` and `msix_csr.sv`.
#[test]
fn the_configuration_spaces_of_control_function_and_exerciser_are_those_of_a_pac_d5005() {
    let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(CARDS) }).unwrap();
    let card = D5005::new(&fabric, 0);
    let domain = Domain::in_process();
    let layout = |bytes| Some(BarLayout { bytes, is_64_bit: true, prefetchable: true });
    for (endpoint, ids, bar_0, vectors) in
        [(card.control(), 0xbcce_8086, 0x10_0000, 7), (card.exerciser().unwrap(), 0xbccf_8086, 0x4_0000, 5)]
    {
        let function = in_process::attach(endpoint, &domain, "function").unwrap();
        assert_eq!((u32_at(&function, 0x00), u32_at(&function, 0x2c)), (ids, 0x138d_8086));
        assert_eq!(u32_at(&function, 0x08), 0x1200_0001);
        let bar = |index| function.bar(BarIndex::new(index).unwrap());
        assert_eq!([bar(0), bar(2), bar(4)], [layout(bar_0), None, layout(0x4000)]);
        assert_eq!(u32_at(&function, 0x80) >> 16 & 0x7ff, vectors - 1);
        assert_eq!((u32_at(&function, 0x84), u32_at(&function, 0x88)), (0x3004, 0x2004));
    }
}

/// Retyped by hand: OFS `FME_CSR.xls`, "BAR Layout"; pci.ids.
#[test]
fn the_configuration_space_is_that_of_a_pac_d5005_without_ofs() {
    let (_fabric, functions) = functions(Shell::S10Pac);
    let function = &functions[3];
    assert_eq!(u32_at(function, 0x00), 0x0b2b_8086);
    assert_eq!(u32_at(function, 0x08), 0x1200_0001);
    let bar = |index| function.bar(BarIndex::new(index).unwrap());
    let layout = |bytes| Some(BarLayout { bytes, is_64_bit: true, prefetchable: true });
    assert_eq!([bar(0), bar(2), bar(4)], [layout(0x8_0000), layout(0x8_0000), layout(0x4000)]);
    let [list, port] = [0, 2].map(|index| function.window(BarIndex::new(index).unwrap()).unwrap());
    assert_eq!(list.read_u64(0).unwrap(), 0x4000_0000_1000_0000);
    // Port 0: implemented, in BAR 2 from 0 on; behind it, at 0x40000, the accelerator.
    assert_eq!(list.read_u64(0x38).unwrap(), 1 << 60 | 2 << 32);
    assert_eq!(port.read_u64(0).unwrap() >> 60, 4);
    assert_eq!(port.read_u64(0x18).unwrap(), 0x4_0000);
    assert_eq!(port.read_u64(0x4_0000).unwrap() >> 60, 1);
    assert_eq!(port.read_u32(0x4_1020).unwrap(), u32::from_le_bytes(*b"FSEQ"));
    assert_eq!(port.read_u32(0x7_fffc).unwrap(), 0);
    assert_eq!(port.read_u32(0x3_fffc).unwrap(), 0);
}

#[test]
fn a_model_says_that_it_is_one() {
    for shell in Shell::ALL {
        let (_fabric, functions) = functions(shell);
        assert!(functions.into_iter().all(|function| Card::open(function).unwrap().is_mock()), "{shell:?}");
    }
}

/// (T1, T2) of each operation in cycles.
fn times(shell: Shell) -> Vec<(Collective, u64, u64)> {
    let (_fabric, functions) = functions(shell);
    let mut cluster = Cluster::open(functions).unwrap();
    let run = |collective: &Collective| {
        let combine = collective.reduces().then_some(Combine { element: Element::U32, reduction: Reduction::Sum });
        let request = Request { combine, ..Request::new(*collective, (0..CARDS).collect(), 4096) };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        let report = cluster.execute(&plan.set, &Execution::default()).unwrap();
        (*collective, report.t1_cycles, report.t2_cycles)
    };
    Collective::ALL.iter().filter(|collective| !collective.has_counts()).map(run).collect()
}

#[test]
fn times_are_those_of_the_mocks_own_shell() {
    let expected = times(Shell::Mock);
    assert!(expected.len() >= 12);
    for shell in Shell::ALL {
        assert_eq!(times(shell), expected, "{shell:?}");
    }
}

/// Registers of the sequencer's block behind its capabilities, typed by hand from docs/registers.md: offset, value after a reset, and
/// what a write of all-ones leaves (EAGER_LIMIT: EAGER_BYTES). ABORT, the doorbells and INTERRUPT_ARM are write-only, ERROR and
/// PENDING are cleared by ones.
const SEQUENCER: [(u64, u32, u32); 14] = [
    (0x100, 0, 1),
    (0x104, 1, 1),
    (0x108, 0, 0),
    (0x10c, 16_384, 16_384),
    (0x110, 0, 0),
    (0x114, 0, u32::MAX),
    (0x120, 0, 0),
    (0x124, u32::MAX, u32::MAX),
    (0x128, 0, 0),
    (0x12c, 0, 0),
    (0x130, 0, 0),
    (0x134, 0, 0),
    (0x138, 0, 0),
    (0x13c, 0, 0),
];
/// The same of a queue. ENABLE stays 0 while a base or the depth is invalid.
const QUEUE: [(u64, u32, u32); 12] = [
    (0x10, 0, u32::MAX),
    (0x14, 0, 0),
    (0x00, 0, u32::MAX),
    (0x04, 0, u32::MAX),
    (0x08, 0, u32::MAX),
    (0x0c, 0, u32::MAX),
    (0x20, 0, 0),
    (0x24, 0, u32::MAX),
    (0x28, 0, 0),
    (0x2c, 0, 0),
    (0x30, 0, 0),
    (0x3c, 0, 0),
];

#[test]
fn every_register_of_the_sequencer_has_its_value_and_its_access() {
    for shell in Shell::ALL {
        let (_fabric, functions) = functions(shell);
        let (bar, start) = if shell == Shell::S10Pac { (2, 0x4_1000) } else { (0, 0x1000) };
        let blocks: Vec<_> = functions.iter().map(|one| one.window(BarIndex::new(bar).unwrap()).unwrap()).collect();
        let read = |node: usize, offset: u64| blocks[node].read_u32(start + offset).unwrap();
        let write = |offset: u64, value: u32| blocks[1].write_u32(start + offset, value).unwrap();
        // Header, GUID and capabilities are read-only, and what is reserved behind them is 0.
        let described = || (0..0x100).step_by(4).map(|offset| read(1, offset)).collect::<Vec<_>>();
        let before = described();
        for (offset, value) in
            [(0x20, 0x5145_5346), (0x24, 0x0001_0007), (0x34, 1), (0x38, 4), (0x3c, 3), (0x6c, 16_384), (0x18, 0)]
        {
            assert_eq!(read(1, offset), value, "{shell:?} {offset:#x}");
        }
        assert!(before[0xec / 4..].iter().all(|value| *value == 0));
        let queues = (0..u64::from(read(1, 0x50))).map(|queue| 0x400 + 0x40 * queue);
        let of_queues = queues.flat_map(|base| QUEUE.map(|(offset, reset, kept)| (base + offset, reset, kept)));
        let all: Vec<_> = SEQUENCER.into_iter().chain(of_queues).collect();
        assert!(all.len() > SEQUENCER.len());
        for (offset, reset, _) in &all {
            assert_eq!(read(1, *offset), *reset, "{shell:?} {offset:#x} after a reset");
        }
        // A wider access is allowed for the header and its GUID; elsewhere AMD's bus makes two of it, and other cards do not answer.
        let is_split = matches!(shell, Shell::AlveoXdma | Shell::AlveoBar4 | Shell::AlveoBypass);
        for offset in (0..0x140).step_by(8).filter(|offset| *offset != 0x118) {
            let [low, high] = [0, 4].map(|half| u64::from(read(1, offset + half)));
            let expected = if is_split || offset < 0x18 { low | high << 32 } else { u64::MAX };
            assert_eq!(blocks[1].read_u64(start + offset).unwrap(), expected, "{shell:?} {offset:#x}");
        }
        for value in [u32::MAX, 0, 0x5a5a_5a5a] {
            (0..0x100).step_by(4).for_each(|offset| write(offset, value));
            assert_eq!(described(), before, "{shell:?} after {value:#x}");
        }
        for (offset, _, kept) in &all {
            write(*offset, u32::MAX);
            assert_eq!(read(1, *offset), *kept, "{shell:?} {offset:#x} after all-ones");
        }
        for (offset, reset, _) in &all {
            assert_eq!(read(0, *offset), *reset, "{shell:?} {offset:#x} of the neighbour");
        }
        functions[1].reset().unwrap();
        for (offset, reset, _) in &all {
            assert_eq!(read(1, *offset), *reset, "{shell:?} {offset:#x} after another reset");
        }
    }
}
