//! Tables of the vector forms, loaded into the cards' slots.

use cmdseq::{Instruction, Table, Tables};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::token::Token;

impl Card {
    /// Loads `table` into `slot`, which replaces the table there. If the card has the same table there, nothing is sent.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if the card has no such slot or does not take the table; [`Error::Failed`] if it refuses.
    pub fn load_table(&mut self, slot: u16, table: &Table) -> Result<()> {
        self.load_tables(&Tables::from([(slot, table.clone())]))
    }

    /// [`load_table`](Card::load_table) of several.
    ///
    /// # Errors
    /// As there.
    pub fn load_tables(&mut self, tables: &Tables) -> Result<()> {
        let deadline = Deadline::after(self.timeout());
        let loading = self.push_tables(tables, deadline)?;
        self.await_tables(tables, loading, deadline)
    }

    /// Submits the loads of those `tables` that the card does not have.
    pub(crate) fn push_tables(&mut self, tables: &Tables, deadline: Deadline) -> Result<Vec<(u16, Token)>> {
        let mut loading = Vec::new();
        for (slot, table) in tables {
            if self.queue.ledger.tables().get(slot) == Some(table) {
                continue;
            }
            table
                .check(*slot, self.capabilities())
                .map_err(|error| Error::argument("table", format!("slot {slot}"), error.to_string()))?;
            if !self.queue_mut().has_room() {
                // The tokens kept here may be what fills the queue.
                self.queue_mut().ring()?;
                self.await_tables(tables, std::mem::take(&mut loading), deadline)?;
            }
            let encoded = table.encode();
            let entries = table.entries.len() as u64;
            let instruction =
                self.hand_over(&encoded, deadline, |address| Instruction::table(*slot, address, entries))?;
            loading.push((*slot, self.queue_mut().push_when_room(instruction, deadline)?));
        }
        self.queue_mut().ring()?;
        Ok(loading)
    }

    /// Waits for the loads that [`push_tables`](Card::push_tables) has submitted.
    pub(crate) fn await_tables(
        &mut self,
        tables: &Tables,
        loading: Vec<(u16, Token)>,
        deadline: Deadline,
    ) -> Result<()> {
        for (slot, token) in loading {
            self.wait_done(&token, deadline)?;
            if let Some(table) = tables.get(&slot) {
                self.queue.ledger.has_table(slot, table.clone());
            }
        }
        Ok(())
    }
}
