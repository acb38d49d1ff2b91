//! Processes by id and start: an id alone may be given to another process.

use std::{fs, io};

/// A process.
pub(super) struct Process {
    /// In ticks since the machine started.
    pub(super) start: u64,
    pub(super) command: String,
}

/// Returns a process that runs; `None` if there is none with this id.
pub(super) fn find(pid: u32) -> io::Result<Option<Process>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        // The kernel cuts a name at 15 bytes, maybe within a character; and a name may be of any bytes.
        Ok(bytes) => Ok(parse(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // The process has ended since the file was opened.
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `ESRCH` of Linux `include/uapi/asm-generic/errno-base.h`.
const ESRCH: i32 = 3;

/// Parses a line of `/proc/PID/stat`. A zombie does not run. The name is in parentheses and may contain any.
fn parse(text: &str) -> Option<Process> {
    let (before, after) = text.rsplit_once(')')?;
    let command = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    // Field 22 of all; the state is field 3.
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(Process { start, command })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::{Read as _, Write as _};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn names_may_have_parentheses() {
        let line = "42 (a ) (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let process = parse(line).unwrap();
        assert_eq!((process.start, process.command.as_str()), (777, "a ) (b"));
        assert!(parse(&line.replace(") S", ") Z")).is_none(), "a zombie runs");
        assert!(parse("42 (a) S 1").is_none() && parse("").is_none());
    }

    #[test]
    fn names_may_have_any_bytes() {
        let folder = tempfile::tempdir().unwrap();
        // The second is cut within its eighth letter.
        for (name, expected) in [(&b"a\xff)b"[..], "a\u{fffd})b"), ("é".repeat(9).as_bytes(), "ééééééé\u{fffd}")]
        {
            let program = folder.path().join(OsStr::from_bytes(name));
            std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
            let mut command = Command::new(&program);
            let mut child = command.arg0("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // It has its name once it answers.
            child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let found = find(child.id()).unwrap();
            // It ends with its input.
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(found.unwrap().command, expected);
        }
    }

    #[test]
    fn this_process_runs() {
        assert!(find(std::process::id()).unwrap().is_some_and(|process| process.start > 0));
        assert!(find(u32::MAX).unwrap().is_none());
    }
}
