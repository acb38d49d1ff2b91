//! The host side of one PCI function.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bus::{Bus, BusKind, ResetOutcome};
use crate::config;
use crate::domain::Attachment;
use crate::endpoint::BarLayout;
use crate::owner::Owner;
use crate::{BarIndex, Domain, Error, Interrupt, InterruptKind, Result, Window};

/// How long an interrupt that the bus was told to raise may take to arrive.
const SELF_TEST: Duration = Duration::from_secs(2);

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
    bus: Box<dyn Bus>,
    owner: Owner,
    /// What was reset when it was opened.
    opening_reset: ResetOutcome,
    /// Whether there is a [`Claim`].
    claimed: AtomicBool,
    state: Mutex<State>,
}

/// The right to drive a function: see [`Function::claim`].
pub struct Claim {
    inner: Arc<Inner>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("function", &self.inner.name()).finish()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.inner.claimed.store(false, Ordering::Release);
    }
}

/// What must change by one thread at a time: the command register, and interrupts.
#[derive(Default)]
struct State {
    /// What is enabled.
    interrupts: Option<InterruptKind>,
}

impl Function {
    /// Opens a function: resets it, reads who it is, turns on memory decoding, and bus mastering off.
    ///
    /// One that cannot be reset is opened only `without_reset`: nobody knows what its last user left running.
    pub(crate) fn open(bus: Box<dyn Bus>, attachment: Attachment, name: &str, without_reset: bool) -> Result<Self> {
        let identity = Identity { name: name.to_owned(), vendor: 0, device: 0, class: 0, revision: 0 };
        let (owner, opening_reset) = (Owner::current(), ResetOutcome::None);
        // From here on, whatever fails closes what was opened.
        let claimed = AtomicBool::new(false);
        let mut inner = Inner { identity, attachment, bus, owner, opening_reset, claimed, state: Mutex::default() };
        inner.opening_reset = match inner.bus.can_reset() {
            ResetOutcome::None if !without_reset => return Err(inner.removed_or(Error::NotReset)),
            ResetOutcome::None => {
                log::warn!("{name} is opened without a reset: what its last user started may still run");
                ResetOutcome::None
            }
            _ => inner.bus.reset()?,
        };
        log::debug!("Opening {name}: reset {}", inner.opening_reset);
        inner.identify()?;
        inner.set_command(config::COMMAND_MEMORY, config::COMMAND_MASTER)?;
        Ok(Function { inner: Arc::new(inner) })
    }

    /// What was reset when the function was opened.
    ///
    /// After [`ResetOutcome::None`] the function does not master the bus, and its engines may still run what its last user
    /// started: stop them before [`set_bus_master`](Self::set_bus_master), or they go on with addresses that mean
    /// something else by now.
    pub fn opening_reset(&self) -> ResetOutcome {
        self.inner.opening_reset
    }

    /// How it is reached.
    pub fn bus(&self) -> BusKind {
        self.inner.bus.kind()
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Claims the function for one driver, until the claim is dropped. Clones of a handle are one function.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is claimed already.
    pub fn claim(&self) -> Result<Claim> {
        if self.inner.claimed.swap(true, Ordering::AcqRel) {
            return Err(Error::InUse { name: self.inner.name().to_owned() });
        }
        Ok(Claim { inner: Arc::clone(&self.inner) })
    }

    /// The domain its DMA goes through.
    pub fn domain(&self) -> &Domain {
        self.inner.attachment.domain()
    }

    /// Says how many address bits the function can master, where its bus cannot know: buffers are placed below from now
    /// on. Narrower than what the bus knows already, or without effect.
    ///
    /// # Panics
    /// If `bits` is not 1 to 64.
    pub fn limit_dma_bits(&self, bits: u8) {
        assert!((1..=64).contains(&bits), "{bits} address bits");
        self.inner.attachment.limit(bits);
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

    /// Writes a 16-bit register of configuration space. What is written to a function that is gone is lost, as in a BAR.
    ///
    /// Bus mastering and MSI-X are better changed by [`set_bus_master`](Self::set_bus_master) and
    /// [`enable_interrupts`](Self::enable_interrupts).
    pub fn config_write_u16(&self, offset: u16, value: u16) -> Result<()> {
        let _state = self.inner.state();
        self.inner.config_write(offset, value.to_le_bytes())
    }

    /// Writes a 32-bit word of configuration space, as [`config_write_u16`](Self::config_write_u16) does.
    pub fn config_write_u32(&self, offset: u16, value: u32) -> Result<()> {
        let _state = self.inner.state();
        self.inner.config_write(offset, value.to_le_bytes())
    }

    /// Layout of a BAR, or `None` if it is not implemented.
    pub fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.inner.bus.bar(bar)
    }

    /// The whole of a BAR.
    pub fn window(&self, bar: BarIndex) -> Result<Window> {
        self.inner.owner.check()?;
        let bytes = self.bar(bar).ok_or(Error::NoBar { bar })?.bytes;
        let pieces = self.inner.bus.bar_pieces(bar).map_err(|error| self.removed_or(error))?;
        Ok(Window::new(bar, bytes, pieces.into(), Arc::clone(&self.inner)))
    }

    /// Lets the function master the bus (DMA, and MSI-X, which is a memory write), or stops it.
    ///
    /// Its engines must be quiet: a reset makes them so. Without one, stop them first ([`opening_reset`](Self::opening_reset)).
    pub fn set_bus_master(&self, on: bool) -> Result<()> {
        let _state = self.inner.state();
        let (set, clear) = if on { (config::COMMAND_MASTER, 0) } else { (0, config::COMMAND_MASTER) };
        self.inner.set_command(set, clear)
    }

    /// Vectors of a kind that the function has; zero if it has none.
    pub fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        self.inner.owner.check()?;
        self.inner.bus.vectors(kind).map_err(|error| self.removed_or(error))
    }

    /// Enables `count` vectors of the best kind the function has ([`InterruptKind::ALL`]), as
    /// [`enable_interrupts_of`](Self::enable_interrupts_of) does.
    pub fn enable_interrupts(&self, count: u16) -> Result<Vec<Interrupt>> {
        for kind in InterruptKind::ALL {
            if self.vectors(kind)? > 0 {
                return self.enable_interrupts_of(kind, count);
            }
        }
        Err(self.removed_or(Error::NoInterrupts { kind: None }))
    }

    /// Enables `count` vectors of `kind`, each with a descriptor of its own, and has the bus raise each once to see that
    /// it arrives.
    ///
    /// The function raises messages only while it masters the bus. A second call begins anew: descriptors given before
    /// are not raised any more. Fails with [`Error::NoInterrupts`] or [`Error::VectorCount`] if there are not as many,
    /// and with [`Error::InterruptLost`] if one does not arrive.
    pub fn enable_interrupts_of(&self, kind: InterruptKind, count: u16) -> Result<Vec<Interrupt>> {
        self.inner.owner.check()?;
        let mut state = self.inner.state();
        self.inner.disable_interrupts(&mut state)?;
        self.inner.enable_interrupts(&mut state, kind, count).map_err(|error| {
            if let Err(error) = self.inner.disable_interrupts(&mut state) {
                log::debug!("Disabling the interrupts of {}: {error}", self.inner.name());
            }
            self.removed_or(error)
        })
    }

    /// Lets an INTx interrupt through again, once what caused it was dealt with. Without effect on other kinds.
    pub fn unmask_intx(&self) -> Result<()> {
        self.inner.owner.check()?;
        let state = self.inner.state();
        match state.interrupts {
            Some(InterruptKind::Intx) => self.inner.bus.unmask_intx().map_err(|error| self.removed_or(error)),
            _ => Ok(()),
        }
    }

    /// Resets the function, and tells what was reset. Afterwards memory decoding is on, and bus mastering and interrupts
    /// are off: enable them again if they were on. Descriptors of interrupts given before are not raised any more.
    ///
    /// Fails with [`Error::NoReset`] if there is no way to reset it; then nothing has changed, interrupts included. It
    /// never gives [`ResetOutcome::None`].
    pub fn reset(&self) -> Result<ResetOutcome> {
        self.inner.owner.check()?;
        // The kernel would wait for one that is gone, for as long as a minute.
        if self.is_removed() {
            return Err(Error::Removed);
        }
        let mut state = self.inner.state();
        if self.inner.bus.can_reset() == ResetOutcome::None {
            return Err(self.removed_or(Error::NoReset));
        }
        // Resetting ends interrupts, on a bus whose own side has to be told as well.
        state.interrupts = None;
        let outcome = self.inner.bus.reset().map_err(|error| self.removed_or(error))?;
        self.inner.set_command(config::COMMAND_MEMORY, config::COMMAND_MASTER)?;
        Ok(outcome)
    }

    /// Whether the function has reported an error that was not corrected (PCIe advanced error reporting) since this was
    /// last asked, where the bus tells. Nothing was done about it: what it was doing may be wrong, and it wants a
    /// [`reset`](Self::reset).
    pub fn take_error(&self) -> bool {
        self.inner.owner.is_here() && self.inner.bus.take_error()
    }

    /// Whether the function no longer answers (its vendor id reads as all-ones), or the bus has said that it is gone or
    /// asked for it back.
    pub fn is_removed(&self) -> bool {
        self.inner.is_removed()
    }

    /// Gives back `value`, read from one of its registers, unless that is all-ones because the function is gone.
    #[inline]
    pub fn check_alive(&self, value: u32) -> Result<u32> {
        if value == u32::MAX && self.is_removed() { Err(Error::Removed) } else { Ok(value) }
    }

    fn removed_or(&self, error: Error) -> Error {
        self.inner.removed_or(error)
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

    #[inline]
    pub(crate) fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    fn config_read<const WIDTH: usize>(&self, offset: u16) -> Result<[u8; WIDTH]> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        let mut data = [0xff; WIDTH];
        self.bus.config_read(offset, &mut data)?;
        Ok(data)
    }

    fn config_write<const WIDTH: usize>(&self, offset: u16, data: [u8; WIDTH]) -> Result<()> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        self.bus.config_write(offset, &data).map_err(|error| self.removed_or(error))
    }

    /// The one check: neither a vendor id nor a status register reads as all-ones. Both are asked, because some hosts
    /// (virtual machines) go on telling the identity of a function that is dead, and kernels make up some bits of its
    /// command register.
    fn is_silent(&self) -> bool {
        [config::VENDOR, config::STATUS].into_iter().any(|offset| {
            match self.config_read(offset).map(u16::from_le_bytes) {
                Ok(value) => value == u16::MAX,
                Err(error) => matches!(error, Error::Removed),
            }
        })
    }

    fn is_removed(&self) -> bool {
        self.bus.removal().check() || self.is_silent()
    }

    /// The better explanation of `error`, if the function is gone.
    fn removed_or(&self, error: Error) -> Error {
        if self.is_removed() { Error::Removed } else { error }
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

    fn enable_interrupts(&self, state: &mut State, kind: InterruptKind, count: u16) -> Result<Vec<Interrupt>> {
        let available = self.bus.vectors(kind)?;
        if available == 0 {
            return Err(Error::NoInterrupts { kind: Some(kind) });
        }
        if count == 0 || count > available {
            return Err(Error::VectorCount { asked: count, available });
        }
        let interrupts = (0..count).map(|_| Interrupt::new(kind, self.bus.removal())).collect::<Result<Vec<_>>>()?;
        state.interrupts = Some(kind);
        self.bus.enable_interrupts(kind, &interrupts)?;
        for (vector, interrupt) in (0..count).zip(&interrupts) {
            self.bus.trigger(kind, vector)?;
            if !interrupt.wait(SELF_TEST)? {
                let milliseconds = SELF_TEST.as_millis() as u64;
                return Err(Error::InterruptLost { kind, vector, milliseconds });
            }
        }
        if kind == InterruptKind::Intx {
            self.bus.unmask_intx()?;
        }
        if self.is_removed() { Err(Error::Removed) } else { Ok(interrupts) }
    }

    fn disable_interrupts(&self, state: &mut State) -> Result<()> {
        state.interrupts.take().map_or(Ok(()), |kind| self.bus.disable_interrupts(kind))
    }

    /// Puts the function back as it was found. Each step is tried whatever became of those before it, and each failure is
    /// logged: bus mastering ends although interrupts could not be disabled. A function that is gone needs none of it.
    fn close(&self) {
        // A release request does not stop DMA, so a function that still answers is quiesced first.
        if self.is_silent() {
            return self.bus.close();
        }
        let mut state = self.state();
        let report = |step: &str, result: Result<()>| {
            let Err(error) = result else { return };
            // One that goes meanwhile, or is asked back, refuses some of it: its remover keeps it from being reset.
            let is_expected = matches!(error, Error::Removed) || self.bus.removal().check();
            let level = if is_expected { log::Level::Debug } else { log::Level::Error };
            log::log!(level, "Closing {}: cannot {step}: {error}", self.name());
        };
        report("disable interrupts", self.disable_interrupts(&mut state));
        report("turn bus mastering off", self.set_command(0, config::COMMAND_MASTER));
        report("turn memory decoding off", self.set_command(0, config::COMMAND_MEMORY));
        if self.bus.can_reset() == ResetOutcome::None {
            log::debug!("Closing {}: it cannot be reset", self.name());
        } else {
            report("reset", self.bus.reset().map(drop));
        }
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

fn check_config_access(offset: u16, width: u16) -> Result<()> {
    if !offset.is_multiple_of(width) || offset > config::BYTES - width {
        return Err(Error::ConfigAccess { offset, width });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
