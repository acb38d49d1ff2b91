//! `fpgactl reg`: reads or writes a register of a card.

use std::str::FromStr;

use fpga_driver::{channel, find_sequencer};
use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::{Access, Register, sequencer};
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::exit::{Failure, Result};
use crate::{boards, cards, number, output};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    selector: String,
    kind: &'static str,
    mock: bool,
    /// Node of a mock card of this process; `None` of other cards, whose selectors name no node.
    node: Option<u32>,
    /// Name of a register of the sequencer, as docs/registers.md has it.
    register: Option<String>,
    bar: usize,
    /// Bytes from the start of the BAR.
    offset: u64,
    /// Written value.
    written: Option<u32>,
    /// Read value; `None` for a write-only register.
    value: Option<u32>,
}

/// A register found on a card.
struct Found {
    name: Option<String>,
    bar: BarIndex,
    offset: u64,
    access: Access,
    window: Window,
}

pub(crate) fn run(cli: &Cli, arguments: &cli::Reg) -> Result<()> {
    let selector = Selector::parse(&arguments.card)?;
    let is_whole_fabric = selector.is_whole_fabric();
    let selection = selector.open()?;
    let function = match selection.functions.first() {
        Some(first) if is_whole_fabric => first,
        _ => cards::single(&selection)?,
    };
    boards::check(function)?;
    let found = find(function, &arguments.register)?;
    let what = || found.name.clone().unwrap_or_else(|| format!("{} + {:#x}", found.bar, found.offset));
    match (arguments.value, found.access) {
        (Some(_), Access::ReadOnly) => {
            return Err(Failure::refused(format!("{} is read-only", what())));
        }
        (None, Access::WriteOnly) => {
            return Err(Failure::refused(format!("{} is write-only", what())));
        }
        _ => {}
    }
    let value = access(function, &found, arguments.value)?;
    let printed = Printed {
        schema: "fpgactl.reg/1",
        selector: arguments.card.clone(),
        kind: selector.kind().name(),
        mock: is_mock(selector.kind(), function),
        node: selector.nodes().first().copied(),
        register: found.name,
        bar: found.bar.index(),
        offset: found.offset,
        written: arguments.value,
        value,
    };
    output::print(cli.json, &printed, || text(&printed))
}

/// Writes the value, if there is one, and reads the register, unless it is write-only.
fn access(function: &Function, found: &Found, written: Option<u32>) -> Result<Option<u32>> {
    if let Some(value) = written {
        found.window.write_u32(found.offset, value)?;
    }
    if found.access == Access::WriteOnly {
        // As if all-ones were read back: this reads the configuration space, behind the write.
        function.check_alive(u32::MAX)?;
        return Ok(None);
    }
    Ok(Some(function.check_alive(found.window.read_u32(found.offset)?)?))
}

/// Returns whether the card is a model. Its sequencer or its channels say so; other functions say nothing, and no socket leads to hardware.
fn is_mock(kind: Kind, function: &Function) -> bool {
    let sequencer = || find_sequencer(function).ok().and_then(|block| block.is_model());
    let said = || sequencer().or_else(|| channel::is_model(function));
    kind == Kind::Mock || said().unwrap_or(kind != Kind::Vfio)
}

fn text(printed: &Printed) -> String {
    let location = format!("BAR{} + {:#x}", printed.bar, printed.offset);
    let name = printed.register.as_ref().map_or_else(|| location.clone(), |name| format!("{name} ({location})"));
    match (printed.value, printed.written) {
        (Some(value), _) => format!("{name}: {value:#010x} ({value})\n"),
        (None, written) => format!("{name}: {:#010x} written\n", written.unwrap_or_default()),
    }
}

fn find(function: &Function, register: &str) -> Result<Found> {
    if let Some((bar, offset)) = parse_offset(register) {
        let name = &function.identity().name;
        let window = function.window(bar).map_err(|error| match error {
            fpga_hal::Error::NoBar { .. } => Failure::usage(format!("{name}: {error}")),
            error => error.into(),
        })?;
        if !offset.is_multiple_of(4) || offset.checked_add(4).is_none_or(|end| end > window.len()) {
            return Err(Failure::usage(format!(
                "invalid offset {offset:#x} in {bar} of {name}: expected a multiple of 4 below {:#x}",
                window.len()
            )));
        }
        return Ok(Found { name: None, bar, offset, access: Access::ReadWrite, window });
    }
    let (queue, known) = find_by_name(register).ok_or_else(|| {
        Failure::usage(format!(
            "invalid register {register:?}: expected a name of docs/registers.md or an offset, such as 0x1008 or bar4:0x800"
        ))
    })?;
    let block = find_sequencer(function)?;
    let (bar, start) = (block.bar, block.start + block.offset);
    let window = function.window(bar)?;
    let (name, base) = match queue {
        None => (known.name.to_owned(), 0),
        Some(number) => {
            let queues = function.check_alive(window.read_u32(start + u64::from(sequencer::QUEUES))?)?;
            if number >= queues {
                let card = &function.identity().name;
                let what = format!("invalid queue {number} of {card}: expected a number below {queues} (QUEUES)");
                return Err(Failure::usage(what));
            }
            (format!("queue{number}.{}", known.name), sequencer::queue::base(number))
        }
    };
    let offset = start + u64::from(base + known.offset);
    Ok(Found { name: Some(name), bar, offset, access: known.access, window })
}

/// Parses the decimal number after `prefix`, in any case.
fn number_after<T: FromStr>(prefix: &str, text: &str) -> Option<T> {
    let text = text.to_ascii_lowercase();
    let number = text.strip_prefix(prefix)?;
    // Numbers of Rust may have a sign.
    if number.starts_with('+') { None } else { number.parse().ok() }
}

/// Parses `0x1008`, `4104` or `bar4:0x800`.
fn parse_offset(text: &str) -> Option<(BarIndex, u64)> {
    let (bar, offset) = match text.split_once(':') {
        Some((bar, offset)) => (number_after("bar", bar)?, offset),
        None => (0, text),
    };
    Some((BarIndex::new(bar)?, number::unsigned(offset)?))
}

/// Finds a register of the sequencer, or `queueN.NAME`; also returns the number of the queue.
fn find_by_name(text: &str) -> Option<(Option<u32>, &'static Register)> {
    let find = |table: &'static [Register], name: &str| {
        table.iter().find(|one| !one.is_reserved() && one.name.eq_ignore_ascii_case(name))
    };
    match text.split_once('.') {
        Some((queue, name)) => {
            let number = number_after("queue", queue).filter(|number| *number < sequencer::queue::MAX)?;
            Some((Some(number), find(sequencer::queue::TABLE, name)?))
        }
        None => Some((None, find(sequencer::TABLE, text)?)),
    }
}

#[cfg(test)]
mod tests {
    use fpga_hal::vfio_user::Server;
    use fpga_hal::{Domain, vfio_user};

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_card_that_is_gone_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("0.sock");
        let (fabric, cards) = Selector::parse("mock:optweb:2").unwrap().fabric().unwrap();
        let _clock = fabric.start_clock().unwrap();
        for (name, kind) in [("ABORT", Access::WriteOnly), ("SCRATCH", Access::ReadWrite)] {
            let serving = Server::bind(&socket, cards[0].1.clone()).unwrap().spawn().unwrap();
            let function = vfio_user::connect(&socket, &Domain::vfio_user()).unwrap();
            let found = find(&function, name).unwrap();
            assert!(found.access == kind, "{name}");
            assert!(access(&function, &found, Some(0)).is_ok(), "{name}");
            drop(serving);
            let gone = access(&function, &found, Some(0)).unwrap_err();
            assert_eq!(gone.exit().code(), Exit::Gone.code(), "{name}: {}", gone.message());
        }
    }

    /// As if the functions were on the kernel's VFIO, and on sockets.
    #[test]
    fn a_card_says_itself_that_it_is_a_model() {
        let opened = |text| Selector::parse(text).unwrap().open().unwrap().functions;
        for (text, is_said) in [
            ("mock:optweb:2", true),
            ("mock:alveo-xdma:2", true),
            ("mock:s10-dfl:2", true),
            // After power-up its port holds the accelerator in reset.
            ("mock:s10-pac:2", false),
            // No sequencer, and no channels.
            ("mock:alveo-xdma:1", false),
            ("mock:s10-dfl:2/0.control", false),
        ] {
            let functions = opened(text);
            assert_eq!(is_mock(Kind::Vfio, &functions[0]), is_said, "{text}");
            assert!(is_mock(Kind::VfioUser, &functions[0]) && is_mock(Kind::Mock, &functions[0]), "{text}");
        }
        let channels = Selector::parse("mock:circus:2x2").unwrap().open_channel_cards().unwrap();
        assert!(is_mock(Kind::Vfio, &channels[0]));
    }

    #[test]
    fn registers_are_found_by_name_and_offset() {
        let bar = |index| BarIndex::new(index).unwrap();
        assert_eq!(parse_offset("0x1008"), Some((bar(0), 0x1008)));
        assert_eq!(parse_offset("bar4:2048"), Some((bar(4), 2048)));
        for text in ["", "0x", "bar6:0", "bar+0:4", "bar:0", "4:0", "-4", "+4", "0x10000000000000000", "MAGIC"] {
            assert_eq!(parse_offset(text), None, "{text:?}");
        }
        assert_eq!(find_by_name("magic").map(|(queue, one)| (queue, one.offset)), Some((None, 0x20)));
        assert_eq!(
            find_by_name("queue2.submission_tail").map(|(queue, one)| (queue, one.name)),
            Some((Some(2), "SUBMISSION_TAIL"))
        );
        for text in ["", "queue.DEPTH", "queue99.DEPTH", "queue+1.DEPTH", "ring0.DEPTH", "NOTHING"] {
            assert!(find_by_name(text).is_none(), "{text:?}");
        }
    }
}
