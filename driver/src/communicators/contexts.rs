//! The ids that a plan's communicators have on the cards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use cmdseq::Instruction;
use cmdseq::communicator::ContextId;

use crate::card::communicator_table::Members;

/// The ids that the communicators of a plan have on the cards. As long as this lives they stay defined; then they may be
/// given to those of another plan.
#[derive(Debug, Default)]
pub struct Contexts {
    ids: BTreeMap<u16, Vec<(Members, u16)>>,
    _pins: Vec<Arc<()>>,
}

impl Contexts {
    /// Whether the plan's communicator `id` with these members was added.
    pub(crate) fn has(&self, id: u16, members: &[u32]) -> bool {
        self.ids.get(&id).into_iter().flatten().any(|(known, _)| **known == *members)
    }

    /// Adds the plan's communicator `id` with these members, which is `context` on the cards as long as `pin` lives.
    pub(crate) fn add(&mut self, id: u16, context: ContextId, members: Members, pin: Arc<()>) {
        self._pins.push(pin);
        self.ids.entry(id).or_default().push((members, context.raw()));
    }

    /// What node `node` calls the communicator that the plan calls `id`.
    pub fn id(&self, node: u32, id: u16) -> u16 {
        let known = self.ids.get(&id).into_iter().flatten().find(|(members, _)| members.contains(&node));
        known.map_or(id, |(_, id)| *id)
    }

    /// `program` of a plan as node `node` runs it.
    pub fn translate<'p>(&self, node: u32, program: &'p [Instruction]) -> Cow<'p, [Instruction]> {
        // Who looks the same in the plan and on the card need not be looked for in every instruction.
        let ids = self.ids.keys().map(|id| (*id, self.id(node, *id))).filter(|(plan, card)| plan != card);
        let ids: BTreeMap<u16, u16> = ids.collect();
        if ids.is_empty() {
            return Cow::Borrowed(program);
        }
        let on = |one: &Instruction| ids.get(&one.communicator).map_or(*one, |id| one.on(*id));
        Cow::Owned(program.iter().map(on).collect())
    }
}
