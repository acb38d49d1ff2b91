//! An open function: the state that its handles and windows share.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::identity::Identity;
use crate::bus::Bus;
use crate::memory::domain::Attachment;
use crate::owner::Owner;
use crate::{Error, Interrupt, InterruptKind, ResetOutcome, Result, config};

/// Time limit for an interrupt to arrive after the bus was told to raise it.
const SELF_TEST: Duration = Duration::from_secs(2);
/// Time limit for a function to answer after a reset: the longest that PCI Express has (Base Specification 5.0, sections 6.6.1
/// and 6.6.2).
const READY: Duration = Duration::from_secs(1);
const READY_POLL: Duration = Duration::from_millis(1);

/// State that handles and windows share. Dropping it closes the function.
pub(crate) struct OpenFunction {
    pub(super) identity: Identity,
    pub(super) attachment: Attachment,
    pub(super) bus: Box<dyn Bus>,
    pub(super) owner: Owner,
    /// Scope of the reset at opening.
    pub(super) opening_reset: ResetOutcome,
    /// Whether a [`Claim`](super::Claim) exists.
    pub(super) claimed: AtomicBool,
    state: Mutex<State>,
}

/// State that one thread at a time changes. Its lock protects the command register too.
#[derive(Default)]
pub(super) struct State {
    /// Kind of the enabled interrupts.
    pub(super) interrupts: Option<InterruptKind>,
}

impl OpenFunction {
    /// Opens a function: resets it, reads its identity, enables memory decoding, and disables bus mastering.
    ///
    /// A function that cannot be reset is opened only `without_reset`: its previous user may have left work running.
    pub(super) fn open(bus: Box<dyn Bus>, attachment: Attachment, name: &str, without_reset: bool) -> Result<Self> {
        let identity = Identity { name: name.to_owned(), vendor: 0, device: 0, class: 0, revision: 0 };
        let (owner, opening_reset) = (Owner::current(), ResetOutcome::None);
        let (claimed, state) = (AtomicBool::new(false), Mutex::default());
        // From here on, an error drops the value, which closes the function.
        let mut opened = OpenFunction { identity, attachment, bus, owner, opening_reset, claimed, state };
        opened.opening_reset = match opened.bus.can_reset() {
            ResetOutcome::None if !without_reset => return Err(opened.removed_or(Error::NotReset)),
            ResetOutcome::None => {
                log::warn!("{name} is opened without a reset: work of its previous user may still run");
                ResetOutcome::None
            }
            _ => opened.reset()?,
        };
        log::debug!("Opening {name}: reset {}", opened.opening_reset);
        opened.identify()?;
        opened.set_command(config::COMMAND_MEMORY, config::COMMAND_MASTER)?;
        Ok(opened)
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    pub(super) fn config_read<const WIDTH: usize>(&self, offset: u16) -> Result<[u8; WIDTH]> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        let mut data = [0xff; WIDTH];
        self.bus.config_read(offset, &mut data)?;
        Ok(data)
    }

    pub(super) fn config_write<const WIDTH: usize>(&self, offset: u16, data: [u8; WIDTH]) -> Result<()> {
        self.owner.check()?;
        check_config_access(offset, WIDTH as u16)?;
        self.bus.config_write(offset, &data).map_err(|error| self.removed_or(error))
    }

    /// Returns whether vendor id or status register read as all-ones, which both never do. Both are read, because some hosts
    /// (virtual machines) still report the identity of a dead function, and kernels emulate some bits of its command
    /// register. Copies from sysfs are judged otherwise: see [`Space::is_gone`](config::Space::is_gone).
    fn is_silent(&self) -> bool {
        [config::VENDOR, config::STATUS].into_iter().any(|offset| {
            match self.config_read(offset).map(u16::from_le_bytes) {
                Ok(value) => value == u16::MAX,
                Err(error) => matches!(error, Error::Removed { .. }),
            }
        })
    }

    /// Resets the function, and waits until it answers again. The kernel does that too; other buses return at once. A function
    /// that does not answer in time is gone, as [`is_removed`](Self::is_removed) tells. Takes an error that was reported before.
    pub(super) fn reset(&self) -> Result<ResetOutcome> {
        let outcome = self.bus.reset()?;
        let start = Instant::now();
        while self.is_silent() && !self.bus.removal().check() && start.elapsed() < READY {
            thread::sleep(READY_POLL);
        }
        self.bus.take_error();
        Ok(outcome)
    }

    pub(super) fn is_removed(&self) -> bool {
        self.bus.removal().check() || self.is_silent()
    }

    /// Returns [`Error::Removed`] if the function is gone, otherwise `error`.
    pub(super) fn removed_or(&self, error: Error) -> Error {
        if self.is_removed() { self.bus.removal().error() } else { error }
    }

    fn identify(&mut self) -> Result<()> {
        if self.is_removed() {
            return Err(self.bus.removal().error());
        }
        let [header_type] = self.config_read(config::HEADER_TYPE)?;
        if header_type & 0x7f != 0 {
            return Err(self.removed_or(Error::HeaderType { header_type: header_type & 0x7f }));
        }
        self.identity.vendor = self.config_read(config::VENDOR).map(u16::from_le_bytes)?;
        self.identity.device = self.config_read(config::DEVICE).map(u16::from_le_bytes)?;
        let word = self.config_read(config::CLASS_REVISION).map(u32::from_le_bytes)?;
        (self.identity.class, self.identity.revision) = (word >> 8, word as u8);
        Ok(())
    }

    /// Sets and clears bits of the command register. The caller holds the lock of the state.
    pub(super) fn set_command(&self, set: u16, clear: u16) -> Result<()> {
        let command = self.config_read(config::COMMAND).map(u16::from_le_bytes)?;
        if command == u16::MAX && self.is_removed() {
            return Err(self.bus.removal().error());
        }
        self.config_write(config::COMMAND, (command & !clear | set).to_le_bytes())
    }

    pub(super) fn enable_interrupts(
        &self,
        state: &mut State,
        kind: InterruptKind,
        count: u16,
    ) -> Result<Vec<Interrupt>> {
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
        if self.is_removed() { Err(self.bus.removal().error()) } else { Ok(interrupts) }
    }

    pub(super) fn disable_interrupts(&self, state: &mut State) -> Result<()> {
        state.interrupts.take().map_or(Ok(()), |kind| self.bus.disable_interrupts(kind))
    }

    /// Restores the function as it was found. Every step is tried even if earlier steps failed, and every failure is logged:
    /// bus mastering ends even if interrupts could not be disabled. A function that is gone needs no steps.
    fn close(&self) {
        // A release request does not stop DMA, so a function that still answers is quiesced first.
        if self.is_silent() {
            return self.bus.close();
        }
        let mut state = self.state();
        let report = |step: &str, result: Result<()>| {
            let Err(error) = result else { return };
            // A function that is being removed refuses some steps: its remover prevents a reset.
            let is_expected = matches!(error, Error::Removed { .. }) || self.bus.removal().check();
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

impl Drop for OpenFunction {
    fn drop(&mut self) {
        // A forked child must not reset a function that its parent uses.
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
