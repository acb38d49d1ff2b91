//! The cards that `--cards` names, opened.

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
        let selection = Selector::parse(selector)?.open()?;
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
