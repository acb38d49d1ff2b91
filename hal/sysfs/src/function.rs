//! One PCI function, as the kernel describes it.

use fpga_pci::PciAddress;
use fpga_pci::config::{Lanes, Space};

use crate::bar::Bar;
use crate::error::Error;

/// Base class of bridges.
const CLASS_BRIDGE: u32 = 0x06;

/// One PCI function. A value is `None` if the function lacks it, or if it cannot be read: then `unread` has the reason.
#[derive(Debug)]
#[non_exhaustive]
pub struct PciFunction {
    /// Address.
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
    /// BARs, by index.
    pub bars: Vec<Bar>,
    /// A copy of configuration space: 64 bytes, or all of it with CAP_SYS_ADMIN. `None` in D3cold, because a read would wake the
    /// function.
    pub config: Option<Space>,
    /// Link to the bridge above.
    pub link: Link,
    /// The bridge above; `None` on a root bus.
    pub upstream: Option<PciAddress>,
    /// The closest NUMA node.
    pub numa_node: Option<u32>,
    /// Number of its IOMMU group; `None`: no IOMMU translates for it.
    pub group: Option<u32>,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// The driver override: no other driver may bind to it.
    pub driver_override: Option<String>,
    /// Names of its VFIO character devices: `vfio0` for `/dev/vfio/devices/vfio0`. Kernels before 6.6 have none.
    pub vfio_devices: Vec<String>,
    /// Virtual functions, if it is a physical function.
    pub virtual_functions: Option<VirtualFunctions>,
    /// Its physical function, if it is a virtual function.
    pub physical_function: Option<PciAddress>,
    /// Reset methods, in the order in which the kernel tries them. Empty: it cannot be reset.
    pub reset_methods: Vec<String>,
    /// Power state.
    pub power: RuntimePower,
    /// Errors counted by the kernel.
    pub errors: Errors,
    /// Errors of values that could not be read or parsed.
    pub unread: Vec<Error>,
}

/// The link to the bridge above. A virtual function has the link of its physical function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Present speed and width; `None`: down, asleep, or no link.
    pub now: Option<Lanes>,
    /// Best speed and width of the card.
    pub card: Option<Lanes>,
    /// Best speed and width of the slot: of the bridge above.
    pub slot: Option<Lanes>,
}

impl Link {
    /// Returns the best speed and width that card and slot have in common.
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
    /// Largest number.
    pub total: u16,
    /// Enabled number.
    pub enabled: u16,
    /// Addresses of the present ones.
    pub addresses: Vec<PciAddress>,
}

/// Power state of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimePower {
    /// `D0` to `D3hot`, `D3cold`, or `unknown`.
    pub state: Option<String>,
    /// State of runtime power management: `active`, `suspended`, …
    pub runtime_status: Option<String>,
    /// `auto` if the kernel may suspend it, `on` if not.
    pub control: Option<String>,
}

/// Errors that the kernel counted since the function appeared: names and counts other than zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    /// Whether the kernel counts them.
    pub is_counted: bool,
    /// Corrected by hardware.
    pub correctable: Vec<(String, u64)>,
    /// Not corrected; the link still works.
    pub nonfatal: Vec<(String, u64)>,
    /// Not corrected; the link failed.
    pub fatal: Vec<(String, u64)>,
}

impl PciFunction {
    /// Returns whether it is a bridge.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == CLASS_BRIDGE
    }
}

/// Ids and driver of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// Address.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// The driver that it is bound to.
    pub driver: Option<String>,
}
