//! Interrupts of a served endpoint, and the descriptors that a client has connected to them.
//!
//! The server does what the kernel does for VFIO: a client connects descriptors by messages, and the server programs the
//! endpoint's MSI-X capability and table to match (section "`VFIO_USER_DEVICE_SET_IRQS`"; what it leaves open is as in the
//! kernel's `vfio_pci_intrs.c`).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

use super::budget::{Charge, Item, Share};
use super::link::Link;
use super::signals::Signals;
use crate::endpoint::intx::Intx;
use crate::endpoint::msix::Msix;
use crate::endpoint::{Endpoint, InterruptPort};
use crate::vfio_user::wire::closing::Received;
use crate::vfio_user::wire::interrupt::{ERROR, INTX, InterruptInfo, MSIX, REQUEST, SetInterrupts};

/// Raises a client's descriptors for its endpoint.
#[derive(Debug)]
pub(crate) struct Interrupts {
    link: Arc<Link>,
    share: Arc<Share>,
    signals: Signals,
    vectors: RwLock<Vec<Option<Connected>>>,
    intx: Intx,
    /// Counts the line's descriptor.
    intx_charge: Mutex<Option<Charge>>,
    error: Mutex<Option<Connected>>,
    request: Mutex<Option<Connected>>,
}

/// A descriptor that is raised for an interrupt.
#[derive(Debug)]
struct Connected {
    counter: Arc<EventFd>,
    charge: Charge,
}

impl Interrupts {
    pub(crate) fn new(link: Arc<Link>, share: Arc<Share>) -> Self {
        Interrupts {
            share,
            signals: Signals::new(Arc::clone(&link)),
            link,
            vectors: RwLock::default(),
            intx: Intx::default(),
            intx_charge: Mutex::default(),
            error: Mutex::default(),
            request: Mutex::default(),
        }
    }

    /// Returns what raises the descriptors: for the session's thread, and for the acceptor that watches this thread.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Frees the session's thread if a descriptor blocks it, and then disconnects the client.
    pub(crate) fn free_thread(&self) {
        if self.signals.free() {
            log::warn!("Disconnecting a client whose interrupt descriptor blocks");
            self.link.stop();
        }
    }

    /// Asks the client to release the function.
    pub(crate) fn request_release(&self) {
        self.signal(&self.request);
        self.signals.deliver();
    }

    /// Disconnects all descriptors.
    pub(crate) fn disconnect(&self) {
        self.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.connect_intx(None);
        for slot in [&self.error, &self.request] {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.signals.forget();
    }

    fn connect_intx(&self, connected: Option<Connected>) {
        let (counter, charge) = connected.map(|Connected { counter, charge }| (counter, charge)).unzip();
        self.intx.connect(counter, |counter| self.signals.raise(counter));
        *self.intx_charge.lock().unwrap_or_else(PoisonError::into_inner) = charge;
    }

    /// Raises under the lock: once a descriptor was disconnected, it is no longer raised.
    fn signal_vector(&self, vector: u32) {
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(Connected { counter, .. })) = vectors.get(vector as usize) {
            self.signals.raise(counter);
        }
    }

    fn signal(&self, slot: &Mutex<Option<Connected>>) {
        if let Some(Connected { counter, .. }) = &*slot.lock().unwrap_or_else(PoisonError::into_inner) {
            self.signals.raise(counter);
        }
    }
}

impl InterruptPort for Interrupts {
    fn raise(&self, vector: u16) {
        if self.link.check().is_ok() {
            self.signal_vector(u32::from(vector));
        }
    }

    fn set_intx(&self, asserted: bool) {
        if self.link.is_here() {
            self.intx.set_asserted(asserted, |counter| self.signals.raise(counter));
        }
    }
}

/// Describes an index (section "`VFIO_USER_DEVICE_GET_IRQ_INFO`"), with the kernel's flags except NORESIZE: MSI-X vectors can
/// be connected one by one.
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

/// An action on a range of interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Mask,
    Unmask,
    Trigger,
}

impl Interrupts {
    /// Connects, disconnects, masks, unmasks or raises interrupts (section "`VFIO_USER_DEVICE_SET_IRQS`"). `available` is the
    /// count of [`info`]. When this returns, disconnected descriptors are no longer raised.
    pub(crate) fn set(
        &self,
        set: &SetInterrupts<'_>,
        descriptors: Vec<Received>,
        available: u32,
        msix: Option<&Msix>,
        endpoint: &dyn Endpoint,
    ) -> Result<(), Errno> {
        let done = self.change(set, descriptors, available, msix, endpoint);
        self.signals.deliver();
        done
    }

    fn change(
        &self,
        set: &SetInterrupts<'_>,
        descriptors: Vec<Received>,
        available: u32,
        msix: Option<&Msix>,
        endpoint: &dyn Endpoint,
    ) -> Result<(), Errno> {
        // argsz counts the data field. Descriptors are not part of it.
        let is_whole = set.argsz as usize >= SetInterrupts::BYTES + set.data.len();
        if !is_whole || set.flags & !SetInterrupts::DATA & !SetInterrupts::ACTION != 0 {
            return Err(Errno::EINVAL);
        }
        let action = match set.flags & SetInterrupts::ACTION {
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
        let data = set.flags & SetInterrupts::DATA;
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
                    // Descriptors to mask or unmask are for hypervisors that inject interrupts by themselves.
                    return Err(Errno::ENOTSUP);
                }
                let counters = if descriptors.is_empty() {
                    range.clone().map(|_| None).collect()
                } else {
                    descriptors.into_iter().map(|it| self.admit(it).map(Some)).collect::<Result<_, _>>()?
                };
                self.connect(set.index, range, counters, msix, endpoint)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Accepts a descriptor that is an eventfd and within the client's share.
    fn admit(&self, descriptor: Received) -> Result<Connected, Errno> {
        let counter = Signals::counter(descriptor)?;
        Ok(Connected { counter, charge: self.share.take(Item::Descriptors, 1)? })
    }

    fn connect(
        &self,
        index: u32,
        range: Range<u32>,
        counters: Vec<Option<Connected>>,
        msix: Option<&Msix>,
        endpoint: &dyn Endpoint,
    ) -> Result<(), Errno> {
        match index {
            MSIX => {
                let msix = msix.ok_or(Errno::EINVAL)?;
                {
                    let mut vectors = self.vectors.write().unwrap_or_else(PoisonError::into_inner);
                    vectors.resize_with(usize::from(msix.vectors()), || None);
                    for (vector, connected) in range.zip(counters) {
                        vectors[vector as usize] = connected;
                    }
                }
                self.program(msix, endpoint)
            }
            INTX => {
                self.connect_intx(counters.into_iter().next().flatten());
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
            // MSI-X off first, so that what is raised meanwhile stays pending in the function.
            if let Some(msix) = msix {
                msix.disable(endpoint);
            }
            self.vectors.write().unwrap_or_else(PoisonError::into_inner).clear();
            return Ok(());
        }
        self.connect(index, 0..1, Vec::from([None]), msix, endpoint)
    }

    fn act(&self, index: u32, vector: u32, action: Action) -> Result<(), Errno> {
        match (index, action) {
            (INTX, _) => {
                if !self.intx.is_connected() {
                    return Err(Errno::EINVAL);
                }
                let raise = |counter: &Arc<EventFd>| self.signals.raise(counter);
                match action {
                    Action::Mask => self.intx.mask(),
                    Action::Unmask => self.intx.unmask(raise),
                    Action::Trigger => self.intx.trigger(raise),
                }
            }
            (_, Action::Mask | Action::Unmask) => return Err(Errno::ENOTSUP),
            (MSIX, Action::Trigger) => {
                if self.vectors.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
                    return Err(Errno::EINVAL);
                }
                self.signal_vector(vector);
            }
            (ERROR, Action::Trigger) => self.signal(&self.error),
            (REQUEST, Action::Trigger) => self.signal(&self.request),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Programs the endpoint's MSI-X: vectors with a descriptor are enabled.
    pub(crate) fn program(&self, msix: &Msix, endpoint: &dyn Endpoint) -> Result<(), Errno> {
        // While it is programmed, the endpoint raises pending vectors, so the lock must not be held.
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

    /// Programs the endpoint again if a function-level reset has turned MSI-X off.
    pub(crate) fn keep_programmed(&self, msix: &Msix, endpoint: &dyn Endpoint) {
        let wanted = self.vectors.read().unwrap_or_else(PoisonError::into_inner).iter().any(Option::is_some);
        if wanted && !msix.is_enabled(endpoint) {
            let _ = self.program(msix, endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::intx::raise;
    use crate::endpoint::{DmaFault, DmaPort, DmaTag, Layout, ResetKind, has_intx};
    use crate::vfio_user::server::budget::{Budget, Limits, Member};
    use crate::vfio_user::server::regions::tests::Kept;
    use crate::vfio_user::wire::closing::Closer;
    use crate::vfio_user::wire::socket::Socket;
    use crate::{BarIndex, SharedMemory};
    use nix::sys::eventfd::EfdFlags;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// A function that has only an interrupt pin.
    struct Pin(u8);

    impl Endpoint for Pin {
        fn layout(&self) -> Layout {
            Layout { bars: [None; BarIndex::COUNT], dma_bits: 64 }
        }
        fn attach(&self, _: Arc<dyn DmaPort>, _: Arc<dyn InterruptPort>) {}
        fn config_read(&self, offset: u16, data: &mut [u8]) {
            data.fill(if offset == 0x3d { self.0 } else { 0 });
        }
        fn config_write(&self, _: u16, _: &[u8]) {}
        fn bar_read(&self, _: BarIndex, _: u64, _: &mut [u8]) {}
        fn bar_write(&self, _: BarIndex, _: u64, _: &[u8]) {}
        fn reset(&self, _: ResetKind) {}
        fn dma_complete(&self, _: DmaTag, _: Result<&[u8], DmaFault>) {}
        fn bar_memory(&self, _: BarIndex) -> Option<Arc<SharedMemory>> {
            None
        }
    }

    fn counter() -> EventFd {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC.union(EfdFlags::EFD_NONBLOCK)).unwrap()
    }

    #[test]
    fn a_function_is_programmed_again_only_after_a_reset() {
        let kept = Kept::new();
        let msix = Msix::find(&*kept).unwrap().unwrap();
        let share = Share::alone(Limits::of_process());
        let (socket, _peer) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(Socket::new(socket, &Closer::new()), Arc::clone(&share)).unwrap());
        let interrupts = Interrupts::new(link, share);
        let accesses = || {
            kept.widths.lock().unwrap().clear();
            interrupts.keep_programmed(&msix, &*kept);
            kept.widths.lock().unwrap().len()
        };
        assert_eq!(accesses(), 0, "no descriptor is connected");
        let set = SetInterrupts { argsz: 20, flags: 0x24, index: MSIX, start: 3, count: 1, data: &[] };
        let received = Received::new(counter().into(), &Closer::new());
        assert_eq!(interrupts.set(&set, vec![received], 20, Some(&msix), &*kept), Ok(()));
        assert!(msix.is_enabled(&*kept));
        assert_eq!(accesses(), 1, "it reads message control");
        msix.disable(&*kept);
        assert!(accesses() > 1 && msix.is_enabled(&*kept));
    }

    #[test]
    fn a_client_whose_descriptor_blocks_is_disconnected() {
        let share = Share::alone(Limits::of_process());
        let (socket, _peer) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(Socket::new(socket, &Closer::new()), Arc::clone(&share)).unwrap());
        let interrupts = Interrupts::new(Arc::clone(&link), share);
        let full = Arc::new(EventFd::new().unwrap());
        full.write(u64::MAX - 1).unwrap();
        std::thread::scope(|scope| {
            let stuck = scope.spawn(|| interrupts.signals().while_watched(&full, raise));
            let begin = Instant::now();
            while !stuck.is_finished() && begin.elapsed() < Duration::from_secs(20) {
                interrupts.free_thread();
                std::thread::sleep(Duration::from_millis(1));
            }
            // Ends the thread if nothing else has.
            if !stuck.is_finished() {
                full.read().unwrap();
            }
        });
        assert!(link.is_stopped());
    }

    #[test]
    fn a_function_has_a_line_if_it_has_one_of_four_pins() {
        let found = [0, 1, 4, 5, 0xff].map(|pin| has_intx(&Pin(pin)));
        assert_eq!(found, [false, true, true, false, false]);
    }

    #[test]
    fn each_index_is_described_as_by_the_kernel() {
        let of = |index| {
            let InterruptInfo { argsz, flags, index: same, count } = info(index, 40, true);
            assert_eq!((argsz, same), (16, index));
            (count, flags)
        };
        assert_eq!([0, 1, 2, 3, 4].map(of), [(1, 7), (0, 1), (40, 1), (1, 1), (1, 1)]);
        assert_eq!(info(INTX, 40, false).count, 0);
    }

    #[test]
    fn descriptors_are_raised_and_counted_until_they_are_disconnected() {
        let limits = Limits { descriptors: 4, ..Limits::of_process() };
        let member = Member::new(&Budget::new(limits), "test".into());
        let share = member.share();
        let (socket, _peer) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(Socket::new(socket, &Closer::new()), Arc::clone(&share)).unwrap());
        link.set_master(true);
        let interrupts = Interrupts::new(Arc::clone(&link), Arc::clone(&share));
        let set = |flags, index, start, passed: &[&EventFd]| {
            let count = passed.len().max(1) as u32;
            let set = SetInterrupts { argsz: 20, flags, index, start, count, data: &[] };
            let received = passed.iter().map(|event| {
                let descriptor = std::os::fd::AsFd::as_fd(event).try_clone_to_owned().unwrap();
                Received::new(descriptor, &Closer::new())
            });
            interrupts.set(&set, received.collect(), 1, None, &Pin(1))
        };
        let [line, error, request] = [counter(), counter(), counter()];
        let raised = || {
            interrupts.signals().deliver();
            [&line, &error, &request].map(|event| event.read().unwrap_or(0))
        };
        for (index, event) in [(INTX, &line), (ERROR, &error), (REQUEST, &request)] {
            assert_eq!(set(0x24, index, 0, &[event]), Ok(()));
        }
        assert_eq!(set(0x24, MSIX, 0, &[&line]), Err(Errno::EINVAL), "it has no MSI-X");
        let rest = share.take(Item::Descriptors, 1).unwrap();
        assert_eq!(share.take(Item::Descriptors, 1).unwrap_err(), Errno::EMFILE);
        assert_eq!(set(0x24, ERROR, 0, &[&error]), Err(Errno::EMFILE));
        drop(rest);
        interrupts.set_intx(true);
        assert_eq!(raised(), [1, 0, 0]);
        assert_eq!(set(0x21, ERROR, 0, &[]), Ok(()));
        assert_eq!(raised(), [0, 1, 0]);
        assert_eq!(set(0x21, REQUEST, 0, &[]), Ok(()));
        assert_eq!(raised(), [0, 0, 1]);
        interrupts.request_release();
        assert_eq!(raised(), [0, 0, 1]);
        // Raised but not delivered; disconnecting drops it.
        interrupts.signal(&interrupts.error);
        interrupts.disconnect();
        assert_eq!(raised(), [0, 0, 0]);
        interrupts.request_release();
        interrupts.set_intx(false);
        interrupts.set_intx(true);
        interrupts.signal(&interrupts.error);
        assert_eq!(raised(), [0, 0, 0]);
        assert!(share.take(Item::Descriptors, 4).is_ok(), "no descriptor is counted");
    }
}
