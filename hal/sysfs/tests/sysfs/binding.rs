//! Binding and unbinding before a kernel that fails wherever it can.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fpga_pci::{PciAddress, ResetOutcome};
use fpga_sysfs::{AttributeWriter, BindError, Options, Process, Sysfs, Use, VFIO_PCI};
use nix::errno::Errno;

use crate::tree::Tree;
use crate::{CARD, address};

/// The kernel's side of binding, over a tree.
struct Kernel {
    root: PathBuf,
    /// The driver that the kernel would choose for a function.
    native: Option<&'static str>,
    /// What happens at the write of this number, from 0.
    fault: Option<(usize, Fault)>,
    /// Set by [`Fault::Signal`].
    signalled: Arc<AtomicBool>,
    /// What [`Fault::Held`] waits for.
    released: (Mutex<bool>, Condvar),
    writes: Mutex<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Errno(Errno),
    /// It says that all is well, and does nothing.
    Ignored,
    /// It does nothing for this long, and then it does it.
    Late(Duration),
    /// It does nothing until it is [released](Kernel::release), and then it does it.
    Held,
    /// A signal comes while it works.
    Signal,
    /// The function is unplugged.
    Gone,
}

impl Kernel {
    fn release(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }

    fn device(&self, address: &str) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address)
    }

    fn driver(&self, address: &str) -> Option<String> {
        let link = fs::read_link(self.device(address).join("driver")).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    fn driver_override(&self, address: &str) -> Option<String> {
        let text = fs::read_to_string(self.device(address).join("driver_override")).ok()?;
        let text = text.trim();
        (text != "(null)").then(|| text.to_owned())
    }

    fn bind(&self, address: &str, driver: &str) -> io::Result<()> {
        if self.driver(address).is_some() {
            return Err(Errno::EBUSY.into());
        }
        let matching = self.driver_override(address);
        let matching = matching.as_deref().or(self.native);
        if matching != Some(driver) || !self.root.join("sys/bus/pci/drivers").join(driver).is_dir() {
            return Err(Errno::ENODEV.into());
        }
        symlink(Path::new("../../../../bus/pci/drivers").join(driver), self.device(address).join("driver"))
    }

    fn unbind(&self, address: &str, driver: &str) -> io::Result<()> {
        if self.driver(address).as_deref() != Some(driver) {
            return Err(Errno::ENODEV.into());
        }
        fs::remove_file(self.device(address).join("driver"))
    }

    fn act(&self, path: &Path, value: &str) -> io::Result<()> {
        let value = value.trim();
        let directory = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        match path.file_name().unwrap().to_str().unwrap() {
            "driver_override" => fs::write(path, if value.is_empty() { "(null)\n" } else { value }),
            "bind" => self.bind(value, directory),
            "unbind" => self.unbind(value, directory),
            "drivers_probe" => {
                let wanted = self.driver_override(value);
                match wanted.as_deref().or(self.native) {
                    Some(driver) => self.bind(value, driver).or(Ok(())),
                    None => Ok(()),
                }
            }
            "reset" => Ok(()),
            other => panic!("{other} is written"),
        }
    }
}

impl AttributeWriter for Kernel {
    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let number = {
            let mut writes = self.writes.lock().unwrap();
            let shown = path.strip_prefix(&self.root).unwrap().display();
            writes.push(format!("{shown} {}", value.trim()));
            writes.len() - 1
        };
        match self.fault.filter(|fault| fault.0 == number) {
            None => self.act(path, value),
            Some((_, Fault::Errno(errno))) => Err(errno.into()),
            Some((_, Fault::Ignored)) => Ok(()),
            Some((_, Fault::Late(time))) => {
                thread::sleep(time);
                self.act(path, value)
            }
            Some((_, Fault::Held)) => {
                let (is_released, change) = &self.released;
                drop(change.wait_while(is_released.lock().unwrap(), |is_released| !*is_released).unwrap());
                self.act(path, value)
            }
            Some((_, Fault::Signal)) => {
                self.signalled.store(true, Ordering::Relaxed);
                self.act(path, value)
            }
            Some((_, Fault::Gone)) => {
                fs::remove_file(self.device(CARD))?;
                Err(Errno::ENODEV.into())
            }
        }
    }
}

struct Machine {
    tree: Tree,
    kernel: Arc<Kernel>,
    sysfs: Sysfs,
}

/// Never reached.
const PATIENT: Options = Options { force: false, timeout: Duration::from_secs(60), interrupt: None };
/// Of a kernel that does not do what it is told.
const QUICK: Options = Options { force: false, timeout: Duration::from_millis(100), interrupt: None };

impl Machine {
    fn new(listings: &[&str], native: Option<&'static str>, fault: Option<(usize, Fault)>) -> Self {
        let tree = Tree::new(listings);
        let root = tree.root().to_owned();
        let kernel = Arc::new(Kernel {
            root: root.clone(),
            native,
            fault,
            signalled: Arc::default(),
            released: Default::default(),
            writes: Mutex::default(),
        });
        let writer: Arc<dyn AttributeWriter> = kernel.clone();
        Machine { tree, kernel, sysfs: Sysfs::with_writer(root, writer) }
    }

    /// Driver and override of a function.
    fn state(&self, function: &str) -> (Option<String>, Option<String>) {
        (self.kernel.driver(function), self.kernel.driver_override(function))
    }

    fn writes(&self) -> Vec<String> {
        self.kernel.writes.lock().unwrap().clone()
    }

    /// Ended by [`Fault::Signal`].
    fn interruptible(&self) -> Options {
        Options { interrupt: Some(Arc::clone(&self.kernel.signalled)), ..PATIENT }
    }

    fn bind(&self, options: &Options) -> Result<(), BindError> {
        self.sysfs.bind(&[address(CARD)], VFIO_PCI, options).map(drop)
    }

    fn unbind(&self, options: &Options) -> Result<(), BindError> {
        self.sysfs.unbind(&[address(CARD)], options).map(drop)
    }
}

fn of(driver: Option<&str>, driver_override: Option<&str>) -> (Option<String>, Option<String>) {
    (driver.map(str::to_owned), driver_override.map(str::to_owned))
}

#[test]
fn there_and_back() {
    let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    let options = Options::default();
    machine.bind(&options).unwrap();
    assert_eq!(machine.state(CARD), of(Some("vfio-pci"), Some("vfio-pci")));
    let device = format!("sys/bus/pci/devices/{CARD}");
    let expected = [
        format!("{device}/driver_override vfio-pci"),
        format!("sys/bus/pci/drivers/xdma/unbind {CARD}"),
        format!("sys/bus/pci/drivers/vfio-pci/bind {CARD}"),
    ];
    assert_eq!(machine.writes(), expected);
    // It is bound: nothing is written.
    machine.bind(&options).unwrap();
    assert_eq!(machine.writes().len(), 3);
    machine.unbind(&options).unwrap();
    assert_eq!(machine.state(CARD), of(Some("xdma"), None));
}

#[test]
fn a_function_without_any_driver_goes_back_to_none() {
    let machine = Machine::new(&["machine"], None, None);
    let bound = machine.sysfs.unbind(&[address(CARD)], &PATIENT).unwrap();
    assert_eq!((bound[0].before.as_deref(), bound[0].now.as_deref()), (Some("vfio-pci"), None));
    machine.bind(&PATIENT).unwrap();
    machine.unbind(&PATIENT).unwrap();
    assert_eq!(machine.state(CARD), of(None, None));
}

/// Every write of either way fails in every manner: afterwards driver and override are what they were.
#[test]
fn whatever_fails_the_function_is_where_it_was() {
    let faults = [
        Fault::Errno(Errno::EACCES),
        Fault::Errno(Errno::EBUSY),
        Fault::Errno(Errno::EINVAL),
        Fault::Ignored,
        Fault::Late(Duration::from_millis(300)),
    ];
    type Act = fn(&Machine, &Options) -> Result<(), BindError>;
    let (bind, unbind): (Act, Act) = (Machine::bind, Machine::unbind);
    // What is done, from which state, and how many writes that takes.
    let cases: [(Act, &[&str], Option<&'static str>, usize); 4] = [
        (bind, &["machine", "wrong-driver"], Some("xdma"), 3),
        (bind, &["machine", "unbound"], None, 2),
        (unbind, &["machine"], Some("xdma"), 3),
        (unbind, &["machine", "wrong-driver"], Some("xdma"), 1),
    ];
    for (act, listings, native, writes) in cases {
        let machine = Machine::new(listings, native, None);
        act(&machine, &PATIENT).unwrap();
        assert_eq!(machine.writes().len(), writes);
        for fault in faults {
            let options = if matches!(fault, Fault::Errno(_)) { PATIENT } else { QUICK };
            for number in 0..writes {
                let machine = Machine::new(listings, native, Some((number, fault)));
                let before = machine.state(CARD);
                let case = format!("{fault:?} at write {number} of {listings:?}");
                match act(&machine, &options) {
                    // The override's write, or the probe at the end, did nothing, and what was wanted came about.
                    Ok(()) => assert!(matches!(fault, Fault::Ignored), "{case}"),
                    Err(error) => {
                        assert_eq!(machine.state(CARD), before, "{case}: {error}");
                        let is_right = match fault {
                            Fault::Errno(Errno::EACCES) => matches!(error, BindError::NoPermission { .. }),
                            Fault::Errno(_) => matches!(error, BindError::Refused { .. }),
                            // The bind that follows an override that was not taken is refused.
                            Fault::Ignored => matches!(
                                error,
                                BindError::Ineffective { .. } | BindError::Refused { .. } | BindError::TimedOut { .. }
                            ),
                            Fault::Late(_) => matches!(error, BindError::TimedOut { .. }),
                            Fault::Gone | Fault::Held | Fault::Signal => false,
                        };
                        assert!(is_right, "{case}: {error:?}");
                    }
                }
            }
        }
    }
}

/// A signal during any write of either way: all is as it was, or, if it came with the last, all is done.
#[test]
fn what_is_interrupted_is_put_back() {
    let two = [address(CARD), address("0000:5e:00.0")];
    for number in 0..6 {
        let fault = Some((number, Fault::Signal));
        let machine = Machine::new(&["machine", "wrong-driver", "both-xdma", "vf-unbound"], Some("xdma"), fault);
        let states = || [machine.state(CARD), machine.state("0000:5e:00.0")];
        let before = states();
        match machine.sysfs.bind(&two, VFIO_PCI, &machine.interruptible()) {
            Ok(_) => {
                assert_eq!(number, 5);
                assert!(states().iter().all(|state| *state == of(Some("vfio-pci"), Some("vfio-pci"))));
            }
            Err(error) => {
                assert!(matches!(error, BindError::Interrupted { .. }), "at write {number}: {error:?}");
                assert_eq!(states(), before, "at write {number}");
            }
        }
    }
    for number in 0..3 {
        let machine = Machine::new(&["machine"], Some("xdma"), Some((number, Fault::Signal)));
        match machine.unbind(&machine.interruptible()) {
            Ok(()) => assert_eq!((number, machine.state(CARD)), (2, of(Some("xdma"), None))),
            Err(error) => {
                assert!(matches!(error, BindError::Interrupted { .. }), "at write {number}: {error:?}");
                assert_eq!(machine.state(CARD), of(Some("vfio-pci"), Some("vfio-pci")), "at write {number}");
            }
        }
    }
    // Before the first write there is none.
    let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    machine.kernel.signalled.store(true, Ordering::Relaxed);
    assert!(matches!(machine.bind(&machine.interruptible()), Err(BindError::Interrupted { .. })));
    assert!(machine.writes().is_empty());
}

/// What the kernel still may do when all has been put back is said: it takes the driver away later.
#[test]
fn what_the_kernel_may_still_do_is_said() {
    let run_out = |options: fn(&Machine) -> Options| {
        let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), Some((1, Fault::Held)));
        let error = machine.bind(&options(&machine)).unwrap_err();
        let BindError::Unfinished { step: "unbind", before, .. } = &error else { panic!("{error:?}") };
        assert_eq!(before.as_deref(), Some("xdma"));
        assert!(error.to_string().contains("how 0000:3b:00.0 ends is not known"), "{error}");
        assert_eq!(machine.state(CARD), of(Some("xdma"), None));
        // Nobody else begins before the kernel is done.
        assert!(matches!(machine.bind(&QUICK), Err(BindError::Locked { .. })));
        machine.kernel.release();
        let deadline = Instant::now() + Duration::from_secs(60);
        while machine.state(CARD) != of(None, None) {
            assert!(Instant::now() < deadline, "{:?}", machine.state(CARD));
            thread::sleep(Duration::from_millis(2));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run_out(|_| QUICK));
        scope.spawn(|| {
            run_out(|machine| {
                let (options, signalled) = (machine.interruptible(), Arc::clone(&machine.kernel.signalled));
                let kernel = Arc::clone(&machine.kernel);
                // When the second write is with the kernel.
                thread::spawn(move || {
                    while kernel.writes.lock().unwrap().len() < 2 {
                        thread::sleep(Duration::from_millis(2));
                    }
                    signalled.store(true, Ordering::Relaxed);
                });
                options
            });
        });
    });
}

/// The state of a function is read once; naming it twice does not make two steps of it.
#[test]
fn a_function_that_is_named_twice_is_bound_once() {
    let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    let bound = machine.sysfs.bind(&[address(CARD), address(CARD)], VFIO_PCI, &PATIENT).unwrap();
    assert_eq!((bound.len(), machine.writes().len()), (1, 3));
    assert_eq!(machine.state(CARD), of(Some("vfio-pci"), Some("vfio-pci")));
    assert_eq!(machine.sysfs.unbind(&[address(CARD), address(CARD)], &PATIENT).unwrap().len(), 1);
    assert_eq!(machine.state(CARD), of(Some("xdma"), None));
}

#[test]
fn a_function_that_goes_is_gone() {
    for number in 0..3 {
        let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), Some((number, Fault::Gone)));
        assert!(matches!(machine.bind(&PATIENT), Err(BindError::Gone { .. })), "at write {number}");
    }
    let machine = Machine::new(&["machine"], None, None);
    let nobody: PciAddress = address("0000:99:00.0");
    assert!(matches!(machine.sysfs.bind(&[nobody], VFIO_PCI, &PATIENT), Err(BindError::NoFunction { .. })));
}

/// One of two cannot be bound: both are put back.
#[test]
fn all_or_none() {
    let two = [address(CARD), address("0000:5e:00.0")];
    for number in 0..6 {
        let fault = Some((number, Fault::Errno(Errno::EBUSY)));
        let machine = Machine::new(&["machine", "wrong-driver", "both-xdma", "vf-unbound"], Some("xdma"), fault);
        let states = || [machine.state(CARD), machine.state("0000:5e:00.0")];
        let before = states();
        let error = machine.sysfs.bind(&two, VFIO_PCI, &PATIENT).unwrap_err();
        assert!(matches!(error, BindError::Refused { .. }), "{error:?}");
        assert_eq!(states(), before, "at write {number}");
    }
}

#[test]
fn what_could_not_be_put_back_is_said() {
    // The former driver is not there any more when it should take its function back.
    let machine = Machine::new(&["machine", "wrong-driver"], None, Some((2, Fault::Errno(Errno::EBUSY))));
    let error = machine.bind(&PATIENT).unwrap_err();
    let BindError::NotRestored { driver, failure, .. } = &error else { panic!("{error:?}") };
    assert_eq!(driver.as_deref(), Some("xdma"));
    assert!(matches!(**failure, BindError::Refused { .. }));
    assert!(error.to_string().contains("restoring 0000:3b:00.0 to xdma failed"), "{error}");
}

#[test]
fn refusals_come_before_any_write() {
    let refused = |listings: &[&str], function: &str, driver: &str| {
        let machine = Machine::new(listings, None, None);
        let error = machine.sysfs.bind(&[address(function)], driver, &PATIENT).unwrap_err();
        assert!(machine.writes().is_empty(), "{error}");
        drop(machine.tree);
        error
    };
    let error = refused(&["machine", "module-missing"], CARD, VFIO_PCI);
    assert!(matches!(&error, BindError::DriverMissing { .. }) && error.to_string().contains("modprobe vfio-pci"));
    assert!(matches!(refused(&["machine"], CARD, "../vfio-pci"), BindError::DriverName { .. }));
    let error = refused(&["machine", "wrong-driver", "group-shared"], CARD, VFIO_PCI);
    let BindError::NotViable { group: 42, foreign, .. } = &error else { panic!("{error:?}") };
    assert_eq!(foreign[0].name, "0000:01:00.0");
    assert!(error.to_string().contains("0000:01:00.0 is bound to nvme"), "{error}");
    assert!(matches!(refused(&["machine", "wrong-driver", "iommu-off"], CARD, VFIO_PCI), BindError::NoIommu { .. }));
    for function in ["0000:01:00.0", "0000:00:1f.6", "0000:00:02.0", "0000:00:01.0"] {
        let machine = Machine::new(&["machine"], None, None);
        let error = machine.sysfs.unbind(&[address(function)], &PATIENT).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{function}: {error}");
        assert!(machine.writes().is_empty());
    }
    let machine = Machine::new(&["machine", "held"], None, None);
    let error = machine.unbind(&PATIENT).unwrap_err();
    let BindError::InUse { uses, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(&uses[..], [Use::Process(process)] if process.id == 815), "{error}");
    assert!(matches!(machine.sysfs.reset(address(CARD), &PATIENT), Err(BindError::InUse { .. })));
    assert!(machine.writes().is_empty());
    machine.unbind(&Options { force: true, ..PATIENT }).unwrap();
    assert_eq!(machine.state(CARD), of(None, None));
}

#[test]
fn both_functions_of_a_group_may_be_bound_together() {
    let mut machine = Machine::new(&["machine", "wrong-driver", "both-xdma", "one-group"], Some("xdma"), None);
    let error = machine.bind(&PATIENT).unwrap_err();
    assert!(matches!(error, BindError::NotViable { .. }), "{error}");
    machine.tree.add("vf-unbound");
    machine.sysfs.bind(&[address(CARD), address("0000:5e:00.0")], VFIO_PCI, &PATIENT).unwrap();
    assert_eq!(machine.state("0000:5e:00.0"), of(Some("vfio-pci"), Some("vfio-pci")));
}

/// What each of the three says of a function in use: the same.
fn in_use(machine: &Machine, function: &str) -> Vec<Use> {
    let functions = [address(function)];
    let bind = || machine.sysfs.bind(&functions, VFIO_PCI, &PATIENT).map(drop);
    let unbind = || machine.sysfs.unbind(&functions, &PATIENT).map(drop);
    let reset = || machine.sysfs.reset(functions[0], &PATIENT).map(drop);
    let said = [bind(), unbind(), reset()].map(|result| match result {
        Err(BindError::InUse { uses, .. }) => uses,
        other => panic!("{other:?}"),
    });
    assert!(said.iter().all(|uses| *uses == said[0]), "{said:?}");
    assert!(machine.writes().is_empty());
    said[0].clone()
}

#[test]
fn who_has_a_character_device_below_open_is_seen() {
    let uses = |lines: &str| {
        let mut machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
        machine.tree.apply("proc/815/comm = simulate");
        machine.tree.apply(lines);
        in_use(&machine, CARD)
    };
    let node = |node: &str| {
        let process = Process { id: 815, name: "simulate".into() };
        [Use::Node { process, node: node.into() }]
    };
    let channel = "$card/xdma/xdma0_user/dev = 511:0\n$card/xdma/xdma0_user/uevent = MAJOR=511\\nDEVNAME=xdma0_user\n";
    let found = uses(&format!("{channel}proc/815/fd/7 -> /dev/xdma0_user"));
    assert_eq!(found, node("/dev/xdma0_user"));
    assert_eq!(found[0].to_string(), "process 815 (simulate) has /dev/xdma0_user open");
    let render = "$card/drm/renderD128/dev = 226:128\n$card/drm/renderD128/uevent = DEVNAME=dri/renderD128\n";
    assert_eq!(uses(&format!("{render}proc/815/fd/7 -> /dev/dri/renderD128")), node("/dev/dri/renderD128"));
    // Deeper, and without a name of its own.
    let port = "$card/fpga_region/region0/dfl-port.0/dev = 510:1\n";
    assert_eq!(uses(&format!("{port}proc/815/fd/7 -> /dev/dfl-port.0")), node("/dev/dfl-port.0"));
    // Another node of the same number: this machine's /dev/full stands for it.
    assert_eq!(uses("$card/xdma/xdma0_user/dev = 1:7\nproc/815/fd/7 -> /dev/full"), node("/dev/xdma0_user"));
    // Nobody has it open.
    let mut machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    machine.tree.apply(channel);
    machine.tree.apply("proc/815/fd/7 -> /dev/xdma1_user");
    machine.bind(&PATIENT).unwrap();
    // What is no number is an error, and not nobody.
    let mut machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    machine.tree.apply("$card/xdma/xdma0_user/dev = none");
    assert!(matches!(machine.bind(&PATIENT), Err(BindError::Sysfs(_))));
}

#[test]
fn virtual_functions_go_with_the_physical_one() {
    let machine = Machine::new(&["machine"], Some("dfl-pci"), None);
    let uses = in_use(&machine, "0000:5e:00.0");
    assert_eq!(uses, [Use::VirtualFunction { address: address("0000:5e:00.1"), driver: "vfio-pci".into() }]);
    assert_eq!(uses[0].to_string(), "its virtual function 0000:5e:00.1 is bound to vfio-pci");
    let forced = Options { force: true, ..PATIENT };
    machine.sysfs.unbind(&[address("0000:5e:00.0")], &forced).unwrap();
}

#[test]
fn one_binds_at_a_time() {
    let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), Some((1, Fault::Held)));
    let other = Sysfs::with_writer(machine.tree.root(), machine.kernel.clone());
    let functions = [address("0000:5e:00.0")];
    thread::scope(|scope| {
        let first = scope.spawn(|| machine.bind(&PATIENT));
        let deadline = Instant::now() + Duration::from_secs(60);
        while machine.writes().len() < 2 {
            assert!(Instant::now() < deadline, "the first one does not begin");
            thread::sleep(Duration::from_millis(2));
        }
        let refused = [
            other.bind(&functions, VFIO_PCI, &QUICK).map(drop),
            other.unbind(&functions, &QUICK).map(drop),
            other.reset(functions[0], &QUICK).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            let BindError::Locked { path, waited, .. } = &error else { panic!("{error:?}") };
            assert!(path.ends_with("run/fpgactl.lock") && *waited == QUICK.timeout, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("Process {} ", std::process::id())) && text.contains("100 ms"), "{text}");
        }
        machine.kernel.signalled.store(true, Ordering::Relaxed);
        assert!(matches!(other.unbind(&functions, &machine.interruptible()), Err(BindError::Interrupted { .. })));
        assert_eq!(machine.writes().len(), 2, "they wrote nothing");
        machine.kernel.release();
        first.join().unwrap().unwrap();
    });
    // It is free again.
    other.reset(address(CARD), &QUICK).unwrap();
}

/// More rights would not help.
#[test]
fn a_lock_that_is_no_file_is_told() {
    let machine = Machine::new(&["machine", "wrong-driver"], Some("xdma"), None);
    let path = machine.tree.root().join("run/fpgactl.lock");
    fs::create_dir_all(&path).unwrap();
    let error = machine.bind(&QUICK).unwrap_err();
    assert!(matches!(&error, BindError::NotLocked { path: found, .. } if *found == path), "{error:?}");
    assert_eq!(error.to_string(), format!("Locking {} failed", path.display()));
}

#[test]
fn a_reset_that_fails_is_an_error() {
    let mut machine = Machine::new(&["machine"], None, None);
    machine.tree.apply("$card/reset_method = bus");
    assert_eq!(machine.sysfs.reset(address(CARD), &PATIENT).unwrap(), ResetOutcome::Bus);
    let machine = Machine::new(&["machine"], None, None);
    assert_eq!(machine.sysfs.reset(address(CARD), &PATIENT).unwrap(), ResetOutcome::Function);
    assert_eq!(machine.writes(), [format!("sys/bus/pci/devices/{CARD}/reset 1")]);
    let machine = Machine::new(&["machine"], None, Some((0, Fault::Errno(Errno::ENOTTY))));
    assert!(matches!(machine.sysfs.reset(address(CARD), &PATIENT), Err(BindError::Refused { .. })));
    let machine = Machine::new(&["machine", "silent"], None, None);
    assert!(matches!(machine.sysfs.reset(address(CARD), &PATIENT), Err(BindError::Gone { .. })));
    // A virtual function of this tree has no reset.
    let machine = Machine::new(&["machine"], None, None);
    let options = Options { force: true, ..PATIENT };
    assert!(matches!(machine.sysfs.reset(address("0000:5e:00.1"), &options), Err(BindError::NoReset { .. })));
}
