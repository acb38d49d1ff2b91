//! Launches in flight that need their cards for themselves.

use std::sync::{Arc, Weak};

use cmdseq::Refusal;

/// The cards of such a launch.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) nodes: Vec<u32>,
    /// Why it needs them.
    pub(crate) why: Refusal,
    /// Of the schedule that was launched.
    pin: Weak<()>,
}

impl Claim {
    pub(crate) fn new(nodes: &[u32], why: &Refusal, pin: &Arc<()>) -> Self {
        Claim { nodes: nodes.to_vec(), why: why.clone(), pin: Arc::downgrade(pin) }
    }

    /// Whether the schedule that has `pin` was launched.
    pub(crate) fn is_of(&self, pin: &Arc<()>) -> bool {
        std::ptr::eq(self.pin.as_ptr(), Arc::as_ptr(pin))
    }

    /// Whether the schedule was dropped, so that nobody will finish the launch.
    pub(crate) fn is_dropped(&self) -> bool {
        self.pin.strong_count() == 0
    }
}
