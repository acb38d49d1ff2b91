//! What is in flight: tags, completions, held memory, their order, and whether the card can be trusted. No I/O.

pub(crate) mod bound;
pub(crate) mod cells;
mod results;
pub(crate) mod state;
pub(crate) mod submission;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cmdseq::{Completion, Instruction, Operation, Status, Table, Tables};
use fpga_hal::DmaBuffer;

use crate::error::{Error, Result};
use crate::ledger::bound::Held;
use crate::ledger::cells::{Cells, FREE, PENDING, free};
use crate::ledger::results::{Results, aborted};
use crate::ledger::state::{Broken, Poison, State};
use crate::ledger::token::{Entry, Token};

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

    /// Notes that the card was told of the `pushed` instructions stored.
    #[inline]
    pub(crate) fn set_rung(&mut self, pushed: u32) {
        debug_assert!(!self.must_announce(), "no room for all completions: {self:?}");
        debug_assert_eq!(pushed, self.pushed);
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
        if !self.tables.is_empty() {
            self.forget_loaded(instruction);
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

    /// Forgets what is in the card's tables if an instruction, or a resident program that it launches, loads some.
    #[cold]
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
    }

    /// Keeps `buffers`, which the program that is about to be stored in `slot` names, besides those of the one before.
    pub(crate) fn keep_resident(&mut self, slot: u32, buffers: &[Arc<DmaBuffer>]) {
        if !buffers.is_empty() {
            self.residents.entry(slot).or_default().extend_from_slice(buffers);
        }
    }

    /// Notes that the program in `slot` is the one that names `buffers`, and none before it runs any more.
    pub(crate) fn set_resident(&mut self, slot: u32, buffers: Vec<Arc<DmaBuffer>>) {
        if buffers.is_empty() {
            self.residents.remove(&slot);
        } else {
            self.residents.insert(slot, buffers);
        }
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
        self.rung = self.pushed;
        while self.taken != self.pushed {
            self.finish(aborted(self.taken as u16));
        }
    }

    /// Forgets what a reset has cleared on the card: tables and resident programs.
    pub(crate) fn forget_card(&mut self) {
        self.tables.clear();
        self.residents.clear();
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fpga_hal::Domain;
    use proptest::prelude::*;

    use super::*;

    const DEPTH: u32 = 4;

    fn running(at: u32) -> Ledger {
        let mut ledger = Ledger::new(DEPTH);
        ledger.restart();
        (ledger.pushed, ledger.rung, ledger.taken, ledger.announced) = (at, at, at, at);
        ledger.freed = at.wrapping_add(2 * DEPTH);
        ledger
    }

    fn push(ledger: &mut Ledger, held: Held) -> Token {
        let entry = enter(ledger, held);
        ledger.token(entry)
    }

    fn enter(ledger: &mut Ledger, held: Held) -> Entry {
        assert!(ledger.has_credit() || ledger.has_room());
        let entry = ledger.push(&Instruction::nop());
        ledger.hold(held);
        entry
    }

    fn done(tag: u16) -> Completion {
        Completion { status: Status::Done, ..aborted(tag) }
    }

    #[test]
    fn what_the_card_could_not_be_told_of_is_taken_back() {
        let buffer = Domain::in_process().allocate(64, 64).unwrap();
        for at in [0, 3, u32::MAX] {
            let mut ledger = running(at);
            let first = push(&mut ledger, Held::None);
            for _ in 0..20 {
                let entry = enter(&mut ledger, Held::One(Arc::clone(&buffer)));
                assert_eq!(Arc::strong_count(&buffer), 2);
                ledger.take_back(entry);
                assert_eq!((ledger.in_flight(), Arc::strong_count(&buffer)), (1, 1));
            }
            // What was stored before stays stored, and what is stored next has the same place and tag.
            let second = push(&mut ledger, Held::None);
            assert_eq!(second.tag(), (at as u16).wrapping_add(1));
            ledger.set_rung(ledger.pushed());
            ledger.complete(done(first.tag())).unwrap();
            ledger.complete(done(second.tag())).unwrap();
            assert_eq!(ledger.take(first).unwrap().unwrap().status, Status::Done);
            assert!(ledger.result(&second).unwrap().is_some());
        }
    }

    #[test]
    fn memory_goes_with_its_completion_or_a_certain_stop() {
        let buffer = Domain::in_process().allocate(64, 64).unwrap();
        let mut ledger = running(0);
        let token = push(&mut ledger, Held::Two([Arc::clone(&buffer), Arc::clone(&buffer)]));
        push(&mut ledger, Held::Many(vec![Arc::clone(&buffer); 3])).abandon();
        ledger.set_rung(ledger.pushed());
        ledger.complete(done(7)).unwrap_err();
        ledger.set_poison(Poison::Failed(String::new()));
        assert_eq!(Arc::strong_count(&buffer), 6);
        ledger.complete(done(0)).unwrap();
        assert_eq!(Arc::strong_count(&buffer), 4);
        ledger.abort_all();
        assert_eq!(Arc::strong_count(&buffer), 1);
        assert_eq!(ledger.result(&token).unwrap().unwrap().status, Status::Done);
    }

    #[test]
    fn memory_of_a_card_that_cannot_be_stopped_is_kept_for_good() {
        let domain = Domain::in_process();
        let [flying, resident] = [0, 1].map(|_| domain.allocate(64, 64).unwrap());
        let mut ledger = running(0);
        push(&mut ledger, Held::One(Arc::clone(&flying))).abandon();
        ledger.set_resident(1, vec![Arc::clone(&resident)]);
        ledger.leak();
        drop(ledger);
        assert_eq!((Arc::strong_count(&flying), Arc::strong_count(&resident)), (2, 2));
    }

    #[test]
    fn what_loads_tables_makes_the_host_forget_them() {
        use cmdseq::Operation::{Launch, Nop, Table as Load};
        let table = cmdseq::Table::packed([64, 64], 1);
        let slots = [0, 1, 2, 0x102, 0x201];
        for (instruction, left) in [
            (Instruction::nop(), slots.to_vec()),
            (Instruction::table(1, 0, 2), vec![0, 2, 0x102, 0x201]),
            (Instruction::table(0x102, 0, 2), vec![0, 1, 2, 0x201]),
            // What a program loads is not known.
            (Instruction::launch(0, [0; 3]), vec![]),
        ] {
            let mut ledger = running(0);
            slots.iter().for_each(|slot| ledger.has_table(*slot, table.clone()));
            let operation = instruction.operation;
            assert!(matches!(operation, Nop | Load | Launch));
            assert!(ledger.has_room());
            let _ = ledger.push(&instruction);
            assert_eq!(ledger.tables().keys().copied().collect::<Vec<_>>(), left, "{operation}");
        }
    }

    #[test]
    fn programs_keep_their_memory_until_another_is_surely_stored() {
        let domain = Domain::in_process();
        let [first, second] = [0, 1].map(|_| domain.allocate(64, 64).unwrap());
        let mut ledger = running(0);
        ledger.keep_resident(3, &[Arc::clone(&first)]);
        ledger.set_resident(3, vec![Arc::clone(&first)]);
        ledger.keep_resident(3, &[Arc::clone(&second)]);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2), "either may be there");
        ledger.set_resident(3, vec![Arc::clone(&second)]);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        ledger.abort_all();
        assert_eq!(Arc::strong_count(&second), 2, "an abort leaves programs on the card");
        ledger.forget_card();
        assert_eq!(Arc::strong_count(&second), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Counts keep their order, over the wrap of 32 bits too, and each token gets the completion of its instruction.
        #[test]
        fn any_order_of_calls_keeps_the_counts(start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
                                               calls in prop::collection::vec(0..8u8, 0..200)) {
            let mut ledger = running(start & !(DEPTH - 1));
            let mut tokens = VecDeque::new();
            for call in calls {
                match call {
                    0..=2 if ledger.has_room() => tokens.push_back(push(&mut ledger, Held::None)),
                    3 => {
                        // The card writes over completions that it does not know to be taken.
                        if ledger.must_announce() {
                            ledger.set_announced();
                        }
                        ledger.set_rung(ledger.pushed());
                    }
                    4 | 5 if !ledger.is_idle() => {
                        let tag = ledger.taken() as u16;
                        let before = ledger.in_flight();
                        prop_assert!(ledger.complete(done(tag.wrapping_add(1))).is_err());
                        prop_assert_eq!(ledger.in_flight(), before);
                        prop_assert!(ledger.complete(done(tag)).is_ok());
                    }
                    6 => {
                        let Some(token) = tokens.pop_front() else { continue };
                        let tag = token.tag();
                        match ledger.take(token).unwrap() {
                            Ok(completion) => prop_assert_eq!(completion.tag, tag),
                            Err(token) => tokens.push_front(token),
                        }
                    }
                    7 => drop(tokens.pop_front()),
                    _ => {}
                }
            }
        }
    }
}
