//! What is in flight: tags, completions, held memory, their order, and whether the card can be trusted. No I/O.

pub(crate) mod bound;
pub(crate) mod cells;
pub(crate) mod claims;
mod observers;
mod results;
pub(crate) mod state;
pub(crate) mod submission;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use cmdseq::{Completion, Instruction, Operation, Status, Table, Tables};
use fpga_hal::DmaBuffer;
use fpga_hal::memory::PublishedWords;

use crate::error::{Error, Result};
use crate::ledger::bound::Held;
use crate::ledger::cells::{Cells, FREE, PENDING, free};
use crate::ledger::observers::Observers;
use crate::ledger::results::{Results, aborted};
use crate::ledger::state::{Broken, Poison, State};
use crate::ledger::token::{Entry, Token};
use crate::stats::publication::Publication;
use crate::trace::recording::{InFlightRecord, Recording};

/// The instructions of one queue.
///
/// Instructions are counted, modulo 2^32; the low 16 bits of its count are the tag of each. At all times (wrapping):
///
/// ```text
/// announced <= taken <= rung <= pushed <= taken + depth
/// ```
///
/// * `announced <= taken`: the card writes over no completion that was not taken.
/// * `taken <= rung`: no completion is taken of an instruction that the card was not told of.
/// * `rung <= pushed`: the card is told of no instruction that was not stored.
/// * `pushed <= taken + depth`: no entry of the submission ring is stored over before the card has read it, because what is
///   completed was read.
/// * `rung <= announced + depth` when the doorbell rings: the card has room for each completion. The queue sees to it with
///   [`must_announce`](Ledger::must_announce).
///
/// Each cell is in one of three places: with an instruction in flight, free, or with a token that is not dropped. In the ring
/// `cells`, those of the instructions in flight are at their counts, and the free ones are at the counts that follow, up to
/// `freed`. Buffers are kept until the completion has come, or the card has stopped for sure.
pub(crate) struct Ledger {
    depth: u32,
    /// Instructions stored.
    pushed: u32,
    /// Instructions that the card was told of.
    rung: u32,
    /// Completions taken.
    taken: u32,
    /// Completions that the card was told are taken.
    announced: u32,
    /// Instructions that may be pushed before the queue looks for room again; 0 unless it runs.
    credits: u32,
    /// Cells that were free at some time, modulo 2^32: `pushed <= freed <= taken + 2 * depth`.
    freed: u32,
    /// Twice as many as the ring has entries.
    cells: Box<[u32]>,
    states: Arc<Cells>,
    /// Of each cell that an instruction had or has credit for.
    results: Results,
    /// Buffers of the instructions in flight, and how many hold some.
    held: Box<[Held]>,
    holding: u32,
    state: State,
    poison: Option<Poison>,
    /// The known contents of the card's tables, by slot.
    tables: Tables,
    /// Host memory that resident programs name, by slot: kept as long as the program may be on the card.
    residents: BTreeMap<u32, Vec<Arc<DmaBuffer>>>,
    /// The known program of each slot, up to the last slot that had one.
    stored: Vec<Option<Arc<()>>>,
    /// Who is told of all this.
    observers: Option<Box<Observers>>,
    /// Whether a stored instruction may change `tables`, or is recorded.
    is_noticed: bool,
}

impl Ledger {
    /// An empty ledger of a ring of `depth` entries, a power of two. It is stopped.
    pub(crate) fn new(depth: u32) -> Self {
        let cells = depth * 2;
        Ledger {
            depth,
            pushed: 0,
            rung: 0,
            taken: 0,
            announced: 0,
            credits: 0,
            freed: cells,
            cells: (0..cells).collect(),
            states: Cells::new(cells as usize),
            results: Results::new(cells),
            held: (0..depth).map(|_| Held::None).collect(),
            holding: 0,
            state: State::Stopped,
            poison: None,
            tables: Tables::new(),
            residents: BTreeMap::new(),
            stored: Vec::new(),
            observers: None,
            is_noticed: false,
        }
    }

    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn set_state(&mut self, state: State) {
        self.state = state;
        self.credits = 0;
        if let Some(observers) = &mut self.observers {
            observers.state(state);
        }
    }

    /// Publishes the counts from now on; those before are not in them.
    pub(crate) fn publish(&mut self, mut publication: Publication) {
        publication.submitted(self.rung.wrapping_sub(self.taken));
        self.observers.get_or_insert_default().publication = Some(publication);
    }

    /// Returns the words of the publication, if there is one.
    pub(crate) fn published(&self) -> Option<Weak<PublishedWords>> {
        Some(self.observers.as_ref()?.publication.as_ref()?.words())
    }

    /// Records what goes through the queue from now on. Nothing is in flight.
    pub(crate) fn record(&mut self, recording: Recording) {
        debug_assert_eq!(self.in_flight(), 0);
        self.observers.get_or_insert_default().recording = Some(recording);
        self.is_noticed = true;
    }

    /// Ends the recording, if there is one. Returns what is in flight too.
    pub(crate) fn take_recording(&mut self) -> Option<(Recording, Vec<InFlightRecord>)> {
        let mut recording = self.observers.as_mut()?.recording.take()?;
        let in_flight = recording.in_flight(self.taken, self.rung);
        self.observers.take_if(|observers| observers.publication.is_none());
        self.set_noticed();
        Some((recording, in_flight))
    }

    fn is_recorded(&self) -> bool {
        self.observers.as_ref().is_some_and(|observers| observers.recording.is_some())
    }

    fn set_noticed(&mut self) {
        self.is_noticed = !self.tables.is_empty() || self.is_recorded();
    }

    /// Why nothing read from the card is trusted; it stays until [`restart`](Ledger::restart).
    pub(crate) fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    pub(crate) fn set_poison(&mut self, poison: Poison) {
        self.set_state(State::Poisoned);
        self.poison = Some(poison);
    }

    /// Instructions stored and not completed.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.pushed.wrapping_sub(self.taken)
    }

    /// Whether the card has completed all that it was told of.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.taken == self.rung
    }

    #[inline]
    pub(crate) fn pushed(&self) -> u32 {
        self.pushed
    }

    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.pushed == self.rung
    }

    /// Notes that the doorbell is about to be rung.
    #[inline(always)]
    pub(crate) fn set_ringing(&mut self) {
        if self.is_noticed {
            self.notice_ringing();
        }
    }

    #[cold]
    fn notice_ringing(&mut self) {
        if let Some(observers) = &mut self.observers {
            observers.ringing();
        }
    }

    // What observers are told is not inlined: whoever has none saves no registers for it.
    #[inline(never)]
    fn notice_rung(&mut self, pushed: u32) {
        if let Some(observers) = &mut self.observers {
            observers.rung(self.rung, pushed);
        }
    }

    #[inline(never)]
    fn notice_completed(&mut self, completion: &Completion) {
        if let Some(observers) = &mut self.observers {
            observers.completed(self.taken, completion);
        }
    }

    /// Notes that the card was told of the `pushed` instructions stored.
    #[inline]
    pub(crate) fn set_rung(&mut self, pushed: u32) {
        debug_assert!(!self.must_announce(), "no room for all completions: {self:?}");
        debug_assert_eq!(pushed, self.pushed);
        if self.observers.is_some() {
            self.notice_rung(pushed);
        }
        self.rung = pushed;
        self.assert_order();
    }

    /// The invariants of the counts.
    #[inline]
    fn assert_order(&self) {
        let [taken, rung, pushed] = [self.taken, self.rung, self.pushed].map(|one| one.wrapping_sub(self.announced));
        debug_assert!(taken <= rung && rung <= pushed && pushed - taken <= self.depth, "{self:?}");
    }

    /// Completions taken that the card was not told of.
    #[inline]
    pub(crate) fn unannounced(&self) -> u32 {
        self.taken.wrapping_sub(self.announced)
    }

    /// Whether the card would write over completions that it does not know to be taken.
    #[inline]
    pub(crate) fn must_announce(&self) -> bool {
        self.pushed.wrapping_sub(self.announced) > self.depth
    }

    pub(crate) fn set_announced(&mut self) {
        self.announced = self.taken;
        self.assert_order();
    }

    /// Whether the queue runs and is known to have room for another instruction. If it is not known, but the queue runs and
    /// [has room](Ledger::has_room), it is known then.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        self.credits != 0
    }

    /// Whether there is room for another instruction.
    #[inline(never)]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.freed == self.pushed {
            // Takes back the cells of tokens that were dropped.
            let Ledger { states, cells, freed, .. } = self;
            states.reclaim(|cell| free(cells, freed, cell));
        }
        let room = (self.depth - self.in_flight()).min(self.freed.wrapping_sub(self.pushed));
        // It only grows until the next instruction is pushed.
        let credits = if self.state == State::Running { room } else { 0 };
        self.credits = if self.results.is_whole() { credits } else { self.first_credits(credits) };
        room != 0
    }

    /// Makes places for the results of the next instructions, of at most `most`, and returns of how many.
    #[cold]
    fn first_credits(&mut self, most: u32) -> u32 {
        let credits = most.min(results::FIRST);
        let cell = |ahead| self.cells[self.place(self.pushed.wrapping_add(ahead))];
        if let Some(last) = (0..credits).map(cell).max() {
            self.results.reach(last);
        }
        credits
    }

    /// Place of entry `count` in the ring of cells.
    #[inline(always)]
    fn place(&self, count: u32) -> usize {
        count as usize & (self.cells.len() - 1)
    }

    /// Place of entry `count` in the card's ring.
    #[inline(always)]
    fn entry(&self, count: u32) -> usize {
        count as usize & (self.held.len() - 1)
    }

    /// The tag of the next instruction.
    #[inline]
    pub(crate) fn next_tag(&self) -> u16 {
        self.pushed as u16
    }

    /// Enters an instruction, which was stored as the next of the ring, with its [tag](Ledger::next_tag). The queue
    /// [has credit](Ledger::has_credit) for it.
    #[inline(always)]
    pub(crate) fn push(&mut self, instruction: &Instruction) -> Entry {
        let (tag, cell) = (self.next_tag(), self.cells[self.place(self.pushed)]);
        self.states.set(cell, PENDING);
        self.pushed = self.pushed.wrapping_add(1);
        debug_assert_ne!(self.credits, 0, "no room: {self:?}");
        self.credits = self.credits.wrapping_sub(1);
        if self.is_noticed {
            self.notice(instruction);
        }
        self.assert_order();
        Entry { cell, tag, operation: instruction.operation }
    }

    /// The states of the cells, for tokens.
    pub(crate) fn states(&self) -> &Arc<Cells> {
        &self.states
    }

    /// The token of an instruction.
    #[inline]
    pub(crate) fn token(&self, entry: Entry) -> Token {
        Token::new(&self.states, entry)
    }

    /// Keeps `held` until the instruction pushed last is complete.
    pub(crate) fn hold(&mut self, held: Held) {
        if !matches!(held, Held::None) {
            self.held[self.entry(self.pushed.wrapping_sub(1))] = held;
            self.holding += 1;
        }
    }

    /// Releases the buffers of instruction `count`, if it holds some.
    #[inline(never)]
    fn release(&mut self, count: u32) {
        let entry = self.entry(count);
        if !matches!(std::mem::take(&mut self.held[entry]), Held::None) {
            self.holding -= 1;
        }
    }

    /// Removes the instruction pushed last, which the card was not told of.
    pub(crate) fn take_back(&mut self, entry: Entry) {
        debug_assert!(!self.is_rung(), "the card was told of it");
        self.pushed = self.pushed.wrapping_sub(1);
        self.assert_order();
        self.release(self.pushed);
        debug_assert_eq!(entry.cell, self.cells[self.place(self.pushed)]);
        self.states.set(entry.cell, FREE);
    }

    /// Takes note of the instruction pushed last.
    #[cold]
    fn notice(&mut self, instruction: &Instruction) {
        if !self.tables.is_empty() {
            self.forget_loaded(instruction);
            self.set_noticed();
        }
        if let Some(observers) = &mut self.observers {
            observers.stored(self.pushed.wrapping_sub(1), instruction);
        }
    }

    /// Forgets what is in the card's tables if an instruction, or a resident program that it launches, loads some.
    fn forget_loaded(&mut self, instruction: &Instruction) {
        match instruction.operation {
            Operation::Table => drop(self.tables.remove(&(instruction.extent as u16))),
            Operation::Launch => self.tables.clear(),
            _ => {}
        }
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Notes that the card has `table` in `slot`.
    pub(crate) fn has_table(&mut self, slot: u16, table: Table) {
        self.tables.insert(slot, table);
        self.is_noticed = true;
    }

    /// Keeps `buffers`, which the program that is about to be stored in `slot` names, besides those of the one before.
    pub(crate) fn keep_resident(&mut self, slot: u32, buffers: &[Arc<DmaBuffer>]) {
        if !buffers.is_empty() {
            self.residents.entry(slot).or_default().extend_from_slice(buffers);
        }
    }

    /// Notes that the program in `slot` is the one that names `buffers`, and none before it runs any more. Returns what
    /// [`stored`](Ledger::stored) returns for it from now on.
    pub(crate) fn set_resident(&mut self, slot: u32, buffers: Vec<Arc<DmaBuffer>>) -> Arc<()> {
        if buffers.is_empty() {
            self.residents.remove(&slot);
        } else {
            self.residents.insert(slot, buffers);
        }
        let slot = slot as usize;
        self.stored.resize(self.stored.len().max(slot + 1), None);
        Arc::clone(self.stored[slot].insert(Arc::default()))
    }

    /// The program in `slot`, if it is known.
    pub(crate) fn stored(&self, slot: u32) -> Option<&Arc<()>> {
        self.stored.get(slot as usize)?.as_ref()
    }

    /// Notes that `instruction`, which was pushed, may have replaced the program of a slot.
    pub(crate) fn note_store(&mut self, instruction: &Instruction) {
        if instruction.operation == Operation::Store
            && let Some(stored) = usize::try_from(instruction.extent).ok().and_then(|slot| self.stored.get_mut(slot))
        {
            *stored = None;
        }
    }

    /// Notes that the programs of all slots are unknown.
    pub(crate) fn forget_stored(&mut self) {
        self.stored.clear();
    }

    /// Takes `completion`, the next that the card has written.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) -> std::result::Result<(), Broken> {
        if completion.tag != self.taken as u16 {
            return Err(self.broken("its tag is not the next", completion.tag));
        }
        if completion.t1 > completion.t2 && completion.status == Status::Done {
            return Err(self.broken("its T1 is after its T2", completion.tag));
        }
        self.finish(completion);
        Ok(())
    }

    /// A completion for which nothing was submitted, or that is wrong.
    #[cold]
    pub(crate) fn broken(&self, what: &'static str, found: u16) -> Broken {
        Broken { what, expected: self.taken as u16, found }
    }

    /// Hands `completion` to whoever waits for the oldest instruction in flight, and releases its memory.
    #[inline]
    fn finish(&mut self, completion: Completion) {
        if self.holding != 0 {
            self.release(self.taken);
        }
        let cell = self.cells[self.place(self.taken)];
        if self.observers.is_some() {
            self.notice_completed(&completion);
        }
        self.results.set(cell, completion);
        if !self.states.complete(cell) {
            free(&mut self.cells, &mut self.freed, cell);
        }
        self.taken = self.taken.wrapping_add(1);
        self.assert_order();
    }

    /// Gives everything in flight the status aborted and releases its memory. The card has stopped or was reset.
    pub(crate) fn abort_all(&mut self) {
        // None of them will be asked for.
        if let Some(observers) = &mut self.observers {
            observers.never_rung(self.pushed.wrapping_sub(self.rung));
        }
        self.rung = self.pushed;
        while self.taken != self.pushed {
            self.finish(aborted(self.taken as u16));
        }
    }

    /// Forgets what a reset has cleared on the card: tables and resident programs.
    pub(crate) fn forget_card(&mut self) {
        self.tables.clear();
        self.residents.clear();
        self.set_noticed();
    }

    /// Begins to count anew, with nothing in flight.
    pub(crate) fn restart(&mut self) {
        debug_assert_eq!(self.in_flight(), 0);
        // The free cells follow what is pushed.
        let place = self.place(self.pushed);
        self.cells.rotate_left(place);
        self.freed = self.freed.wrapping_sub(self.pushed);
        (self.pushed, self.rung, self.taken, self.announced) = (0, 0, 0, 0);
        self.poison = None;
        self.set_state(State::Running);
        if let Some(observers) = &mut self.observers {
            observers.restarted();
        }
    }

    /// The completion of `token`, if it was taken.
    pub(crate) fn result(&self, token: &Token) -> Result<Option<Completion>> {
        if !token.is_of(&self.states) {
            return Err(Error::Stale { what: "token" });
        }
        Ok(token.is_done().then(|| self.results.of(token.cell())))
    }

    /// The completion of `token` if it was taken, or the token back.
    pub(crate) fn take(&mut self, token: Token) -> Result<std::result::Result<Completion, Token>> {
        let Some(completion) = self.result(&token)? else { return Ok(Err(token)) };
        let cell = token.cell();
        token.settle();
        self.states.set(cell, FREE);
        free(&mut self.cells, &mut self.freed, cell);
        Ok(Ok(completion))
    }

    /// Keeps the memory of everything in flight, and what resident programs name, until the process ends.
    pub(crate) fn leak(&mut self) {
        for held in &mut self.held {
            std::mem::forget(std::mem::take(held));
        }
        self.holding = 0;
        std::mem::forget(std::mem::take(&mut self.residents));
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("state", &self.state)
            .field("depth", &self.depth)
            .field("pushed", &self.pushed)
            .field("rung", &self.rung)
            .field("taken", &self.taken)
            .field("announced", &self.announced)
            .finish_non_exhaustive()
    }
}
