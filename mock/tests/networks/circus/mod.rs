//! CIRCUS networks: data arrives, gaps of the published system are reported, and options close them.

mod gaps;
mod losses;
mod measurements;
mod pipelines;
mod traffic;

use fpga_mock::circus::{Channel, Channels, Design, Network, Profile, Torus};

/// A kernel that passes every word on.
pub(crate) fn forward(channels: &mut Channels<'_>) {
    if channels.can_put(0)
        && let Some(word) = channels.take(0)
    {
        channels.put(0, word);
    }
}

/// A network with one channel for each pair of cards.
pub(crate) fn network(
    profile: &Profile,
    torus: Torus,
    pairs: &[(u32, u32)],
) -> (Network, Vec<fpga_mock::circus::ChannelId>) {
    let mut design = Design::new(torus);
    let channels = pairs.iter().map(|(from, to)| design.channel(Channel::wide(*from, *to)).unwrap()).collect();
    (Network::new(profile, design).unwrap(), channels)
}

/// Bytes that differ from message to message.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| byte()).collect()
}
