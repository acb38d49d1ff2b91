//! What a device has (section "`VFIO_USER_DEVICE_GET_INFO`").

use vfio_bindings::bindings::vfio as kernel;

use super::fields::{Body, Fields};

/// What a device has. Command and reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceInfo {
    /// argsz: in a command, the largest reply that the client accepts; in a reply, the bytes of a full one.
    pub(crate) argsz: u32,
    /// flags: [`RESET`](Self::RESET) and [`PCI`](Self::PCI).
    pub(crate) flags: u32,
    /// num_regions
    pub(crate) regions: u32,
    /// num_irqs: interrupt indices.
    pub(crate) interrupts: u32,
}

impl DeviceInfo {
    pub(crate) const BYTES: usize = 16;
    pub(crate) const RESET: u32 = kernel::VFIO_DEVICE_FLAGS_RESET;
    pub(crate) const PCI: u32 = kernel::VFIO_DEVICE_FLAGS_PCI;

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(DeviceInfo { argsz, flags, regions: fields.u32()?, interrupts: fields.u32()? })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Body::default().u32(self.argsz).u32(self.flags).u32(self.regions).u32(self.interrupts).0
    }
}
