//! Functions on clusters: open, query, memory, close.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use fpga_collective::Cards;

use crate::error::call;
use crate::handles::fpga_cluster;
use crate::{handles, memory};

/// What a card is. Later versions add fields at the end only.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct fpga_card {
    /// Card memory, bytes.
    pub memory_bytes: u64,
    /// Bit n: the card runs the operation of code n (docs/isa.md).
    pub operations: u64,
    /// Bit n: reductions take elements of the type of code n.
    pub element_types: u32,
    /// Bit n: the card has the reduction of code n.
    pub reductions: u32,
    /// Node in the fabric.
    pub node: u32,
    /// Cards in the fabric.
    pub nodes: u32,
    /// Links of the card.
    pub ports: u32,
    /// Exchanges that it runs at once.
    pub lanes: u32,
    /// Clock of the counters, kHz.
    pub clock_khz: u32,
    /// 1 if the card is a mock, on whatever bus; else 0.
    pub is_mock: u32,
    /// Kind of the bus: "mock", "vfio" or "vfio-user". Valid for ever.
    pub kind: *const c_char,
    /// Bytes of the name that fpga_cluster_card_name copies, the zero byte included.
    pub name_bytes: usize,
}

/// Opens the cards of a selector, such as "mock:optweb:4" or "vfio:0000:3b:00.0", as a cluster. The cards are ordered by node.
/// After an error *cluster is unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_open(selector: *const c_char, cluster: *mut *mut fpga_cluster) -> c_int {
    call(|| {
        let cluster = memory::out(cluster, "cluster")?;
        cluster.set(handles::add(Cards::open(memory::text(selector, "selector")?)?));
        Ok(())
    })
}

/// Closes a cluster and all its collectives; what is in flight is aborted. If it returns FPGA_BUSY, the cluster is still open.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_close(cluster: *mut fpga_cluster) -> c_int {
    call(|| handles::close(cluster))
}

/// Stores the number of cards in *count.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_cards(cluster: *mut fpga_cluster, count: *mut u32) -> c_int {
    call(|| {
        let count = memory::out(count, "count")?;
        handles::with(cluster, |cards| {
            count.set(cards.count());
            Ok(())
        })
    })
}

/// Stores what card `index` is in the first `bytes` bytes of *card: pass sizeof(fpga_card). Zeros bytes that this version of the
/// library does not know.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_card(
    cluster: *mut fpga_cluster,
    index: u32,
    card: *mut fpga_card,
    bytes: usize,
) -> c_int {
    call(|| {
        let card = memory::out(card, "card")?;
        let info = handles::with(cluster, |cards| Ok(cards.info(index)?))?;
        let kind = match info.kind {
            "mock" => c"mock",
            "vfio" => c"vfio",
            "vfio-user" => c"vfio-user",
            _ => c"other",
        };
        let value = fpga_card {
            memory_bytes: info.memory_bytes,
            operations: info.operations,
            element_types: info.element_types,
            reductions: info.reductions,
            node: info.node,
            nodes: info.nodes,
            ports: info.ports,
            lanes: info.lanes,
            clock_khz: info.clock_khz,
            is_mock: info.is_mock.into(),
            kind: kind.as_ptr(),
            name_bytes: info.name.len() + 1,
        };
        card.set_prefix(value, bytes)
    })
}

/// Copies the name of card `index`, its selector, to `bytes` bytes at `name`, a zero byte included. fpga_card has the bytes that
/// it needs; with fewer, the call returns FPGA_USAGE.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_card_name(
    cluster: *mut fpga_cluster,
    index: u32,
    name: *mut c_char,
    bytes: usize,
) -> c_int {
    call(|| {
        let info = handles::with(cluster, |cards| Ok(cards.info(index)?))?;
        memory::copy_text(&info.name, name, bytes)
    })
}

/// Sets how long a call may take that has no time limit of its own: memory, data, plans.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cluster_set_timeout(cluster: *mut fpga_cluster, timeout_us: u64) -> c_int {
    call(|| {
        handles::with(cluster, |cards| {
            cards.set_timeout(Duration::from_micros(timeout_us));
            Ok(())
        })
    })
}

/// Writes `bytes` bytes at `data` to the memory of card `index` at `address`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_memory_write(
    cluster: *mut fpga_cluster,
    index: u32,
    address: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let data = memory::bytes(data, bytes)?;
        handles::with(cluster, |cards| Ok(cards.write_memory(index, address, data)?))
    })
}

/// Reads `bytes` bytes of the memory of card `index` at `address` to `data`. After an error the content of `data` is undefined.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_memory_read(
    cluster: *mut fpga_cluster,
    index: u32,
    address: u64,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    call(|| {
        let data = memory::bytes_mut(data, bytes)?;
        handles::with(cluster, |cards| Ok(cards.read_memory(index, address, data)?))
    })
}
