//! Turns a card selector into functions on a bus.
//!
//! - `mock:PROFILE:SHAPE` selects a fabric of in-process mock cards. `PROFILE` is `optweb`; `SHAPE` is a number of cards
//!   (fully connected) or `GROUPSxSIZE` (a Dragonfly). `/NODE` after the shape selects one card of the fabric. Each fault
//!   begins with `+`:
//!   - `+stop=NODE@US` stops the clock of a card after this fabric time in microseconds;
//!   - `+cut=A-B@US` cuts the link between two cards after this time (`@0` or no `@`: at once);
//!   - `+slow=GBPS` sets the actual rate of all links; the cards still report the nominal rate;
//!   - `+late=US` delays replies of host memory by up to this time.
//!
//!   Times are at most [`TIME_MAX_US`].
//! - `vfio:0000:3b:00.0`, or the bare address, selects a function bound to the kernel's VFIO driver. `+vf-token=UUID` sets
//!   the token that a virtual function shares with its physical function. `+no-iommu` accepts that no IOMMU protects host
//!   memory from the card. `+without-reset` opens a card without a reset method (see [`vfio::Options`]).
//! - `vfio-user:/run/fpga/0.sock` selects the function on a vfio-user socket. A directory, such as `vfio-user:/run/fpga`,
//!   selects all its sockets, ordered by the number in the name.
//!
//! Commas separate several cards of one bus; mock cards must belong to one fabric.
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::vfio::{self, VfToken};
use fpga_hal::{Domain, Endpoint, Function, PciAddress, in_process, vfio_user};
pub use fpga_mock::{Basis, Clock, Component, Fabric, Profile};
use fpga_mock::{Fault, LateDma, ProfileError};

/// Default selector, if no card is bound to VFIO.
pub const DEFAULT: &str = "mock:optweb:4";

/// Longest time of a fault: one day, in microseconds.
pub const TIME_MAX_US: u64 = 86_400_000_000;

/// Kind of the selected cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In-process mock cards.
    Mock,
    /// Functions on the kernel's VFIO.
    Vfio,
    /// Functions on vfio-user sockets.
    VfioUser,
}

impl Kind {
    /// Returns the name in output and `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mock => "mock",
            Kind::Vfio => "vfio",
            Kind::VfioUser => "vfio-user",
        }
    }
}

/// Opened cards of one fabric, in one domain.
pub struct Selection {
    /// The selector, as given.
    pub selector: String,
    /// Kind of the cards.
    pub kind: Kind,
    /// One function for each card, in the given order; all cards of a mock fabric are ordered by node.
    pub functions: Vec<Function>,
    /// The fabric of mock cards; `None` for other cards.
    pub fabric: Option<Fabric>,
}

/// Error of a selector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The selector has none of the known forms.
    #[error("invalid selector {selector:?}: {why}")]
    Syntax {
        /// The selector, as given.
        selector: String,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// The selector is valid, but names a missing card or link.
    #[error("unknown card {selector:?}: {why}")]
    NoCard {
        /// The selector, as given.
        selector: String,
        /// What is missing, and what is available.
        why: String,
    },
    /// The selector names other cards where mock cards are required.
    #[error("invalid selector {selector:?}: expected a mock fabric, such as mock:optweb:4")]
    NotMock {
        /// The selector, as given.
        selector: String,
    },
    /// The shape is invalid.
    #[error("invalid fabric {selector:?}")]
    Profile {
        /// The selector, as given.
        selector: String,
        /// The reason.
        #[source]
        source: ProfileError,
    },
    /// Opening a card failed.
    #[error("cannot open {selector:?}")]
    Open {
        /// The selector of the card.
        selector: String,
        /// The reason.
        #[source]
        source: fpga_hal::Error,
    },
}

/// A parsed selector, checked as far as possible without opening a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    cards: Cards,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cards {
    Mock(Box<MockCards>),
    Vfio(Vec<VfioCard>),
    VfioUser(Vec<PathBuf>),
}

/// Cards of a mock fabric, and the fabric's faults.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MockCards {
    profile: Profile,
    /// `PROFILE:SHAPE`, as given.
    shape: String,
    /// Nodes of single cards; empty for all cards.
    nodes: Vec<u32>,
    faults: Vec<Fault>,
    /// Longest delay of host memory.
    late: Option<Duration>,
}

/// A function on the kernel's VFIO, with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VfioCard {
    address: PciAddress,
    vf_token: Option<VfToken>,
    no_iommu: bool,
    without_reset: bool,
}

impl Selector {
    /// Parses a selector. Reads directories of sockets, but opens no card.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::NoCard`] or [`Error::Profile`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let cards = match text.split_once(':') {
            Some(("mock", _)) => Cards::Mock(Box::new(parse_mock(text)?)),
            Some(("vfio-user", _)) => {
                let paths = parse_list(text, "vfio-user:/run/fpga/0.sock", |part| {
                    part.strip_prefix("vfio-user:").filter(|path| !path.is_empty()).map(PathBuf::from)
                })?;
                let sockets = paths.into_iter().map(|path| sockets_at(text, path));
                Cards::VfioUser(sockets.collect::<Result<Vec<_>, _>>()?.concat())
            }
            _ if text.starts_with("vfio:") || text.contains('.') => {
                Cards::Vfio(parse_list(text, "vfio:0000:3b:00.0 or 0000:3b:00.0", parse_vfio)?)
            }
            _ => {
                let why = "expected mock:PROFILE:SHAPE, vfio:ADDRESS or vfio-user:PATH, such as mock:optweb:4";
                return Err(Error::Syntax { selector: text.into(), why: why.into() });
            }
        };
        Ok(Selector { text: text.into(), cards })
    }

    /// Returns the profile of the mock fabric; `None` for other cards.
    pub fn profile(&self) -> Option<&Profile> {
        self.mock().map(|mock| &mock.profile)
    }

    /// Returns the nodes of the mock cards.
    pub fn nodes(&self) -> Vec<u32> {
        self.mock().map(MockCards::selected).unwrap_or_default()
    }

    /// Returns a selector for each mock card, without faults.
    pub fn mock_selectors(&self) -> Vec<String> {
        let of = |mock: &MockCards| mock.selected().iter().map(|node| mock.selector(*node)).collect();
        self.mock().map(of).unwrap_or_default()
    }

    fn mock(&self) -> Option<&MockCards> {
        match &self.cards {
            Cards::Mock(mock) => Some(mock),
            Cards::Vfio(_) | Cards::VfioUser(_) => None,
        }
    }

    /// Returns the kind of the cards.
    pub fn kind(&self) -> Kind {
        match &self.cards {
            Cards::Mock(_) => Kind::Mock,
            Cards::Vfio(_) => Kind::Vfio,
            Cards::VfioUser(_) => Kind::VfioUser,
        }
    }

    /// Returns the PCI addresses of functions on the kernel's VFIO.
    pub fn addresses(&self) -> Vec<PciAddress> {
        match &self.cards {
            Cards::Vfio(functions) => functions.iter().map(|function| function.address).collect(),
            Cards::Mock(_) | Cards::VfioUser(_) => Vec::new(),
        }
    }

    /// Returns the paths of the vfio-user sockets.
    pub fn sockets(&self) -> &[PathBuf] {
        match &self.cards {
            Cards::VfioUser(paths) => paths,
            Cards::Mock(_) | Cards::Vfio(_) => &[],
        }
    }

    /// Opens the cards.
    ///
    /// # Errors
    /// [`Error::Open`] if opening a card fails.
    pub fn open(&self) -> Result<Selection, Error> {
        self.open_within(Duration::MAX)
    }

    /// Opens the cards. Waits at most `timeout` for a vfio-user server, and at most the default time.
    ///
    /// # Errors
    /// [`Error::Open`] if opening a card fails.
    pub fn open_within(&self, timeout: Duration) -> Result<Selection, Error> {
        let (functions, fabric) = match &self.cards {
            Cards::Mock(mock) => {
                let (fabric, cards) = self.fabric()?;
                let domain = Domain::in_process();
                let attach = |(node, card)| {
                    let name = mock.selector(node);
                    in_process::attach(card, &domain, &name).map_err(|source| Error::Open { selector: name, source })
                };
                let functions = cards.into_iter().map(attach).collect::<Result<_, _>>()?;
                // After opening: opening resets a card, which undoes its faults.
                self.plant_faults(&fabric);
                (functions, Some(fabric))
            }
            Cards::Vfio(functions) => (self.open_all(Domain::vfio(), functions, open_vfio)?, None),
            Cards::VfioUser(paths) => {
                let mut options = vfio_user::Options::default();
                options.patience = options.patience.min(timeout);
                let open = |path: &PathBuf, domain: &Domain| {
                    let named = |source| Error::Open { selector: format!("vfio-user:{}", path.display()), source };
                    vfio_user::connect_with(path, domain, &options).map_err(named)
                };
                (self.open_all(Ok(Domain::vfio_user()), paths, open)?, None)
            }
        };
        Ok(Selection { selector: self.text.clone(), kind: self.kind(), functions, fabric })
    }

    fn open_all<C>(
        &self,
        domain: fpga_hal::Result<Domain>,
        cards: &[C],
        open: impl Fn(&C, &Domain) -> Result<Function, Error>,
    ) -> Result<Vec<Function>, Error> {
        let domain = domain.map_err(|source| Error::Open { selector: self.text.clone(), source })?;
        cards.iter().map(|card| open(card, &domain)).collect()
    }

    /// Creates the mock fabric and returns the selected cards by node, not attached to a bus. The selector's faults are
    /// not active: see [`plant_faults`](Self::plant_faults).
    ///
    /// # Errors
    /// [`Error::NotMock`] for other cards; [`Error::Profile`].
    pub fn fabric(&self) -> Result<(Fabric, Vec<NodeEndpoint>), Error> {
        let selector = self.text.clone();
        let Some(mock) = self.mock() else { return Err(Error::NotMock { selector }) };
        let fabric = Fabric::new(mock.profile.clone()).map_err(|source| Error::Profile { selector, source })?;
        let card = |node| match mock.late {
            Some(longest) => LateDma::new(fabric.endpoint(node), node.into(), longest) as Arc<dyn Endpoint>,
            None => fabric.endpoint(node),
        };
        let cards = mock.selected().into_iter().map(|node| (node, card(node))).collect();
        Ok((fabric, cards))
    }

    /// Plants the selector's faults in its fabric. A reset of a card undoes faults that have already occurred.
    pub fn plant_faults(&self, fabric: &Fabric) {
        if let Some(mock) = self.mock() {
            mock.faults.iter().for_each(|fault| fabric.plant(*fault));
        }
    }
}

/// Node and endpoint of a mock card.
pub type NodeEndpoint = (u32, Arc<dyn Endpoint>);

impl MockCards {
    fn selected(&self) -> Vec<u32> {
        if self.nodes.is_empty() { (0..self.profile.nodes).collect() } else { self.nodes.clone() }
    }

    fn selector(&self, node: u32) -> String {
        format!("mock:{}/{node}", self.shape)
    }
}

/// Opens the cards of `selector`.
///
/// # Errors
/// As [`Selector::parse`] and [`Selector::open`].
pub fn select(selector: &str) -> Result<Selection, Error> {
    Selector::parse(selector)?.open()
}

fn parse_vfio(text: &str) -> Option<VfioCard> {
    let mut parts = text.strip_prefix("vfio:").unwrap_or(text).split('+');
    let mut function =
        VfioCard { address: parts.next()?.parse().ok()?, vf_token: None, no_iommu: false, without_reset: false };
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

fn open_vfio(function: &VfioCard, domain: &Domain) -> Result<Function, Error> {
    let &VfioCard { address, vf_token, no_iommu, without_reset } = function;
    let options = vfio::Options { vf_token, no_iommu, without_reset, ..vfio::Options::default() };
    let named = |source| Error::Open { selector: format!("vfio:{address}"), source };
    vfio::open_with(address, domain, &options).map_err(named)
}

/// Parses a comma-separated list.
fn parse_list<T>(text: &str, form: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let wrong = |part| Error::Syntax { selector: text.into(), why: format!("expected {form}, found {part:?}") };
    text.split(',').map(|part| parse(part).ok_or_else(|| wrong(part))).collect()
}

/// Returns the socket at `path`, or all sockets in the directory at `path`. A missing path fails when the card is opened.
fn sockets_at(selector: &str, path: PathBuf) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| {
        let why = format!("cannot read the directory {}: {error}", path.display());
        Error::NoCard { selector: selector.into(), why }
    };
    let entries = match fs::read_dir(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => return Ok(vec![path]),
        entries => entries.map_err(unreadable)?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let socket = entry.map_err(unreadable)?.path();
        if socket.metadata().is_ok_and(|found| found.file_type().is_socket()) {
            sockets.push(socket);
        }
    }
    if sockets.is_empty() {
        let why = format!("no sockets in the directory {}", path.display());
        return Err(Error::NoCard { selector: selector.into(), why });
    }
    let number = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
    // By number: 10.sock follows 9.sock; other names come last.
    sockets.sort_by_cached_key(|path| (number(path).is_none(), number(path), path.clone()));
    Ok(sockets)
}

/// Parses a mock fabric, or a comma-separated list of its cards.
fn parse_mock(text: &str) -> Result<MockCards, Error> {
    let syntax = |why: String| Error::Syntax { selector: text.into(), why };
    let mut parts = text.split(',');
    let mut all = parse_mock_card(text, parts.next().unwrap_or_default())?;
    for part in parts {
        let next = parse_mock_card(text, part)?;
        if next.profile != all.profile {
            return Err(syntax(format!("expected mock cards of one fabric, found {} and {}", all.shape, next.shape)));
        }
        if next.nodes.is_empty() || all.nodes.is_empty() {
            return Err(syntax(
                "expected a node for each card of a list, such as mock:optweb:4/0,mock:optweb:4/1".into(),
            ));
        }
        all.nodes.extend(next.nodes);
        all.faults.extend(next.faults);
        all.late = all.late.max(next.late);
    }
    let mut sorted = all.nodes.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(syntax(format!("duplicate card {}", twice[0]))),
        None => Ok(all),
    }
}

/// Parses `mock:PROFILE:SHAPE[/NODE][+FAULT..]`, a part of the selector `text`.
fn parse_mock_card(text: &str, part: &str) -> Result<MockCards, Error> {
    let syntax = |why: &str| Error::Syntax { selector: text.into(), why: why.into() };
    let mut options = part.split('+');
    let name = options.next().unwrap_or_default();
    let (fabric, node) = name.split_once('/').map_or((name, None), |(fabric, node)| (fabric, Some(node)));
    let fabric = fabric.strip_prefix("mock:").ok_or_else(|| syntax("expected mock cards of one fabric"))?;
    let mut words = fabric.split(':');
    let (profile, shape) = (words.next(), words.next());
    if words.next().is_some() {
        return Err(syntax("expected mock:PROFILE:SHAPE, such as mock:optweb:4"));
    }
    if profile != Some("optweb") {
        return Err(syntax(&format!("unknown profile {:?} (available: optweb)", profile.unwrap_or_default())));
    }
    let shape = shape.ok_or_else(|| syntax("missing shape: expected a number of cards or GROUPSxSIZE"))?;
    let number = |text: &str| {
        text.parse::<u32>()
            .map_err(|_| syntax(&format!("invalid shape {text:?}: expected a number of cards or GROUPSxSIZE")))
    };
    let profile = match shape.split_once('x') {
        Some((groups, size)) => Profile::optweb_dragonfly(number(groups)?, number(size)?),
        None => Profile::optweb(number(shape)?),
    };
    profile.check().map_err(|source| Error::Profile { selector: text.into(), source })?;
    let mut mock = MockCards { profile, shape: fabric.to_owned(), nodes: Vec::new(), faults: Vec::new(), late: None };
    if let Some(node) = node {
        mock.nodes.push(node.parse().map_err(|_| syntax(&format!("invalid node {node:?}: expected a number")))?);
    }
    for option in options {
        let known = "expected +stop=NODE@US, +cut=A-B@US, +slow=GBPS or +late=US, with times of at most a day";
        match option.strip_prefix("late=") {
            Some(us) => mock.late = Some(Duration::from_micros(microseconds(us).ok_or_else(|| syntax(known))?)),
            None => mock.faults.push(parse_fault(option).ok_or_else(|| syntax(known))?),
        }
    }
    mock.check().map_err(|why| Error::NoCard { selector: text.into(), why })?;
    Ok(mock)
}

impl MockCards {
    /// Checks that all named cards and links exist; `Err` names the missing one.
    fn check(&self) -> Result<(), String> {
        let count = self.profile.nodes;
        let exists = |node: u32| match node < count {
            true => Ok(()),
            false => Err(format!("no card {node} (available: 0 to {})", count.saturating_sub(1))),
        };
        self.nodes.iter().try_for_each(|node| exists(*node))?;
        for fault in &self.faults {
            match *fault {
                Fault::Freeze { node, .. } => exists(node)?,
                Fault::Cut { a, b, .. } => {
                    exists(a)?;
                    exists(b)?;
                    if a == b || !self.profile.topology.linked(a, b, count) {
                        return Err(format!("no link between cards {a} and {b}"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses the time of a fault.
fn microseconds(text: &str) -> Option<u64> {
    text.parse().ok().filter(|us| *us <= TIME_MAX_US)
}

fn parse_fault(text: &str) -> Option<Fault> {
    let (kind, rest) = text.split_once('=')?;
    if kind == "slow" {
        let mbps = rest.parse::<u32>().ok().filter(|gbps| *gbps > 0)?.checked_mul(1000)?;
        return Some(Fault::Slow { mbps });
    }
    let (who, when) = rest.split_once('@').unwrap_or((rest, "0"));
    let after_ps = microseconds(when)?.checked_mul(1_000_000)?;
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
        let slow = Selector::parse("mock:optweb:4+slow=20").unwrap();
        assert_eq!(slow.mock().unwrap().faults, [Fault::Slow { mbps: 20_000 }]);
        let stop = Fault::Freeze { node: 2, after_ps: 100_000_000 };
        let mock = selector.mock().unwrap();
        assert_eq!(mock.faults, [stop, Fault::Cut { a: 0, b: 1, after_ps: 0 }]);
        assert_eq!(mock.late, Some(Duration::from_micros(50)));
    }

    /// The selectors that `list` prints select the same cards, one by one and together.
    #[test]
    fn single_cards_of_a_fabric() {
        let whole = Selector::parse("mock:optweb:4+stop=2").unwrap();
        assert_eq!(whole.nodes(), [0, 1, 2, 3]);
        assert_eq!(whole.mock_selectors()[2], "mock:optweb:4/2");
        for (node, text) in whole.mock_selectors().iter().enumerate() {
            assert_eq!(Selector::parse(text).unwrap().nodes(), [node as u32]);
        }
        let listed = Selector::parse(&whole.mock_selectors().join(",")).unwrap();
        assert_eq!((listed.nodes(), listed.profile()), (whole.nodes(), whole.profile()));
        let two = select("mock:optweb:4/3,mock:optweb:4/1+cut=1-3").unwrap();
        let names: Vec<&str> = two.functions.iter().map(|one| one.identity().name.as_str()).collect();
        assert_eq!(names, ["mock:optweb:4/3", "mock:optweb:4/1"]);
    }

    #[test]
    fn missing_cards_and_links_are_refused() {
        for (text, why) in [
            ("mock:optweb:4/4", "no card 4"),
            ("mock:optweb:4+stop=4", "no card 4"),
            ("mock:optweb:4+stop=9@100", "no card 9 (available: 0 to 3)"),
            ("mock:optweb:4+cut=0-4", "no card 4"),
            ("mock:optweb:4+cut=1-1@5", "no link between cards 1 and 1"),
            // Groups 0 1, 2 3 of a Dragonfly: a card has one link to each other group.
            ("mock:optweb:2x2+cut=0-3", "no link between cards 0 and 3"),
        ] {
            let error = Selector::parse(text).unwrap_err();
            assert!(matches!(error, Error::NoCard { .. }) && error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_directory_selects_its_sockets_by_number() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("vfio-user:{}", directory.path().display());
        assert!(matches!(Selector::parse(&text), Err(Error::NoCard { .. })));
        for name in ["10.sock", "9.sock", "0.sock", "spare.sock"] {
            std::os::unix::net::UnixListener::bind(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("1.sock"), "").unwrap();
        let expected = ["0.sock", "9.sock", "10.sock", "spare.sock"].map(|name| directory.path().join(name));
        assert_eq!(Selector::parse(&text).unwrap().sockets(), expected);
        let missing = Selector::parse("vfio-user:/nowhere/0.sock").unwrap();
        assert_eq!(missing.sockets(), [PathBuf::from("/nowhere/0.sock")]);
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
        assert_eq!(options, Cards::Vfio(vec![VfioCard { address: card, vf_token, no_iommu, without_reset }]));
        let unreset = VfioCard { address: card, vf_token: None, no_iommu: false, without_reset: true };
        assert_eq!(Selector::parse("3b:00.0+without-reset").unwrap().cards, Cards::Vfio(vec![unreset]));
        let sockets = Selector::parse("vfio-user:/run/a.sock,vfio-user:b.sock").unwrap();
        assert_eq!(sockets.kind(), Kind::VfioUser);
        assert_eq!(sockets.cards, Cards::VfioUser(vec!["/run/a.sock".into(), "b.sock".into()]));
    }

    #[test]
    fn invalid_selectors_are_refused() {
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
            "mock:optweb:4+late=86400000001",
            "mock:optweb:4+stop=0@18446744073709",
            "mock:optweb:4/",
            "mock:optweb:4/x",
            "mock:optweb:4/0,mock:optweb:4",
            "mock:optweb:4/0,mock:optweb:4/0",
            "mock:optweb:4/0,mock:optweb:5/1",
            "mock:optweb:4/0,0000:3b:00.0",
        ] {
            assert!(matches!(Selector::parse(text), Err(Error::Syntax { .. })), "{text:?}");
        }
        assert!(matches!(Selector::parse("mock:optweb:1"), Err(Error::Profile { .. })));
        let card = Selector::parse("0000:3b:00.0").unwrap();
        assert!(matches!(card.fabric(), Err(Error::NotMock { .. })));
    }
}
