//! The virtual machine: a QEMU process with an IOMMU, and the sockets to it.

use std::fs::File;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fpga_vm::FIRST_PORT;
use serde_json::json;

use crate::qmp::{Qmp, QmpError};

/// Time limit of all of QEMU's actions, except running the guest.
const BOUND: Duration = Duration::from_secs(60);
/// Device numbers of `edu` devices on bus 0: each transfer of one takes a tenth of a second, so many work side by side.
/// Between them lie the ports of the cards.
const EDU_DEVICES: [std::ops::RangeInclusive<u8>; 2] = [0x04..=0x0f, 0x18..=0x1e];
/// Device number of two NVMe controllers without media.
const TWINS: u8 = 0x16;
/// Device number of the root port of the NVMe controller that can be pulled.
const PULLED_PORT: u8 = 0x17;
/// Bytes of the NVMe medium.
pub(crate) const MEDIUM_BYTES: u64 = 256 << 20;

/// File behind the NVMe controller that is pulled; nobody looks at what is in it.
pub(crate) const SCRAP: &str = "scrap.raw";

/// Errors of the machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("Cannot {action}")]
    Io {
        action: String,
        #[source]
        source: io::Error,
    },
    #[error("QEMU ended with {status}: {said}")]
    Ended { status: ExitStatus, said: String },
    #[error("QEMU did not connect, or end, in {BOUND:?}")]
    Silent,
    #[error("The cards cannot be served: {said}")]
    Server { said: String },
    #[error("The guest {what}")]
    Guest { what: String },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// For `map_err`.
pub(crate) fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> MachineError {
    let action = action.into();
    |source| MachineError::Io { action, source }
}

/// Parts of a machine.
pub(crate) struct Parts<'a> {
    /// Folder that `tests/vm/prepare` has made.
    pub(crate) vm: &'a Path,
    /// Where sockets and logs go.
    pub(crate) folder: &'a Path,
    /// Sockets of the mock cards.
    pub(crate) cards: &'a [PathBuf],
    /// What runs in it.
    pub(crate) software: Software<'a>,
}

/// What runs in a machine.
pub(crate) enum Software<'a> {
    /// Linux behind an IOMMU, with devices of QEMU's own.
    Linux {
        /// Its memory disk.
        disk: &'a Path,
        /// File behind the NVMe controller.
        medium: &'a Path,
        /// Whether others may map the guest's memory. If not, cards reach it by messages.
        shared_memory: bool,
        /// Kernel parameters of ours.
        parameters: &'a str,
        /// Options for devices beside those that every machine has.
        devices: &'a [&'a str],
    },
    /// The small guest.
    Small {
        /// Its program.
        kernel: &'a Path,
    },
}

/// A running machine; killed on drop.
pub(crate) struct Machine {
    qemu: Child,
    folder: PathBuf,
    pub(crate) qmp: Qmp,
}

impl Machine {
    /// Starts a machine, and gives back as well the host's end of the line to the guest.
    pub(crate) fn start(parts: &Parts<'_>) -> Result<(Self, UnixStream), MachineError> {
        let listen = |name: &str| {
            let path = parts.folder.join(name);
            let listener = UnixListener::bind(&path).map_err(failed(format!("make {}", path.display())))?;
            listener.set_nonblocking(true).map_err(failed("listen"))?;
            Ok::<_, MachineError>(listener)
        };
        let (monitor, line) = (listen("monitor.sock")?, listen("line.sock")?);
        let said = File::create(parts.folder.join("qemu.log")).map_err(failed("make a log"))?;
        let mut qemu = Command::new(parts.vm.join("bin/qemu"))
            .args(arguments(parts))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(failed("start QEMU"))?;
        let folder = parts.folder.to_owned();
        let connected = accept(&mut qemu, &monitor, &folder).and_then(|monitor| {
            let line = accept(&mut qemu, &line, &folder)?;
            Ok((Qmp::new(monitor, BOUND)?, line))
        });
        match connected {
            Ok((qmp, line)) => Ok((Machine { qemu, folder, qmp }, line)),
            Err(error) => {
                stop(&mut qemu);
                Err(error)
            }
        }
    }

    /// Returns QEMU's exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, MachineError> {
        self.qemu.try_wait().map_err(failed("look after QEMU"))
    }

    /// Switches the machine off, and waits for its end.
    pub(crate) fn quit(&mut self) -> Result<(), MachineError> {
        // It may be off before it answers, or off already.
        match self.qmp.run("quit", json!({})) {
            Ok(_) | Err(QmpError::Closed | QmpError::Socket(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let deadline = Instant::now() + BOUND;
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(MachineError::Ended { status, said: qemu_said(&self.folder) }),
                None if Instant::now() > deadline => return Err(MachineError::Silent),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Pulls a device, as an administrator would who waits for the light: the guest is asked, and lets go.
    pub(crate) fn unplug(&mut self, device: &str) -> Result<(), QmpError> {
        self.qmp.run("device_del", json!({ "id": device }))?;
        let what = format!("{device} to be gone");
        self.qmp.event(&what, |name, data| name == "DEVICE_DELETED" && data["device"] == device)
    }
}

impl Machine {
    /// Has a device report that a completion never came.
    pub(crate) fn report_error(&mut self, device: &str) -> Result<String, QmpError> {
        let command = format!("pcie_aer_inject_error {device} COMP_TIME");
        let said = self.qmp.run("human-monitor-command", json!({ "command-line": command }))?;
        match said.as_str().unwrap_or_default().trim_end() {
            said if said.starts_with("OK") => Ok(said.to_owned()),
            said => Err(QmpError::Refused { command, reason: said.to_owned() }),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        stop(&mut self.qemu);
    }
}

/// Ends a child process of ours. It may have ended by itself.
pub(crate) fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Takes QEMU's connection, unless QEMU ends first.
fn accept(qemu: &mut Child, listener: &UnixListener, folder: &Path) -> Result<UnixStream, MachineError> {
    let deadline = Instant::now() + BOUND;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).map_err(failed("use a socket"))?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed("take QEMU's connection")(error)),
        }
        if let Some(status) = qemu.try_wait().map_err(failed("look after QEMU"))? {
            return Err(MachineError::Ended { status, said: qemu_said(folder) });
        }
        if Instant::now() > deadline {
            return Err(MachineError::Silent);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the last lines of QEMU's standard error.
fn qemu_said(folder: &Path) -> String {
    let said = std::fs::read_to_string(folder.join("qemu.log")).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn arguments(parts: &Parts<'_>) -> Vec<String> {
    let file = |path: &Path| path.display().to_string();
    let in_folder = |name: &str| file(&parts.folder.join(name));
    let mut arguments: Vec<String> = ["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned).to_vec();
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    // Memory without a file behind it cannot be handed to others.
    let memory = |size: &str, shared: bool| {
        format!("{},id=memory,size={size}", if shared { "memory-backend-memfd,share=on" } else { "memory-backend-ram" })
    };
    option("-display", "none".to_owned());
    option("-M", "q35,accel=tcg,kernel-irqchip=split,memory-backend=memory".to_owned());
    option("-chardev", format!("socket,id=monitor,path={}", in_folder("monitor.sock")));
    option("-mon", "chardev=monitor,mode=control".to_owned());
    option("-chardev", format!("socket,id=line,path={}", in_folder("line.sock")));
    match &parts.software {
        Software::Linux { disk, medium, shared_memory, parameters, devices } => {
            option("-smp", "2".to_owned());
            option("-m", "1G".to_owned());
            option("-object", memory("1G", *shared_memory));
            // Without interrupt remapping the kernel's VFIO refuses the IOMMU.
            option("-device", "intel-iommu,intremap=on,caching-mode=on".to_owned());
            option("-kernel", file(&parts.vm.join("vmlinuz")));
            option("-initrd", file(disk));
            // Without no_timer_check the kernel waits a few milliseconds for its timer, which on a busy host may not be
            // run in time, and then panics.
            // Mitigations take an emulator's time, and protect nobody here.
            let always = "console=ttyS0 intel_iommu=on no_timer_check mitigations=off panic=-1 quiet loglevel=5";
            option("-append", format!("{always} {parameters}"));
            option("-serial", format!("file:{}", in_folder("console.log")));
            option("-serial", "chardev:line".to_owned());
            option("-drive", format!("file={},format=raw,if=none,id=medium,cache=unsafe", file(medium)));
            option("-device", "nvme,id=nvme0,serial=fpga-vm,drive=medium,addr=3".to_owned());
            // Two functions of one slot, which nothing keeps apart: one IOMMU group.
            for function in 0..2 {
                let more = if function == 0 { "on" } else { "off" };
                let serial = format!("serial=fpga-vm-twin{function}");
                option("-device", format!("nvme,{serial},addr={TWINS:#x}.{function},multifunction={more}"));
            }
            option("-device", format!("pcie-root-port,id=pulled,chassis=1,slot=1,addr={PULLED_PORT:#x}"));
            option("-drive", format!("file={},format=raw,if=none,id=scrap,cache=unsafe", in_folder(SCRAP)));
            option("-device", "nvme,id=nvme1,serial=fpga-vm-pulled,drive=scrap,bus=pulled".to_owned());
            for device in EDU_DEVICES.into_iter().flatten() {
                option("-device", format!("edu,id=edu{device},addr={device:#x}"));
            }
            for device in *devices {
                option("-device", (*device).to_owned());
            }
        }
        Software::Small { kernel } => {
            option("-m", "64M".to_owned());
            option("-object", memory("64M", true));
            option("-kernel", file(kernel));
            option("-serial", "chardev:line".to_owned());
        }
    }
    for (index, socket) in parts.cards.iter().enumerate() {
        let mut card = json!({
            "driver": "vfio-user-pci", "id": format!("card{index}"),
            "socket": { "type": "unix", "path": file(socket) },
        });
        // Each behind a port of its own: that is where one can be pulled, and what gives it an IOMMU group.
        if let Software::Linux { .. } = parts.software {
            let port = usize::from(FIRST_PORT) + index;
            option("-device", format!("pcie-root-port,id=port{index},chassis={port},slot={port},addr={port:#x}"));
            card["bus"] = json!(format!("port{index}"));
        }
        option("-device", card.to_string());
    }
    arguments
}
