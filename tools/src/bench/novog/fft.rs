//! Times of the 3-D FFT of tables 6.4 and 3.5 of the dissertation.

use std::collections::BTreeMap;

use cmdseq::routing::{FftMapping, Torus3};
use fpga_select::novog::{Complex32, Fft3d, FftCores, FftError, Profile, Sampling};

use crate::exit::{Exit, Failure, Result};

/// Points of a side in both tables.
pub(super) const SIDES: [u32; 4] = [16, 32, 64, 128];

/// A column of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Setting {
    /// Table 6.4: 100 MHz and links of 500 ns, which section 3.4.6 states of it.
    Conservative,
    /// Table 3.5: 64 cards at 150 MHz, all links at the measured mean.
    Fixed,
    /// The same with the measured jitter of links and clocks.
    Variable,
}

/// Returns the microseconds of an FFT of `side` points a side. Its data is all zeros: no time depends on it.
fn simulate(side: u32, setting: Setting) -> Result<f64> {
    let (profile, cores, cards) = setting.system(side);
    let failed = |error: &dyn std::error::Error| Failure::chain(Exit::Failed, error);
    let torus = Torus3::new([cards; 3]).map_err(|error| failed(&error))?;
    let mapping = FftMapping::new(side, torus).map_err(|error| failed(&error))?;
    let run = || -> std::result::Result<u64, FftError> {
        let input = vec![Complex32::default(); (side as usize).pow(3)];
        Ok(Fft3d::new(profile, cores, mapping)?.run(&input)?.time_ps)
    };
    run().map(|time_ps| time_ps as f64 / 1e6).map_err(|error| failed(&error))
}

/// Microseconds of the FFTs that were simulated.
#[derive(Debug, Default)]
pub(super) struct Ffts(BTreeMap<(u32, Setting), f64>);

impl Ffts {
    /// Returns the microseconds of an FFT of `side` points a side.
    pub(super) fn us(&mut self, side: u32, setting: Setting) -> Result<f64> {
        match self.0.get(&(side, setting)) {
            Some(known) => Ok(*known),
            None => Ok(*self.0.entry((side, setting)).or_insert(simulate(side, setting)?)),
        }
    }

    /// Returns by how many percent the jitter lengthens an FFT.
    pub(super) fn jitter_percent(&mut self, side: u32) -> Result<f64> {
        Ok(100.0 * (self.us(side, Setting::Variable)? / self.us(side, Setting::Fixed)? - 1.0))
    }
}

impl Setting {
    /// Returns the network, the cores of a card and the cards of a side. The tables' frequency is that of the cores; routers have
    /// the clock that gives a link its 40 Gb/s.
    fn system(self, side: u32) -> (Profile, FftCores, u32) {
        let fixed = Profile { sampling: Sampling::Fixed, ..Profile::fft() };
        let (hertz, profile) = match self {
            Setting::Conservative => (100_000_000, Profile { link_ps: 500_000, ..fixed }),
            Setting::Fixed => (150_000_000, fixed),
            Setting::Variable => (150_000_000, Profile::fft()),
        };
        // Table 6.4 has the cards and cores of each size. Table 3.5 is of 64 cards, and does not name the cores: all that fit.
        let (cards, count) = match (self, side) {
            (Setting::Conservative, 16 | 32) => (4, 4),
            (Setting::Conservative, _) => (8, 16),
            _ => (4, FftCores::most(side)),
        };
        (profile, FftCores { hertz, count }, cards)
    }
}
