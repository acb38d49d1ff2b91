//! How a function is opened.

use std::time::Duration;

/// How long a server may take to reply, by default.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a function is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long the server may take (5 s): first for all replies while the function is opened; then for each reply, less the
    /// time that slow replies of the domain's servers have taken. A reply is slow if it takes more than a fiftieth of this;
    /// a tenth of the time since is subtracted again. A later reply means that the function is removed.
    pub patience: Duration,
    /// Maps BARs whose memory the server passes, if their size is sealed. Otherwise every access is a message. When the
    /// server has ended, mapped memory reads as all-ones; for this, a handler of SIGBUS is installed.
    pub map_bars: bool,
    /// Passes DMA buffers to the server as files. Otherwise the server transfers their bytes by messages.
    pub share_memory: bool,
    /// Opens the function even if its server cannot reset it: see
    /// [`vfio::Options`](crate::vfio::Options::without_reset).
    pub without_reset: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { patience: PATIENCE, map_bars: true, share_memory: true, without_reset: false }
    }
}
