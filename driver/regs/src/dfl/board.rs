//! The controller of the board (BMC) and the serial link (SPI) to it, behind the feature [`super::fme::board`].
//!
//! Source: Linux `drivers/spi/spi-altera-core.c`, `spi-altera-dfl.c`, `drivers/base/regmap/regmap-spi-avmm.c`,
//! `drivers/hwmon/intel-m10-bmc-hwmon.c`.

use crate::sensor::{Sensor, Unit, sensor};

/// Bit of [`super::fme::board::ADDRESS`]: write WRITE_DATA to the register of the serial core. The card clears it.
pub const WRITE_CORE: u64 = 1 << 8;
/// Bit of [`super::fme::board::ADDRESS`]: read the register of the serial core into READ_DATA. The card clears it.
pub const READ_CORE: u64 = 1 << 9;
/// Place of the bits of a word in [`super::fme::board::CORE`], 6 bits.
pub const WIDTH_SHIFT: u32 = 2;

/// Registers of the serial core, by number.
pub mod core {
    /// The word that was received.
    pub const RECEIVE: u32 = 0;
    /// The word to be sent; a write sends it.
    pub const TRANSMIT: u32 = 1;
    /// State.
    pub const STATUS: u32 = 2;
    /// Bit of STATUS: nothing is being sent.
    pub const IDLE: u32 = 1 << 5;
    /// Bit of STATUS: TRANSMIT takes a word.
    pub const CAN_SEND: u32 = 1 << 6;
    /// Bit of STATUS: RECEIVE holds a word.
    pub const RECEIVED: u32 = 1 << 7;
    /// Control.
    pub const CONTROL: u32 = 3;
    /// Bit of CONTROL: the selected slave stays selected between words.
    pub const SELECT: u32 = 1 << 10;
    /// Which slave, a bit each.
    pub const SLAVE: u32 = 5;
}

/// The bytes on the serial link.
pub mod link {
    /// Nothing.
    pub const IDLE: u8 = 0x4a;
    /// The next byte is changed by [`CHANGE`]: it would be IDLE, or this one.
    pub const ESCAPE: u8 = 0x4d;
    /// Begins a packet.
    pub const START: u8 = 0x7a;
    /// The next byte is the last of the packet.
    pub const END: u8 = 0x7b;
    /// The next byte is the number of the channel.
    pub const CHANNEL: u8 = 0x7c;
    /// The next byte is changed by [`CHANGE`]: it would have a meaning in packets.
    pub const PACKET_ESCAPE: u8 = 0x7d;
    /// What an escaped byte differs in.
    pub const CHANGE: u8 = 0x20;
    /// Code of a request: write one register.
    pub const WRITE: u8 = 0x00;
    /// Code of a request: read one register.
    pub const READ: u8 = 0x10;
    /// Bit that the code of an answer to a write has besides.
    pub const ANSWER: u8 = 0x80;
}

/// Address of the controller's registers about the board.
pub const SYSTEM: u32 = 0x30_0800;
/// State of an update of the flash memory (RSU), by its offset from [`SYSTEM`] (Linux `include/linux/mfd/intel-m10-bmc.h`, doorbell).
pub const UPDATE: u32 = 0x400;
/// Place of what an update does now in [`UPDATE`], 4 bits.
pub const UPDATE_PROGRESS_SHIFT: u32 = 4;
/// Place of how the last update ended in [`UPDATE`], 8 bits.
pub const UPDATE_STATUS_SHIFT: u32 = 16;
/// What a sensor reads that is not there, or has failed.
pub const ABSENT: u32 = u32::MAX;

/// A temperature, which the controller counts in half degrees.
const fn celsius(name: &'static str, offset: u32) -> Sensor {
    Sensor { name, offset, unit: Unit::MilliCelsius, scale: 500 }
}

/// The sensors of a D5005, by their offset from [`SYSTEM`].
pub const SENSORS: [Sensor; 35] = [
    celsius("inlet_temperature", 0x100),
    celsius("fpga_temperature", 0x110),
    celsius("exhaust_temperature", 0x11c),
    celsius("transceiver_temperature", 0x12c),
    celsius("dimm_0_temperature", 0x138),
    celsius("dimm_1_temperature", 0x148),
    celsius("dimm_2_temperature", 0x158),
    celsius("dimm_3_temperature", 0x168),
    celsius("qsfp_0_temperature", 0x178),
    sensor("qsfp_0", 0x184, Unit::Millivolts),
    celsius("qsfp_1_temperature", 0x188),
    sensor("qsfp_1", 0x194, Unit::Millivolts),
    sensor("core", 0x198, Unit::Millivolts),
    sensor("core_current", 0x19c, Unit::Milliamperes),
    celsius("3v3_temperature", 0x1a0),
    sensor("3v3", 0x1ac, Unit::Millivolts),
    sensor("3v3_current", 0x1b8, Unit::Milliamperes),
    celsius("vcceram_temperature", 0x1bc),
    sensor("vcceram", 0x1c8, Unit::Millivolts),
    sensor("vcceram_current", 0x1d4, Unit::Milliamperes),
    celsius("vccr_temperature", 0x1d8),
    sensor("vccr", 0x1e4, Unit::Millivolts),
    sensor("vccr_current", 0x1f0, Unit::Milliamperes),
    celsius("vcct_temperature", 0x1f4),
    sensor("vcct", 0x200, Unit::Millivolts),
    sensor("vcct_current", 0x20c, Unit::Milliamperes),
    celsius("1v8_temperature", 0x210),
    sensor("1v8", 0x21c, Unit::Millivolts),
    sensor("1v8_current", 0x228, Unit::Milliamperes),
    celsius("12v_temperature", 0x22c),
    sensor("12v", 0x238, Unit::Millivolts),
    sensor("12v_current", 0x240, Unit::Milliamperes),
    celsius("12v_aux_temperature", 0x248),
    sensor("12v_aux", 0x254, Unit::Millivolts),
    sensor("12v_aux_current", 0x25c, Unit::Milliamperes),
];
