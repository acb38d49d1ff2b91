//! The nonce round that ends a registration: each card sends every other a random number that its process has told the others before,
//! so that cards that do not reach each other are found out.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use cmdseq::communicator::ContextId;
use cmdseq::{Instruction, Operand, Operation};

use crate::cluster::Cluster;
use crate::cluster::agreement::malformed;
use crate::cluster::run::ProgramRun;
use crate::communicators::roster::NONCE_BYTES;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::bound::Bound;

/// Time limit of the round.
const ROUND: Duration = Duration::from_secs(3);
/// Time limit of a step after the round has failed: nonces travel in microseconds.
const STEP: Duration = Duration::from_millis(300);
/// Bytes between nonces in card memory, at least: a line.
const STRIDE_MIN: u64 = 64;

/// What a nonce round is about: members by place, all of which have the same of it.
struct Round<'a> {
    id: ContextId,
    nodes: &'a [u32],
    /// Ranks in the communicator.
    ranks: &'a [u32],
    nonces: &'a [[u8; NONCE_BYTES]],
    /// Bytes between nonces in card memory: the cards access each nonce by its address.
    stride: u64,
}

impl Round<'_> {
    fn count(&self) -> usize {
        self.nodes.len()
    }
}

impl Cluster {
    /// Makes sure that all members reach each other: cards `nodes`, which have these `ranks` in communicator `id`. The last bytes of card
    /// memory, one stride for each member and one more, are used, and put back. Collective; nothing if this process holds all members.
    ///
    /// # Errors
    /// [`Error::Differs`] for the lowest rank whose card is of another fabric than those of most ranks, the same on all ranks.
    pub(crate) fn prove(
        &mut self,
        id: ContextId,
        nodes: &[u32],
        ranks: &[u32],
        nonces: &[[u8; NONCE_BYTES]],
    ) -> Result<()> {
        let runs = |one| self.capabilities().runs(one);
        if self.is_alone() || ![Operation::Send, Operation::Recv, Operation::Sendrecv].into_iter().all(runs) {
            return self.agree(Ok(()));
        }
        let stride = STRIDE_MIN.max(self.capabilities().address_align.into());
        let round = Round { id, nodes, ranks, nonces, stride };
        let held = self.held(nodes)?;
        let area = (round.count() as u64 + 1) * stride;
        let address = self.capabilities().memory_bytes.saturating_sub(area) / stride * stride;
        let mut saved = Vec::with_capacity(held.len());
        let prepared = held.iter().try_for_each(|(place, index)| {
            let mut bytes = vec![0; area as usize];
            let card = self.card_mut(*index);
            card.read_memory(address, &mut bytes)?;
            saved.push((*index, bytes));
            // No nonce is there before.
            card.fill(address, area, 0)?;
            card.write_memory(address, &round.nonces[*place])
        });
        let deadline = Deadline::after(ROUND);
        let outcome = match self.agree_until(prepared, deadline) {
            Ok(()) => self.exchange_nonces(&round, &held, address, deadline),
            Err(error) => Err(error),
        };
        let mut restored = Ok(());
        for (index, bytes) in saved {
            restored = restored.and(self.card_mut(index).write_memory(address, &bytes));
        }
        match outcome {
            Ok(()) => self.agree(restored),
            // All have it.
            Err(error) => {
                if let Err(error) = restored {
                    log::warn!("nonces stay in the memory of a card: {error}");
                }
                Err(error)
            }
        }
    }

    fn exchange_nonces(
        &mut self,
        round: &Round<'_>,
        held: &[(usize, usize)],
        address: u64,
        deadline: Deadline,
    ) -> Result<()> {
        let count = round.count();
        let late = match self.run_steps(round, held, address, 1..count, deadline) {
            Ok(()) => None,
            // The ranks have lost each other: none of them goes on.
            Err(error @ Error::Peers(_)) => return Err(error),
            // Whatever it is on this rank, the others go on with single steps, in which all take part.
            Err(error) => Some(error),
        };
        if late.is_some() {
            // Each step by itself: whoever waits in one may have met others in the next.
            for step in 1..count {
                let met = self.run_steps(round, held, address, step..step + 1, Deadline::after(STEP));
                if let Err(error @ Error::Peers(_)) = met {
                    return Err(error);
                }
            }
        }
        let met = self.met(round, held, address);
        let (_, all) = self.exchange(met, Vec::clone, deadline)?;
        let is_place = |(to, from): &(usize, usize)| *to < count && *from < count;
        if let Some(rank) = all.iter().position(|met| !met.iter().all(is_place)) {
            return Err(malformed(rank, "nonces"));
        }
        self.judge(round, &all.concat()).and(late.map_or(Ok(()), Err))
    }

    /// Runs steps of the round: in step s, each member sends its nonce to the member s places on.
    fn run_steps(
        &mut self,
        round: &Round<'_>,
        held: &[(usize, usize)],
        address: u64,
        steps: std::ops::Range<usize>,
        deadline: Deadline,
    ) -> Result<()> {
        let count = round.count();
        let (topology, all) = (self.capabilities().topology, self.capabilities().nodes);
        let reach = |a: usize, b: usize| topology.reaches(round.nodes[a], round.nodes[b], all);
        let program = |place: usize| -> Vec<Bound> {
            let step = |step: usize| {
                let (to, from) = ((place + step) % count, (place + count - step) % count);
                let source = Operand::card(address);
                let destination = Operand::card(address + (from as u64 + 1) * round.stride);
                let rank = |place: usize| round.ranks[place] as u16;
                let bytes = NONCE_BYTES as u64;
                let one = match (reach(place, to), reach(from, place)) {
                    (true, true) => Instruction::sendrecv(rank(to), rank(from), source, destination, bytes),
                    (true, false) => Instruction::send(rank(to), source, bytes),
                    (false, true) => Instruction::recv(rank(from), destination, bytes),
                    (false, false) => return None,
                };
                Some(Bound::from(one.on(round.id.raw())))
            };
            steps.clone().filter_map(step).collect()
        };
        let mut runs: Vec<_> = held
            .iter()
            .map(|(place, index)| ProgramRun::new(*place as u32, *index, Cow::Owned(program(*place))))
            .collect();
        let ending = self.run_programs(round.nodes, &mut runs, deadline);
        let indices: Vec<usize> = held.iter().map(|(_, index)| *index).collect();
        self.conclude(round.nodes, &indices, ending, (), deadline).map(drop)
    }

    /// Which members held here have received the nonce of which.
    fn met(&mut self, round: &Round<'_>, held: &[(usize, usize)], address: u64) -> Result<Vec<(usize, usize)>> {
        let mut met = Vec::new();
        let mut received = vec![0; round.count() * round.stride as usize];
        for (place, index) in held {
            self.card_mut(*index).read_memory(address + round.stride, &mut received)?;
            let each = received.chunks_exact(round.stride as usize).zip(round.nonces).enumerate();
            let same = each.filter(|(_, (found, nonce))| found.starts_with(&nonce[..]));
            met.extend(same.map(|(from, _)| (*place, from)));
        }
        Ok(met)
    }

    /// Refuses members that have not all met, through others or directly.
    fn judge(&self, round: &Round<'_>, met: &[(usize, usize)]) -> Result<()> {
        let count = round.count();
        let mut parts: Vec<BTreeSet<usize>> = Vec::new();
        for place in 0..count {
            let mut joined = BTreeSet::from([place]);
            let is_apart = |part: &BTreeSet<usize>| {
                !met.iter().any(|(a, b)| (*a == place && part.contains(b)) || (*b == place && part.contains(a)))
            };
            let (apart, with): (Vec<_>, Vec<_>) = std::mem::take(&mut parts).into_iter().partition(is_apart);
            joined.extend(with.into_iter().flatten());
            parts = apart;
            parts.push(joined);
        }
        // The part of most members is the fabric; of equally large ones, that of the lowest.
        let Some(fabric) = parts.iter().max_by_key(|part| (part.len(), count - part.first().copied().unwrap_or(0)))
        else {
            return Ok(());
        };
        let Some(place) = (0..count).find(|place| !fabric.contains(place)) else { return Ok(()) };
        let member = &self.group.roster[place];
        let others: BTreeSet<u32> = fabric.iter().map(|place| self.group.roster[*place].peer).collect();
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        let of = if others.len() == 1 { "that of rank" } else { "those of ranks" };
        let what = format!(
            "its card {} (node {}) is of another fabric than {of} {}, or not linked to them: nothing sent between them arrives",
            member.name,
            member.node,
            others.join(", ")
        );
        Err(Error::Differs { rank: member.peer, what })
    }
}
