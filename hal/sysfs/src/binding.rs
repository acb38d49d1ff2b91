//! Binds functions to drivers, all or none: after a failure every function has its previous driver.
//!
//! The kernel's steps (`Documentation/ABI/testing/sysfs-bus-pci`): write the name of the driver to `driver_override`, the
//! address to `unbind` of the present driver, then to `bind` of the new driver. That returns the kernel's error, if any.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fpga_pci::{PciAddress, ResetOutcome};
use nix::errno::Errno;

use crate::bind_error::BindError;
use crate::error::Error;
use crate::function::PciFunction;
use crate::group::{Member, leaves_to_user_space};
use crate::listing::reset_by;
use crate::root::Sysfs;
use crate::turn::{NoTurn, Turn};

/// The kernel's driver for functions of user-space drivers.
pub const VFIO_PCI: &str = "vfio-pci";
/// Interval between looks at the state of a function during a wait.
const LOOK: Duration = Duration::from_millis(2);
/// Longest delay of an interruption while the kernel does not answer.
const NOTICE: Duration = Duration::from_millis(20);
/// Smallest time limit for each step of a restore, which is more important than the step that failed.
const RESTORE: Duration = Duration::from_secs(5);

/// Options for binding.
#[derive(Debug, Clone)]
pub struct Options {
    /// Change functions that are in use, and bind functions whose group cannot be opened.
    pub force: bool,
    /// Time limit for each step.
    pub timeout: Duration,
    /// Interrupts the operation when it becomes true, for example by a signal handler. Changes are then undone, without further
    /// interruption.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { force: false, timeout: Duration::from_secs(10), interrupt: None }
    }
}

/// Limits of waiting for the kernel.
#[derive(Clone, Copy)]
struct Patience<'a> {
    /// Time limit for each step.
    timeout: Duration,
    /// Ends a wait early.
    interrupt: Option<&'a AtomicBool>,
    /// The lock, held until the kernel has answered every write, even abandoned ones.
    turn: &'a Arc<Turn>,
}

impl Patience<'_> {
    fn is_interrupted(self) -> bool {
        self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }

    /// Waits for an answer. `None`: the time limit passed, or the wait was interrupted.
    fn answer<T>(self, answers: &mpsc::Receiver<T>) -> Option<Result<T, mpsc::RecvError>> {
        let begun = Instant::now();
        while !self.is_interrupted() {
            let left = self.timeout.saturating_sub(begun.elapsed());
            match answers.recv_timeout(left.min(NOTICE)) {
                Ok(answer) => return Some(Ok(answer)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Some(Err(mpsc::RecvError)),
                Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        None
    }
}

impl Options {
    fn patience<'a>(&'a self, turn: &'a Arc<Turn>) -> Patience<'a> {
        Patience { timeout: self.timeout, interrupt: self.interrupt.as_deref(), turn }
    }

    /// Returns the limits for a restore.
    fn patience_to_restore<'a>(&self, turn: &'a Arc<Turn>) -> Patience<'a> {
        Patience { timeout: self.timeout.max(RESTORE), interrupt: None, turn }
    }
}

/// Previous and present driver of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The function.
    pub address: PciAddress,
    /// The previous driver.
    pub before: Option<String>,
    /// The present driver.
    pub now: Option<String>,
}

/// State of a function before the change.
#[derive(Debug, Clone)]
struct Before {
    address: PciAddress,
    driver: Option<String>,
    driver_override: Option<String>,
}

impl Sysfs {
    /// Binds functions to `driver`, all or none. Functions that already have the driver stay unchanged. Repeated addresses count
    /// once.
    ///
    /// # Errors
    /// Any [`BindError`]. Changes were undone.
    pub fn bind(&self, addresses: &[PciAddress], driver: &str, options: &Options) -> Result<Vec<Bound>, BindError> {
        let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-' || letter == b'_';
        if driver.is_empty() || driver.len() > 64 || !driver.bytes().all(is_letter) {
            return Err(BindError::DriverName { driver: driver.to_owned() });
        }
        let Some(&first) = addresses.first() else { return Ok(Vec::new()) };
        let turn = self.turn(first, options)?;
        let functions = self.known(addresses)?;
        if !self.has_driver(driver) {
            return Err(BindError::DriverMissing { driver: driver.to_owned() });
        }
        for function in functions.iter().filter(|function| function.driver.as_deref() != Some(driver)) {
            if leaves_to_user_space(driver) {
                self.check_group(function, addresses, options)?;
            }
            self.check_uses(function, options)?;
        }
        self.change(&functions, options, &turn, |function| {
            if function.driver.as_deref() == Some(driver) {
                return Ok(());
            }
            let (address, patience) = (function.address, options.patience(&turn));
            self.write_override(address, Some(driver), patience)?;
            if let Some(present) = &function.driver {
                self.detach(address, present, patience)?;
            }
            self.attach(address, driver, patience)
        })
    }

    /// Unbinds functions from their drivers, all or none. After a user-space driver, a function gets the driver that the kernel
    /// chooses, if any. After another driver, it has none.
    ///
    /// # Errors
    /// Any [`BindError`]. Changes were undone.
    pub fn unbind(&self, addresses: &[PciAddress], options: &Options) -> Result<Vec<Bound>, BindError> {
        let Some(&first) = addresses.first() else { return Ok(Vec::new()) };
        let turn = self.turn(first, options)?;
        let functions = self.known(addresses)?;
        for function in &functions {
            self.check_uses(function, options)?;
        }
        self.change(&functions, options, &turn, |function| {
            let (address, patience) = (function.address, options.patience(&turn));
            let is_released = function.driver.as_deref().is_none_or(is_of_user_space);
            if function.driver_override.is_some() {
                self.write_override(address, None, patience)?;
            }
            if let Some(present) = &function.driver {
                self.detach(address, present, patience)?;
            }
            if is_released && (function.driver.is_some() || function.driver_override.is_some()) {
                let path = self.path("/sys/bus/pci/drivers_probe");
                self.write(address, "find a driver for", path, &address.to_string(), patience)?;
            }
            Ok(())
        })
    }

    /// Resets a function by the first of the kernel's methods that works, and returns the scope of the reset.
    ///
    /// # Errors
    /// [`BindError::NoReset`], [`BindError::InUse`], or the kernel's error. [`BindError::Gone`] if the function does not answer
    /// afterwards.
    pub fn reset(&self, address: PciAddress, options: &Options) -> Result<ResetOutcome, BindError> {
        let turn = self.turn(address, options)?;
        let [function] = &self.known(&[address])?[..] else { return Err(BindError::NoFunction { address }) };
        let path = self.directory(address).join("reset");
        if !path.exists() {
            return Err(BindError::NoReset { address });
        }
        self.check_uses(function, options)?;
        self.write(address, "reset", path, "1", options.patience(&turn))?;
        let after = self.function(address).map_err(|error| gone_or(address, error))?;
        // The kernel caches the ids, so only configuration space shows whether the function answers.
        if after.config.is_some_and(|config| config.is_gone()) {
            return Err(BindError::Gone { address });
        }
        Ok(reset_by(&function.reset_methods))
    }

    /// Waits for other binds, unbinds and resets to end, and takes the lock.
    fn turn(&self, address: PciAddress, options: &Options) -> Result<Arc<Turn>, BindError> {
        let is_interrupted = || options.interrupt.as_deref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed));
        Turn::take(self, options.timeout, is_interrupted).map(Arc::new).map_err(|error| match error {
            NoTurn::Interrupted => BindError::Interrupted { address },
            NoTurn::Held { path, by } => BindError::Locked { path, by, waited: options.timeout },
            NoTurn::Failed { path, source } if is_denied(&source) => BindError::NoPermission { path, source },
            NoTurn::Failed { path, source } => BindError::NotLocked { path, source },
        })
    }

    /// Reads the functions at `addresses`, each once: the state that is read is valid for one change.
    fn known(&self, addresses: &[PciAddress]) -> Result<Vec<PciFunction>, BindError> {
        let known = |address: &PciAddress| {
            self.function(*address).map_err(|error| match error {
                Error::NoFunction { address } => BindError::NoFunction { address },
                error => error.into(),
            })
        };
        let mut seen = BTreeSet::new();
        addresses.iter().filter(|address| seen.insert(**address)).map(known).collect()
    }

    /// Checks that the group of a function can be opened after all of `addresses` are bound.
    fn check_group(
        &self,
        function: &PciFunction,
        addresses: &[PciAddress],
        options: &Options,
    ) -> Result<(), BindError> {
        let address = function.address;
        let Some(group) = function.group else {
            return if options.force { Ok(()) } else { Err(BindError::NoIommu { address }) };
        };
        let is_other = |member: &&Member| member.address.is_none_or(|member| !addresses.contains(&member));
        let foreign: Vec<Member> = self.group(group)?.foreign().filter(is_other).cloned().collect();
        if foreign.is_empty() || options.force {
            return Ok(());
        }
        Err(BindError::NotViable { address, group, foreign })
    }

    fn check_uses(&self, function: &PciFunction, options: &Options) -> Result<(), BindError> {
        let uses = if options.force { Vec::new() } else { self.uses(function)? };
        if uses.is_empty() { Ok(()) } else { Err(BindError::InUse { address: function.address, uses }) }
    }

    /// Applies `step` to each function. After a failure, restores all changed functions, the last one first.
    fn change(
        &self,
        functions: &[PciFunction],
        options: &Options,
        turn: &Arc<Turn>,
        step: impl Fn(&PciFunction) -> Result<(), BindError>,
    ) -> Result<Vec<Bound>, BindError> {
        let mut touched = Vec::new();
        for function in functions {
            let address = function.address;
            if options.patience(turn).is_interrupted() {
                let failure = BindError::Interrupted { address };
                return Err(self.restore_all(&touched, failure, options.patience_to_restore(turn)));
            }
            let (driver, driver_override) = (function.driver.clone(), function.driver_override.clone());
            touched.push(Before { address, driver, driver_override });
            if let Err(mut failure) = step(function) {
                if let BindError::Unfinished { before, .. } = &mut failure {
                    before.clone_from(&function.driver);
                }
                return Err(self.restore_all(&touched, failure, options.patience_to_restore(turn)));
            }
        }
        let bound = |before: &Before| Bound {
            address: before.address,
            before: before.driver.clone(),
            now: self.driver(before.address).ok().flatten(),
        };
        Ok(touched.iter().map(bound).collect())
    }

    fn restore_all(&self, touched: &[Before], failure: BindError, patience: Patience<'_>) -> BindError {
        let mut result = failure;
        for before in touched.iter().rev() {
            if let Err(restore) = self.restore(before, patience) {
                // A removed function cannot be restored.
                if !self.is_there(before.address) {
                    continue;
                }
                let (failure, restore) = (Box::new(result), Box::new(restore));
                let (address, driver) = (before.address, before.driver.clone());
                result = BindError::NotRestored { address, driver, failure, restore };
            }
        }
        result
    }

    /// Restores a function. Writes only what differs.
    fn restore(&self, before: &Before, patience: Patience<'_>) -> Result<(), BindError> {
        let address = before.address;
        // First, because it decides whether the previous driver matches.
        if self.driver_override(address)? != before.driver_override {
            self.write_override(address, before.driver_override.as_deref(), patience)?;
        }
        let present = self.driver(address)?;
        if present == before.driver {
            return Ok(());
        }
        if let Some(present) = present {
            self.detach(address, &present, patience)?;
        }
        match &before.driver {
            Some(driver) => self.attach(address, driver, patience),
            None => Ok(()),
        }
    }

    /// Writes the driver override. An empty line removes it.
    fn write_override(
        &self,
        address: PciAddress,
        driver: Option<&str>,
        patience: Patience<'_>,
    ) -> Result<(), BindError> {
        let path = self.directory(address).join("driver_override");
        let value = format!("{}\n", driver.unwrap_or_default());
        self.write(address, "set the driver override of", path, &value, patience)
    }

    fn detach(&self, address: PciAddress, driver: &str, patience: Patience<'_>) -> Result<(), BindError> {
        let path = self.driver_directory(driver).join("unbind");
        self.write(address, "unbind", path, &address.to_string(), patience)?;
        self.wait_for(address, "unbind", None, patience)
    }

    fn attach(&self, address: PciAddress, driver: &str, patience: Patience<'_>) -> Result<(), BindError> {
        let path = self.driver_directory(driver).join("bind");
        self.write(address, "bind", path, &address.to_string(), patience)?;
        self.wait_for(address, "bind", Some(driver), patience)
    }

    /// Waits until a function has this driver. It does when the write returns, except with drivers that probe
    /// asynchronously.
    fn wait_for(
        &self,
        address: PciAddress,
        step: &'static str,
        driver: Option<&str>,
        patience: Patience<'_>,
    ) -> Result<(), BindError> {
        let begun = Instant::now();
        loop {
            let found = self.driver(address).map_err(|error| gone_or(address, error))?;
            if found.as_deref() == driver {
                return Ok(());
            }
            if patience.is_interrupted() {
                return Err(BindError::Interrupted { address });
            }
            if begun.elapsed() >= patience.timeout {
                return Err(BindError::Ineffective { address, step, found });
            }
            thread::sleep(LOOK);
        }
    }

    /// Writes an attribute. Waits for the time limit and a little longer, because the kernel may sleep in the write: `unbind`
    /// waits until the function's user closes it.
    fn write(
        &self,
        address: PciAddress,
        step: &'static str,
        path: PathBuf,
        value: &str,
        patience: Patience<'_>,
    ) -> Result<(), BindError> {
        let begun = Instant::now();
        let (sender, answers) = mpsc::channel();
        let (writer, value, to) = (Arc::clone(&self.writer), value.to_owned(), path.clone());
        let turn = Arc::clone(patience.turn);
        let work = move || {
            let answer = writer.write(&to, &value);
            // Before the answer, because the receiver may take the lock at once.
            drop(turn);
            drop(sender.send(answer));
        };
        if let Err(source) = thread::Builder::new().name("attribute".into()).spawn(work) {
            return Err(BindError::Refused { address, step, source });
        }
        match patience.answer(&answers) {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(source))) => Err(self.refused(address, step, path, source)),
            // The writer panicked.
            Some(Err(mpsc::RecvError)) => {
                Err(BindError::Refused { address, step, source: io::ErrorKind::Other.into() })
            }
            None => {
                let is_interrupted = patience.is_interrupted();
                // A late write must not take effect after the restore.
                match answers.recv_timeout(RESTORE) {
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        Err(BindError::Unfinished { address, step, waited: begun.elapsed(), before: None })
                    }
                    _ if is_interrupted => Err(BindError::Interrupted { address }),
                    _ => Err(BindError::TimedOut { address, step, waited: patience.timeout }),
                }
            }
        }
    }

    fn refused(&self, address: PciAddress, step: &'static str, path: PathBuf, source: io::Error) -> BindError {
        if !self.is_there(address) {
            BindError::Gone { address }
        } else if is_denied(&source) {
            BindError::NoPermission { path, source }
        } else {
            BindError::Refused { address, step, source }
        }
    }
}

/// Returns whether a user with more rights would not get this error.
fn is_denied(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EROFS))
}

fn gone_or(address: PciAddress, error: Error) -> BindError {
    match error {
        Error::NoFunction { .. } => BindError::Gone { address },
        error => error.into(),
    }
}

/// Returns whether a driver only reserves its device, for user space or from all use.
fn is_of_user_space(driver: &str) -> bool {
    leaves_to_user_space(driver) || matches!(driver, "pci-stub" | "uio_pci_generic" | "igb_uio")
}
