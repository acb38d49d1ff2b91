//! `fpgactl bench accesses`: what an instruction, and data, cost in accesses of registers, for each way that cards are fed.

use std::sync::Arc;

use cmdseq::Instruction;
use fpga_driver::board::{self, BoardFunction, Feed};
use fpga_driver::{Card, Error};
use fpga_hal::{Domain, Function, in_process};
use fpga_select::{Accesses, Recorder, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Cli;
use crate::exit::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::{cards, output, size};

/// Without `--cards`: the mock's own shell, and those of real cards. `true`: completions are read from registers.
const SHELLS: [(&str, bool); 7] = [
    ("mock:optweb:2", false),
    ("mock:s10-dfl:2", false),
    ("mock:s10-pac:2", false),
    ("mock:alveo-xdma:2+bypass", false),
    ("mock:alveo-xdma:2", false),
    ("mock:alveo-xdma:2+bar4", false),
    ("mock:alveo-xdma:2", true),
];
/// Instructions that are counted, one by one. Every half ring the host says besides how many completions it has taken: this is less.
const INSTRUCTIONS: u64 = 50;
/// Bytes of card memory that are moved.
const BYTES: u64 = 64 << 10;
/// Bytes of one access of a BAR that every shell carries.
const WORD: u64 = 4;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    /// Bytes of card memory that are written and read.
    bytes: u64,
    rows: Vec<Row>,
}

#[derive(JsonSchema, Serialize)]
struct Row {
    cards: String,
    feed: &'static str,
    /// Of one instruction, submitted and waited for.
    instruction: Counted,
    /// Of `bytes` bytes to card memory.
    to_card: Counted,
    /// Of `bytes` bytes from card memory.
    from_card: Counted,
    /// Of as many bytes through a BAR: writes to the card, or reads from it.
    by_bar: u64,
}

#[derive(JsonSchema, Serialize)]
struct Counted {
    writes: f64,
    reads: f64,
}

impl Counted {
    fn of(Accesses { reads, writes }: Accesses, count: u64) -> Self {
        Counted { writes: writes as f64 / count as f64, reads: reads as f64 / count as f64 }
    }

    fn text(&self) -> String {
        format!("{}, {}", self.writes, self.reads)
    }
}

pub(super) fn run(cli: &Cli) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let given = cards::given(cli)?.map(|cards| vec![(cards, false)]);
    let mut rows = Vec::new();
    for (selector, is_polled) in given.unwrap_or_else(|| SHELLS.to_vec()) {
        interrupt.check()?;
        rows.push(row(selector, is_polled)?);
    }
    if cli.json {
        return output::json(&Printed { schema: "fpgactl.bench-accesses/1", bytes: BYTES, rows });
    }
    let size = size::show(BYTES);
    let to = format!("{size} TO CARD");
    let heading = ["CARDS", "FED BY", "INSTRUCTION", to.as_str(), "FROM CARD", "THROUGH A BAR"];
    let line = |row: &Row| {
        let Row { cards, feed, instruction, to_card, from_card, by_bar } = row;
        let counts = [instruction, to_card, from_card].map(Counted::text);
        [vec![cards.clone(), (*feed).to_owned()], counts.to_vec(), vec![by_bar.to_string()]].concat()
    };
    let table: Vec<_> = std::iter::once(heading.map(str::to_owned).to_vec()).chain(rows.iter().map(line)).collect();
    let text = format!("Register writes, reads\n\n{}{}", output::table(&table), cards::MOCK_CARDS_NOTE);
    output::text(&text)
}

/// Counts the accesses of the first card of a mock fabric.
fn row(selector: &str, is_polled: bool) -> Result<Row> {
    let (_fabric, endpoints) = Selector::parse(selector)?.fabric()?;
    let Some((_, endpoint)) = endpoints.into_iter().next() else {
        return Err(Failure::usage(format!("{selector} selects no card")));
    };
    let recorder = Recorder::new(endpoint);
    let counted = Arc::<Recorder>::clone(&recorder);
    let function = in_process::attach(counted, &Domain::in_process(), selector)?;
    let board = described(&function, is_polled)?;
    let mut card = Card::open_on_board(function, &board)?;
    let timeout = card.timeout();
    recorder.take();
    for _ in 0..INSTRUCTIONS {
        card.run([Instruction::nop()], timeout)?;
    }
    let instruction = Counted::of(recorder.take(), INSTRUCTIONS);
    let mut data = vec![0x5a; BYTES as usize];
    card.write_memory(0, &data)?;
    let to_card = Counted::of(recorder.take(), 1);
    card.read_memory(0, &mut data)?;
    let from_card = Counted::of(recorder.take(), 1);
    let (cards, feed) = (selector.to_owned(), card.feed().name());
    Ok(Row { cards, feed, instruction, to_card, from_card, by_bar: BYTES / WORD })
}

/// Returns what the board files say of a function, with completions read from registers if `is_polled`.
fn described(function: &Function, is_polled: bool) -> Result<BoardFunction> {
    let mut found = board::of(function).map_err(Error::from)?.clone();
    if is_polled {
        found.feed = Some(Feed::Registers);
    }
    Ok(found)
}
