//! What the sensors of boards measure.

/// Unit of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths of a volt.
    Millivolts,
    /// Thousandths of an ampere.
    Milliamperes,
    /// Thousandths of a degree Celsius.
    MilliCelsius,
    /// Thousandths of a watt.
    Milliwatts,
    /// Revolutions per minute.
    Rpm,
    /// Millions of transfers per second, on each lane of a link.
    MegaTransfers,
    /// Lanes of a link.
    Lanes,
    /// A register whose bits are errors.
    Bits,
}

impl Unit {
    /// All of them.
    pub const ALL: [Unit; 8] = [
        Unit::Millivolts,
        Unit::Milliamperes,
        Unit::MilliCelsius,
        Unit::Milliwatts,
        Unit::Rpm,
        Unit::MegaTransfers,
        Unit::Lanes,
        Unit::Bits,
    ];

    /// Returns the short form.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Millivolts => "mV",
            Unit::Milliamperes => "mA",
            Unit::MilliCelsius => "mC",
            Unit::Milliwatts => "mW",
            Unit::Rpm => "rpm",
            Unit::MegaTransfers => "MT/s",
            Unit::Lanes => "lanes",
            Unit::Bits => "bits",
        }
    }
}

/// One sensor in a table.
#[derive(Debug, Clone, Copy)]
pub struct Sensor {
    /// Name, as this project writes it.
    pub name: &'static str,
    /// Offset of its first register, in bytes.
    pub offset: u32,
    /// What it measures.
    pub unit: Unit,
    /// How many of `unit` one step of the register is.
    pub scale: u32,
}

/// Makes a sensor whose register counts its unit.
pub(crate) const fn sensor(name: &'static str, offset: u32, unit: Unit) -> Sensor {
    Sensor { name, offset, unit, scale: 1 }
}
