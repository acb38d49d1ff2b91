//! A parsed selector, and what it opens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Domain, Endpoint, Function, PciAddress, in_process, vfio_user};
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, LateDma, Profile, Shell};

use crate::error::Error;
use crate::list;
use crate::mock_cards::{MockCards, OF_LINKS};
use crate::part::Part;
use crate::selection::{Kind, Selection};
use crate::sockets::{control_socket, sockets_at};
use crate::vfio_card::{self, VfioCard};
use crate::xdma_cards;

/// Default selector, if no card is bound to VFIO.
pub const DEFAULT: &str = "mock:optweb:4";

/// A parsed selector, checked as far as possible without opening a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    pub(crate) cards: Cards,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cards {
    Mock(Box<MockCards>),
    /// The card with an XDMA engine that no network connects to others.
    Xdma,
    Vfio(Vec<VfioCard>),
    VfioUser(Vec<PathBuf>),
}

impl Selector {
    /// Parses a selector. Reads directories of sockets, but opens no card.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::NoCard`], [`Error::Directory`] or [`Error::Profile`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let cards = match text.split_once(':') {
            _ if xdma_cards::is_lone_card(text) => Cards::Xdma,
            _ if xdma_cards::has_options(text) => {
                let why = "the card in no fabric has no options and no faults";
                return Err(Error::Syntax { selector: text.into(), why: why.into() });
            }
            Some(("mock", _)) => Cards::Mock(Box::new(MockCards::parse(text)?)),
            Some(("vfio-user", _)) => {
                let paths = list::parse(text, "vfio-user:/run/fpga/0.sock", |part| {
                    part.strip_prefix("vfio-user:").filter(|path| !path.is_empty()).map(PathBuf::from)
                })?;
                let sockets = paths.into_iter().map(|path| sockets_at(text, path));
                let sockets = sockets.collect::<Result<Vec<_>, _>>()?.concat();
                list::check_distinct(text, &sockets, |path| format!("vfio-user:{}", path.display()))?;
                Cards::VfioUser(sockets)
            }
            _ if text.starts_with("vfio:") || text.contains('.') => {
                let functions = list::parse(text, "vfio:0000:3b:00.0 or 0000:3b:00.0", VfioCard::parse)?;
                let addresses: Vec<_> = functions.iter().map(|function| function.address).collect();
                list::check_distinct(text, &addresses, |address| format!("vfio:{address}"))?;
                Cards::Vfio(functions)
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
        match &self.cards {
            Cards::Mock(mock) => mock.selected(),
            Cards::Xdma => vec![0],
            Cards::Vfio(_) | Cards::VfioUser(_) => Vec::new(),
        }
    }

    /// Whether it selects a mock fabric, and not cards of one.
    pub fn is_whole_fabric(&self) -> bool {
        self.mock().is_some_and(|mock| mock.nodes.is_empty())
    }

    /// Returns which function of each card it selects. Only some mock cards have others than the card itself.
    pub fn part(&self) -> Part {
        self.mock().map_or(Part::Card, |mock| mock.part)
    }

    /// Returns a selector for each mock card, without faults.
    pub fn mock_selectors(&self) -> Vec<String> {
        match &self.cards {
            Cards::Mock(mock) => mock.selected().iter().map(|node| mock.selector(*node)).collect(),
            Cards::Xdma => vec![xdma_cards::selector()],
            Cards::Vfio(_) | Cards::VfioUser(_) => Vec::new(),
        }
    }

    /// Returns the name of the first option of mock cards that acts on what sequencers send over links, and on nothing else that
    /// links carry, such as `cut`.
    pub fn link_option(&self) -> Option<&'static str> {
        self.mock()?;
        let mut names = self.text.split(['+', ',']).filter_map(|option| option.split('=').next());
        names.find_map(|name| OF_LINKS.into_iter().find(|known| *known == name))
    }

    pub(crate) fn mock(&self) -> Option<&MockCards> {
        match &self.cards {
            Cards::Mock(mock) => Some(mock),
            Cards::Xdma | Cards::Vfio(_) | Cards::VfioUser(_) => None,
        }
    }

    /// Returns the kind of the cards.
    pub fn kind(&self) -> Kind {
        match &self.cards {
            Cards::Mock(_) | Cards::Xdma => Kind::Mock,
            Cards::Vfio(_) => Kind::Vfio,
            Cards::VfioUser(_) => Kind::VfioUser,
        }
    }

    /// Returns the PCI addresses of functions on the kernel's VFIO.
    pub fn addresses(&self) -> Vec<PciAddress> {
        match &self.cards {
            Cards::Vfio(functions) => functions.iter().map(|function| function.address).collect(),
            Cards::Mock(_) | Cards::Xdma | Cards::VfioUser(_) => Vec::new(),
        }
    }

    /// Returns the paths of the vfio-user sockets.
    pub fn sockets(&self) -> &[PathBuf] {
        match &self.cards {
            Cards::VfioUser(paths) => paths,
            Cards::Mock(_) | Cards::Xdma | Cards::Vfio(_) => &[],
        }
    }

    /// Returns a selector of each single card that other processes can open too; none for mock cards, which are in this process only.
    pub fn each(&self) -> Vec<Selector> {
        let named = |text: String, cards| Selector { text, cards };
        match &self.cards {
            Cards::Mock(_) | Cards::Xdma => Vec::new(),
            Cards::Vfio(cards) => {
                cards.iter().map(|card| named(format!("vfio:{}", card.address), Cards::Vfio(vec![*card]))).collect()
            }
            Cards::VfioUser(paths) => {
                let one = |path: &PathBuf| {
                    named(format!("vfio-user:{}", path.display()), Cards::VfioUser(vec![path.clone()]))
                };
                paths.iter().map(one).collect()
            }
        }
    }

    /// Returns the text of the selector.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Opens functions, to look at them: opening a card to use it is [`open_cards`](Self::open_cards).
    ///
    /// # Errors
    /// [`Error::Open`] if opening a function fails.
    pub fn open(&self) -> Result<Selection, Error> {
        self.open_parts(Duration::MAX, false)
    }

    /// Opens cards, with the control function of each that has one of its own: of mock cards in this process, and of a socket
    /// `NODE.sock` if there is `NODE.control.sock` beside it. A control function that is in use elsewhere is left out; if
    /// it cannot be opened for another reason, it is left out with a warning. On the kernel's VFIO none is opened: opening the physical
    /// function resets the virtual functions of all its users. Waits at most `timeout` for a vfio-user server, and at most the
    /// default time.
    ///
    /// # Errors
    /// [`Error::Open`] if opening a card fails, or if there are no file descriptors or no memory left for a control function.
    pub fn open_cards(&self, timeout: Duration) -> Result<Selection, Error> {
        self.open_parts(timeout, self.part() == Part::Card)
    }

    fn open_parts(&self, timeout: Duration, with_controls: bool) -> Result<Selection, Error> {
        let mut controls = Vec::new();
        let (functions, fabric) = match &self.cards {
            Cards::Mock(mock) => {
                let (fabric, all) = self.fabric_with_all_functions()?;
                let domain = Domain::in_process();
                let attach = |one: &MockFunction| {
                    let name = mock.named(one.node, one.part);
                    in_process::attach(Arc::clone(&one.endpoint), &domain, &name)
                        .map_err(|source| Error::Open { selector: name, source })
                };
                // First, because opening a control function resets its card.
                if with_controls {
                    for node in mock.selected() {
                        let control = all.iter().find(|one| one.node == node && one.part == Part::Control);
                        controls.push(control.map(attach).transpose()?);
                    }
                }
                let functions = all.iter().filter(|one| one.part == mock.part).map(attach).collect::<Result<_, _>>()?;
                // After opening: opening resets a card, which undoes its faults.
                self.plant_faults(&fabric);
                (functions, Some(fabric))
            }
            Cards::Xdma => (vec![xdma_cards::open()?], None),
            Cards::Vfio(functions) => {
                let domain = Domain::vfio().map_err(|source| Error::Open { selector: self.text.clone(), source })?;
                (vfio_card::open_all(functions, &domain)?, None)
            }
            Cards::VfioUser(paths) => {
                let mut options = vfio_user::Options::default();
                options.patience = options.patience.min(timeout);
                let open = |path: &PathBuf, domain: &Domain| {
                    let named = |source| Error::Open { selector: format!("vfio-user:{}", path.display()), source };
                    vfio_user::connect_with(path, domain, &options).map_err(named)
                };
                let domain = Domain::vfio_user();
                let functions = paths.iter().map(|path| open(path, &domain)).collect::<Result<_, _>>()?;
                // Only now: opening a control function resets its card, which another process has unless this one does.
                if with_controls {
                    let opened =
                        |path: &PathBuf| control_socket(path).map_or(Ok(None), |path| if_usable(open(&path, &domain)));
                    controls = paths.iter().map(opened).collect::<Result<_, _>>()?;
                }
                (functions, None)
            }
        };
        Ok(Selection { selector: self.text.clone(), kind: self.kind(), functions, controls, fabric })
    }

    /// Creates the mock fabric and returns the selected functions by node, not attached to a bus. The selector's faults are not
    /// active: see [`plant_faults`](Self::plant_faults).
    ///
    /// # Errors
    /// [`Error::NotMock`] for other cards; [`Error::Profile`].
    pub fn fabric(&self) -> Result<(Fabric, Vec<NodeEndpoint>), Error> {
        let (fabric, functions) = self.fabric_with_all_functions()?;
        let selected = functions.into_iter().filter(|function| function.part == self.part());
        Ok((fabric, selected.map(|function| (function.node, function.endpoint)).collect()))
    }

    /// As [`fabric`](Self::fabric), with all functions of the selected cards: the cards first.
    ///
    /// # Errors
    /// As [`fabric`](Self::fabric).
    pub fn fabric_with_all_functions(&self) -> Result<(Fabric, Vec<MockFunction>), Error> {
        let selector = self.text.clone();
        let Some(mock) = self.mock() else { return Err(Error::NotMock { selector }) };
        let fabric = Fabric::new(mock.profile.clone()).map_err(|source| Error::Profile { selector, source })?;
        let mut functions = Vec::new();
        let engines = mock.profile.shell.has_engine().then(|| XdmaCards::before(&fabric, Shape::default()));
        for node in mock.selected() {
            let mut add = |part, endpoint| functions.push(MockFunction { node, part, endpoint });
            let card = match (&engines, mock.profile.shell) {
                (Some(engines), _) => engines.endpoint(node),
                (None, shell @ (Shell::S10Dfl | Shell::S10Pac)) => {
                    let card = D5005::new(&fabric, node);
                    // Without OFS the card is its own control function.
                    if shell == Shell::S10Dfl {
                        // As a driver of the control function has done after power-up: the card's own function cannot.
                        card.release();
                        add(Part::Control, card.control());
                    }
                    if let Some(exerciser) = card.exerciser() {
                        add(Part::Exerciser, exerciser);
                    }
                    card.accelerator()
                }
                (None, _) => fabric.endpoint(node),
            };
            let card = match mock.late {
                Some(longest) => LateDma::new(card, node.into(), longest) as Arc<dyn Endpoint>,
                None => card,
            };
            add(Part::Card, card);
        }
        functions.sort_by_key(|function| function.part as u8);
        Ok((fabric, functions))
    }

    /// Returns the selected mock cards that no fabric connects, by number and not attached to a bus; `None` for other cards.
    pub fn cards_without_fabric(&self) -> Option<Vec<NodeEndpoint>> {
        match &self.cards {
            Cards::Xdma => Some(vec![(0, xdma_cards::endpoint())]),
            Cards::Mock(_) | Cards::Vfio(_) | Cards::VfioUser(_) => None,
        }
    }

    /// Plants the selector's faults in its fabric. A reset of a card undoes faults that have already occurred.
    pub fn plant_faults(&self, fabric: &Fabric) {
        if let Some(mock) = self.mock() {
            mock.faults.iter().for_each(|fault| fabric.plant(*fault));
        }
    }
}

/// A function of a mock card, not attached to a bus.
pub struct MockFunction {
    /// Node of the card.
    pub node: u32,
    /// Which function.
    pub part: Part,
    /// The function.
    pub endpoint: Arc<dyn Endpoint>,
}

/// Node and endpoint of a mock card.
pub type NodeEndpoint = (u32, Arc<dyn Endpoint>);

/// Parses `selector` and opens its functions: a convenience for [`Selector::parse`] and [`Selector::open`].
///
/// # Errors
/// As [`Selector::parse`] and [`Selector::open`].
pub fn select(selector: &str) -> Result<Selection, Error> {
    Selector::parse(selector)?.open()
}

/// Returns an opened control function; `None` if its card is to be used without.
pub(crate) fn if_usable(opened: Result<Function, Error>) -> Result<Option<Function>, Error> {
    match opened {
        Ok(function) => Ok(Some(function)),
        Err(error) if error.is_out_of_resources() => Err(error),
        Err(Error::Open { source: fpga_hal::Error::Busy { .. }, .. }) => Ok(None),
        Err(error) => {
            let causes: String = error.causes().map(|cause| format!(": {cause}")).collect();
            log::warn!("{error}{causes}; the card has no sensors and no reset of its port");
            Ok(None)
        }
    }
}
