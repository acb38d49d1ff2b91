//! Constants, buffers, communicators, tables and labels.

use std::collections::HashSet;

use super::{Evaluator, Outcome, Value, refuse};
use crate::AddressSpace;
use crate::asm::program::{Buffer, RANKS_MAX};
use crate::asm::syntax::*;
use crate::instruction::WORLD;
use crate::program::Communicator;
use crate::refusal::Declaration;
use crate::table::{Entry, Table};

/// Alignment of a buffer without an address.
const ALIGN: i128 = 4096;
/// Largest alignment: 1 TiB.
const ALIGN_MAX: i128 = 1 << 40;

impl<'a> Evaluator<'a> {
    /// Defines `name` as the result of `make`. If that is wrong, the name is known all the same, so that its uses are not
    /// findings too.
    pub(super) fn declare(&mut self, name: &'a Name, make: impl FnOnce(&mut Self) -> Outcome<Value>) -> Outcome<()> {
        self.check_new(name)?;
        let outcome = make(self);
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(&name.text, outcome.as_ref().ok().copied());
        }
        outcome.map(drop)
    }

    /// Refuses a name that is already defined.
    pub(super) fn check_new(&mut self, name: &Name) -> Outcome<()> {
        self.spend_values(self.scopes.len(), name.span)?;
        match self.find(&name.text) {
            None => Ok(()),
            Some(_) => refuse(name.span, format!("duplicate name `{}`", name.text)),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Option<Value>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    pub(super) fn define_label(&mut self, name: &'a Name) -> Outcome<()> {
        let index = self.program.instructions.len() as u32;
        match self.labels.insert(name.text.clone(), index) {
            None => Ok(()),
            Some(_) => refuse(name.span, format!("duplicate label `{}`", name.text)),
        }
    }

    pub(super) fn buffer(&mut self, text: &'a BufferText) -> Outcome<Value> {
        self.spend("buffers", |limits| &mut limits.buffers, 1, text.name.span)?;
        let bytes = self.wide(&text.size, "size")?;
        if bytes == 0 {
            return refuse(text.size.span, "invalid size 0: expected at least 1 byte");
        }
        let address = match text.space {
            AddressSpace::Card => self.card_address(text, bytes)?,
            _ => 0,
        };
        let buffer = Buffer { name: text.name.text.clone(), space: text.space, layout: text.layout, address, bytes };
        self.program.buffers.push(buffer);
        self.buffer_places.push(text.name.span);
        Ok(Value::Byte { buffer: self.program.buffers.len() - 1, offset: 0 })
    }

    fn card_address(&mut self, text: &'a BufferText, bytes: u64) -> Outcome<u64> {
        let align = text.align.as_ref().map_or(Ok(ALIGN), |align| match self.number(align)? {
            value if (1..=ALIGN_MAX).contains(&value) => Ok(value),
            value => refuse(align.span, format!("invalid alignment {value}: expected 1 to 1TiB")),
        })?;
        let address = match &text.at {
            Some(at) => self.wide(at, "at")?,
            None => u64::try_from((self.card_end + align - 1).div_euclid(align) * align).unwrap_or(u64::MAX),
        };
        if let (Some(at), Some(_)) = (&text.at, &text.align)
            && i128::from(address) % align != 0
        {
            return refuse(at.span, format!("misaligned address {address:#x}: expected a multiple of {align}"));
        }
        let Some(end) = address.checked_add(bytes) else {
            return refuse(text.name.span, format!("{bytes} B at {address:#x} exceed 64-bit addresses"));
        };
        self.card_end = self.card_end.max(i128::from(end));
        Ok(address)
    }

    pub(super) fn communicator(&mut self, text: &'a CommunicatorText) -> Outcome<Value> {
        let CommunicatorText { id, members, .. } = text;
        let number = self.short(id, "id")?;
        if number == WORLD {
            return refuse(id.span, "invalid id 0: communicator 0 is that of all cards, use 1 or above");
        }
        let mut listed: Vec<u32> = Vec::new();
        let mut seen = HashSet::new();
        for part in members {
            let (end, step) = part.end.as_deref().map_or((None, None), |(end, step)| (Some(end), step.as_ref()));
            for at in self.range(&part.first, end, step)? {
                let member = u32::try_from(at).ok().filter(|rank| *rank < self.ranks);
                let Some(member) = member else {
                    return refuse(part.first.span, format!("no rank {at} (the last is {})", self.ranks - 1));
                };
                if !seen.insert(member) {
                    return refuse(part.first.span, format!("duplicate member: rank {member}"));
                }
                listed.push(member);
            }
        }
        if listed.is_empty() {
            return refuse(id.span, "empty communicator: expected at least one member");
        }
        // The communicator itself is one entry more.
        self.spend_entries(listed.len() as u64 + 1, id.span)?;
        if seen.contains(&self.program.rank) {
            if !self.communicators.insert(number) {
                return refuse(id.span, format!("duplicate communicator id {number} on this rank"));
            }
            let declaration = Declaration::Communicator { id: number, members: listed.as_slice().into() };
            self.declarations.insert(declaration, id.span);
            self.program.communicators.push(Communicator { id: number, members: listed });
        }
        Ok(Value::Number(number.into()))
    }

    pub(super) fn table(&mut self, text: &'a TableText) -> Outcome<Value> {
        let TableText { slot, blocks, .. } = text;
        let number = self.short(slot, "slot")?;
        if self.program.tables.contains_key(&number) {
            return refuse(slot.span, format!("duplicate table slot {number} on this rank"));
        }
        let mut table = Table::default();
        for block in blocks {
            match &block.repeat {
                None => self.block_of_table(block, &mut table)?,
                Some(head) => {
                    for at in self.numbers(head)? {
                        self.in_scope(head, at, |all| all.block_of_table(block, &mut table))?;
                    }
                }
            }
        }
        if table.entries.is_empty() {
            return refuse(slot.span, "empty table: expected one block for each rank of a communicator");
        }
        self.program.tables.insert(number, table);
        self.declarations.insert(Declaration::Table { rank: self.program.rank, slot: number }, slot.span);
        Ok(Value::Number(number.into()))
    }

    /// Appends a block; without `at`, it begins where the last one ends.
    fn block_of_table(&mut self, block: &'a BlockText, table: &mut Table) -> Outcome<()> {
        let place = block.bytes.span;
        if table.entries.len() >= RANKS_MAX as usize {
            return refuse(place, format!("table too long: at most {RANKS_MAX} blocks"));
        }
        self.spend_entries(1, place)?;
        let bytes = self.wide(&block.bytes, "length")?;
        let displacement = match (&block.at, table.entries.last()) {
            (Some(at), _) => self.wide(at, "at")?,
            (None, None) => 0,
            (None, Some(last)) => last.displacement.saturating_add(last.bytes),
        };
        if displacement.checked_add(bytes).is_none() {
            return refuse(place, format!("{bytes} B at {displacement} exceed 64-bit addresses"));
        }
        table.entries.push(Entry { displacement, bytes });
        Ok(())
    }
}
