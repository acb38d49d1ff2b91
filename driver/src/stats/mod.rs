//! Published counters and state of cards, in files in shared memory: the format (docs/stats.md), the writer, and readers.

mod process;
pub(crate) mod publication;
mod reader;
mod sensed;
pub(crate) mod sensors;

pub use reader::{CardStats, OwnerState, StatsError, StatsFile, list_stats, read_stats, remove_gone_stats};
pub use sensed::SensedValue;
pub use sensors::PublishedSensors;

/// Beginning of the names of the files.
const PREFIX: &str = "fpga-stats.";
/// End of the name of a file that does not have all of its words yet, as `PublishedWords` makes it.
const UNFINISHED: &str = ".part";

/// The first word of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"FPGASTAT");
/// Version of the format.
const VERSION: u32 = 2;
/// Words of a file.
const WORDS: usize = W_SENSORS + SENSORS_MAX * SENSOR_WORDS;

/// Version in the low half, words of the file in the high half.
const W_VERSION: usize = 1;
/// Process id in the low half, node in the high half.
const W_PROCESS: usize = 2;
/// Start of the process in ticks since the machine started, as in `/proc/PID/stat`.
const W_START: usize = 3;
/// When the card was published, in nanoseconds since 1970.
const W_SINCE: usize = 4;
/// Entries of the queue's rings in the low half, flags in the high half.
const W_DEPTH: usize = 5;
const FLAG_MOCK: u32 = 1;
/// Links of the card in the low half.
const W_LINKS: usize = 6;
const W_STATE: usize = 8;
const W_COMPLETED: usize = 9;
const W_SUBMITTED: usize = 10;
const W_FAILED: usize = 11;
const W_BYTES: usize = 12;
const W_RESTARTS: usize = 13;
/// Instructions that failed because a link was missing or down.
const W_LINK_FAILURES: usize = 14;
/// Sensors in the low half.
const W_SENSOR_COUNT: usize = 15;
/// When the sensors were read last, in nanoseconds since 1970.
const W_SENSED: usize = 16;
/// Name of the card: bytes of UTF-8, padded with zeros.
const W_NAME: std::ops::Range<usize> = 32..96;
/// Name of the process, as the kernel has it.
const W_COMMAND: std::ops::Range<usize> = 96..98;
/// The first sensor.
const W_SENSORS: usize = 128;
/// Sensors that a file has room for.
const SENSORS_MAX: usize = 64;
/// Words of a sensor.
const SENSOR_WORDS: usize = 8;
