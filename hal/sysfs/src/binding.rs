//! Binding functions to drivers, so that whatever fails, they end bound to what they were bound to before.
//!
//! The kernel's recipe (`Documentation/ABI/testing/sysfs-bus-pci`): the wanted driver goes into `driver_override`, the
//! address into `driver/unbind` of the present driver, then into `bind` of the wanted one, which gives the kernel's own
//! reason if it refuses.

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

/// The kernel's driver that hands a function to user space.
pub const VFIO_PCI: &str = "vfio-pci";
/// How often the state of a function is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(2);
/// How long an interruption may go unnoticed while the kernel does not answer.
const NOTICE: Duration = Duration::from_millis(20);
/// What a restore may take for each step, at least: it is worth more waiting than what failed.
const RESTORE: Duration = Duration::from_secs(5);

/// How to bind.
#[derive(Debug, Clone)]
pub struct Options {
    /// Take a function away from whatever uses it, and bind it even if its group cannot be opened.
    pub force: bool,
    /// The most that each step may take.
    pub timeout: Duration,
    /// Ends what has begun as soon as it is set, as a handler of signals does: what was changed is put back. What is put
    /// back is not interrupted.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { force: false, timeout: Duration::from_secs(10), interrupt: None }
    }
}

/// How long the kernel is waited for.
#[derive(Clone, Copy)]
struct Patience<'a> {
    /// In each step.
    timeout: Duration,
    /// Ends it before that.
    interrupt: Option<&'a AtomicBool>,
    /// Held until the kernel has answered everything, even what is not waited for any more.
    turn: &'a Arc<Turn>,
}

impl Patience<'_> {
    fn is_interrupted(self) -> bool {
        self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }

    /// Waits for an answer. `None` if none came, or it was interrupted before.
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

    /// To put something back with.
    fn patience_to_restore<'a>(&self, turn: &'a Arc<Turn>) -> Patience<'a> {
        Patience { timeout: self.timeout.max(RESTORE), interrupt: None, turn }
    }
}

/// What a function was bound to, and what it is bound to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Which.
    pub address: PciAddress,
    /// The driver it had.
    pub before: Option<String>,
    /// The driver it has.
    pub now: Option<String>,
}

/// What a function was before it was touched.
#[derive(Debug, Clone)]
struct Before {
    address: PciAddress,
    driver: Option<String>,
    driver_override: Option<String>,
}

impl Sysfs {
    /// Binds functions to `driver`, all or none. One that has it already is left as it is; one that is named twice is
    /// bound once.
    ///
    /// # Errors
    /// Any [`BindError`]; what was changed has then been put back.
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

    /// Takes functions away from their drivers, all or none. From a driver of user space they go back to the one the
    /// kernel would choose, if there is one; from another they go to none.
    ///
    /// # Errors
    /// Any [`BindError`]; what was changed has then been put back.
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

    /// Resets a function by the kernel's first way that works, and tells what that resets.
    ///
    /// # Errors
    /// [`BindError::NoReset`], [`BindError::InUse`], or what the kernel says. [`BindError::Gone`] if it does not answer
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
        // Reading its ids from memory of the kernel proves nothing; its configuration space must answer.
        if after.config.is_some_and(|config| config.is_gone()) {
            return Err(BindError::Gone { address });
        }
        Ok(reset_by(&function.reset_methods))
    }

    /// Waits until no other bind, unbind or reset runs.
    fn turn(&self, address: PciAddress, options: &Options) -> Result<Arc<Turn>, BindError> {
        let is_interrupted = || options.interrupt.as_deref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed));
        Turn::take(self, options.timeout, is_interrupted).map(Arc::new).map_err(|error| match error {
            NoTurn::Interrupted => BindError::Interrupted { address },
            NoTurn::Held { path, by } => BindError::Locked { path, by, waited: options.timeout },
            NoTurn::Failed { path, source } => BindError::NoPermission { path, source },
        })
    }

    /// What there is at `addresses`, each once: what was read of a function holds for one change of it.
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

    /// Whether the function's group can be opened when all of `addresses` are bound.
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

    /// Does `step` to each function. When one fails, all that were touched are put back, the last first.
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
                // A function that is gone has nothing to be put back to.
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

    /// Puts a function back, changing only what is not as it was.
    fn restore(&self, before: &Before, patience: Patience<'_>) -> Result<(), BindError> {
        let address = before.address;
        // First, so that it is what decides whether the former driver matches.
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

    /// An empty line takes the override away.
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

    /// Waits until a function has this driver. The kernel is done when its write returns, except where drivers probe
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

    /// Writes an attribute, and waits for that as long as it is allowed to and a little more: the kernel may sleep in it,
    /// as in `unbind` until the function's owner lets go.
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
            // Before the answer: whoever gets it may want to go on at once.
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
                // What comes a little late must not come after all has been put back.
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
        let errno = source.raw_os_error().map(Errno::from_raw);
        if !self.is_there(address) {
            BindError::Gone { address }
        } else if matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EROFS)) {
            BindError::NoPermission { path, source }
        } else {
            BindError::Refused { address, step, source }
        }
    }
}

fn gone_or(address: PciAddress, error: Error) -> BindError {
    match error {
        Error::NoFunction { .. } => BindError::Gone { address },
        error => error.into(),
    }
}

/// Whether a driver does nothing with its device but to keep it for user space, or from everybody.
fn is_of_user_space(driver: &str) -> bool {
    leaves_to_user_space(driver) || matches!(driver, "pci-stub" | "uio_pci_generic" | "igb_uio")
}
