//! Which port of which node is cabled with which other port.

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct End {
    pub(crate) node: u32,
    pub(crate) port: usize,
}

/// The cables of a network whose nodes have equally many ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cables {
    ports: usize,
    /// The other end, by node and port.
    others: Vec<Option<End>>,
}

impl Cables {
    /// Returns a network of `nodes` nodes with `ports` ports each, without cables.
    pub(crate) fn new(nodes: u32, ports: usize) -> Self {
        Cables { ports, others: vec![None; nodes as usize * ports] }
    }

    /// Lays a cable between two ports.
    pub(crate) fn lay(&mut self, one: End, other: End) {
        let places = [one, other].map(|end| self.place(end));
        self.others[places[0]] = Some(other);
        self.others[places[1]] = Some(one);
    }

    pub(crate) fn nodes(&self) -> u32 {
        (self.others.len() / self.ports.max(1)) as u32
    }

    /// Returns the number of ports of each node.
    pub(crate) fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the other end of the cable at `end`, if there is one.
    pub(crate) fn other(&self, end: End) -> Option<End> {
        if end.port >= self.ports {
            return None;
        }
        self.others.get(self.place(end)).copied().flatten()
    }

    fn place(&self, end: End) -> usize {
        end.node as usize * self.ports + end.port
    }
}
