//! Replies to commands.

use std::sync::Arc;

use crate::SharedMemory;

/// The reply to a command.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) memory: Option<Arc<SharedMemory>>,
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Reply { body, memory: None }
    }
}
