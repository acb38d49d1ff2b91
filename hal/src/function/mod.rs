//! The host side of one PCI function.

mod identity;
mod opened;
mod saved;
mod window;

pub use identity::Identity;
pub use saved::{Restored, SavedConfig};
pub use window::Window;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bus::Bus;
use crate::endpoint::BarLayout;
use crate::memory::domain::Attachment;
use crate::{
    BarIndex, BusKind, DmaBuffer, Domain, Ending, Error, Interrupt, InterruptKind, ResetOutcome, Result, config,
};
use opened::OpenFunction;

/// Most entries of the list of extended capabilities that are followed. A list that loops ends there.
const EXTENDED_MAX: usize = 64;

/// The host side of one PCI function. Clones are handles to the same function.
///
/// Windows and clones keep the function open. Dropping the last of them closes it: interrupts off, bus mastering off, memory
/// decoding off, function-level reset. After that its DMA finds no host. Buffers belong to the [`Domain`] and are freed
/// separately. In a forked child a function does nothing: it belongs to the parent.
#[derive(Clone)]
pub struct Function {
    inner: Arc<OpenFunction>,
}

/// The exclusive right to drive a function: see [`Function::claim`].
pub struct Claim {
    inner: Arc<OpenFunction>,
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

impl Function {
    /// Opens a function: resets it, reads its identity, enables memory decoding, and disables bus mastering.
    ///
    /// A function that cannot be reset is opened only `without_reset`: its previous user may have left work running.
    pub(crate) fn open(bus: Box<dyn Bus>, attachment: Attachment, name: &str, without_reset: bool) -> Result<Self> {
        Ok(Function { inner: Arc::new(OpenFunction::open(bus, attachment, name, without_reset)?) })
    }

    /// Returns the scope of the reset at opening.
    ///
    /// After [`ResetOutcome::None`] the function does not master the bus, and its engines may still run work of the previous
    /// user. Stop them before [`set_bus_master`](Self::set_bus_master): their addresses belong to other memory by now.
    pub fn opening_reset(&self) -> ResetOutcome {
        self.inner.opening_reset
    }

    /// Returns how the function is reached.
    pub fn bus(&self) -> BusKind {
        self.inner.bus.kind()
    }

    /// Returns the identity of the function.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Claims the function for one driver, until the claim is dropped. Clones share one claim.
    ///
    /// # Errors
    /// [`Error::InUse`] if the function is claimed already.
    pub fn claim(&self) -> Result<Claim> {
        if self.inner.claimed.swap(true, Ordering::AcqRel) {
            return Err(Error::InUse { name: self.inner.name().to_owned() });
        }
        Ok(Claim { inner: Arc::clone(&self.inner) })
    }

    /// Returns the domain that translates the function's DMA.
    pub fn domain(&self) -> &Domain {
        self.inner.attachment.domain()
    }

    /// Returns a handle to the domain for buffers that no other function needs, such as rings. They are on the function's NUMA
    /// node, where the kernel tells it. Other functions do not reach them, except on the kernel's VFIO, where all functions of a
    /// domain have the same mappings.
    pub fn private_domain(&self) -> Domain {
        self.inner.attachment.private_domain()
    }

    /// Returns whether a buffer is for the function: of its domain, and not for another function alone.
    #[inline]
    pub fn reaches(&self, buffer: &DmaBuffer) -> bool {
        self.inner.attachment.reaches(buffer.domain())
    }

    /// Lowers the address bits that the function can master, where its bus cannot know them. New buffers are placed below.
    /// A value over the present limit has no effect.
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

    /// Returns the id and the offset of each extended capability of configuration space. The list is not trusted: the walk is
    /// bounded. Empty if the function has none or does not answer.
    pub fn extended_capabilities(&self) -> Vec<(u16, u16)> {
        let mut found = Vec::new();
        let mut offset = config::EXTENDED;
        while offset >= config::EXTENDED && found.len() < EXTENDED_MAX {
            let header = self.config_read_u32(offset).unwrap_or(0);
            if header == 0 || header == u32::MAX {
                break;
            }
            found.push((header as u16, offset));
            offset = (header >> 20) as u16 & !3;
        }
        found
    }

    /// Writes a 16-bit register of configuration space. A function that is gone ignores writes, as in a BAR.
    ///
    /// For bus mastering and MSI-X use [`set_bus_master`](Self::set_bus_master) and
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

    /// Returns the layout of a BAR, or `None` if it is not implemented.
    pub fn bar(&self, bar: BarIndex) -> Option<BarLayout> {
        self.inner.bus.bar(bar)
    }

    /// Returns a window of the whole BAR.
    pub fn window(&self, bar: BarIndex) -> Result<Window> {
        self.inner.owner.check()?;
        let bytes = self.bar(bar).ok_or(Error::NoBar { bar })?.bytes;
        let pieces = self.inner.bus.bar_pieces(bar).map_err(|error| self.removed_or(error))?;
        Ok(Window::new(bar, bytes, pieces.into(), Arc::clone(&self.inner)))
    }

    /// Enables or disables bus mastering: DMA, and MSI-X, which is a memory write.
    ///
    /// The engines must be stopped. A reset stops them; without a reset, stop them first
    /// ([`opening_reset`](Self::opening_reset)).
    pub fn set_bus_master(&self, on: bool) -> Result<()> {
        let _state = self.inner.state();
        let (set, clear) = if on { (config::COMMAND_MASTER, 0) } else { (0, config::COMMAND_MASTER) };
        self.inner.set_command(set, clear)
    }

    /// Returns the number of interrupt vectors of a kind, zero if the function lacks the kind.
    pub fn vectors(&self, kind: InterruptKind) -> Result<u16> {
        self.inner.owner.check()?;
        self.inner.bus.vectors(kind).map_err(|error| self.removed_or(error))
    }

    /// Enables `count` vectors of the best available kind ([`InterruptKind::ALL`]), as
    /// [`enable_interrupts_of`](Self::enable_interrupts_of) does.
    pub fn enable_interrupts(&self, count: u16) -> Result<Vec<Interrupt>> {
        for kind in InterruptKind::ALL {
            if self.vectors(kind)? > 0 {
                return self.enable_interrupts_of(kind, count);
            }
        }
        Err(self.removed_or(Error::NoInterrupts { kind: None }))
    }

    /// Enables `count` vectors of `kind`, each with its own descriptor, and tests that each arrives when the bus raises it.
    ///
    /// The function raises messages only while it masters the bus. A second call disconnects the descriptors of the first.
    ///
    /// # Errors
    /// - [`Error::NoInterrupts`], [`Error::VectorCount`]: the function has fewer vectors.
    /// - [`Error::InterruptLost`]: a vector did not arrive.
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

    /// Unmasks an INTx interrupt after its cause was handled. No effect on other kinds.
    pub fn unmask_intx(&self) -> Result<()> {
        self.inner.owner.check()?;
        let state = self.inner.state();
        match state.interrupts {
            Some(InterruptKind::Intx) => self.inner.bus.unmask_intx().map_err(|error| self.removed_or(error)),
            _ => Ok(()),
        }
    }

    /// Resets the function, and returns the scope of the reset, which is never [`ResetOutcome::None`]. Afterwards memory
    /// decoding is on, and bus mastering and interrupts are off. Earlier interrupt descriptors are disconnected.
    ///
    /// # Errors
    /// [`Error::NoReset`]: the function cannot be reset. Nothing has changed, interrupts included.
    pub fn reset(&self) -> Result<ResetOutcome> {
        self.inner.owner.check()?;
        // The kernel waits up to a minute for a function that is gone.
        if self.is_removed() {
            return Err(self.inner.bus.removal().error());
        }
        let mut state = self.inner.state();
        if self.inner.bus.can_reset() == ResetOutcome::None {
            return Err(self.removed_or(Error::NoReset));
        }
        // A reset ends interrupts. The bus forgets them too.
        state.interrupts = None;
        let outcome = self.inner.reset().map_err(|error| self.removed_or(error))?;
        self.inner.set_command(config::COMMAND_MEMORY, config::COMMAND_MASTER)?;
        Ok(outcome)
    }

    /// Saves what the host has set in configuration space: base addresses, Device Control and the command register. Interrupts
    /// are not saved.
    ///
    /// # Errors
    /// [`Error::Removed`] if the function does not answer; the bus's.
    pub fn save_config(&self) -> Result<SavedConfig> {
        SavedConfig::save(&self.inner)
    }

    /// Writes the saved value to each register that has another. Returns these registers; none if nothing was lost. If
    /// interrupts were enabled and registers were lost, enable interrupts again.
    ///
    /// The kernel's VFIO emulates base addresses, maximum payload size and maximum read request size: they read as they were
    /// written, even if the function has lost them. Lost base addresses come back with the command register, and are not among
    /// the registers returned; lost sizes stay those of power-up.
    ///
    /// # Errors
    /// [`Error::Removed`] if the function does not answer; [`Error::NotRestored`] if a register does not keep its value; the bus's.
    pub fn restore_config(&self, saved: &SavedConfig) -> Result<Vec<Restored>> {
        let _state = self.inner.state();
        saved.restore(&self.inner)
    }

    /// Returns whether the function reported an uncorrected error (PCIe advanced error reporting) since the last call or reset,
    /// on buses that forward these. Nothing was done about it: results may be wrong. [`reset`](Self::reset) the function.
    pub fn take_error(&self) -> bool {
        self.inner.owner.is_here() && self.inner.bus.take_error()
    }

    /// Returns whether the function no longer answers (its vendor id reads as all-ones), or the bus reported its removal or
    /// requested its release.
    pub fn is_removed(&self) -> bool {
        self.inner.is_removed()
    }

    /// Returns why the function is gone, if it is and its bus knows.
    pub fn ending(&self) -> Option<Ending> {
        self.inner.bus.removal().ending()
    }

    /// Returns `value`, read from a register, unless it is all-ones because the function is gone.
    #[inline]
    pub fn check_alive(&self, value: u32) -> Result<u32> {
        if value == u32::MAX && self.is_removed() { Err(self.inner.bus.removal().error()) } else { Ok(value) }
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

#[cfg(test)]
mod tests;
