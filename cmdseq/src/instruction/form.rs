//! The form in which the switches of a network compute a collective (MPI-FPGA, section 4).

use super::{Flags, Instruction, Operation};
use crate::named::named;

named! {
    /// An algorithm of switches, in 2 bits of a packet's header.
    Form {
        /// Binomial tree; in a network of leaf and spine switches, the tree of these.
        Tree, "tree";
        /// Recursive doubling.
        Doubling, "doubling";
        /// Recursive halving, then doubling or a tree.
        Halving, "halving";
        /// Ring, for powers of two: its order is a Gray code, so that neighbours differ in one bit.
        Ring, "ring";
    }
}

impl Form {
    /// Returns the flag that asks for it.
    pub const fn flag(self) -> Flags {
        match self {
            Form::Tree => Flags::TREE,
            Form::Doubling => Flags::DOUBLING,
            Form::Halving => Flags::HALVING,
            Form::Ring => Flags::RING,
        }
    }
}

impl Flags {
    /// The flags that name a form.
    pub const FORMS: Flags = Flags::TREE.union(Flags::DOUBLING).union(Flags::HALVING).union(Flags::RING);

    /// Returns the form that the flags name, if they name one.
    pub fn form(self) -> Option<Form> {
        if !self.intersects(Flags::FORMS) {
            return None;
        }
        Form::ALL.iter().copied().find(|form| self.contains(form.flag()))
    }
}

/// Whether switches may compute the operation: it has a code in the header of a packet.
pub(crate) const fn has_forms(operation: Operation) -> bool {
    use Operation::{Allgather, Allreduce, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    matches!(operation, Reduce | Allreduce | Broadcast | Scatter | Gather | Allgather | ReduceScatter)
}

impl Instruction {
    /// Returns the form in which the switches of the network compute the instruction; `None` if the cards do.
    pub fn form(&self) -> Option<Form> {
        self.flags.form()
    }

    /// Whether the flags name at most one of a form, `eager` and `rendezvous`, and a form only where switches compute: a collective
    /// of whole blocks.
    pub(super) fn are_flags_valid(&self) -> bool {
        let named = self.flags.intersection(Flags::FORMS.union(Flags::EAGER).union(Flags::RENDEZVOUS));
        let is_one = named.is_empty() || named.bits().is_power_of_two();
        is_one && (!named.intersects(Flags::FORMS) || has_forms(self.operation) && self.extent == 0)
    }
}
