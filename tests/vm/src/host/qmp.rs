//! QEMU's monitor: commands and events, a JSON object on each line (QEMU's page "QMP", docs/interop).

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Errors of the monitor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QmpError {
    #[error("The monitor's socket failed")]
    Socket(#[from] io::Error),
    #[error("The monitor hung up")]
    Closed,
    #[error("The monitor said {line:?}")]
    Unexpected {
        line: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("The monitor refused {command}: {reason}")]
    Refused { command: String, reason: String },
    #[error("Waited {bound:?} for {what}")]
    Timeout { what: String, bound: Duration },
}

/// A connection to the monitor, ready for commands.
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    /// What of a line has come before a read timed out.
    begun: Vec<u8>,
    events: Vec<Value>,
    bound: Duration,
}

impl Qmp {
    /// Shakes hands. No command takes longer than `bound`.
    pub(crate) fn new(socket: UnixStream, bound: Duration) -> Result<Self, QmpError> {
        let mut qmp = Qmp { reader: BufReader::new(socket), begun: Vec::new(), events: Vec::new(), bound };
        qmp.object("the greeting", Instant::now() + bound)?;
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command, and returns its result.
    pub(crate) fn run(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes())?;
        let deadline = Instant::now() + self.bound;
        loop {
            let mut object = self.object(command, deadline)?;
            if let Some(error) = object.get("error") {
                let reason = error["desc"].as_str().unwrap_or("no reason given").to_owned();
                return Err(QmpError::Refused { command: command.to_owned(), reason });
            }
            if let Some(value) = object.get_mut("return") {
                return Ok(value.take());
            }
            self.events.push(object);
        }
    }

    /// Waits for an event that `wanted` recognises by its name and data.
    pub(crate) fn event(&mut self, what: &str, wanted: impl Fn(&str, &Value) -> bool) -> Result<(), QmpError> {
        let is_wanted = |event: &Value| wanted(event["event"].as_str().unwrap_or(""), &event["data"]);
        let deadline = Instant::now() + self.bound;
        loop {
            if let Some(at) = self.events.iter().position(is_wanted) {
                self.events.remove(at);
                return Ok(());
            }
            let object = self.object(what, deadline)?;
            self.events.push(object);
        }
    }

    fn object(&mut self, what: &str, deadline: Instant) -> Result<Value, QmpError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QmpError::Timeout { what: what.to_owned(), bound: self.bound });
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            match self.reader.read_until(b'\n', &mut self.begun) {
                Ok(0) => return Err(QmpError::Closed),
                Ok(_) => {
                    let line = std::mem::take(&mut self.begun);
                    return serde_json::from_slice(&line).map_err(|source| {
                        let line = String::from_utf8_lossy(&line).into_owned();
                        QmpError::Unexpected { line, source }
                    });
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A monitor that sends `lines`, each after it was sent one, and the greeting first.
    fn monitor(lines: &[&str]) -> (UnixStream, thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let thread = thread::spawn(move || {
            let mut reader = BufReader::new(theirs);
            reader.get_mut().write_all(b"{\"QMP\": {}}\n").unwrap();
            let mut heard = Vec::new();
            for line in lines {
                let mut command = String::new();
                reader.read_line(&mut command).unwrap();
                heard.push(command);
                reader.get_mut().write_all(line.as_bytes()).unwrap();
            }
            heard
        });
        (ours, thread)
    }

    #[test]
    fn commands_events_and_refusals() {
        let (socket, monitor) = monitor(&[
            "{\"return\": {}}\n",
            "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"card1\"}}\n{\"return\": 7}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such device\"}}\n",
        ]);
        let mut qmp = Qmp::new(socket, Duration::from_secs(20)).unwrap();
        assert_eq!(qmp.run("device_del", json!({ "id": "card1" })).unwrap(), json!(7));
        qmp.event("the device to go", |name, data| name == "DEVICE_DELETED" && data["device"] == "card1").unwrap();
        let refused = qmp.run("device_del", json!({ "id": "card9" })).unwrap_err();
        assert!(refused.to_string().contains("no such device"), "{refused}");
        let heard = monitor.join().unwrap();
        assert!(heard[1].contains("\"card1\""), "{heard:?}");
        assert!(matches!(qmp.run("quit", json!({})), Err(QmpError::Closed | QmpError::Socket(_))));
    }

    #[test]
    fn a_silent_monitor_is_not_waited_for_for_ever() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let outcome = Qmp::new(ours, Duration::from_millis(30)).map(drop);
        assert!(matches!(outcome, Err(QmpError::Timeout { .. })), "{outcome:?}");
    }
}
