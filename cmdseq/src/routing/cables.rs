//! Which port of which node is cabled with which other port.

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CableEnd {
    /// The node.
    pub node: u32,
    /// The port of the node, from 0.
    pub port: usize,
}

/// The cables of a network whose nodes have equally many ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cables {
    ports: usize,
    /// The other end, by node and port.
    others: Vec<Option<CableEnd>>,
}

impl Cables {
    /// Returns a network of `nodes` nodes with `ports` ports each, without cables.
    pub fn new(nodes: u32, ports: usize) -> Self {
        Cables { ports, others: vec![None; nodes as usize * ports] }
    }

    /// Lays a cable between two ports.
    ///
    /// # Panics
    /// If the network has no such node.
    pub fn lay(&mut self, one: CableEnd, other: CableEnd) {
        let places = [one, other].map(|end| self.place(end));
        self.others[places[0]] = Some(other);
        self.others[places[1]] = Some(one);
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        (self.others.len() / self.ports.max(1)) as u32
    }

    /// Returns the number of ports of each node.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the other end of the cable at `end`, if there is one.
    pub fn other(&self, end: CableEnd) -> Option<CableEnd> {
        if end.port >= self.ports {
            return None;
        }
        self.others.get(self.place(end)).copied().flatten()
    }

    fn place(&self, end: CableEnd) -> usize {
        end.node as usize * self.ports + end.port
    }
}
