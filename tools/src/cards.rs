//! The cards that `--cards` names, opened.

use std::time::Duration;

use cmdseq::Capabilities;
use fpga_driver::{Card, Cluster};
use fpga_select::{Kind, Selector};

use crate::exit::{Failure, Result};

/// Opened cards of one fabric.
pub(crate) struct Cards {
    pub(crate) selector: String,
    pub(crate) kind: Kind,
    pub(crate) cluster: Cluster,
}

impl Cards {
    pub(crate) fn open(selector: &str) -> Result<Self> {
        Self::open_within(selector, Duration::MAX)
    }

    /// Opens cards for a command that may take `timeout`: a server may take no longer to have its card opened, but a second.
    pub(crate) fn open_within(selector: &str, timeout: Duration) -> Result<Self> {
        let selection = Selector::parse(selector)?.open_within(timeout.max(Duration::from_secs(1)))?;
        let cluster = Cluster::open(selection.functions).map_err(Failure::from)?;
        Ok(Cards { selector: selection.selector, kind: selection.kind, cluster })
    }

    /// Their places in the fabric.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        self.cluster.cards().iter().map(Card::node).collect()
    }

    /// Whether any is a model, on whatever bus.
    pub(crate) fn are_mock(&self) -> bool {
        self.cluster.cards().iter().any(Card::is_mock)
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.cluster.capabilities()
    }
}
