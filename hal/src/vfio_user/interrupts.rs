//! Interrupts of a served endpoint: what a client has asked to be told, and by which descriptors.
//!
//! The server plays the kernel's part: descriptors come by message, and the endpoint's MSI-X capability and table follow
//! from that (section "`VFIO_USER_DEVICE_SET_IRQS`"; what it leaves open is as in the kernel's `vfio_pci_intrs.c`).

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

use super::codec::{ERROR, INTX, InterruptInfo, MSIX, REQUEST, SetInterrupts};
use super::link::Link;
use crate::config;
use crate::endpoint::{Endpoint, InterruptPort};
use crate::intx::{Intx, raise};
use crate::msix::Msix;

/// The endpoint's way to a client's descriptors.
#[derive(Debug)]
pub(crate) struct Interrupts {
    link: Arc<Link>,
    vectors: RwLock<Vec<Option<Arc<EventFd>>>>,
    intx: Intx,
    intx_counter: Mutex<Option<Arc<EventFd>>>,
    error: Mutex<Option<Arc<EventFd>>>,
    request: Mutex<Option<Arc<EventFd>>>,
    signalling: Signalling,
}

/// Threads that signal now, and how often one was done. A descriptor that is full makes a thread wait, and a hostile
/// client can fill one behind our back.
#[derive(Debug, Default)]
struct Signalling {
    now: AtomicU32,
    done: AtomicU64,
}

impl Interrupts {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Interrupts {
            link,
            vectors: RwLock::default(),
            intx: Intx::default(),
            intx_counter: Mutex::default(),
            error: Mutex::default(),
            request: Mutex::default(),
            signalling: Signalling::default(),
        }
    }

    /// Signals that finished so far, if one is at work now: two equal answers some time apart mean that it is stuck.
    pub(crate) fn stuck_at(&self) -> Option<u64> {
        (self.signalling.now.load(Ordering::Acquire) > 0).then(|| self.signalling.done.load(Ordering::Acquire))
    }

    /// Frees a thread that is stuck at a descriptor its client keeps full.
    pub(crate) fn unblock(&self) {
        let vectors = self.vectors.try_read().map(|vectors| vectors.clone()).unwrap_or_default();
        let others = [&self.intx_counter, &self.error, &self.request].map(held);
        for counter in vectors.into_iter().chain(others).flatten() {
            // A client that does this has forfeited to have its descriptors left as they are.
            let flags = fcntl(&counter, FcntlArg::F_GETFL).map_or(OFlag::empty(), OFlag::from_bits_retain);
            if fcntl(&counter, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).is_ok() {
                let _ = counter.read();
            }
        }
    }

    /// Asks the client to give the function back.
    pub(crate) fn request_release(&self) {
        self.signal(held(&self.request).as_deref());
    }

    /// Lets go of all descriptors.
    pub(crate) fn disconnect(&self) {
        self.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.set_intx_counter(None);
        for slot in [&self.error, &self.request] {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn set_intx_counter(&self, counter: Option<Arc<EventFd>>) {
        *self.intx_counter.lock().unwrap_or_else(PoisonError::into_inner) = counter.clone();
        self.signalling.during(|| self.intx.connect(counter));
    }

    fn vector(&self, vector: u32) -> Option<Arc<EventFd>> {
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        vectors.get(vector as usize).cloned().flatten()
    }

    /// Raises a descriptor, unless its count is full: it is raised then already.
    fn signal(&self, counter: Option<&EventFd>) {
        let Some(counter) = counter else { return };
        self.signalling.during(|| {
            let mut descriptors = [PollFd::new(counter.as_fd(), PollFlags::POLLOUT)];
            if matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1..)) {
                raise(counter);
            }
        });
    }
}

impl Signalling {
    fn during(&self, signal: impl FnOnce()) {
        self.now.fetch_add(1, Ordering::AcqRel);
        signal();
        self.done.fetch_add(1, Ordering::AcqRel);
        self.now.fetch_sub(1, Ordering::AcqRel);
    }
}

impl InterruptPort for Interrupts {
    fn raise(&self, vector: u16) {
        if self.link.check().is_ok() {
            self.signal(self.vector(u32::from(vector)).as_deref());
        }
    }

    fn set_intx(&self, asserted: bool) {
        self.signalling.during(|| self.intx.set_asserted(asserted));
    }
}

/// The descriptor of a slot, so that its lock is not held while it is signalled.
fn held(slot: &Mutex<Option<Arc<EventFd>>>) -> Option<Arc<EventFd>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What one index has: the reply to section "`VFIO_USER_DEVICE_GET_IRQ_INFO`", with the kernel's flags, but that MSI-X may
/// be set vector by vector.
pub(crate) fn info(index: u32, vectors: u16, has_intx: bool) -> InterruptInfo {
    let (count, flags) = match index {
        INTX => {
            let flags = InterruptInfo::EVENTFD | InterruptInfo::MASKABLE | InterruptInfo::AUTOMASKED;
            (u32::from(has_intx), flags)
        }
        MSIX => (u32::from(vectors), InterruptInfo::EVENTFD),
        ERROR | REQUEST => (1, InterruptInfo::EVENTFD),
        // MSI: endpoints have no port for it.
        _ => (0, InterruptInfo::EVENTFD),
    };
    InterruptInfo { argsz: InterruptInfo::BYTES as u32, flags, index, count }
}

/// What is to be done with a range of interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Mask,
    Unmask,
    Trigger,
}

impl Interrupts {
    /// Section "`VFIO_USER_DEVICE_SET_IRQS`". `available` is what [`info`] says the index has.
    pub(crate) fn set(
        &self,
        set: &SetInterrupts<'_>,
        descriptors: Vec<OwnedFd>,
        available: u32,
        msix: Option<&Msix>,
        endpoint: &dyn Endpoint,
    ) -> Result<(), Errno> {
        const DATA: u32 = SetInterrupts::DATA_NONE | SetInterrupts::DATA_BOOL | SetInterrupts::DATA_EVENTFD;
        const ACTION: u32 = SetInterrupts::MASK | SetInterrupts::UNMASK | SetInterrupts::TRIGGER;
        if (set.argsz as usize) < SetInterrupts::BYTES || set.flags & !(DATA | ACTION) != 0 {
            return Err(Errno::EINVAL);
        }
        let action = match set.flags & ACTION {
            SetInterrupts::MASK => Action::Mask,
            SetInterrupts::UNMASK => Action::Unmask,
            SetInterrupts::TRIGGER => Action::Trigger,
            _ => return Err(Errno::EINVAL),
        };
        let end = set.start.checked_add(set.count).ok_or(Errno::EINVAL)?;
        if set.start >= available || end > available {
            return Err(Errno::EINVAL);
        }
        let range = set.start..end;
        let data = set.flags & DATA;
        let wants_descriptors = data == SetInterrupts::DATA_EVENTFD;
        let wanted_bytes = if data == SetInterrupts::DATA_BOOL { range.len() } else { 0 };
        if set.data.len() != wanted_bytes || !wants_descriptors && !descriptors.is_empty() {
            return Err(Errno::EINVAL);
        }
        let is_chosen = |index: u32| match data {
            SetInterrupts::DATA_BOOL => set.data[(index - set.start) as usize] != 0,
            _ => true,
        };
        match data {
            SetInterrupts::DATA_NONE | SetInterrupts::DATA_BOOL => {
                if data == SetInterrupts::DATA_NONE && set.count == 0 {
                    return match action {
                        Action::Trigger if set.start == 0 => self.disable(set.index, msix, endpoint),
                        _ => Err(Errno::EINVAL),
                    };
                }
                if range.is_empty() {
                    return Err(Errno::EINVAL);
                }
                range.filter(|index| is_chosen(*index)).try_for_each(|index| self.act(set.index, index, action))
            }
            SetInterrupts::DATA_EVENTFD => {
                if range.is_empty() || !descriptors.is_empty() && descriptors.len() != range.len() {
                    return Err(Errno::EINVAL);
                }
                if action != Action::Trigger {
                    // Descriptors that mask or unmask are for who injects interrupts without the client's doing.
                    return Err(Errno::ENOTSUP);
                }
                let counters = if descriptors.is_empty() {
                    vec![None; range.len()]
                } else {
                    descriptors.into_iter().map(|it| counter(it).map(Some)).collect::<Result<_, _>>()?
                };
                self.connect(set.index, range, counters, msix, endpoint)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn connect(
        &self,
        index: u32,
        range: Range<u32>,
        counters: Vec<Option<Arc<EventFd>>>,
        msix: Option<&Msix>,
        endpoint: &dyn Endpoint,
    ) -> Result<(), Errno> {
        match index {
            MSIX => {
                let msix = msix.ok_or(Errno::EINVAL)?;
                {
                    let mut vectors = self.vectors.write().unwrap_or_else(PoisonError::into_inner);
                    vectors.resize(usize::from(msix.vectors()), None);
                    for (vector, counter) in range.zip(counters) {
                        vectors[vector as usize] = counter;
                    }
                }
                self.program(msix, endpoint)
            }
            INTX => {
                self.set_intx_counter(counters.into_iter().next().flatten());
                Ok(())
            }
            ERROR | REQUEST => {
                let slot = if index == ERROR { &self.error } else { &self.request };
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = counters.into_iter().next().flatten();
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn disable(&self, index: u32, msix: Option<&Msix>, endpoint: &dyn Endpoint) -> Result<(), Errno> {
        if index == MSIX {
            // Off first: what is raised meanwhile stays pending in the function.
            if let Some(msix) = msix {
                msix.disable(endpoint);
            }
            self.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
            return Ok(());
        }
        self.connect(index, 0..1, vec![None], msix, endpoint)
    }

    fn act(&self, index: u32, vector: u32, action: Action) -> Result<(), Errno> {
        match (index, action) {
            (INTX, _) => {
                held(&self.intx_counter).ok_or(Errno::EINVAL)?;
                self.signalling.during(|| match action {
                    Action::Mask => self.intx.mask(),
                    Action::Unmask => self.intx.unmask(),
                    Action::Trigger => self.intx.trigger(),
                });
            }
            (_, Action::Mask | Action::Unmask) => return Err(Errno::ENOTSUP),
            (MSIX, Action::Trigger) => {
                if self.vectors.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
                    return Err(Errno::EINVAL);
                }
                self.signal(self.vector(vector).as_deref());
            }
            (ERROR, Action::Trigger) => self.signal(held(&self.error).as_deref()),
            (REQUEST, Action::Trigger) => self.signal(held(&self.request).as_deref()),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Has the endpoint's MSI-X be as the descriptors say.
    pub(crate) fn program(&self, msix: &Msix, endpoint: &dyn Endpoint) -> Result<(), Errno> {
        // The endpoint raises what is pending while it is programmed, so the lock is not held then.
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<bool> = vectors.iter().map(Option::is_some).collect();
        drop(vectors);
        if !open.contains(&true) {
            msix.disable(endpoint);
            return Ok(());
        }
        msix.enable(endpoint, |vector| open.get(usize::from(vector)) == Some(&true)).map_err(|error| {
            log::warn!("Programming MSI-X of a served function: {error}");
            Errno::EIO
        })
    }

    /// Programs the endpoint anew if it has forgotten, which a function-level reset does to it.
    pub(crate) fn keep_programmed(&self, msix: &Msix, endpoint: &dyn Endpoint) {
        let wanted = self.vectors.read().unwrap_or_else(PoisonError::into_inner).iter().any(Option::is_some);
        if wanted && !msix.is_enabled(endpoint) {
            let _ = self.program(msix, endpoint);
        }
    }
}

/// A descriptor as what it must be: one that is something else could make us wait when it is signalled.
fn counter(descriptor: OwnedFd) -> Result<Arc<EventFd>, Errno> {
    // An eventfd is an anonymous inode, which has no file type, and takes eight bytes of nothing.
    let kind = SFlag::from_bits_truncate(fstat(&descriptor)?.st_mode) & SFlag::S_IFMT;
    if !kind.is_empty() || write(&descriptor, &0u64.to_ne_bytes()) != Ok(8) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: it behaves as an eventfd, as just seen; were it none, writing to it would merely fail.
    Ok(Arc::new(unsafe { EventFd::from_owned_fd(descriptor) }))
}

/// Whether a function has an INTx line.
pub(crate) fn has_intx(endpoint: &dyn Endpoint) -> bool {
    let mut pin = [0];
    endpoint.config_read(config::INTERRUPT_PIN, &mut pin);
    (1..=4).contains(&pin[0])
}
