//! Entries of the tables of a statically scheduled router, in the published formats (Sheng, section 5.1.3).
//!
//! A packet's header holds an index into the routing table of the node that it comes to. Where the published text has gaps:
//! children of a multicast entry have no type, so each names an entry of the neighbour's routing table; the exit port of a
//! reduction is that of the routing entry.

use crate::topology::torus3::Torus3;

/// What a packet does in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// It leaves by the entry's port.
    Unicast,
    /// It is copied for each child of a multicast entry.
    Multicast,
    /// It is combined with others in a reduction entry; the last one makes the result leave by the entry's port.
    Reduction,
}

/// An entry of a routing table: 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// What the packet does.
    pub kind: RouteKind,
    /// Exit port, 0 to 6; 6 leads into the node. Unused in multicasts.
    pub port: u8,
    /// Index at the next node; for a multicast or a reduction the index in that table of this node.
    pub next: u16,
    /// Larger ones win: hops to the farthest destination.
    pub priority: u8,
}

/// A child of a multicast entry: 20 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Child {
    /// Exit port, 0 to 6.
    pub port: u8,
    /// Index in the routing table of the node there.
    pub next: u16,
}

/// An entry of a multicast table: 123 bits, with at most six children.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Multicast {
    /// The children.
    pub children: Vec<Child>,
}

/// An entry of a reduction table: 19 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReductionEntry {
    /// Packets to combine, at most seven.
    pub expected: u8,
    /// Index of the result at the next node.
    pub next: u16,
}

/// Most children of a multicast entry.
pub const CHILDREN_MAX: usize = 6;

/// Bits that are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Unknown type.
    #[error("type {0} (0 is unicast, 1 multicast, 2 reduction)")]
    Kind(u8),
    /// A port that no node has.
    #[error("port {0} (0 to 5 are links, 6 is the node)")]
    Port(u8),
    /// Too many children.
    #[error("{0} children (at most 6)")]
    Children(u8),
    /// Bits outside of the format.
    #[error("set bits above the {0} of an entry")]
    Width(u32),
}

impl Route {
    /// Bits of an entry.
    pub const BITS: u32 = 32;

    /// Returns the bits: type `[31:28]`, exit port `[27:24]`, next index `[23:8]`, priority `[7:0]`.
    pub fn to_bits(self) -> u32 {
        (self.kind as u32) << 28 | u32::from(self.port) << 24 | u32::from(self.next) << 8 | u32::from(self.priority)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`EntryError`] on an unknown type or port.
    pub fn from_bits(bits: u32) -> Result<Self, EntryError> {
        let kind = match (bits >> 28) as u8 {
            0 => RouteKind::Unicast,
            1 => RouteKind::Multicast,
            2 => RouteKind::Reduction,
            other => return Err(EntryError::Kind(other)),
        };
        let port = checked_port((bits >> 24 & 15) as u8)?;
        Ok(Route { kind, port, next: (bits >> 8) as u16, priority: bits as u8 })
    }
}

impl Multicast {
    /// Bits of an entry.
    pub const BITS: u32 = 123;

    /// Returns the bits: number of children `[122:120]`, then 20 bits for each child, child 1 lowest; a child is its exit port
    /// (4 bits, high) and its index.
    pub fn to_bits(&self) -> u128 {
        let child =
            |(place, child): (usize, &Child)| (u128::from(child.port) << 16 | u128::from(child.next)) << (20 * place);
        (self.children.len() as u128) << 120 | self.children.iter().enumerate().map(child).sum::<u128>()
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`EntryError`] on too many children, an unknown port, or bits outside of the format.
    pub fn from_bits(bits: u128) -> Result<Self, EntryError> {
        if bits >> Self::BITS != 0 {
            return Err(EntryError::Width(Self::BITS));
        }
        let count = (bits >> 120) as u8;
        if usize::from(count) > CHILDREN_MAX {
            return Err(EntryError::Children(count));
        }
        let child = |place: u8| {
            let bits = bits >> (20 * u32::from(place));
            Ok(Child { port: checked_port((bits >> 16 & 15) as u8)?, next: bits as u16 })
        };
        Ok(Multicast { children: (0..count).map(child).collect::<Result<_, _>>()? })
    }
}

impl ReductionEntry {
    /// Bits of an entry.
    pub const BITS: u32 = 19;

    /// Returns the bits: expected packets `[18:16]`, next index `[15:0]`.
    pub fn to_bits(self) -> u32 {
        u32::from(self.expected) << 16 | u32::from(self.next)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`EntryError`] on bits outside of the format.
    pub fn from_bits(bits: u32) -> Result<Self, EntryError> {
        if bits >> Self::BITS != 0 {
            return Err(EntryError::Width(Self::BITS));
        }
        Ok(ReductionEntry { expected: (bits >> 16) as u8, next: bits as u16 })
    }
}

fn checked_port(port: u8) -> Result<u8, EntryError> {
    if usize::from(port) <= Torus3::LOCAL { Ok(port) } else { Err(EntryError::Port(port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_are_published() {
        let route = Route { kind: RouteKind::Reduction, port: 5, next: 0xabcd, priority: 0x12 };
        assert_eq!(route.to_bits(), 0x25ab_cd12);
        assert_eq!(Route::from_bits(0x25ab_cd12), Ok(route));
        let children = vec![Child { port: 6, next: 1 }, Child { port: 3, next: 0xffff }];
        let multicast = Multicast { children };
        assert_eq!(multicast.to_bits(), 2 << 120 | 0x3_ffff << 20 | 0x6_0001);
        assert_eq!(Multicast::from_bits(multicast.to_bits()), Ok(multicast));
        let reduction = ReductionEntry { expected: 7, next: 0x1234 };
        assert_eq!(reduction.to_bits(), 0x7_1234);
        assert_eq!(ReductionEntry::from_bits(0x7_1234), Ok(reduction));
    }

    #[test]
    fn other_bits_are_refused() {
        assert_eq!(Route::from_bits(3 << 28), Err(EntryError::Kind(3)));
        assert_eq!(Route::from_bits(7 << 24), Err(EntryError::Port(7)));
        assert_eq!(Multicast::from_bits(7 << 120), Err(EntryError::Children(7)));
        assert_eq!(Multicast::from_bits(1 << 123), Err(EntryError::Width(123)));
        assert_eq!(ReductionEntry::from_bits(1 << 19), Err(EntryError::Width(19)));
    }
}
