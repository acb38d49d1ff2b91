//! The line to the host.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use fpga_vm::{Answer, FromGuest, GUEST_PORT, Request};

/// The guest's end of the line. The port is raw already (see `init`).
pub(crate) struct Host {
    reader: BufReader<File>,
    writer: File,
    questions: u64,
}

impl Host {
    pub(crate) fn open() -> io::Result<Self> {
        let writer = File::options().read(true).write(true).open(GUEST_PORT)?;
        Ok(Host { reader: BufReader::new(writer.try_clone()?), writer, questions: 0 })
    }

    /// Says something. That the line is broken the host sees for itself.
    pub(crate) fn say(&mut self, what: &FromGuest) {
        let _ = self.writer.write_all(format!("{what}\n").as_bytes());
    }

    /// Asks, and waits for the answer. The host answers within bounds of its own, or ends the machine.
    pub(crate) fn ask(&mut self, request: Request) -> Result<String, String> {
        self.questions += 1;
        let number = self.questions;
        self.say(&FromGuest::Ask { number, request });
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Ok(0) => return Err("the host hung up".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the line to the host failed: {error}")),
            }
            match line.trim_end_matches(['\n', '\r']).parse::<Answer>() {
                Ok(answer) if answer.number == number => return answer.outcome,
                _ => {}
            }
        }
    }
}
