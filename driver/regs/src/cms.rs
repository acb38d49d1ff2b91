//! AMD's Card Management Solution (CMS): a subsystem in the shell of Alveo cards that talks to the card's satellite controller.
//!
//! Source: AMD PG348, "Register Space" and "Using the Mailbox"; XRT `xmc.c`; OpenNIC's driver.

use crate::registers;
use crate::sensor::{Sensor, Unit, sensor};

/// Bytes of the subsystem.
pub const WINDOW_BYTES: u32 = 0x4_0000;
/// Offset of the reset of the subsystem's processor (MB_RESETN): 0 holds it, as after power-up, 1 lets it run.
pub const RESET: u32 = 0x2_0000;
/// Bit of [`RESET`]: the processor runs.
pub const RUNS: u32 = 1 << 0;
/// Offset of the register map.
pub const MAP: u32 = 0x2_8000;
/// Bytes of the register map, with its mailbox.
pub const MAP_BYTES: u32 = 0x2000;
/// What [`ID`] reads once the firmware runs.
pub const ID_VALUE: u32 = 0x7465_7374;

registers! {
    ID = 0x00, ReadOnly, Some(ID_VALUE), "Identifies the map.";
    VERSION = 0x04, ReadOnly, None, "Version of the firmware.";
    STATUS = 0x08, ReadOnly, None, "State of the satellite controller in 31:28 (1: normal), version of the talk with it in 27:24.";
    ERROR = 0x0c, ReadOnly, Some(0), "Error of the satellite controller in 27, of a message in 26; reason in 25:20.";
    FEATURES = 0x10, ReadOnly, None, "Power management in 0; no mailbox in 3.";
    reserved 0x14..0x18;
    CONTROL = 0x18, ReadWrite, Some(0), "Clears the largest and average values in 0, ERROR in 1; mailbox: a request is pending in 5.";
    STOP_CONFIRM = 0x1c, ReadOnly, Some(0), "The firmware has stopped.";
}

/// Bit of [`ERROR`]: the last message failed.
pub const MESSAGE_FAILED: u32 = 1 << 26;
/// Bit of [`FEATURES`]: there is no mailbox.
pub const NO_MAILBOX: u32 = 1 << 3;
/// Bit of [`CONTROL`]: clears [`ERROR`].
pub const CLEAR_ERROR: u32 = 1 << 1;
/// Bit of [`CONTROL`]: the host has put a message into the mailbox; the firmware clears it with its answer.
pub const REQUEST: u32 = 1 << 5;

/// The registers behind those of the sensors.
pub mod state {
    use crate::registers;

    registers! {
        HEARTBEAT = 0x2fc, ReadOnly, None, "Counts while the firmware runs.";
        MESSAGE_OFFSET = 0x300, ReadOnly, Some(0x1000), "Where in the map the mailbox is.";
        MESSAGE_ERROR = 0x304, ReadOnly, Some(0), "Why the last message failed: bad opcode 1, no board information 2, length 3, satellite controller 4 to 7.";
        reserved 0x308..0x30c;
        STATUS_2 = 0x30c, ReadOnly, Some(0), "The register map is ready in 0.";
        HEARTBEAT_ERROR = 0x310, ReadOnly, Some(0), "Error of the heartbeat.";
    }

    /// Bit of [`STATUS_2`]: the register map is ready.
    pub const READY: u32 = 1 << 0;
}

/// Place of the opcode in the first word of a message, 8 bits.
pub const OPCODE_SHIFT: u32 = 24;
/// Bits of the first word of a message: bytes behind it.
pub const MESSAGE_BYTES: u32 = 0xfff;
/// Opcode: tell about the board.
pub const BOARD_INFO: u32 = 4;

/// Keys of the answer to [`BOARD_INFO`], which is a list of key, length and value. These values are text.
pub const BOARD_TEXTS: [(u8, &str); 4] =
    [(0x21, "serial_number"), (0x26, "revision"), (0x27, "name"), (0x28, "controller_version")];
/// Keys of the answer whose values are addresses of the card's Ethernet ports.
pub const BOARD_ADDRESSES: [(u8, &str); 4] = [(0x22, "mac_0"), (0x23, "mac_1"), (0x24, "mac_2"), (0x25, "mac_3")];
/// Keys of the answer whose values are numbers of one byte.
pub const BOARD_NUMBERS: [(u8, &str); 3] = [(0x29, "max_power"), (0x2a, "fan_present"), (0x2b, "config_mode")];

/// Bytes from the largest value of a sensor to its average, and from there to its present value.
pub const SENSOR_STEP: u32 = 4;

/// A temperature, which the map counts in degrees.
const fn celsius(name: &'static str, offset: u32) -> Sensor {
    Sensor { name, offset, unit: Unit::MilliCelsius, scale: 1000 }
}

/// The sensors. Each has three registers: largest, average and present value. One that the card lacks reads 0 in all three.
pub const SENSORS: [Sensor; 51] = [
    sensor("12v_pex", 0x020, Unit::Millivolts),
    sensor("3v3_pex", 0x02c, Unit::Millivolts),
    sensor("3v3_aux", 0x038, Unit::Millivolts),
    sensor("12v_aux", 0x044, Unit::Millivolts),
    sensor("ddr4_vpp_bottom", 0x050, Unit::Millivolts),
    sensor("sys_5v5", 0x05c, Unit::Millivolts),
    sensor("vcc1v2_top", 0x068, Unit::Millivolts),
    sensor("vcc1v8", 0x074, Unit::Millivolts),
    sensor("vcc0v85", 0x080, Unit::Millivolts),
    sensor("ddr4_vpp_top", 0x08c, Unit::Millivolts),
    sensor("mgt0v9", 0x098, Unit::Millivolts),
    sensor("12v_sw", 0x0a4, Unit::Millivolts),
    sensor("mgt_avtt", 0x0b0, Unit::Millivolts),
    sensor("vcc1v2_bottom", 0x0bc, Unit::Millivolts),
    sensor("12v_pex_current", 0x0c8, Unit::Milliamperes),
    sensor("12v_aux_current", 0x0d4, Unit::Milliamperes),
    sensor("vccint", 0x0e0, Unit::Millivolts),
    sensor("vccint_current", 0x0ec, Unit::Milliamperes),
    celsius("fpga_temperature", 0x0f8),
    celsius("fan_temperature", 0x104),
    celsius("dimm_0_temperature", 0x110),
    celsius("dimm_1_temperature", 0x11c),
    celsius("dimm_2_temperature", 0x128),
    celsius("dimm_3_temperature", 0x134),
    celsius("se98_0_temperature", 0x140),
    celsius("se98_1_temperature", 0x14c),
    celsius("se98_2_temperature", 0x158),
    sensor("fan_speed", 0x164, Unit::Rpm),
    celsius("qsfp_0_temperature", 0x170),
    celsius("qsfp_1_temperature", 0x17c),
    celsius("qsfp_2_temperature", 0x188),
    celsius("qsfp_3_temperature", 0x194),
    celsius("hbm_0_temperature", 0x260),
    sensor("vcc3v3", 0x26c, Unit::Millivolts),
    sensor("3v3_pex_current", 0x278, Unit::Milliamperes),
    sensor("vcc0v85_current", 0x284, Unit::Milliamperes),
    sensor("hbm_1v2", 0x290, Unit::Millivolts),
    sensor("vpp2v5", 0x29c, Unit::Millivolts),
    sensor("vccint_bram", 0x2a8, Unit::Millivolts),
    celsius("hbm_1_temperature", 0x2b4),
    sensor("12v_aux_1", 0x2c0, Unit::Millivolts),
    celsius("vccint_temperature", 0x2cc),
    sensor("3v3_aux_current", 0x2f0, Unit::Milliamperes),
    sensor("vcc1v2_current", 0x314, Unit::Milliamperes),
    sensor("12v_in_current", 0x320, Unit::Milliamperes),
    sensor("12v_in_aux_0_current", 0x32c, Unit::Milliamperes),
    sensor("12v_in_aux_1_current", 0x338, Unit::Milliamperes),
    sensor("vccaux", 0x344, Unit::Millivolts),
    sensor("vccaux_pmc", 0x350, Unit::Millivolts),
    sensor("vccram", 0x35c, Unit::Millivolts),
    sensor("vccint_vcu", 0x380, Unit::Millivolts),
];
