//! Disassembler: programs as text that assembles to the same.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::fields::{self, TAG};
use super::program::{Assembly, Buffer, RankProgram};
use crate::instruction::{Value, takes_tables};
use crate::table::{Entry, Table};
use crate::{AddressSpace, Instruction, Layout, Operand, Operation};

/// Fewest consecutive members that are written as a range.
const RUN_MIN: usize = 3;
/// Fewest consecutive equal instructions that are written as a loop.
const LOOP_MIN: usize = 4;
/// Most different programs in one chain of `else if`. The assembler evaluates a chain from its begin for each rank.
const CHAIN_MAX: usize = 16;

/// Consecutive ranks with the same program: the first, the last, and the program.
type Alike<'a> = (u32, u32, &'a RankProgram);

/// Returns a source that assembles to `assembly`, for the same number of ranks and the same ranks.
///
/// Ranks with the same program share one branch. Buffers keep their names. Names of constants and labels are lost, and card
/// addresses are numbers. The source of long programs may exceed [`Limits::source_bytes`](super::Limits::source_bytes).
pub fn disassemble(assembly: &Assembly) -> String {
    let mut text = format!("ranks {}\n", assembly.ranks);
    let mut alike: Vec<Alike<'_>> = Vec::new();
    for program in &assembly.programs {
        match alike.last_mut().filter(|(_, last, with)| *last + 1 == program.rank && is_same(with, program)) {
            Some((_, last, _)) => *last = program.rank,
            None => alike.push((program.rank, program.rank, program)),
        }
    }
    match alike.as_slice() {
        [(0, last, program)] if *last + 1 == assembly.ranks => text += &body(program, ""),
        all => branches(&mut text, all),
    }
    text
}

/// Writes a branch for each of `alike`: a chain of few, or both halves of many, which are not indented to keep the text short.
fn branches(text: &mut String, alike: &[Alike<'_>]) {
    if alike.len() > CHAIN_MAX {
        let (low, high) = alike.split_at(alike.len() / 2);
        let _ = writeln!(text, "if rank < {}", high[0].0);
        branches(text, low);
        *text += "else\n";
        branches(text, high);
    } else {
        for (index, (first, last, program)) in alike.iter().enumerate() {
            let word = if index == 0 { "if" } else { "else if" };
            let _ = match first == last {
                true => writeln!(text, "{word} rank == {first}"),
                false => writeln!(text, "{word} rank >= {first} and rank <= {last}"),
            };
            *text += &body(program, "  ");
        }
    }
    if !alike.is_empty() {
        *text += "end\n";
    }
}

fn is_same(a: &RankProgram, b: &RankProgram) -> bool {
    a.instructions == b.instructions
        && a.buffers == b.buffers
        && a.communicators == b.communicators
        && a.tables == b.tables
        && a.bindings == b.bindings
}

/// Names for communicators and tables, which a program knows by number only.
#[derive(Default)]
struct Names {
    communicators: Vec<(u16, String)>,
    tables: Vec<(u16, String)>,
}

impl Names {
    /// The value of a field by name, if there is one.
    fn of(&self, keyword: &str, instruction: &Instruction) -> Option<String> {
        match keyword {
            "communicator" => {
                self.communicators.iter().find(|(id, _)| *id == instruction.communicator).map(|(_, name)| name.clone())
            }
            "extent" => self.tables_of(instruction),
            _ => None,
        }
    }

    /// The extent of a vector form, by the names of its tables.
    fn tables_of(&self, instruction: &Instruction) -> Option<String> {
        let name = |slot: u64| self.tables.iter().find(|(known, _)| u64::from(*known) == slot).map(|(_, name)| name);
        let extent = instruction.extent;
        match instruction.operation {
            Operation::Alltoallv => Some(format!("{} | {} << 16", name(extent & 0xffff)?, name(extent >> 16)?)),
            operation if takes_tables(operation) => name(extent).cloned(),
            _ => None,
        }
    }
}

fn body(program: &RankProgram, indent: &str) -> String {
    let mut text = String::new();
    for buffer in &program.buffers {
        let _ = writeln!(text, "{indent}{}", buffer_text(buffer));
    }
    let taken: HashSet<&str> = program.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
    let free = |mut name: String| {
        while taken.contains(name.as_str()) {
            name.push('_');
        }
        name
    };
    let mut names = Names::default();
    for communicator in &program.communicators {
        let name = free(format!("communicator_{}", communicator.id));
        let _ =
            writeln!(text, "{indent}communicator {name} = {} of {}", communicator.id, members(&communicator.members));
        names.communicators.push((communicator.id, name));
    }
    for (slot, table) in &program.tables {
        let name = free(format!("table_{slot}"));
        let _ = writeln!(text, "{indent}blocks {name} = {slot} of {}", blocks(table));
        names.tables.push((*slot, name));
    }
    let round = free("i".to_owned());
    let lines = program.instructions.iter().enumerate();
    let mut lines = lines.map(|(index, instruction)| instruction_text(program, index, instruction, &names)).peekable();
    while let Some(line) = lines.next() {
        let mut count = 1;
        while lines.next_if_eq(&line).is_some() {
            count += 1;
        }
        if count >= LOOP_MIN {
            let _ = writeln!(text, "{indent}for {round} in 0 .. {count}\n{indent}  {line}\n{indent}end");
        } else {
            text += &format!("{indent}{line}\n").repeat(count);
        }
    }
    text
}

fn buffer_text(buffer: &Buffer) -> String {
    match buffer.space {
        AddressSpace::Card => {
            let striped = if buffer.layout == Layout::Striped { " striped" } else { "" };
            format!("buffer {} = card at {:#x} size {}{striped}", buffer.name, buffer.address, buffer.bytes)
        }
        other => format!("buffer {} = {} size {}", buffer.name, other.name(), buffer.bytes),
    }
}

fn members(members: &[u32]) -> String {
    let mut parts = Vec::new();
    let mut rest = members;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(member, expected)| *member == expected).count();
        let taken = if run >= RUN_MIN { run } else { 1 };
        parts.push(if taken > 1 {
            format!("{first} .. {}", u64::from(*first) + taken as u64)
        } else {
            first.to_string()
        });
        rest = &rest[taken..];
    }
    parts.join(", ")
}

fn blocks(table: &Table) -> String {
    let block = |entry: &Entry| format!("{} at {}", entry.bytes, entry.displacement);
    table.entries.iter().map(block).collect::<Vec<_>>().join(", ")
}

fn instruction_text(program: &RankProgram, index: usize, instruction: &Instruction, names: &Names) -> String {
    let operation = instruction.operation;
    let mut parts = Vec::new();
    for field in fields::of(operation) {
        let name = field.keyword;
        match &field.value {
            Value::Number { get, .. } => {
                let value = get(instruction);
                match names.of(name, instruction) {
                    Some(known) => parts.push(format!("{name} {known}")),
                    None if value == 0 && fields::is_optional(field, operation) => {}
                    None => parts.push(format!("{name} {value}")),
                }
            }
            Value::Argument { get, .. } => parts.extend(get(instruction).map(|argument| format!("{name} {argument}"))),
            Value::Name { get, .. } => parts.extend(get(instruction).map(|word| format!("{name} {word}"))),
            Value::Operand(side) => {
                parts.push(format!("{name} {}", operand(side.operand(instruction), program.buffer_of(index, *side))));
            }
        }
    }
    if instruction.tag != 0 {
        parts.push(format!("{TAG} {}", instruction.tag));
    }
    parts.extend(fields::flags(operation).filter(|(_, flag)| instruction.flags.contains(*flag)).map(|(name, _)| name));
    format!("{operation} {}", parts.join(", ")).trim_end().to_owned()
}

fn operand(operand: &Operand, buffer: Option<&Buffer>) -> String {
    let mut text = match (buffer, operand.space) {
        (Some(buffer), _) if operand.address == 0 => buffer.name.clone(),
        (Some(buffer), _) => format!("{} + {}", buffer.name, operand.address),
        (None, AddressSpace::Card) => format!("{:#x}", operand.address),
        (None, space) => format!("{} {:#x}", space.name(), operand.address),
    };
    if operand.layout == Layout::Striped {
        text += " striped";
    }
    if let Some(argument) = operand.argument {
        let _ = write!(text, " argument {argument}");
    }
    text
}
