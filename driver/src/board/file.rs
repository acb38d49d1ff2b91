//! Reading a board file: TOML, in which every key is known and every block has its place.

use std::ops::Range;

use fpga_hal::BarIndex;
use fpga_regs::xdma::USER_INTERRUPTS;
use serde::Deserialize;
use toml::Spanned;

use crate::board::block::{Basis, Block, BlockKind, RING_ALIGN, Rings};
use crate::board::description::{Board, BoardFunction, Ids, Role};
use crate::board::error::BoardError;
use crate::board::feed::Feed;

/// Alignment of registers, and of headers of a feature list.
const ALIGN: u64 = 8;
/// What stands for the ids of every function.
const ANY: &str = "any";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    about: String,
    function: Vec<Spanned<FileFunction>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFunction {
    role: Role,
    ids: Vec<Spanned<String>>,
    bars: Vec<Spanned<FileBar>>,
    feed: Option<Spanned<Feed>>,
    #[serde(default)]
    block: Vec<Spanned<FileBlock>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBar {
    bar: u8,
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBlock {
    kind: BlockKind,
    bar: u8,
    offset: u64,
    bytes: Option<u64>,
    sequencer: Option<u64>,
    engine: Option<u64>,
    interrupt: Option<u32>,
    basis: Basis,
    source: String,
}

/// The file that is read, for its errors.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn error(&self, span: Range<usize>, what: impl Into<String>) -> BoardError {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        BoardError { file: self.file.to_owned(), line, what: what.into() }
    }

    fn function(&self, board: &str, of: Spanned<FileFunction>) -> Result<BoardFunction, BoardError> {
        let span = of.span();
        let FileFunction { role, ids, bars, feed, block } = of.into_inner();
        let ids = self.ids(&ids)?;
        let bars = self.bars(&span, bars)?;
        let mut blocks: Vec<Block> = Vec::new();
        for one in block {
            let span = one.span();
            let block = self.block(one, &bars)?;
            if let Some(other) = blocks.iter().find(|other| other.kind == block.kind) {
                return Err(self.error(span, format!("a second block {}: one is allowed", other.kind.name())));
            }
            let overlaps = |other: &&Block| {
                other.bar == block.bar
                    && other.offset < block.offset + block.bytes
                    && block.offset < other.offset + other.bytes
            };
            if let Some(other) = blocks.iter().find(overlaps) {
                let (kind, at, bytes) = (block.kind.name(), block.offset, block.bytes);
                let what = format!(
                    "block {kind} has {bytes:#x} bytes at {at:#x} of {}, where block {} is, with {:#x} bytes at {:#x}",
                    block.bar,
                    other.kind.name(),
                    other.bytes,
                    other.offset
                );
                return Err(self.error(span, what));
            }
            blocks.push(block);
        }
        let function = BoardFunction { board: board.into(), role, ids, bars, feed: None, blocks };
        let feed = feed.map(|feed| self.feed(&feed, &function)).transpose()?;
        let of_card = [BlockKind::Sequencer, BlockKind::RingMemory];
        if let Some(block) = of_card.iter().find_map(|kind| function.block(*kind)).filter(|_| role != Role::Card) {
            let what = format!("a function of role {} has no block {}: role card has", role.name(), block.kind.name());
            return Err(self.error(span, what));
        }
        Ok(BoardFunction { feed, ..function })
    }

    /// Checks that a feed is possible with the blocks of the function.
    fn feed(&self, feed: &Spanned<Feed>, function: &BoardFunction) -> Result<Feed, BoardError> {
        let rings = function.block(BlockKind::RingMemory).and_then(|block| block.rings);
        let wrong = match (*feed.get_ref(), rings) {
            _ if function.role != Role::Card => "only a function of role card is fed",
            (Feed::HostRing, Some(_)) => "a host ring has no block ring-memory",
            (Feed::CardRing, Some(Rings { engine: None, .. })) => {
                "a card ring needs the key engine in block ring-memory; without an engine the feed is registers"
            }
            _ => return Ok(*feed.get_ref()),
        };
        Err(self.error(feed.span(), format!("wrong feed: {wrong}")))
    }

    fn ids(&self, ids: &[Spanned<String>]) -> Result<Ids, BoardError> {
        if let [only] = ids
            && only.get_ref() == ANY
        {
            return Ok(Ids::Any);
        }
        let number = |text: &str| {
            let is_number = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u16::from_str_radix(text, 16).ok().filter(|_| is_number)
        };
        let parse = |id: &Spanned<String>| {
            let parts =
                id.get_ref().split_once(':').and_then(|(vendor, device)| Some((number(vendor)?, number(device)?)));
            let what = || {
                format!(
                    "invalid id {:?}: expected vendor and device, such as \"10ee:903f\"; or [\"any\"]",
                    id.get_ref()
                )
            };
            parts.ok_or_else(|| self.error(id.span(), what()))
        };
        ids.iter().map(parse).collect::<Result<_, _>>().map(Ids::These)
    }

    fn bars(&self, span: &Range<usize>, bars: Vec<Spanned<FileBar>>) -> Result<Vec<(BarIndex, u64)>, BoardError> {
        let mut found: Vec<(BarIndex, u64)> = Vec::new();
        for bar in bars {
            let span = bar.span();
            let FileBar { bar, bytes } = bar.into_inner();
            let index = self.bar(&span, bar)?;
            if found.iter().any(|(other, _)| *other == index) {
                return Err(self.error(span, format!("{index} is there twice")));
            }
            if !bytes.is_power_of_two() || bytes < 16 {
                return Err(self.error(span, format!("{index} has {bytes} bytes: expected a power of two from 16")));
            }
            found.push((index, bytes));
        }
        match found.is_empty() {
            true => Err(self.error(span.clone(), "no BAR: expected at least one in bars")),
            false => Ok(found),
        }
    }

    fn bar(&self, span: &Range<usize>, bar: u8) -> Result<BarIndex, BoardError> {
        BarIndex::new(bar).ok_or_else(|| self.error(span.clone(), format!("BAR {bar}: expected 0 to 5")))
    }

    fn block(&self, block: Spanned<FileBlock>, bars: &[(BarIndex, u64)]) -> Result<Block, BoardError> {
        let span = block.span();
        let FileBlock { kind, bar, offset, bytes, sequencer, engine, interrupt, basis, source } = block.into_inner();
        let wrong = |what: String| self.error(span.clone(), format!("block {}: {what}", kind.name()));
        let bar = self.bar(&span, bar)?;
        let Some((_, bar_bytes)) = bars.iter().find(|(index, _)| *index == bar) else {
            return Err(wrong(format!("the function has no {bar}")));
        };
        let (bytes, rings) = match (kind.bytes(), bytes, sequencer) {
            (Some(known), None, None) if engine.is_none() && interrupt.is_none() => (known, None),
            (Some(_), ..) => {
                return Err(wrong("bytes, sequencer, engine and interrupt are keys of ring-memory".to_owned()));
            }
            (None, Some(bytes), Some(sequencer)) => (bytes, Some(Rings { sequencer, engine, interrupt })),
            (None, ..) => return Err(wrong("keys bytes and sequencer are missing".to_owned())),
        };
        let align = if rings.is_some() { RING_ALIGN } else { ALIGN };
        if offset % align != 0 {
            return Err(wrong(format!("offset {offset:#x}: expected a multiple of {align}")));
        }
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > *bar_bytes) {
            return Err(wrong(format!("{bytes:#x} bytes at {offset:#x} of {bar}, which has {bar_bytes:#x} bytes")));
        }
        if let Some(Rings { sequencer, engine, interrupt }) = rings {
            for address in [Some(sequencer), engine].into_iter().flatten() {
                if address % RING_ALIGN != 0 || address.checked_add(bytes).is_none() {
                    let what =
                        format!("address {address:#x}: expected a multiple of {RING_ALIGN}, with the memory behind it");
                    return Err(wrong(what));
                }
            }
            if interrupt.is_some_and(|line| line >= USER_INTERRUPTS) {
                return Err(wrong(format!("interrupt of user logic: expected 0 to {}", USER_INTERRUPTS - 1)));
            }
        }
        Ok(Block { kind, bar, offset, bytes, rings, basis, source })
    }
}

impl Board {
    /// Largest board file: more is no description of a board.
    pub const BYTES_MAX: usize = 1 << 20;

    /// Reads the text of a board file; `file` is its name in errors.
    ///
    /// # Errors
    /// [`BoardError`], with the line, for anything that is unknown, missing, impossible or contradictory.
    pub fn parse(file: &str, text: &str) -> Result<Self, BoardError> {
        let reader = Reader { file, text };
        if text.len() > Self::BYTES_MAX {
            return Err(reader.error(0..0, format!("{} bytes: expected at most {}", text.len(), Self::BYTES_MAX)));
        }
        let read: File = toml::from_str(text)
            .map_err(|error| reader.error(error.span().unwrap_or(0..0), error.message().trim().replace('\n', "; ")))?;
        let name = read.name.get_ref();
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(is_name) {
            let what = format!("invalid name {name:?}: expected lower-case letters, digits and hyphens");
            return Err(reader.error(read.name.span(), what));
        }
        if read.function.is_empty() {
            return Err(reader.error(0..0, "no function: expected at least one [[function]]"));
        }
        let functions = read.function.into_iter().map(|of| reader.function(name, of)).collect::<Result<_, _>>()?;
        Ok(Board { name: name.clone(), file: file.to_owned(), about: read.about, functions })
    }
}
