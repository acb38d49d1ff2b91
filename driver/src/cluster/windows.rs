//! Windows of programs that name none: opened for exactly what the programs reach on the cards of their group, before the first
//! of them runs, and closed after the last has ended.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cmdseq::instruction::{ARGUMENTS, Window};
use cmdseq::plan::ProgramSet;
use cmdseq::verify::exposure;
use cmdseq::{Instruction, Operand, Operation, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::card::Card;
use crate::card::windows::{Keys, OpenWindow, free_slots};
use crate::cluster::Cluster;
use crate::cluster::agreement::malformed;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::state::State;
use crate::ledger::token::Token;
use crate::queue::check;

/// Time limit for windows to close after a run. A card that runs closes them in microseconds; one that has stopped must not hold
/// up a caller whose time is over.
const CLOSE: Duration = Duration::from_secs(1);

/// The windows of programs. As long as this lives they are held open.
#[derive(Debug, Default)]
pub(crate) struct Through {
    /// Rank and index of each instruction that goes through a window, sorted.
    windows: Vec<((usize, usize), Window)>,
    pin: Option<Arc<()>>,
}

impl Through {
    /// Instructions of `rank` that go through windows: their indices, and the windows.
    pub(crate) fn of(&self, rank: usize) -> impl Iterator<Item = (usize, Window)> {
        let first = self.windows.partition_point(|((one, _), _)| *one < rank);
        let of_rank = self.windows[first..].iter().take_while(move |((one, _), _)| *one == rank);
        of_rank.map(|((_, index), window)| (*index, *window))
    }

    /// Names the windows in the instructions of `rank`.
    pub(crate) fn name(&self, rank: usize, instructions: &mut Cow<'_, [Instruction]>) {
        for (index, window) in self.of(rank) {
            let instruction = &mut instructions.to_mut()[index];
            *instruction = instruction.through(window);
        }
    }
}

impl Cluster {
    /// Makes the keys of the windows that are opened from now on predictable: the same for the same seed. For tests only: a
    /// neighbour that knows a key reaches the window.
    #[doc(hidden)]
    pub fn seed_window_keys(&mut self, seed: u64) {
        self.keys = Keys::Seeded(seed);
    }

    /// Closes the windows of programs that were dropped, if nothing is in flight on any card of the members. Collective. Every call
    /// that opens windows does so too. Windows of programs that also ran on cards of others stay open.
    ///
    /// # Errors
    /// The first card's that does not close one: see [`Card::wait`](crate::Card::wait). [`Error::Peer`] and [`Error::Peers`] of other
    /// ranks.
    pub fn close_windows(&mut self) -> Result<()> {
        let deadline = self.deadline();
        let closed = self.close_unheld(deadline);
        self.agree_until(closed, deadline)
    }

    /// As [`close_windows`](Cluster::close_windows), but for what the ranks agree on at the end.
    fn close_unheld(&mut self, deadline: Deadline) -> Result<()> {
        // Other ranks may have some where this one has none.
        if self.is_alone() && !self.cards().iter().any(|card| card.windows.iter().any(OpenWindow::is_unheld)) {
            return Ok(());
        }
        let members = self.nodes();
        let is_idle = self.is_idle(&members);
        // A launch in flight on any of the cards may still go through a window of another.
        let (_, all) = self.exchange(is_idle, |is_idle| *is_idle, deadline)?;
        if !all.into_iter().all(|is_idle| is_idle) {
            return Ok(());
        }
        let are_members = |nodes: &[u32]| nodes.iter().all(|node| members.contains(node));
        self.claims.retain(|claim| !claim.is_dropped() || !are_members(&claim.nodes));
        self.close_those(|open| open.is_unheld() && are_members(&open.nodes), deadline)
    }

    /// Opens the windows that the programs of `set` need, and returns which instructions go through which. Resident programs have
    /// launch `arguments`, by rank. `held` are the ranks and indices of the cards held here, and `id` is the id on the cards of a
    /// communicator of the programs. Collective if there are any.
    pub(crate) fn open_windows(
        &mut self,
        set: &ProgramSet,
        arguments: Option<&[[u64; ARGUMENTS]]>,
        held: &[(usize, usize)],
        id: impl Fn(u32, u16) -> u16,
        deadline: Deadline,
    ) -> Result<Through> {
        if self.capabilities().windows == 0 || !set.instructions().any(Instruction::needs_window) {
            return Ok(Through::default());
        }
        let capabilities = self.capabilities().clone();
        let closed = self.close_unheld(deadline);
        let free = |(rank, index): &(usize, usize)| {
            let used = set.programs[*rank].opened_slots();
            (*rank, free_slots(capabilities.windows, &self.cards()[*index].windows, &used))
        };
        let own = held.iter().map(free).collect();
        let mut slots = self.of_all_ranks(closed, own, set.nodes.len(), deadline)?;
        let room: Vec<usize> = slots.iter().map(Vec::len).collect();
        let exposure = exposure(set, arguments, &capabilities, &room)?;
        slots.iter_mut().for_each(|slots| slots.reverse());
        let count = |rank: usize| exposure.windows.iter().filter(|one| one.rank == rank).count();
        let keys = held.iter().map(|(rank, _)| {
            let keys = (0..count(*rank)).map(|_| self.keys.next()).collect::<Result<Vec<_>>>()?;
            Ok((*rank, keys))
        });
        let (keys, failed) = match keys.collect::<Result<Vec<_>>>() {
            Ok(keys) => (keys, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let mut keys = self.of_all_ranks(failed, keys, set.nodes.len(), deadline)?;
        keys.iter_mut().for_each(|keys| keys.reverse());
        let index_of = |rank: usize| held.iter().find(|(one, _)| *one == rank).map(|(_, index)| *index);
        let (mut all, mut opening) = (Vec::with_capacity(exposure.windows.len()), Vec::new());
        for one in &exposure.windows {
            let slot = slots[one.rank].pop().unwrap_or_else(|| unreachable!("there is room for all windows"));
            let key =
                keys[one.rank].pop().ok_or_else(|| Error::argument("windows", one.rank, "a key for each window"))?;
            let window = Window { slot, key };
            all.push(window);
            let Some(index) = index_of(one.rank) else { continue };
            let communicator = id(set.nodes[one.rank], one.communicator);
            let open = Instruction::open(window, one.rights, Operand::card(one.range.address), one.range.bytes);
            opening.push((index, window, open.on(communicator)));
        }
        let mut windows: Vec<_> =
            exposure.through.iter().map(|(rank, index, at)| ((*rank, *index), all[*at])).collect();
        windows.sort_unstable();
        let pin = Arc::new(());
        let opened = self.open_all(&opening, &set.nodes, &pin, deadline);
        let through = Through { windows, pin: Some(pin) };
        match self.agree_until(opened, deadline) {
            Ok(()) => Ok(through),
            Err(error) => {
                self.close_after(through);
                Err(error)
            }
        }
    }

    /// Exchanges numbers of each rank of programs: `own` are those of the cards held here, with the rank. Returns all, by rank.
    fn of_all_ranks<T: Serialize + DeserializeOwned>(
        &mut self,
        outcome: Result<()>,
        own: Vec<(usize, Vec<T>)>,
        ranks: usize,
        deadline: Deadline,
    ) -> Result<Vec<Vec<T>>> {
        let mut by_rank: Vec<Vec<T>> = (0..ranks).map(|_| Vec::new()).collect();
        let ((), all) = self.exchange(outcome, |()| own, deadline)?;
        for (peer, numbers) in all.into_iter().enumerate() {
            for (rank, numbers) in numbers {
                *by_rank.get_mut(rank).ok_or_else(|| malformed(peer, "windows"))? = numbers;
            }
        }
        Ok(by_rank)
    }

    /// Opens windows on all cards at once, for programs on `nodes`.
    fn open_all(
        &mut self,
        opening: &[(usize, Window, Instruction)],
        nodes: &[u32],
        pin: &Arc<()>,
        deadline: Deadline,
    ) -> Result<()> {
        let nodes: Arc<[u32]> = nodes.into();
        let mut tokens: Vec<(usize, Token)> = Vec::with_capacity(opening.len());
        for (index, window, open) in opening {
            let card = self.card_mut(*index);
            if !card.queue_mut().has_room() {
                // The tokens kept here may be what fills the queue.
                card.queue_mut().ring()?;
                for (_, token) in tokens.extract_if(.., |(of, _)| of == index) {
                    card.wait_done(&token, deadline)?;
                }
            }
            tokens.push((*index, card.queue_mut().push_when_room(*open, deadline)?));
            let (pin, nodes) = (Arc::downgrade(pin), Arc::clone(&nodes));
            card.windows.push(OpenWindow { window: *window, pin, nodes });
        }
        for (index, ..) in opening {
            self.card_mut(*index).queue_mut().ring()?;
        }
        tokens.iter().try_for_each(|(index, token)| self.card_mut(*index).wait_done(token, deadline).map(drop))
    }

    /// Closes the windows of programs that have ended. A card that does not close them is told again later.
    pub(crate) fn close_after(&mut self, through: Through) {
        let Some(pin) = through.pin else { return };
        let (pin, deadline) = (Arc::downgrade(&pin), Deadline::after(CLOSE));
        if let Err(error) = self.close_those(|open| Weak::ptr_eq(&open.pin, &pin), deadline) {
            log::warn!("a window stays open until it is closed again or its card is reset: {error}");
        }
    }

    /// Closes windows on all cards at once.
    fn close_those(&mut self, which: impl Fn(&OpenWindow) -> bool, deadline: Deadline) -> Result<()> {
        let mut outcome = Ok(());
        let mut tokens = Vec::new();
        for (index, card) in self.cards.iter_mut().enumerate() {
            let closing: Vec<Window> = card.windows.iter().filter(|one| which(one)).map(|one| one.window).collect();
            // A card that does not run needs a reset, which closes all.
            if closing.is_empty() || card.queue().state() != State::Running {
                continue;
            }
            let mut of_card = Vec::with_capacity(closing.len());
            for window in closing {
                if !card.queue_mut().has_room() {
                    // The tokens kept here may be what fills the queue.
                    outcome = outcome.and(card.queue_mut().ring());
                    outcome = outcome.and(note_closed(card, of_card.drain(..), deadline));
                }
                match card.queue_mut().push_when_room(Instruction::close(window), deadline) {
                    Ok(token) => of_card.push((window, token)),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            outcome = outcome.and(card.queue_mut().ring());
            tokens.push((index, of_card));
        }
        for (index, of_card) in tokens {
            outcome = outcome.and(note_closed(self.card_mut(index), of_card, deadline));
        }
        outcome
    }
}

/// Waits until windows of a card are closed. Those that are not stay noted as open.
fn note_closed(card: &mut Card, closing: impl IntoIterator<Item = (Window, Token)>, deadline: Deadline) -> Result<()> {
    let mut outcome = Ok(());
    for (window, token) in closing {
        let node = card.node();
        let closed = card.completion(&token, deadline).and_then(|completion| match completion.status {
            // It is closed.
            Status::BadWindow => Ok(completion),
            _ => check(completion, node, 0, Operation::Close),
        });
        match closed {
            Ok(_) => card.windows.retain(|one| one.window != window),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}
