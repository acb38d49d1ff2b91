//! The host side of one PCI function.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config;
use crate::domain::Attachment;
use crate::endpoint::{BarLayout, ResetKind};
use crate::in_process::InProcess;
use crate::owner::Owner;
use crate::{BarIndex, Domain, Error, Interrupt, Result, Window};

/// How the host reaches a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusKind {
    /// An endpoint in this process.
    InProcess,
}

impl fmt::Display for BusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BusKind::InProcess => "in process",
        })
    }
}

/// What configuration space says a function is. Displays as `name (vendor:device, class, revision)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The selector or bus address it was opened by.
    pub name: String,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, vendor, device, class, revision } = self;
        write!(f, "{name} ({vendor:04x}:{device:04x}, class {class:06x}, revision {revision:02x})")
    }
}

/// The host side of one PCI function. Clones are handles to the same function; the last one dropped closes it.
///
/// Windows keep the function open as well. When the last of all these is gone, the function is put back as it was found:
/// MSI-X off, bus mastering off, memory decoding off, function-level reset; after that its DMA finds no host. Buffers
/// belong to the [`Domain`] and go on their own. In a forked child a function does nothing: it belongs to the parent.
#[derive(Clone)]
pub struct Function {
    inner: Arc<Inner>,
}

/// What handles and windows share.
pub(crate) struct Inner {
    identity: Identity,
    attachment: Attachment,
    bus: Bus,
    owner: Owner,
    state: Mutex<State>,
}

/// How accesses travel.
enum Bus {
    InProcess(InProcess),
}

/// What must change by one thread at a time: the command register, and interrupts.
#[derive(Default)]
struct State {
    /// Offset of the MSI-X capability once interrupts are enabled.
    msix: Option<u16>,
}

impl Function {
    /// Opens a function: resets it, reads who it is, turns on memory decoding.
    pub(crate) fn open(bus: InProcess, attachment: Attachment, name: &str) -> Result<Self> {
        let identity = Identity { name: name.to_owned(), vendor: 0, device: 0, class: 0, revision: 0 };
        let bus = Bus::InProcess(bus);
        // From here on, whatever fails closes what was opened.
        let mut inner = Inner { identity, attachment, bus, owner: Owner::current(), state: Mutex::default() };
        inner.bus.reset();
        inner.identify()?;
        inner.set_command(config::COMMAND_MEMORY, 0)?;
        Ok(Function { inner: Arc::new(inner) })
    }

    /// How it is reached.
    pub fn bus(&self) -> BusKind {
        match self.inner.bus {
            Bus::InProcess(_) => BusKind::InProcess,
        }
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The domain its DMA goes through.
    pub fn domain(&self) -> &Domain {
        self.inner.attachment.domain()
    }

    /// Reads an 8-bit register of configuration space.
    pub fn config_read_u8(&self, offset: u16) -> Result<u8> {
        self.inner.config_read::<1>(offset).map(|[byte]| byte)
    }

    /// Reads a 16-bit register of configuration space.
    pub fn config_read_u16(&self, offset: u16) -> Result<u16> {
        self.inner.config_read(offset).map(u16::from_le_bytes)
    }

    /// Reads a 32-bit word of configuration space.
    pub fn config_read_u32(&self, offset: u16) -> Result<u32> {
        self.inner.config_read(offset).map(u32::from_le_bytes)
    }

    /// Writes a 16-bit register of configuration space.
    ///
    /// Bus mastering and MSI-X are better changed by [`set_bus_master`](Self::set_bus_master) and
    /// [`enable_interrupts`](Self::enable_interrupts).
    pub fn config_write_u16(&self, offset: u16, value: u16) -> Result<()> {
        let _state = self.inner.state();
        self.inner.config_write(offset, value.to_le_bytes())
    }

    /// Writes a 32-bit word of configuration space.
    pub fn config_write_u32(&self, offset: u16, value: u32) -> Result<()> {
        let _state = self.inner.state();
        self.inner.config_write(offset, value.to_le_bytes())
    }

    /// Layout of a BAR, or `None` if it is not implemented.
    pub fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        match &self.inner.bus {
            Bus::InProcess(bus) => bus.bar(bar),
        }
    }

    /// The whole of a BAR.
    pub fn window(&self, bar: BarIndex) -> Result<Window> {
        self.inner.owner.check()?;
        let bytes = self.bar(bar).ok_or(Error::NoBar { bar })?.bytes;
        match &self.inner.bus {
            Bus::InProcess(bus) => bus.window(bar, bytes, Arc::clone(&self.inner)),
        }
    }

    /// Lets the function master the bus (DMA, and MSI-X, which is a memory write), or stops it.
    pub fn set_bus_master(&self, on: bool) -> Result<()> {
        let _state = self.inner.state();
        let (set, clear) = if on { (config::COMMAND_MASTER, 0) } else { (0, config::COMMAND_MASTER) };
        self.inner.set_command(set, clear)
    }

    /// Enables `count` MSI-X vectors, each with a descriptor of its own.
    ///
    /// The function raises them only while it masters the bus. A second call begins anew: descriptors given before are
    /// not raised any more. Fails with [`Error::NoMsix`] or [`Error::VectorCount`] if there are not as many.
    pub fn enable_interrupts(&self, count: u16) -> Result<Vec<Interrupt>> {
        let mut state = self.inner.state();
        self.inner.disable_interrupts(&mut state)?;
        let found = self.inner.find_msix().and_then(|found| found.ok_or(Error::NoMsix));
        let capability = found.map_err(|error| self.removed_or(error))?;
        // Its three words must all lie in the part of the space that capabilities have.
        if capability + 12 > 256 {
            return Err(Error::CapabilityList { offset: capability });
        }
        let control: u16 = self.inner.config_read(capability + config::MSIX_CONTROL).map(u16::from_le_bytes)?;
        let available = (control & 0x7ff) + 1;
        if count == 0 || count > available {
            return Err(self.removed_or(Error::VectorCount { asked: count, available }));
        }
        let table = self.msix_table(capability, available).map_err(|error| self.removed_or(error))?;
        let interrupts = (0..count).map(|_| Interrupt::new()).collect::<Result<Vec<_>>>()?;
        self.inner.bus.connect(&interrupts);
        state.msix = Some(capability);

        // As the kernel does it: on with everything masked, so that no half-written entry is ever used.
        let control = control & !(config::MSIX_ENABLE | config::MSIX_MASK_ALL);
        let masked = control | config::MSIX_ENABLE | config::MSIX_MASK_ALL;
        self.inner.config_write(capability + config::MSIX_CONTROL, masked.to_le_bytes())?;
        for vector in 0..available {
            let entry = u64::from(vector) * config::MSIX_ENTRY_BYTES;
            if vector < count {
                // Nobody looks at address and data on this bus. They are those of an x86 machine, so that a function
                // that takes zero for "not set" is content.
                table.write_u32(entry, 0xfee0_0000)?;
                table.write_u32(entry + 4, 0)?;
                table.write_u32(entry + 8, u32::from(vector) + 0x20)?;
            }
            table.write_u32(entry + 12, u32::from(vector >= count))?;
        }
        let on = control | config::MSIX_ENABLE;
        self.inner.config_write(capability + config::MSIX_CONTROL, on.to_le_bytes())?;
        if self.is_removed() { Err(Error::Removed) } else { Ok(interrupts) }
    }

    /// Function-level reset. Afterwards memory decoding is on, and bus mastering and interrupts are off: enable them
    /// again if they were on. Descriptors of interrupts given before are not raised any more.
    pub fn reset(&self) -> Result<()> {
        self.inner.owner.check()?;
        let mut state = self.inner.state();
        state.msix = None;
        self.inner.bus.connect(&[]);
        self.inner.bus.reset();
        self.inner.set_command(config::COMMAND_MEMORY, config::COMMAND_MASTER)
    }

    /// Whether the function no longer answers: its vendor id reads as all-ones.
    pub fn is_removed(&self) -> bool {
        self.inner.is_removed()
    }

    /// Gives back `value`, read from one of its registers, unless that is all-ones because the function is gone.
    #[inline]
    pub fn check_alive(&self, value: u32) -> Result<u32> {
        if value == u32::MAX && self.is_removed() { Err(Error::Removed) } else { Ok(value) }
    }

    /// The window over the MSI-X table.
    fn msix_table(&self, capability: u16, vectors: u16) -> Result<Window> {
        let word = self.config_read_u32(capability + config::MSIX_TABLE)?;
        let (bar, offset) = ((word & 7) as u8, u64::from(word & !7));
        let wrong = || Error::MsixTable { bar, offset, vectors };
        let window = BarIndex::new(bar).ok_or_else(wrong).and_then(|bar| self.window(bar).map_err(|_| wrong()))?;
        window.slice(offset, u64::from(vectors) * config::MSIX_ENTRY_BYTES).map_err(|_| wrong())
    }

    /// The better explanation of `error`, if the function is gone.
    fn removed_or(&self, error: Error) -> Error {
        if self.is_removed() { Error::Removed } else { error }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("identity", &self.inner.identity)
            .field("bus", &self.bus())
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config_read<const WIDTH: usize>(&self, offset: u16) -> Result<[u8; WIDTH]> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        let mut data = [0xff; WIDTH];
        match &self.bus {
            Bus::InProcess(bus) => bus.config_read(offset, &mut data),
        }
        Ok(data)
    }

    fn config_write<const WIDTH: usize>(&self, offset: u16, data: [u8; WIDTH]) -> Result<()> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        match &self.bus {
            Bus::InProcess(bus) => bus.config_write(offset, &data),
        }
        Ok(())
    }

    /// The one check: all-ones as a vendor id belongs to nobody.
    fn is_removed(&self) -> bool {
        matches!(self.config_read(config::VENDOR).map(u16::from_le_bytes), Ok(u16::MAX))
    }

    fn identify(&mut self) -> Result<()> {
        if self.is_removed() {
            return Err(Error::Removed);
        }
        let [header_type] = self.config_read(config::HEADER_TYPE)?;
        if header_type & 0x7f != 0 {
            return Err(Error::HeaderType { header_type: header_type & 0x7f });
        }
        self.identity.vendor = self.config_read(config::VENDOR).map(u16::from_le_bytes)?;
        self.identity.device = self.config_read(config::DEVICE).map(u16::from_le_bytes)?;
        let word = self.config_read(config::CLASS_REVISION).map(u32::from_le_bytes)?;
        (self.identity.class, self.identity.revision) = (word >> 8, word as u8);
        Ok(())
    }

    /// Sets and clears bits of the command register. Callers hold the state's lock.
    fn set_command(&self, set: u16, clear: u16) -> Result<()> {
        let command = self.config_read(config::COMMAND).map(u16::from_le_bytes)?;
        if command == u16::MAX && self.is_removed() {
            return Err(Error::Removed);
        }
        self.config_write(config::COMMAND, (command & !clear | set).to_le_bytes())
    }

    fn find_msix(&self) -> Result<Option<u16>> {
        config::find_capability(config::CAPABILITY_MSIX, |offset, width| match width {
            1 => self.config_read(offset).map(|[byte]| u16::from(byte)),
            _ => self.config_read(offset).map(u16::from_le_bytes),
        })
    }

    fn disable_interrupts(&self, state: &mut State) -> Result<()> {
        if let Some(capability) = state.msix.take() {
            let control = self.config_read(capability + config::MSIX_CONTROL).map(u16::from_le_bytes)?;
            let off = control & !config::MSIX_ENABLE;
            self.config_write(capability + config::MSIX_CONTROL, off.to_le_bytes())?;
        }
        self.bus.connect(&[]);
        Ok(())
    }

    /// Puts the function back as it was found. What fails is left: a function that is gone needs none of it.
    fn close(&self) {
        let mut state = self.state();
        let steps = self
            .disable_interrupts(&mut state)
            .and_then(|()| self.set_command(0, config::COMMAND_MASTER))
            .and_then(|()| self.set_command(0, config::COMMAND_MEMORY));
        if let Err(error) = steps {
            log::debug!("Closing {}: {error}", self.name());
        }
        self.bus.reset();
        self.bus.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A child must not reset what its parent uses.
        if self.owner.is_here() {
            self.close();
        }
    }
}

impl Bus {
    fn reset(&self) {
        match self {
            Bus::InProcess(bus) => bus.reset(ResetKind::Function),
        }
    }

    /// Where vectors go from now on.
    fn connect(&self, interrupts: &[Interrupt]) {
        match self {
            Bus::InProcess(bus) => bus.connect(interrupts),
        }
    }

    /// The host is gone, as far as the device can tell.
    fn close(&self) {
        match self {
            Bus::InProcess(bus) => bus.close(),
        }
    }
}

fn check_config_access(offset: u16, width: u16) -> Result<()> {
    if !offset.is_multiple_of(width) || offset > config::BYTES - width {
        return Err(Error::ConfigAccess { offset, width });
    }
    Ok(())
}
