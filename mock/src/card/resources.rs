//! What the streams of a card pass and share. It is the same as long as the fabric exists, so what goes to a card is known to pass there
//! without a look at the card.

use crate::engine::streams::{Rates, ResourceId};
use crate::profile::Profile;
use crate::proto::optweb::stream::StreamPurpose;

/// The resources of a card.
#[derive(Debug)]
pub(crate) struct Resources {
    /// Pseudo channels of the memory, of so many bytes.
    channels: Box<[ResourceId]>,
    channel_bytes: u64,
    /// Loop-back through the switch, by lane.
    pub(crate) local: Box<[ResourceId]>,
    /// The reduction units, by lane.
    pub(crate) fold: Box<[ResourceId]>,
}

impl Resources {
    pub(crate) fn new(profile: &Profile, rates: &mut Rates<StreamPurpose>) -> Self {
        let mut add = |count: u32, mbps: u64| (0..count).map(|_| rates.add_resource(mbps)).collect();
        Resources {
            channels: add(profile.memory_channels, profile.channel_mbps.into()),
            channel_bytes: profile.memory_bytes / u64::from(profile.memory_channels),
            local: add(profile.lanes, profile.loop_back_mbps()),
            fold: add(profile.lanes, profile.reduce_mbps()),
        }
    }

    /// Returns the pseudo channel of `address`. A block that spans two channels counts for the first.
    pub(crate) fn channel(&self, address: u64) -> ResourceId {
        self.channels[((address / self.channel_bytes) as usize).min(self.channels.len() - 1)]
    }
}
