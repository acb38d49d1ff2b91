//! The cards that `--cards` names, opened.

use cmdseq::Capabilities;
use fpga_driver::Cluster;
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

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.cluster.capabilities()
    }
}
