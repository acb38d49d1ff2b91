//! The guest's memory disk: the files of `tests/vm/prepare`, and our own programs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::machine::{MachineError, failed};

/// Programs of ours that the guest runs, as their build names them.
pub(crate) const PROGRAMS: [&str; 6] =
    ["fpga-guest", "fpga-cards", "fpgactl", "examples/edu", "examples/nvme", "examples/vfio"];

/// Writes the memory disk to `disk`: the base, then an archive of `/host` with our programs and the folder `udev`.
/// Archives may follow each other; the kernel unpacks all.
pub(crate) fn write(vm: &Path, programs: &Path, udev: &Path, disk: &Path, scratch: &Path) -> Result<(), MachineError> {
    let host = scratch.join("host");
    fs::create_dir_all(&host).map_err(failed("make the guest's folder"))?;
    for program in PROGRAMS {
        let from = programs.join(program);
        let name = from.file_name().unwrap_or_default();
        strip(&from, &host.join(name)).map_err(failed(format!("strip {}", from.display())))?;
    }
    copy_folder(udev, &host.join("udev")).map_err(failed(format!("copy {}", udev.display())))?;
    fs::copy(vm.join("base.cpio"), disk).map_err(failed("copy the base of the memory disk"))?;
    let end = File::options().append(true).open(disk).map_err(failed("write the memory disk"))?;
    archive(vm, scratch, end).map_err(failed("archive our programs"))
}

/// Copies a program without its debug information, most of its size, which the emulator would have to unpack.
fn strip(from: &Path, to: &Path) -> io::Result<()> {
    let output = Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(from).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Appends everything in `folder`, owned by root, to `end`.
fn archive(vm: &Path, folder: &Path, end: File) -> io::Result<()> {
    let mut names = String::new();
    list(folder, folder, &mut names)?;
    let mut cpio = Command::new(vm.join("root/bin/busybox"))
        .args(["cpio", "-o", "-H", "newc", "-R", "0:0"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(end)
        .stderr(Stdio::null())
        .spawn()?;
    // Dropped at the end of the statement: that is the end of the list.
    cpio.stdin.take().map_or(Ok(()), |mut input| input.write_all(names.as_bytes()))?;
    let status = cpio.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cpio ended with {status}"))) }
}

/// Names of what lies in `folder`, relative to `root`, folders before what is in them.
fn list(root: &Path, folder: &Path, names: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            names.push_str(name);
            names.push('\n');
        }
        if path.is_dir() {
            list(root, &path, names)?;
        }
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
