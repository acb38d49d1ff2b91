//! `fpgactl mem`: reads, writes, fills and tests the memory of a card.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

use fpga_driver::xdma::{Completion, Engine};
use fpga_driver::{Card, CardFunctions, Error, xdma};
use fpga_regs::xdma::Status;
use fpga_select::{Kind, Selector};
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use crate::atomic_file::AtomicFile;
use crate::cli::{Cli, Mem, MemFill, MemRead, MemTest, MemWrite};
use crate::data::{compare, pattern};
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt};
use crate::{cards, input_file, output, progress};

/// Bytes that are moved at once.
const CHUNK: u64 = 4 << 20;
/// Most bytes that are printed.
const PRINTED_MAX: u64 = 64 << 10;
/// Bytes of a printed line.
const LINE: usize = 16;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    mock: bool,
    /// `read`, `write`, `fill` or `test`.
    action: &'static str,
    address: u64,
    bytes: u64,
    /// The file that was written or read.
    file: Option<String>,
    /// The bytes that were read, in hexadecimal digits, if they went to no file.
    hex: Option<String>,
}

/// What moves bytes to and from card memory.
enum Memory {
    /// The card, by the fastest way that it has.
    Card(Box<Card>),
    /// A DMA engine of a card without a sequencer.
    Engine(Box<Engine>),
}

impl Memory {
    fn open(functions: CardFunctions) -> Result<Self> {
        let function = functions.data.clone();
        let no_sequencer = match Card::open(functions) {
            Ok(card) => return Ok(Memory::Card(Box::new(card))),
            Err(error @ Error::NoSequencer { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        match Engine::open(function, Completion::Poll) {
            Ok(engine) => Ok(Memory::Engine(Box::new(engine))),
            Err(xdma::Error::NoEngine { .. }) => Err(no_sequencer.into()),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        let read = match self {
            Memory::Card(card) => card.read_memory(address, data),
            Memory::Engine(engine) => engine.read(address, data).map_err(Error::from),
        };
        read.map_err(|error| self.failure(error))
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let written = match self {
            Memory::Card(card) => card.write_memory(address, data),
            Memory::Engine(engine) => engine.write(address, data).map_err(Error::from),
        };
        written.map_err(|error| self.failure(error))
    }

    fn failure(&self, error: Error) -> Failure {
        match self {
            Memory::Card(card) => cards::with_shell_errors(error.into(), card),
            Memory::Engine(_) => error.into(),
        }
    }

    /// Ends what a failed transfer has left in flight, so that memory can be written again. Memory keeps its contents.
    fn end_transfers(&mut self) -> std::result::Result<(), Error> {
        match self {
            Memory::Card(card) => card.abort(),
            Memory::Engine(engine) => engine.reset().map_err(Error::from),
        }
    }

    /// Refuses a range that ends outside of the memory, before any of it is written.
    fn check(&mut self, address: u64, bytes: u64) -> Result<()> {
        let end = address
            .checked_add(bytes)
            .ok_or_else(|| Failure::usage(format!("{bytes} bytes at {address:#x} end beyond 64-bit addresses")))?;
        match self {
            Memory::Card(card) => card.check_range(address, bytes)?,
            Memory::Engine(_) if bytes == 0 => {}
            // An engine does not say how much memory there is.
            Memory::Engine(engine) => engine.read(end - 1, &mut [0]).map_err(|error| match error {
                xdma::Error::Failed { status, .. } if status.contains(Status::READ_ERROR_0) => {
                    Failure::chain(Exit::Refused, &error)
                }
                error => Error::from(error).into(),
            })?,
        }
        Ok(())
    }

    /// Returns whether the card says that it is a model; `None` if it says nothing.
    fn is_mock(&self) -> Option<bool> {
        match self {
            Memory::Card(card) => Some(card.is_mock()),
            Memory::Engine(_) => None,
        }
    }
}

/// What to do, with its files open.
enum Work<'a> {
    Print,
    Save(AtomicFile, &'a Path),
    Write(File, &'a Path),
    Fill(u64),
    Test(u64),
}

impl<'a> Work<'a> {
    /// Opens the files before the card, which opening resets. Returns the work, and its bytes of card memory.
    fn prepare(arguments: &'a Mem) -> Result<(Self, u64)> {
        Ok(match arguments {
            Mem::Read(MemRead { range, output: Some(path) }) => {
                (Work::Save(AtomicFile::create(path)?, path), range.bytes)
            }
            Mem::Read(MemRead { range, output: None }) if range.bytes > PRINTED_MAX => {
                let what =
                    format!("{} bytes are too many to print: at most {PRINTED_MAX}; use --output FILE", range.bytes);
                return Err(Failure::usage(what));
            }
            Mem::Read(MemRead { range, output: None }) => (Work::Print, range.bytes),
            Mem::Write(MemWrite { file: path, .. }) => {
                let (file, metadata) = input_file::open(path)?;
                (Work::Write(file, path), metadata.len())
            }
            Mem::Fill(MemFill { range, pattern }) => (Work::Fill(*pattern), range.bytes),
            Mem::Test(MemTest { range, seed }) => (Work::Test(*seed), range.bytes),
        })
    }

    fn action(&self) -> &'static str {
        match self {
            Work::Print | Work::Save(..) => "read",
            Work::Write(..) => "write",
            Work::Fill(_) => "fill",
            Work::Test(_) => "test",
        }
    }

    fn path(&self) -> Option<String> {
        match self {
            Work::Save(_, path) | Work::Write(_, path) => Some(path.display().to_string()),
            Work::Print | Work::Fill(_) | Work::Test(_) => None,
        }
    }

    /// Does it, a chunk at a time. Returns the bytes to print.
    fn run(
        &mut self,
        memory: &mut Memory,
        (address, bytes): (u64, u64),
        interrupt: &Interrupt,
        bar: &ProgressBar,
    ) -> Result<Vec<u8>> {
        memory.check(address, bytes)?;
        let mut printed = Vec::new();
        let mut at = 0;
        while at < bytes {
            interrupt.check()?;
            let mut data = vec![0; CHUNK.min(bytes - at) as usize];
            let place = address + at;
            match self {
                Work::Print => {
                    memory.read(place, &mut data)?;
                    printed.extend(&data);
                }
                Work::Save(file, _) => {
                    memory.read(place, &mut data)?;
                    file.append(&data)?;
                }
                Work::Write(file, path) => {
                    file.read_exact(&mut data).map_err(|error| match error.kind() {
                        ErrorKind::UnexpectedEof => {
                            let path = path.display();
                            let what = format!("{path}: became shorter than {bytes} bytes while it was read");
                            Failure::new(Exit::Failed, what)
                        }
                        _ => Failure::file(path, &error),
                    })?;
                    memory.write(place, &data)?;
                }
                Work::Fill(pattern) => {
                    let bytes = pattern.to_le_bytes();
                    // Chunks are whole patterns.
                    data.iter_mut().zip(bytes.iter().cycle()).for_each(|(byte, of)| *byte = *of);
                    memory.write(place, &data)?;
                }
                Work::Test(seed) => {
                    let mut saved = data.clone();
                    interrupt.of(memory.read(place, &mut saved))?;
                    pattern(*seed, 0, at, &mut data);
                    let tested = interrupt.of(written_and_read(memory, place, &data));
                    restore(memory, place, &saved, tested)?;
                }
            }
            at += data.len() as u64;
            bar.inc(data.len() as u64);
        }
        if let Work::Write(file, path) = self {
            input_file::check_end(file, bytes, path)?;
        }
        Ok(printed)
    }

    /// Completes the output file.
    fn finish(self) -> Result<()> {
        match self {
            Work::Save(file, _) => file.commit(),
            Work::Print | Work::Write(..) | Work::Fill(_) | Work::Test(_) => Ok(()),
        }
    }
}

/// Writes data, and compares what is read back.
fn written_and_read(memory: &mut Memory, address: u64, data: &[u8]) -> Result<()> {
    memory.write(address, data)?;
    let mut back = vec![0; data.len()];
    memory.read(address, &mut back)?;
    compare(address, data, &back).map_err(|error| Failure::new(Exit::Verification, error.to_string()))
}

/// Writes what was `saved`, after a test that ended as `tested`. If that fails, the first failure says so too.
fn restore(memory: &mut Memory, address: u64, saved: &[u8], tested: Result<()>) -> Result<()> {
    let ended = if tested.is_err() { memory.end_transfers() } else { Ok(()) };
    let restored = ended.map_err(Failure::from).and_then(|()| memory.write(address, saved));
    let help = || format!("{} bytes at {address:#x} are not restored", saved.len());
    match restored {
        Ok(()) => tested,
        Err(failure) => Err(tested.err().unwrap_or(failure).with_help(&help())),
    }
}

pub(crate) fn run(cli: &Cli, arguments: &Mem) -> Result<()> {
    let place = arguments.place();
    let selector = Selector::parse(&place.card)?;
    let (mut work, bytes) = Work::prepare(arguments)?;
    // As long as nothing was changed, a signal ends the command at once.
    let mut memory = Memory::open(cards::take_single(selector.open_cards(Duration::MAX)?)?)?;
    let interrupt = match arguments {
        Mem::Read(_) => Interrupt::listen_watching()?,
        Mem::Write(_) | Mem::Fill(_) => Interrupt::listen()?,
        Mem::Test(_) => Interrupt::listen_until_ended()?,
    };
    let bar = progress::bytes(bytes, work.action());
    let mut run = || work.run(&mut memory, (place.address, bytes), &interrupt, &bar);
    let ran = match arguments {
        Mem::Test(_) => run(),
        Mem::Read(_) | Mem::Write(_) | Mem::Fill(_) => interrupt.end_at_once_during(run)?,
    };
    bar.finish_and_clear();
    let data = ran?;
    let is_print = matches!(work, Work::Print);
    let printed = Printed {
        schema: "fpgactl.mem/1",
        selector: &place.card,
        kind: selector.kind().name(),
        // No socket leads to hardware.
        mock: selector.kind() != Kind::Vfio || memory.is_mock() == Some(true),
        action: work.action(),
        address: place.address,
        bytes,
        file: work.path(),
        hex: is_print.then(|| digits(&data)),
    };
    interrupt::ending_at_once(|| {
        interrupt.check()?;
        work.finish()?;
        match (cli.json, is_print) {
            (true, _) => output::json(&printed),
            (false, true) => output::text(&dump(place.address, &data)),
            (false, false) => output::text(&done(&printed)),
        }
    })
}

fn digits(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns lines of address, bytes, and those that are printable.
fn dump(address: u64, data: &[u8]) -> String {
    let mut text = String::new();
    for (line, place) in data.chunks(LINE).zip((address..).step_by(LINE)) {
        let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let _ = writeln!(text, "{place:012x}  {:<47}  {}", bytes.join(" "), line.iter().map(shown).collect::<String>());
    }
    text
}

fn done(printed: &Printed<'_>) -> String {
    let Printed { action, address, bytes, file, .. } = printed;
    let what = match (*action, file) {
        ("read", Some(file)) => format!("written to {file}"),
        ("write", Some(file)) => format!("written from {file}"),
        ("test", _) => "written, read back and restored".to_owned(),
        _ => "filled".to_owned(),
    };
    format!("{bytes} bytes at {address:#x}: {what}\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_have_sixteen_bytes_and_what_is_printable() {
        assert_eq!(
            super::dump(0xfff8, b"0123456789abcdef\n\xff"),
            "00000000fff8  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
             000000010008  0a ff                                            ..\n"
        );
        assert_eq!(super::dump(0, b""), "");
    }
}
