//! Interrupts of a device: `VFIO_USER_DEVICE_GET_IRQ_INFO` and `VFIO_USER_DEVICE_SET_IRQS`.

use vfio_bindings::bindings::vfio as kernel;

use super::fields::{Body, Fields};

/// Interrupt indices of a PCI device.
pub(crate) const INTERRUPT_INDICES: u32 = kernel::VFIO_PCI_NUM_IRQS;
pub(crate) const INTX: u32 = kernel::VFIO_PCI_INTX_IRQ_INDEX;
pub(crate) const MSI: u32 = kernel::VFIO_PCI_MSI_IRQ_INDEX;
pub(crate) const MSIX: u32 = kernel::VFIO_PCI_MSIX_IRQ_INDEX;
pub(crate) const ERROR: u32 = kernel::VFIO_PCI_ERR_IRQ_INDEX;
pub(crate) const REQUEST: u32 = kernel::VFIO_PCI_REQ_IRQ_INDEX;

/// The interrupts of one index (section "`VFIO_USER_DEVICE_GET_IRQ_INFO`"). Command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterruptInfo {
    /// argsz: in a command, the largest reply that the client accepts; in a reply, the bytes of a full one.
    pub(crate) argsz: u32,
    /// flags: [`EVENTFD`](Self::EVENTFD), [`MASKABLE`](Self::MASKABLE) and [`AUTOMASKED`](Self::AUTOMASKED).
    pub(crate) flags: u32,
    /// index: the kind of interrupt.
    pub(crate) index: u32,
    /// count: interrupts of this kind.
    pub(crate) count: u32,
}

impl InterruptInfo {
    pub(crate) const BYTES: usize = 16;
    pub(crate) const EVENTFD: u32 = kernel::VFIO_IRQ_INFO_EVENTFD;
    pub(crate) const MASKABLE: u32 = kernel::VFIO_IRQ_INFO_MASKABLE;
    pub(crate) const AUTOMASKED: u32 = kernel::VFIO_IRQ_INFO_AUTOMASKED;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(InterruptInfo { argsz, flags, index: fields.u32()?, count: fields.u32()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u32(self.index).u32(self.count).0
    }
}

/// Connects, disconnects, masks, unmasks or raises interrupts of one index (section "`VFIO_USER_DEVICE_SET_IRQS`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetInterrupts<'a> {
    /// argsz: bytes of this structure with its data.
    pub(crate) argsz: u32,
    /// flags: one of [`DATA`](Self::DATA), which says what data follows, and one of [`ACTION`](Self::ACTION).
    pub(crate) flags: u32,
    /// index: the kind of interrupt.
    pub(crate) index: u32,
    /// start: the first interrupt.
    pub(crate) start: u32,
    /// count: interrupts.
    pub(crate) count: u32,
    /// data: a byte for each interrupt with [`DATA_BOOL`](Self::DATA_BOOL), else empty.
    pub(crate) data: &'a [u8],
}

impl<'a> SetInterrupts<'a> {
    pub(crate) const BYTES: usize = 20;
    /// Masks: the flags for the kind of data, and the flags for the action.
    pub(crate) const DATA: u32 = kernel::VFIO_IRQ_SET_DATA_TYPE_MASK;
    pub(crate) const ACTION: u32 = kernel::VFIO_IRQ_SET_ACTION_TYPE_MASK;
    pub(crate) const DATA_NONE: u32 = kernel::VFIO_IRQ_SET_DATA_NONE;
    pub(crate) const DATA_BOOL: u32 = kernel::VFIO_IRQ_SET_DATA_BOOL;
    pub(crate) const DATA_EVENTFD: u32 = kernel::VFIO_IRQ_SET_DATA_EVENTFD;
    pub(crate) const MASK: u32 = kernel::VFIO_IRQ_SET_ACTION_MASK;
    pub(crate) const UNMASK: u32 = kernel::VFIO_IRQ_SET_ACTION_UNMASK;
    pub(crate) const TRIGGER: u32 = kernel::VFIO_IRQ_SET_ACTION_TRIGGER;

    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (start, count) = (fields.u32()?, fields.u32()?);
        Some(SetInterrupts { argsz, flags, index, start, count, data: fields.rest() })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = Body::default().u32(self.argsz).u32(self.flags).u32(self.index);
        let mut bytes = body.u32(self.start).u32(self.count).0;
        bytes.extend_from_slice(self.data);
        bytes
    }
}
