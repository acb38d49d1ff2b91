//! The one place that turns a card selector into functions on a bus.
//!
//! - `mock:PROFILE:SHAPE` is a fabric of mock cards in this process: `PROFILE` is `optweb`, `SHAPE` a number of cards (fully
//!   connected) or `GROUPSxSIZE` (a Dragonfly). Faults may be planted behind it, each with a `+`: `+stop=NODE@US` stops the
//!   clock of a card after so many microseconds of the fabric's time, `+cut=A-B@US` the link between two cards (`@0` and no
//!   `@`: at once); `+slow=GBPS` has all links go at another rate than the cards say; `+late=US` has host memory answer up to so many
//!   microseconds late.
//! - `vfio:0000:3b:00.0`, or the bare address, is a function bound to the kernel's VFIO driver. `+vf-token=UUID` behind it
//!   gives the token that a virtual function shares with its physical one; `+no-iommu` accepts that nothing protects the
//!   host's memory from the card; `+without-reset` opens a card that cannot be reset (see [`vfio::Options`]).
//! - `vfio-user:/run/fpga/0.sock` is a function behind a vfio-user socket.
//!
//! Several cards of one bus are separated by commas.
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::vfio::{self, VfToken};
use fpga_hal::{Domain, Endpoint, Function, PciAddress, in_process, vfio_user};
pub use fpga_mock::{Basis, Clock, Component, Fabric, Profile};
use fpga_mock::{Fault, LateDma, ProfileError};

/// The selector that is used when nothing else is said and no card is bound.
pub const DEFAULT: &str = "mock:optweb:4";

/// What kind of cards were selected, as `--json` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Mock cards in this process.
    Mock,
    /// Functions on the kernel's VFIO.
    Vfio,
    /// Functions behind vfio-user sockets.
    VfioUser,
}

impl Kind {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mock => "mock",
            Kind::Vfio => "vfio",
            Kind::VfioUser => "vfio-user",
        }
    }
}

/// Cards of one fabric, opened, in one domain.
pub struct Selection {
    /// As given.
    pub selector: String,
    /// What they are.
    pub kind: Kind,
    /// One function a card, in the order given; of mock cards in order of nodes.
    pub functions: Vec<Function>,
    /// The fabric, of mock cards.
    pub fabric: Option<Fabric>,
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
    /// It names cards, but only a fabric of mock cards will do.
    #[error("{selector:?} names cards that are there: a fabric of mock cards is needed here, such as mock:optweb:4")]
    NotMock {
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
        /// The part that is about the card.
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
    cards: Cards,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cards {
    Mock { profile: Profile, faults: Vec<Fault>, late: Option<Duration> },
    Vfio(Vec<OnVfio>),
    VfioUser(Vec<PathBuf>),
}

/// A function on the kernel's VFIO, and how it is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnVfio {
    address: PciAddress,
    vf_token: Option<VfToken>,
    no_iommu: bool,
    without_reset: bool,
}

impl Selector {
    /// Takes a selector apart.
    ///
    /// # Errors
    /// [`Error::Syntax`] or [`Error::Profile`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let cards = match text.split_once(':') {
            Some(("mock", _)) => mock(text)?,
            Some(("vfio-user", _)) => Cards::VfioUser(each(text, "vfio-user:/run/fpga/0.sock", |part| {
                part.strip_prefix("vfio-user:").filter(|path| !path.is_empty()).map(PathBuf::from)
            })?),
            _ if text.starts_with("vfio:") || text.contains('.') => {
                Cards::Vfio(each(text, "vfio:0000:3b:00.0 or 0000:3b:00.0", on_vfio)?)
            }
            _ => {
                let why = "it should be mock:PROFILE:SHAPE, vfio:ADDRESS or vfio-user:PATH, for example mock:optweb:4";
                return Err(Error::Syntax { selector: text.into(), why: why.into() });
            }
        };
        Ok(Selector { text: text.into(), cards })
    }

    /// The fabric it asks for, of mock cards.
    pub fn profile(&self) -> Option<&Profile> {
        match &self.cards {
            Cards::Mock { profile, .. } => Some(profile),
            Cards::Vfio(_) | Cards::VfioUser(_) => None,
        }
    }

    /// What kind of cards it names.
    pub fn kind(&self) -> Kind {
        match &self.cards {
            Cards::Mock { .. } => Kind::Mock,
            Cards::Vfio(_) => Kind::Vfio,
            Cards::VfioUser(_) => Kind::VfioUser,
        }
    }

    /// The PCI addresses it names, of functions on the kernel's VFIO.
    pub fn addresses(&self) -> Vec<PciAddress> {
        match &self.cards {
            Cards::Vfio(functions) => functions.iter().map(|function| function.address).collect(),
            Cards::Mock { .. } | Cards::VfioUser(_) => Vec::new(),
        }
    }

    /// The vfio-user sockets it names.
    pub fn sockets(&self) -> &[PathBuf] {
        match &self.cards {
            Cards::VfioUser(paths) => paths,
            Cards::Mock { .. } | Cards::Vfio(_) => &[],
        }
    }

    /// Opens the cards.
    ///
    /// # Errors
    /// [`Error::Open`] if the bus refuses.
    pub fn open(&self) -> Result<Selection, Error> {
        self.open_within(Duration::MAX)
    }

    /// Opens the cards. A vfio-user server may take `patience` to have a card opened, but no longer than it may by default.
    ///
    /// # Errors
    /// [`Error::Open`] if the bus refuses.
    pub fn open_within(&self, patience: Duration) -> Result<Selection, Error> {
        let (functions, fabric) = match &self.cards {
            Cards::Mock { .. } => {
                let (fabric, cards) = self.fabric()?;
                let domain = Domain::in_process();
                let name = self.text.split('+').next().unwrap_or_default();
                let attach = |(node, card)| {
                    let name = format!("{name}/{node}");
                    in_process::attach(card, &domain, &name).map_err(|source| Error::Open { selector: name, source })
                };
                let functions = cards.into_iter().enumerate().map(attach).collect::<Result<_, _>>()?;
                // Now, because opening a card mends a clock that stands still.
                self.plant_faults(&fabric);
                (functions, Some(fabric))
            }
            Cards::Vfio(functions) => (self.on_one_bus(Domain::vfio(), functions, open_on_vfio)?, None),
            Cards::VfioUser(paths) => {
                let mut options = vfio_user::Options::default();
                options.patience = options.patience.min(patience);
                let open = |path: &PathBuf, domain: &Domain| {
                    let named = |source| Error::Open { selector: format!("vfio-user:{}", path.display()), source };
                    vfio_user::connect_with(path, domain, &options).map_err(named)
                };
                (self.on_one_bus(Ok(Domain::vfio_user()), paths, open)?, None)
            }
        };
        Ok(Selection { selector: self.text.clone(), kind: self.kind(), functions, fabric })
    }

    fn on_one_bus<C>(
        &self,
        domain: fpga_hal::Result<Domain>,
        cards: &[C],
        open: impl Fn(&C, &Domain) -> Result<Function, Error>,
    ) -> Result<Vec<Function>, Error> {
        let domain = domain.map_err(|source| Error::Open { selector: self.text.clone(), source })?;
        cards.iter().map(|card| open(card, &domain)).collect()
    }

    /// The mock cards it names, on no bus yet, and without the faults it names: see [`plant_faults`](Self::plant_faults).
    ///
    /// # Errors
    /// [`Error::NotMock`] if it names others; [`Error::Profile`].
    pub fn fabric(&self) -> Result<(Fabric, Vec<Arc<dyn Endpoint>>), Error> {
        let selector = self.text.clone();
        let Cards::Mock { profile, late, .. } = &self.cards else { return Err(Error::NotMock { selector }) };
        let fabric = Fabric::new(profile.clone()).map_err(|source| Error::Profile { selector, source })?;
        let card = |node| match late {
            Some(longest) => LateDma::new(fabric.endpoint(node), node.into(), *longest) as Arc<dyn Endpoint>,
            None => fabric.endpoint(node),
        };
        let cards = (0..profile.nodes).map(card).collect();
        Ok((fabric, cards))
    }

    /// Plants the faults it names in a fabric it has made. A reset of a card undoes those that have struck it.
    pub fn plant_faults(&self, fabric: &Fabric) {
        if let Cards::Mock { faults, .. } = &self.cards {
            faults.iter().for_each(|fault| fabric.plant(*fault));
        }
    }
}

/// Opens what `selector` names.
///
/// # Errors
/// As [`Selector::parse`] and [`Selector::open`].
pub fn select(selector: &str) -> Result<Selection, Error> {
    Selector::parse(selector)?.open()
}

fn on_vfio(text: &str) -> Option<OnVfio> {
    let mut parts = text.strip_prefix("vfio:").unwrap_or(text).split('+');
    let mut function =
        OnVfio { address: parts.next()?.parse().ok()?, vf_token: None, no_iommu: false, without_reset: false };
    for option in parts {
        match option.split_once('=') {
            Some(("vf-token", token)) => function.vf_token = Some(token.parse().ok()?),
            None if option == "no-iommu" => function.no_iommu = true,
            None if option == "without-reset" => function.without_reset = true,
            _ => return None,
        }
    }
    Some(function)
}

fn open_on_vfio(function: &OnVfio, domain: &Domain) -> Result<Function, Error> {
    let &OnVfio { address, vf_token, no_iommu, without_reset } = function;
    let options = vfio::Options { vf_token, no_iommu, without_reset, ..vfio::Options::default() };
    let named = |source| Error::Open { selector: format!("vfio:{address}"), source };
    vfio::open_with(address, domain, &options).map_err(named)
}

/// Takes a comma-separated list apart.
fn each<T>(text: &str, form: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let wrong = |part| Error::Syntax { selector: text.into(), why: format!("{part:?} should be as {form}") };
    text.split(',').map(|part| parse(part).ok_or_else(|| wrong(part))).collect()
}

fn mock(text: &str) -> Result<Cards, Error> {
    let syntax = |why: &str| Error::Syntax { selector: text.into(), why: why.into() };
    let mut parts = text.split('+');
    let mut words = parts.next().unwrap_or_default().split(':').skip(1);
    let (name, shape) = (words.next(), words.next());
    if words.next().is_some() {
        return Err(syntax("it should be mock:PROFILE:SHAPE, for example mock:optweb:4"));
    }
    if name != Some("optweb") {
        return Err(syntax("the profile there is, is optweb"));
    }
    let shape = shape.ok_or_else(|| syntax("the shape is missing: a number of cards, or GROUPSxSIZE"))?;
    let number =
        |text: &str| text.parse::<u32>().map_err(|_| syntax("the shape should be a number of cards, or GROUPSxSIZE"));
    let profile = match shape.split_once('x') {
        Some((groups, size)) => Profile::optweb_dragonfly(number(groups)?, number(size)?),
        None => Profile::optweb(number(shape)?),
    };
    profile.check().map_err(|source| Error::Profile { selector: text.into(), source })?;
    let (mut faults, mut late) = (Vec::new(), None);
    for part in parts {
        match part.strip_prefix("late=").and_then(|us| us.parse().ok()) {
            Some(us) => late = Some(Duration::from_micros(us)),
            None => faults.push(
                parse_fault(part)
                    .ok_or_else(|| syntax("a fault is +stop=NODE@US, +cut=A-B@US, +slow=GBPS or +late=US"))?,
            ),
        }
    }
    Ok(Cards::Mock { profile, faults, late })
}

fn parse_fault(text: &str) -> Option<Fault> {
    let (kind, rest) = text.split_once('=')?;
    if kind == "slow" {
        let mbps = rest.parse::<u32>().ok().filter(|gbps| *gbps > 0)?.checked_mul(1000)?;
        return Some(Fault::Slow { mbps });
    }
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

    fn nodes(text: &str) -> u32 {
        Selector::parse(text).unwrap().profile().unwrap().nodes
    }

    #[test]
    fn shapes() {
        assert_eq!(nodes("mock:optweb:8"), 8);
        assert_eq!(nodes("mock:optweb:22x44"), 968);
    }

    #[test]
    fn faults() {
        let selector = Selector::parse("mock:optweb:4+stop=2@100+cut=0-1+late=50").unwrap();
        let slow = Selector::parse("mock:optweb:4+slow=20").unwrap().cards;
        assert!(matches!(slow, Cards::Mock { faults, .. } if faults == [Fault::Slow { mbps: 20_000 }]));
        let stop = Fault::Freeze { node: 2, after_ps: 100_000_000 };
        let Cards::Mock { faults, late, .. } = selector.cards else { panic!("mock cards") };
        assert_eq!(faults, [stop, Fault::Cut { a: 0, b: 1, after_ps: 0 }]);
        assert_eq!(late, Some(Duration::from_micros(50)));
    }

    #[test]
    fn cards_on_a_bus() {
        let addresses = |text: &str| Selector::parse(text).unwrap().addresses().to_vec();
        let card = "0000:3b:00.0".parse().unwrap();
        assert_eq!(addresses("vfio:0000:3b:00.0"), [card]);
        assert_eq!(addresses("3b:00.0"), [card]);
        assert_eq!(addresses("vfio:0000:3b:00.0,0000:5e:00.1"), [card, "5e:00.1".parse().unwrap()]);
        let token = "83a1b1c0-1d2e-4f3a-8b4c-5d6e7f809102";
        let options = Selector::parse(&format!("vfio:3b:00.0+vf-token={token}+no-iommu")).unwrap().cards;
        let vf_token = Some(token.parse().unwrap());
        let (no_iommu, without_reset) = (true, false);
        assert_eq!(options, Cards::Vfio(vec![OnVfio { address: card, vf_token, no_iommu, without_reset }]));
        let unreset = OnVfio { address: card, vf_token: None, no_iommu: false, without_reset: true };
        assert_eq!(Selector::parse("3b:00.0+without-reset").unwrap().cards, Cards::Vfio(vec![unreset]));
        let sockets = Selector::parse("vfio-user:/run/a.sock,vfio-user:b.sock").unwrap();
        assert_eq!(sockets.kind(), Kind::VfioUser);
        assert_eq!(sockets.cards, Cards::VfioUser(vec!["/run/a.sock".into(), "b.sock".into()]));
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
            "vfio:",
            "vfio:3b",
            "0000:3b:00.9",
            "0000:3b:00.0,",
            "0000:3b:00.0,mock:optweb:4",
            "vfio-user:",
            "vfio:3b:00.0+vf-token=secret",
            "vfio:3b:00.0+fast",
            "vfio-user:/a,vfio:0000:3b:00.0",
            "mock:optweb:4+stop=x",
            "mock:optweb:4+slow=0",
            "mock:optweb:4+late=soon",
        ] {
            assert!(matches!(Selector::parse(text), Err(Error::Syntax { .. })), "{text:?}");
        }
        assert!(matches!(Selector::parse("mock:optweb:1"), Err(Error::Profile { .. })));
        let card = Selector::parse("0000:3b:00.0").unwrap();
        assert!(matches!(card.fabric(), Err(Error::NotMock { .. })));
    }
}
