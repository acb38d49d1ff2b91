//! Handles SIGBUS on mapped BARs of removed functions, and on mapped files that were truncated.
//!
//! The kernel unmaps the pages of a BAR when its function is unplugged or its memory decoding is disabled, and those of a file
//! beyond its end. The next load or store raises SIGBUS, which ends the process. With this handler, such an access reads
//! all-ones, as on the bus, and the function or file counts as removed.
//!
//! One handler serves the process. It finds the address in a fixed table, without locks. It passes other signals to the
//! previous handler.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::libc;

use crate::memory::region::page_size;
use crate::removal::Removal;

/// Largest number of watched ranges. A card has two or three, and one for its published counters.
const CAPACITY: usize = 512;

static TABLE: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];
/// Protects changes of the table. The handler never takes it.
static CHANGE: Mutex<()> = Mutex::new(());
/// Whether the handler is installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The previous handler of SIGBUS. Set before our handler is installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Whether the default action has replaced the previous handler: the handler set it, as that of Rust's standard library does,
/// or was called with `SA_RESETHAND`.
static BEFORE_GAVE_WAY: AtomicBool = AtomicBool::new(false);
/// Page size in bytes, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// A watched range, protected by a sequence lock.
struct Entry {
    /// Odd while fields change.
    version: AtomicU32,
    start: AtomicUsize,
    len: AtomicUsize,
    /// The process that mapped it. A forked child may have other memory at the address.
    process: AtomicU32,
    /// The flag to set, which lives as long as the entry is used. Null if the entry is free.
    gone: AtomicPtr<AtomicBool>,
}

impl Entry {
    const fn new() -> Self {
        Entry {
            version: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            process: AtomicU32::new(0),
            gone: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Changes the fields. The caller holds `CHANGE`.
    fn set(&self, start: usize, len: usize, process: u32, gone: *mut AtomicBool) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
        self.gone.store(gone, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the flag to set if `address` lies inside. A changing entry has another address: the range of the faulting
    /// access is in use.
    fn holds(&self, address: usize, process: u32) -> Option<*mut AtomicBool> {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        let of = self.process.load(Ordering::Relaxed);
        let gone = self.gone.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let unchanged = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (unchanged && of == process && address.wrapping_sub(start) < len).then_some(gone)
    }
}

/// Watches a range of memory until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    index: usize,
    process: u32,
    /// Keeps the flag alive that the table points to.
    _removal: Arc<Removal>,
}

/// Makes accesses to the `len` mapped bytes at `start` read all-ones and mark `removal`, instead of raising SIGBUS. `None`: the
/// table is full, or the handler cannot be installed.
pub(crate) fn watch(start: *mut u8, len: usize, removal: &Arc<Removal>) -> Option<Watch> {
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    if !install() {
        return None;
    }
    let index = TABLE.iter().position(|entry| entry.gone.load(Ordering::Relaxed).is_null())?;
    let gone = ptr::from_ref(removal.flag()).cast_mut();
    let process = std::process::id();
    TABLE[index].set(start as usize, len, process, gone);
    Some(Watch { index, process, _removal: Arc::clone(removal) })
}

impl Drop for Watch {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that it did not inherit. It does not need its copy of the table.
        if std::process::id() == self.process {
            let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
            TABLE[self.index].set(0, 0, 0, ptr::null_mut());
        }
    }
}

/// Installs the handler on the first call. Returns whether it is installed. The caller holds `CHANGE`.
fn install() -> bool {
    if INSTALLED.load(Ordering::Relaxed) {
        return true;
    }
    PAGE.store(page_size(), Ordering::Relaxed);
    let Some(before) = present_action() else { return false };
    // Before the handler is installed, which reads it.
    let _ = BEFORE.set(before);
    let installed = set_handler();
    INSTALLED.store(installed, Ordering::Relaxed);
    installed
}

/// Returns the present action of SIGBUS. It is async-signal-safe.
fn present_action() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads the present action, into `action`.
    let is_read = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: the call above filled `action`; all-zeroes is an action, too.
    is_read.then_some(unsafe { action.assume_init() })
}

/// Makes `handle` the handler of SIGBUS. Returns whether it is. It is async-signal-safe.
fn set_handler() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zeroes is a valid action: default handler, no flags, empty mask.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handle as *const () as usize;
    // Use the alternative stack, if the thread has one, and do not block faults in the previous handler.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: `handle` has the signature of SA_SIGINFO handlers, and is async-signal-safe.
    unsafe { libc::sigaction(libc::SIGBUS, action, ptr::null_mut()) == 0 }
}

/// The handler. It is async-signal-safe and preserves errno.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: returns the address of this thread's errno, which is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is valid, and only this thread uses it.
    let saved = unsafe { *errno };
    if !is_ours(info) {
        pass_on(signal, info, context);
        // SAFETY: with SA_SIGINFO the kernel passes a valid pointer.
        if was_sent(unsafe { &*info }) {
            stay_installed();
        }
    }
    // SAFETY: `errno` is valid, and only this thread uses it.
    unsafe { *errno = saved };
}

/// Returns whether a process sent the signal, which then has no address.
fn was_sent(info: &libc::siginfo_t) -> bool {
    info.si_code <= 0
}

/// Installs the handler again if the previous handler left the default action. The next signal that is sent then has the default
/// action. Any other handler that the previous handler left replaces this handler on purpose.
fn stay_installed() {
    if present_action().is_some_and(|action| action.sa_sigaction == libc::SIG_DFL) {
        BEFORE_GAVE_WAY.store(true, Ordering::Relaxed);
        set_handler();
    }
}

/// Returns whether the fault was in a watched range and is resolved.
fn is_ours(info: *const libc::siginfo_t) -> bool {
    // SAFETY: with SA_SIGINFO the kernel passes a valid pointer.
    let info = unsafe { &*info };
    if was_sent(info) {
        return false;
    }
    // SAFETY: a SIGBUS of a fault has an address.
    let address = unsafe { info.si_addr() } as usize;
    // SAFETY: `getpid` has no preconditions. A cached process id may be that of a parent.
    let process = unsafe { libc::getpid() } as u32;
    let Some(gone) = TABLE.iter().find_map(|entry| entry.holds(address, process)) else { return false };
    if !put_page_of_ones(address) {
        return false;
    }
    // SAFETY: this thread is inside of an access to the range. So the watch lives, which keeps the flag alive.
    unsafe { &*gone }.store(true, Ordering::Release);
    true
}

/// Replaces the page at `address` by a page of ones, atomically.
fn put_page_of_ones(address: usize) -> bool {
    let bytes = PAGE.load(Ordering::Relaxed);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: maps new memory at an address that the kernel chooses.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: `page` was mapped above with this length, and no one else has its address.
    unsafe { page.cast::<u8>().write_bytes(0xff, bytes) };
    // SAFETY: `page` was mapped above with this length. After a failure a child inherits the page, which is harmless.
    unsafe { libc::madvise(page, bytes, libc::MADV_DONTFORK) };
    let target = (address - address % bytes) as *mut libc::c_void;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: `target` is a page of a watched mapping, which has whole pages. It is that of a BAR or of words of a file: no
    // references exist, only volatile and atomic accesses through raw pointers.
    unsafe { libc::mremap(page, bytes, bytes, flags, target) != libc::MAP_FAILED }
}

/// Passes the signal to the previous handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else { return };
    // The kernel sets the default action before it calls a handler with this flag, and the handler may raise the signal again.
    let is_called_once = before.sa_flags & libc::SA_RESETHAND != 0 && before.sa_sigaction != libc::SIG_IGN;
    let gave_way = match is_called_once {
        true => BEFORE_GAVE_WAY.swap(true, Ordering::Relaxed),
        false => BEFORE_GAVE_WAY.load(Ordering::Relaxed),
    };
    let handler = if gave_way { libc::SIG_DFL } else { before.sa_sigaction };
    match handler {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: with SA_SIGINFO the kernel passes a valid pointer.
            let was_sent = was_sent(unsafe { &*info });
            if was_sent && handler == libc::SIG_IGN {
                return;
            }
            let mut default = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: all-zeroes is the default action.
            let default = unsafe { default.assume_init_mut() };
            // SAFETY: a valid action for a valid signal. A fault repeats with the instruction, and then ends the process as
            // without this handler.
            unsafe { libc::sigaction(signal, default, ptr::null_mut()) };
            if was_sent {
                // SAFETY: raises a valid signal in this thread.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: an action with SA_SIGINFO has a function of this signature; the two constants are excluded above.
            let handler: WithInfo = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: an action without SA_SIGINFO has a function of this signature; the constants are excluded above.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::{MmapOptions, MmapRaw};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;
    use std::os::fd::OwnedFd;
    use std::thread;

    /// Four pages of a file, filled with fives.
    fn mapped() -> (OwnedFd, MmapRaw) {
        let file = memfd_create("sigbus", MFdFlags::MFD_CLOEXEC).unwrap();
        let bytes = 4 * page_size();
        ftruncate(&file, bytes as i64).unwrap();
        let map = MmapOptions::new().len(bytes).map_raw(&file).unwrap();
        // SAFETY: all of the mapping.
        unsafe { map.as_mut_ptr().write_bytes(5, bytes) };
        (file, map)
    }

    fn read(map: &MmapRaw, offset: usize) -> u32 {
        // SAFETY: tests use offsets inside of the mapping.
        let register = unsafe { map.as_ptr().add(offset) };
        // SAFETY: `register` is inside of the mapping, and tests use aligned offsets.
        unsafe { register.cast::<u32>().read_volatile() }
    }

    #[test]
    fn pages_that_were_taken_away_read_all_ones() {
        let (file, map) = mapped();
        let page = page_size();
        let removal = Arc::<Removal>::default();
        let watch = watch(map.as_mut_ptr(), map.len(), &removal).unwrap();
        assert_eq!(read(&map, 3 * page), 0x0505_0505);
        ftruncate(&file, page as i64).unwrap();
        assert!(!removal.is_marked());
        assert_eq!(read(&map, 3 * page + 8), u32::MAX);
        assert!(removal.is_marked());
        assert_eq!((read(&map, 0), read(&map, page), read(&map, 4 * page - 4)), (0x0505_0505, u32::MAX, u32::MAX));
        // SAFETY: inside of the mapping.
        let not_there_yet = unsafe { map.as_mut_ptr().add(2 * page) };
        // SAFETY: as above.
        unsafe { not_there_yet.write_volatile(1) };
        drop(watch);
    }

    #[test]
    fn an_empty_range_keeps_its_entry() {
        let (_file, map) = mapped();
        let watches = [0, 0, map.len()].map(|len| watch(map.as_mut_ptr(), len, &Arc::default()).unwrap());
        let [first, second, third] = watches.each_ref().map(|watch| watch.index);
        assert!(first != second && second != third && third != first, "{first} {second} {third}");
    }

    #[test]
    fn many_threads_fault_on_the_same_pages() {
        let (file, map) = mapped();
        let removal = Arc::<Removal>::default();
        let _watch = watch(map.as_mut_ptr(), map.len(), &removal).unwrap();
        ftruncate(&file, 0).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..map.len()).step_by(4).for_each(|at| assert_eq!(read(&map, at), u32::MAX)));
            }
        });
        assert!(removal.is_marked());
    }

    #[test]
    fn watches_come_and_go_while_others_fault() {
        let maps: Vec<_> = (0..8).map(|_| mapped()).collect();
        thread::scope(|scope| {
            for (file, map) in &maps {
                scope.spawn(move || {
                    for round in 0..200 {
                        let removal = Arc::<Removal>::default();
                        let _watch = watch(map.as_mut_ptr(), map.len(), &removal).unwrap();
                        if round == 100 {
                            ftruncate(file, 0).unwrap();
                            assert_eq!(read(map, 0), u32::MAX);
                            assert!(removal.is_marked());
                        }
                    }
                });
            }
        });
    }

    /// What the process that `a_foreign_sigbus_goes_to_whom_it_went_before` starts does.
    #[test]
    #[ignore = "run by another test, in a process of its own that it ends"]
    fn foreign_sigbus() {
        extern "C" fn old(_: libc::c_int) {
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(42) }
        }
        extern "C" fn old_with_info(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
            // SAFETY: the kernel gives a valid pointer.
            let info = unsafe { &*info };
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if info.si_code > 0 { 43 } else { 44 }) }
        }
        extern "C" fn give_way(signal: libc::c_int) {
            // SAFETY: the default action is valid for any signal.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        extern "C" fn raise_again(signal: libc::c_int) {
            static CALLED: AtomicBool = AtomicBool::new(false);
            if !CALLED.swap(true, Ordering::Relaxed) {
                // SAFETY: a signal to this thread.
                unsafe { libc::raise(signal) };
            }
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(46) }
        }
        let mode = std::env::var("FPGA_HAL_SIGBUS").unwrap();
        let (handler, flags) = match mode.as_str() {
            "handler" => (old as *const () as usize, 0),
            "info" | "sent" => (old_with_info as *const () as usize, libc::SA_SIGINFO),
            "ignored" => (libc::SIG_IGN, 0),
            "ignored twice" => (libc::SIG_IGN, libc::SA_RESETHAND),
            // Gives way to the default action at its first signal, as the handler of Rust's standard library does.
            "once" | "twice" => (give_way as *const () as usize, 0),
            // Raises the signal again, as handlers that print a trace do.
            "reset" | "reset sent" => {
                (raise_again as *const () as usize, libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESETHAND)
            }
            _ => (libc::SIG_DFL, 0),
        };
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all-zeroes is an action.
        let action = unsafe { action.assume_init_mut() };
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        // SAFETY: a valid action.
        assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, action, ptr::null_mut()) }, 0);
        let ((file, watched), (foreign_file, foreign)) = (mapped(), mapped());
        let removal = Arc::<Removal>::default();
        let _watch = watch(watched.as_mut_ptr(), watched.len(), &removal).unwrap();
        let raised = match mode.as_str() {
            "once" | "twice" => 1,
            "ignored twice" => 2,
            _ => 0,
        };
        for _ in 0..raised {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        ftruncate(&file, 0).unwrap();
        assert_eq!(read(&watched, 0), u32::MAX);
        if mode == "once" || mode == "ignored twice" {
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(45) }
        }
        if mode == "twice" {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGBUS) };
            panic!("the default action did not end this process");
        }
        if ["sent", "ignored", "reset sent"].contains(&mode.as_str()) {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        ftruncate(&foreign_file, 0).unwrap();
        read(&foreign, 0);
        panic!("the access to {:?} went through", foreign.as_ptr());
    }

    #[test]
    fn a_foreign_sigbus_goes_to_whom_it_went_before() {
        use std::os::unix::process::ExitStatusExt;
        // A fault that is ignored ends the process all the same: the kernel insists.
        let ended = |mode: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "--ignored", "--test-threads=1", "sigbus::tests::foreign_sigbus"]);
            let output = command.env("FPGA_HAL_SIGBUS", mode).output().unwrap();
            (output.status.code(), output.status.signal())
        };
        assert_eq!(ended("handler"), (Some(42), None));
        assert_eq!(ended("info"), (Some(43), None));
        assert_eq!(ended("sent"), (Some(44), None));
        assert_eq!(ended("default"), (None, Some(libc::SIGBUS)));
        assert_eq!(ended("ignored"), (None, Some(libc::SIGBUS)));
        assert_eq!(ended("once"), (Some(45), None));
        assert_eq!(ended("ignored twice"), (Some(45), None), "no handler is called, so none is reset");
        assert_eq!(ended("twice"), (None, Some(libc::SIGBUS)));
        assert_eq!(ended("reset"), (None, Some(libc::SIGBUS)), "the handler is called once");
        assert_eq!(ended("reset sent"), (None, Some(libc::SIGBUS)), "the handler is called once");
    }

    #[test]
    fn entries_hold_what_lies_inside() {
        let entry = Entry::new();
        let mut flag = AtomicBool::new(false);
        assert_eq!(entry.holds(0, 0), None);
        entry.set(0x1000, 0x1000, 7, &mut flag);
        for (address, process, held) in
            [(0x1000, 7, true), (0x1fff, 7, true), (0x2000, 7, false), (0xfff, 7, false), (0x1000, 8, false)]
        {
            assert_eq!(entry.holds(address, process).is_some(), held, "{address:#x} {process}");
        }
        entry.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(entry.holds(0x1000, 7), None, "while it changes");
    }
}
