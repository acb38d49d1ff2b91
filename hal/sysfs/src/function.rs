//! One PCI function, as the kernel describes it.

use fpga_pci::PciAddress;
use fpga_pci::config::{Lanes, Space};

use crate::bar::Bar;
use crate::error::Error;

/// Base class of bridges.
const CLASS_BRIDGE: u32 = 0x06;

/// One PCI function. What is `None` the function does not have, or `unread` says why it cannot be told.
#[derive(Debug)]
#[non_exhaustive]
pub struct PciFunction {
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Subsystem vendor and subsystem device id.
    pub subsystem: Option<(u16, u16)>,
    /// Revision.
    pub revision: Option<u8>,
    /// Its BARs, by index.
    pub bars: Vec<Bar>,
    /// A copy of its configuration space: 64 bytes of it, unless this user may see all (CAP_SYS_ADMIN). `None` in D3cold:
    /// to read it is to wake the function.
    pub config: Option<Space>,
    /// Its link.
    pub link: Link,
    /// The bridge it sits behind; `None` on a root bus.
    pub upstream: Option<PciAddress>,
    /// The memory node it is near to.
    pub numa_node: Option<u32>,
    /// Number of its IOMMU group; without one there is no IOMMU for it.
    pub group: Option<u32>,
    /// The driver it is bound to.
    pub driver: Option<String>,
    /// The driver that alone may take it.
    pub driver_override: Option<String>,
    /// Names of character devices of its own: `vfio0` for `/dev/vfio/devices/vfio0`. Kernels before 6.6 have none.
    pub vfio_devices: Vec<String>,
    /// Virtual functions, of a physical function.
    pub virtual_functions: Option<VirtualFunctions>,
    /// The physical function that it is a virtual one of.
    pub physical_function: Option<PciAddress>,
    /// Ways to reset it, in the order the kernel tries them. None: it cannot be reset.
    pub reset_methods: Vec<String>,
    /// Power.
    pub power: RuntimePower,
    /// Errors counted by the kernel.
    pub errors: Errors,
    /// What could not be read or understood.
    pub unread: Vec<Error>,
}

/// The link to the bridge above; of a virtual function, that of its physical one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// What it is now; `None` if it is down or asleep, and if there is none.
    pub now: Option<Lanes>,
    /// What the card can.
    pub card: Option<Lanes>,
    /// What the slot can: the bridge above.
    pub slot: Option<Lanes>,
}

impl Link {
    /// What it should be: the best that card and slot have in common.
    pub fn best(&self) -> Option<Lanes> {
        match (self.card, self.slot) {
            (Some(card), Some(slot)) => Some(card.between(slot)),
            (card, slot) => card.or(slot),
        }
    }
}

/// Virtual functions of a physical function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunctions {
    /// How many there can be.
    pub total: u16,
    /// How many there should be now.
    pub enabled: u16,
    /// Where those are that there are.
    pub addresses: Vec<PciAddress>,
}

/// Power of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimePower {
    /// `D0` to `D3hot`, `D3cold`, or `unknown`.
    pub state: Option<String>,
    /// What runtime power management says: `active`, `suspended`, …
    pub runtime_status: Option<String>,
    /// `auto` if the kernel may suspend it, `on` if not.
    pub control: Option<String>,
}

/// Errors that the kernel has counted since the function appeared: name and count of those that are not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    /// Whether the kernel counts them.
    pub is_counted: bool,
    /// Corrected by hardware.
    pub correctable: Vec<(String, u64)>,
    /// Not corrected; the link goes on.
    pub nonfatal: Vec<(String, u64)>,
    /// Not corrected; the link does not go on.
    pub fatal: Vec<(String, u64)>,
}

impl PciFunction {
    /// Whether it is a bridge.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == CLASS_BRIDGE
    }
}

/// What a function is and who drives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// The driver it is bound to.
    pub driver: Option<String>,
}
