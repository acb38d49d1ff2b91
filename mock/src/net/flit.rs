//! Packets as trains of flits: words of a data path.

/// Bytes of a flit: a word of a data path of 256 bits.
pub(crate) const FLIT_BYTES: usize = 32;

/// One word of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flit {
    pub(crate) word: [u8; FLIT_BYTES],
    /// Whether the packet begins with it: it holds the header.
    pub(crate) is_head: bool,
    pub(crate) is_tail: bool,
    /// Virtual channel of the link it is on.
    pub(crate) virtual_channel: usize,
    /// Links that it has crossed.
    pub(crate) links: u32,
}

/// Returns the flits of a packet; the last one is filled up with zeros.
pub(crate) fn train(packet: &[u8]) -> impl Iterator<Item = Flit> {
    let flits = packet.len().div_ceil(FLIT_BYTES);
    packet.chunks(FLIT_BYTES).enumerate().map(move |(index, bytes)| {
        let mut word = [0; FLIT_BYTES];
        word[..bytes.len()].copy_from_slice(bytes);
        Flit { word, is_head: index == 0, is_tail: index + 1 == flits, virtual_channel: 0, links: 0 }
    })
}
