//! The one place that turns a card selector into functions on a bus.
//!
//! A selector is `mock:PROFILE:SHAPE`, where `PROFILE` is `optweb` and `SHAPE` a number of cards (fully connected) or
//! `GROUPSxSIZE` (a Dragonfly). Faults may be planted behind it, each with a `+`: `+stop=NODE@US` stops the clock of a card
//! after so many microseconds of the fabric's time, `+cut=A-B@US` the link between two cards (`@0` and no `@`: at once).
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use fpga_hal::{Domain, Function, in_process};
pub use fpga_mock::{Basis, Component, Profile};
use fpga_mock::{Fabric, Fault, ProfileError};

/// The selector that is used when nothing else is said and no card is bound.
pub const DEFAULT: &str = "mock:optweb:4";

/// What kind of cards were selected, as `--json` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Mock cards in this process.
    Mock,
}

impl Kind {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mock => "mock",
        }
    }
}

/// Cards of one fabric, opened, in one domain.
pub struct Selection {
    /// As given.
    pub selector: String,
    /// What they are.
    pub kind: Kind,
    /// One function a card, in order of nodes.
    pub functions: Vec<Function>,
    /// The fabric, of mock cards.
    pub fabric: Fabric,
}

/// Why a selector selects nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not of any known form.
    #[error("{selector:?} is not a card selector: {why}")]
    Syntax {
        /// As given.
        selector: String,
        /// What does not fit, and what would.
        why: String,
    },
    /// It is of a form for cards that this build cannot reach.
    #[error("{selector:?} names a card on a bus that this build does not reach yet; mock:optweb:N is reached")]
    Bus {
        /// As given.
        selector: String,
    },
    /// There can be no such fabric.
    #[error("{selector:?} cannot be")]
    Profile {
        /// As given.
        selector: String,
        /// Why.
        #[source]
        source: ProfileError,
    },
    /// The bus refused.
    #[error("{selector:?} cannot be opened")]
    Open {
        /// As given.
        selector: String,
        /// Why.
        #[source]
        source: fpga_hal::Error,
    },
}

/// A selector, taken apart and checked as far as that goes without opening anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    profile: Profile,
    faults: Vec<Fault>,
}

impl Selector {
    /// Takes a selector apart.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::Bus`] or [`Error::Profile`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let syntax = |why: &str| Error::Syntax { selector: text.into(), why: why.into() };
        if text.starts_with("vfio:") || text.starts_with("vfio-user:") || looks_like_address(text) {
            return Err(Error::Bus { selector: text.into() });
        }
        let mut parts = text.split('+');
        let cards = parts.next().unwrap_or_default();
        let mut words = cards.split(':');
        let (kind, name, shape) = (words.next(), words.next(), words.next());
        if kind != Some("mock") || words.next().is_some() {
            return Err(syntax("it should be mock:PROFILE:SHAPE, for example mock:optweb:4"));
        }
        if name != Some("optweb") {
            return Err(syntax("the profile there is, is optweb"));
        }
        let shape = shape.ok_or_else(|| syntax("the shape is missing: a number of cards, or GROUPSxSIZE"))?;
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| syntax("the shape should be a number of cards, or GROUPSxSIZE"))
        };
        let profile = match shape.split_once('x') {
            Some((groups, size)) => Profile::optweb_dragonfly(number(groups)?, number(size)?),
            None => Profile::optweb(number(shape)?),
        };
        profile.check().map_err(|source| Error::Profile { selector: text.into(), source })?;
        let faults = parts
            .map(|fault| parse_fault(fault).ok_or_else(|| syntax("a fault is +stop=NODE@US or +cut=A-B@US")))
            .collect::<Result<_, _>>()?;
        Ok(Selector { text: text.into(), profile, faults })
    }

    /// The fabric it asks for.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What kind of cards it names.
    pub fn kind(&self) -> Kind {
        Kind::Mock
    }

    /// Opens the cards.
    ///
    /// # Errors
    /// [`Error::Open`] if the bus refuses.
    pub fn open(&self) -> Result<Selection, Error> {
        let selector = self.text.clone();
        let fabric = Fabric::new(self.profile.clone())
            .map_err(|source| Error::Profile { selector: selector.clone(), source })?;
        let domain = Domain::in_process();
        let functions = (0..self.profile.nodes)
            .map(|node| in_process::attach(fabric.endpoint(node), &domain, &format!("{}/{node}", self.cards())))
            .collect::<Result<_, _>>()
            .map_err(|source| Error::Open { selector: selector.clone(), source })?;
        self.faults.iter().for_each(|fault| fabric.plant(*fault));
        Ok(Selection { selector, kind: self.kind(), functions, fabric })
    }

    /// The selector without its faults.
    fn cards(&self) -> &str {
        self.text.split('+').next().unwrap_or_default()
    }
}

/// Opens what `selector` names.
///
/// # Errors
/// As [`Selector::parse`] and [`Selector::open`].
pub fn select(selector: &str) -> Result<Selection, Error> {
    Selector::parse(selector)?.open()
}

/// A bare PCI address, such as 0000:3b:00.0.
fn looks_like_address(text: &str) -> bool {
    let is_hex = |part: &str| !part.is_empty() && part.chars().all(|digit| digit.is_ascii_hexdigit() || digit == '.');
    let parts: Vec<&str> = text.split(':').collect();
    (2..=3).contains(&parts.len()) && text.contains('.') && parts.iter().all(|part| is_hex(part))
}

fn parse_fault(text: &str) -> Option<Fault> {
    let (kind, rest) = text.split_once('=')?;
    let (who, when) = rest.split_once('@').unwrap_or((rest, "0"));
    let after_ps = when.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    match kind {
        "stop" => Some(Fault::Freeze { node: who.parse().ok()?, after_ps }),
        "cut" => {
            let (a, b) = who.split_once('-')?;
            Some(Fault::Cut { a: a.parse().ok()?, b: b.parse().ok()?, after_ps })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        assert_eq!(Selector::parse("mock:optweb:8").unwrap().profile().nodes, 8);
        assert_eq!(Selector::parse("mock:optweb:22x44").unwrap().profile().nodes, 968);
    }

    #[test]
    fn faults() {
        let selector = Selector::parse("mock:optweb:4+stop=2@100+cut=0-1").unwrap();
        let stop = Fault::Freeze { node: 2, after_ps: 100_000_000 };
        assert_eq!(selector.faults, [stop, Fault::Cut { a: 0, b: 1, after_ps: 0 }]);
    }

    #[test]
    fn what_is_not_a_selector_is_refused() {
        for text in [
            "",
            "mock",
            "mock:optweb",
            "mock:optweb:",
            "mock:optweb:four",
            "mock:novo:4",
            "mock:optweb:4:5",
            "moc:optweb:4",
        ] {
            assert!(matches!(Selector::parse(text), Err(Error::Syntax { .. })), "{text:?}");
        }
        assert!(matches!(Selector::parse("mock:optweb:4+stop=x"), Err(Error::Syntax { .. })));
        assert!(matches!(Selector::parse("mock:optweb:1"), Err(Error::Profile { .. })));
        for text in ["vfio:0000:3b:00.0", "0000:3b:00.0", "3b:00.0", "vfio-user:/run/card0.sock"] {
            assert!(matches!(Selector::parse(text), Err(Error::Bus { .. })), "{text:?}");
        }
    }
}
