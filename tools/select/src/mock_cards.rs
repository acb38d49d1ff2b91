//! Cards of a mock fabric: `mock:PROFILE:SHAPE[/NODE[.PART]][+OPTION..][+FAULT..]`.

use std::time::Duration;

use fpga_mock::{Fault, Hardware, Moved, Profile, ProfileError, Shell, System, When};

use crate::error::Error;
use crate::list;
use crate::part::Part;

/// Longest time of a fault: one day, in microseconds.
const TIME_MAX_US: u64 = 86_400_000_000;

/// Options about links, which packets of collectives that switches compute do not regard.
pub(crate) const OF_LINKS: [&str; 5] = ["errors", "cut", "flap", "slow", "garble"];
/// Options that set one value; others are faults, of which a card may have several.
const OF_CARDS: [&str; 11] =
    ["lanes", "windows", "late", "posted", "split", "drift", "errors", "reset", "slow", "bypass", "bar4"];
/// Options that only cards have whose sequencers master the bus.
const OF_MASTERS: [&str; 3] = ["split", "unanswered", "poisoned"];
/// How long a link that flaps is down, in picoseconds, and how often.
const FLAP_DOWN_PS: u64 = 10_000_000;
const FLAPS: u32 = 16;

/// Cards of a mock fabric, and the fabric's faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MockCards {
    pub(crate) profile: Profile,
    /// `PROFILE:SHAPE`, as given.
    shape: String,
    /// Nodes of single cards; empty for all cards.
    pub(crate) nodes: Vec<u32>,
    /// Which function of each card.
    pub(crate) part: Part,
    pub(crate) faults: Vec<Fault>,
    /// Longest delay of host memory.
    pub(crate) late: Option<Duration>,
}

impl MockCards {
    /// Parses a mock fabric, or a comma-separated list of its cards.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let syntax = |why: String| Error::Syntax { selector: text.into(), why };
        let mut parts = text.split(',');
        let mut all = Self::parse_card(text, parts.next().unwrap_or_default())?;
        for part in parts {
            let next = Self::parse_card(text, part)?;
            if next.profile != all.profile {
                return Err(syntax(format!(
                    "expected mock cards of one fabric, found {}{} and {}{}",
                    all.shape,
                    all.profile_options(),
                    next.shape,
                    next.profile_options()
                )));
            }
            if next.nodes.is_empty() || all.nodes.is_empty() {
                return Err(syntax(
                    "expected a node for each card of a list, such as mock:optweb:4/0,mock:optweb:4/1".into(),
                ));
            }
            if next.part != all.part {
                return Err(syntax("expected the same function of each card".into()));
            }
            all.nodes.extend(next.nodes);
            all.faults.extend(next.faults);
            all.late = all.late.max(next.late);
        }
        list::check_distinct(text, &all.nodes, u32::to_string)?;
        Ok(all)
    }

    /// Parses `mock:PROFILE:SHAPE[/NODE[.PART]][+OPTION..][+FAULT..]`, a part of the selector `text`.
    fn parse_card(text: &str, part: &str) -> Result<Self, Error> {
        let syntax = |why: &str| Error::Syntax { selector: text.into(), why: why.into() };
        let mut options = part.split('+');
        let name = options.next().unwrap_or_default();
        let (fabric, node) = name.split_once('/').map_or((name, None), |(fabric, node)| (fabric, Some(node)));
        let fabric = fabric.strip_prefix("mock:").ok_or_else(|| syntax("expected mock cards of one fabric"))?;
        let profile = parse_profile(text, fabric)?;
        let (part, node) = node.map(Part::strip).map_or((Part::Card, None), |(part, node)| (part, Some(node)));
        if part != Part::Card && profile.shell != Shell::S10Dfl {
            let why = match (profile.shell, part) {
                (Shell::S10Pac, Part::Control) => "a card of mock:s10-pac is its own control function",
                _ => "cards of mock:s10-dfl have one",
            };
            return Err(syntax(&format!("no function {}: {why}", part.suffix())));
        }
        let mut mock =
            MockCards { profile, shape: fabric.to_owned(), nodes: Vec::new(), part, faults: Vec::new(), late: None };
        if let Some(node) = node {
            mock.nodes.push(node.parse().map_err(|_| syntax(&format!("invalid node {node:?}: expected a number")))?);
        }
        let options: Vec<&str> = options.collect();
        check_given_once(&options).map_err(|why| syntax(&why))?;
        // First, because they decide which other options have an effect.
        let (shells, options): (Vec<&str>, Vec<&str>) =
            options.into_iter().partition(|option| ["bypass", "bar4"].contains(option));
        for option in shells {
            if !mock.profile.shell.has_engine() {
                let of = if option == "bypass" { "channels for it" } else { "a bypass window" };
                return Err(syntax(&format!(
                    "+{option} has no effect on these cards: only those of mock:alveo-xdma have {of}"
                )));
            }
            let shell = if option == "bypass" { Shell::AlveoBypass } else { Shell::AlveoBar4 };
            if ![Shell::AlveoXdma, shell].contains(&mock.profile.shell) {
                return Err(syntax(
                    "+bypass and +bar4 exclude each other: with descriptor bypass the rings are in host memory",
                ));
            }
            mock.profile.shell = shell;
        }
        for option in options {
            let wrong = || syntax(&malformed(option));
            let name = option.split('=').next().unwrap_or_default();
            if !mock.profile.shell.masters_bus() && OF_MASTERS.contains(&name) {
                return Err(syntax(&format!(
                    "+{name} has no effect on these cards: their sequencers make no requests of the bus"
                )));
            }
            if mock.profile.shell.has_engine() && name == "reset" {
                return Err(syntax("+reset has no effect on these cards: their sequencers are reset at once"));
            }
            if mock.profile.switch.is_some() && OF_LINKS.contains(&name) {
                return Err(syntax(&format!(
                    "+{name} has no effect on what the switches of these cards compute: use +stop, or cards whose switches do not compute"
                )));
            }
            if mock.profile.router.is_none() && name == "drop" {
                return Err(syntax(
                    "+drop has no effect on these cards: it hits packets of tables, as on mock:novo-g:4x4x4",
                ));
            }
            match option.split_once('=') {
                Some(("lanes", lanes)) => mock.profile.lanes = lanes.parse().map_err(|_| wrong())?,
                Some(("windows", windows)) => mock.profile.windows = windows.parse().map_err(|_| wrong())?,
                Some(("late", us)) => {
                    mock.late = Some(Duration::from_micros(microseconds(us).ok_or_else(wrong)?));
                }
                Some((name @ ("posted" | "split" | "drift" | "errors" | "reset"), value)) => {
                    parse_hardware(&mut mock.profile.hardware, name, value).ok_or_else(wrong)?;
                }
                _ => mock.faults.push(parse_fault(option).ok_or_else(wrong)?),
            }
        }
        mock.profile.check().map_err(|source| match source {
            ProfileError::Lanes { .. } | ProfileError::Windows { .. } | ProfileError::Hardware { .. } => {
                syntax(&source.to_string())
            }
            source => Error::Profile { selector: text.into(), source },
        })?;
        mock.check_addresses().map_err(|why| syntax(&why))?;
        mock.check().map_err(|why| Error::NoCard { selector: text.into(), why })?;
        Ok(mock)
    }

    /// Returns the nodes of the cards.
    pub(crate) fn selected(&self) -> Vec<u32> {
        if self.nodes.is_empty() { (0..self.profile.nodes).collect() } else { self.nodes.clone() }
    }

    /// Returns the selector of one card, without faults.
    pub(crate) fn selector(&self, node: u32) -> String {
        self.named(node, self.part)
    }

    /// Returns the selector of one function of a card, without faults.
    pub(crate) fn named(&self, node: u32, part: Part) -> String {
        format!("mock:{}/{node}{}{}", self.shape, part.suffix(), self.profile_options())
    }

    /// Returns the options of the cards, each only if it is not the profile's.
    fn profile_options(&self) -> String {
        let published = Profile::optweb(self.profile.nodes);
        let option = |name: &str, value: u32, known: u32| match value == known {
            true => String::new(),
            false => format!("+{name}={value}"),
        };
        let Hardware { posted_writes, split_dma, drift_ppm, bits_per_error, reset_ms } = self.profile.hardware;
        let switch = |name: &str, value: Option<u64>| value.map_or(String::new(), |value| format!("+{name}={value}"));
        self.profile.shell.option().to_owned()
            + &option("lanes", self.profile.lanes, published.lanes)
            + &option("windows", self.profile.windows, published.windows)
            + &switch("posted", posted_writes.map(u64::from))
            + &switch("split", split_dma)
            + &option("drift", drift_ppm, 0)
            + &switch("errors", bits_per_error)
            + &option("reset", reset_ms, 0)
    }

    /// Returns whether no option or fault changes the published cards.
    pub(crate) fn is_plain(&self) -> bool {
        self.profile_options().is_empty() && self.faults.is_empty() && self.late.is_none()
    }

    /// Checks that faults hit addresses that the cards have; `Err` names one that they have not.
    fn check_addresses(&self) -> Result<(), String> {
        let bytes = self.profile.memory_bytes;
        let missing = self.faults.iter().find_map(|fault| match fault {
            Fault::FlipBits { address, .. } if *address >= bytes => Some(address),
            _ => None,
        });
        missing
            .map_or(Ok(()), |address| Err(format!("+flip: no address {address:#x} (a card has 0 to {:#x})", bytes - 1)))
    }

    /// Checks that all named cards and links exist; `Err` names the missing one.
    fn check(&self) -> Result<(), String> {
        let count = self.profile.nodes;
        let exists = |node: u32| match node < count {
            true => Ok(()),
            false => Err(format!("no card {node} (available: 0 to {})", count.saturating_sub(1))),
        };
        self.nodes.iter().try_for_each(|node| exists(*node))?;
        for fault in &self.faults {
            if let Fault::Freeze { when: When::Moved(moved), .. }
            | Fault::Cut { when: When::Moved(moved), .. }
            | Fault::Flap { when: When::Moved(moved), .. } = fault
            {
                exists(moved.node)?;
            }
            match *fault {
                Fault::Freeze { node, .. }
                | Fault::Unanswered { node, .. }
                | Fault::Poisoned { node, .. }
                | Fault::FlipBits { node, .. } => exists(node)?,
                Fault::Cut { a, b, .. }
                | Fault::Flap { a, b, .. }
                | Fault::Garble { from: a, to: b, .. }
                | Fault::Drop { from: a, to: b, .. } => {
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

/// Checks that options that set one value are given once; `Err` names one that is given twice.
fn check_given_once(options: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = options.iter().filter_map(|option| option.split('=').next()).collect();
    let is_second = |(index, name): &(usize, &&str)| OF_CARDS.contains(*name) && names[..*index].contains(*name);
    let twice = names.iter().enumerate().find(is_second);
    twice.map_or(Ok(()), |(_, name)| Err(format!("+{name} is given twice")))
}

/// Options, with their forms and ranges.
const FORMS: [(&str, &str); 19] = [
    ("lanes", "+lanes=N, from 1 to 64"),
    ("windows", "+windows=N, at most 1024"),
    ("posted", "+posted=N, at most 64"),
    ("split", "+split=SEED, a number of 64 bits"),
    ("drift", "+drift=PPM, at most 1000"),
    ("errors", "+errors=BITS, from 1 on"),
    ("reset", "+reset=MS, at most 100"),
    ("stop", "+stop=NODE[@WHEN]; WHEN is US, at most 86400000000 (a day), or CARD.TRANSFER.BYTES"),
    ("cut", "+cut=A-B[@WHEN]; WHEN is US, at most 86400000000 (a day), or CARD.TRANSFER.BYTES"),
    ("flap", "+flap=A-B[@WHEN]; WHEN is US, at most 86400000000 (a day), or CARD.TRANSFER.BYTES"),
    ("slow", "+slow=GBPS, a whole number from 1 to 4294967"),
    ("unanswered", "+unanswered=NODE[@N]"),
    ("poisoned", "+poisoned=NODE[@N]"),
    ("garble", "+garble=A-B[@N]"),
    ("drop", "+drop=A-B[@N]"),
    ("flip", "+flip=NODE[@ADDRESS]; ADDRESS is decimal, or begins with 0x"),
    ("late", "+late=US, at most 86400000000 (a day)"),
    ("bypass", "+bypass"),
    ("bar4", "+bar4"),
];

/// Says what is expected in place of an option that cannot be parsed.
fn malformed(option: &str) -> String {
    let name = option.split('=').next().unwrap_or_default();
    match FORMS.iter().find(|(known, _)| *known == name) {
        Some((_, form)) => format!("invalid option +{option}: expected {form}"),
        None => {
            let known: Vec<&str> = FORMS.iter().map(|(known, _)| *known).collect();
            format!("unknown option +{option} (available: {}; docs/cli.md has their forms)", known.join(", "))
        }
    }
}

/// Parses `PROFILE:SHAPE`, a part of the selector `text`.
fn parse_profile(text: &str, fabric: &str) -> Result<Profile, Error> {
    let syntax = |why: &str| Error::Syntax { selector: text.into(), why: why.into() };
    let (profile, shape) = match fabric.split_once(':') {
        Some((profile, shape)) => (Some(profile), Some(shape)),
        None => (Some(fabric), None),
    };
    let is_switched = profile == Some(System::MpiFpga.name());
    // Only shapes of MPI-FPGA may have colons.
    if !is_switched && shape.is_some_and(|shape| shape.contains(':')) {
        return Err(syntax("expected mock:PROFILE:SHAPE, such as mock:optweb:4"));
    }
    let shell = Shell::ALL.into_iter().find(|shell| shell.name().is_some() && shell.name() == profile);
    // Behind a shell is OPTWEB, unless `@PROFILE` says otherwise.
    let (shape, profile) = match (shell, shape) {
        (None, _) => (shape, profile),
        (Some(_), Some(shape)) => match shape.split_once('@') {
            Some((shape, profile)) => (Some(shape), Some(profile)),
            None => (Some(shape), Some(System::Optweb.name())),
        },
        (Some(_), None) => (None, Some(System::Optweb.name())),
    };
    let Some(system) = System::ALL.into_iter().find(|system| profile == Some(system.name())) else {
        let shells = Shell::ALL.into_iter().filter(|shell| shell.option().is_empty()).filter_map(Shell::name);
        let known: Vec<&str> = match shell {
            // After `@` there is no shell, and some systems have none.
            Some(_) => [System::Optweb, System::Circus, System::Bluelink].map(System::name).to_vec(),
            None => System::ALL.map(System::name).into_iter().chain(shells).collect(),
        };
        let known = known.join(", ");
        return Err(syntax(&format!("unknown profile {:?} (available: {known})", profile.unwrap_or_default())));
    };
    let expected = match system {
        System::Optweb => "expected a number of cards or GROUPSxSIZE",
        System::MpiFpga => "expected a torus such as 4x4x2, or leaf and spine switches such as fat:32 or fat:32:16",
        System::NovoG => "expected a torus such as 4x4x4",
        System::Circus | System::Bluelink => "expected a number of cards or ROWSxCOLUMNS",
    };
    let shape = shape.ok_or_else(|| syntax(&format!("missing shape: {expected}")))?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| syntax(&format!("invalid shape {text:?}: {expected}")));
    let grid = || {
        let sides = shape.split_once('x');
        sides.map(|(rows, columns)| Ok::<_, Error>((number(rows)?, number(columns)?))).transpose()
    };
    let checked = |profile: Profile, sides| match profile.check() {
        Err(error) => Err(syntax(&as_typed(error, sides).to_string())),
        Ok(()) => Ok(profile),
    };
    // One row of a torus is a ring.
    let on_torus = |of: fn(u32, u32) -> Profile| {
        let (rows, columns) = grid()?.map_or_else(|| number(shape).map(|cards| (1, cards)), Ok)?;
        checked(of(rows, columns), (rows, columns))
    };
    let profile = match system {
        System::Optweb => match grid()? {
            Some((groups, size)) => checked(Profile::optweb_dragonfly(groups, size), (groups, size))?,
            None => Profile::optweb(number(shape)?),
        },
        System::Circus => on_torus(Profile::circus)?,
        System::Bluelink => on_torus(Profile::bluelink)?,
        System::MpiFpga if is_switched => Profile::mpi_fpga_of(shape).map_err(|error| syntax(&error.to_string()))?,
        System::MpiFpga => return Err(syntax("cards of MPI-FPGA have no shell: expected mock:mpi-fpga:SHAPE")),
        System::NovoG if shell.is_none() => Profile::novo_g_of(shape).map_err(|error| syntax(&error.to_string()))?,
        System::NovoG => return Err(syntax("cards of Novo-G# have no shell: expected mock:novo-g:SHAPE")),
    };
    Ok(Profile { shell: shell.unwrap_or_default(), ..profile })
}

/// Gives an error of a shape the sides as typed: a profile has only their product.
fn as_typed(error: ProfileError, (one, other): (u32, u32)) -> ProfileError {
    match error {
        ProfileError::Torus { most, .. } => ProfileError::Torus { rows: one, columns: other, most },
        ProfileError::Dragonfly { .. } => ProfileError::Dragonfly { groups: one, size: other },
        ProfileError::Links { ports, .. } => {
            let needed = one.saturating_add(other).saturating_sub(2);
            ProfileError::Links { groups: one, size: other, needed, ports }
        }
        error => error,
    }
}

/// Parses the time of a fault.
fn microseconds(text: &str) -> Option<u64> {
    text.parse().ok().filter(|us| *us <= TIME_MAX_US)
}

/// Parses `US`, or `CARD.TRANSFER.BYTES`.
fn parse_when(text: &str) -> Option<When> {
    let mut parts = text.split('.');
    let (first, transfer, bytes, rest) = (parts.next()?, parts.next(), parts.next(), parts.next());
    match (transfer, bytes, rest) {
        (None, ..) => Some(When::After(microseconds(first)?.checked_mul(1_000_000)?)),
        (Some(transfer), Some(bytes), None) => {
            let (node, transfer) = (first.parse().ok()?, transfer.parse().ok()?);
            Some(When::Moved(Moved { node, tag: None, transfer, bytes: bytes.parse().ok()? }))
        }
        _ => None,
    }
}

/// Turns on what `name=value` names.
fn parse_hardware(hardware: &mut Hardware, name: &str, value: &str) -> Option<()> {
    match name {
        "posted" => hardware.posted_writes = Some(value.parse().ok()?),
        "split" => hardware.split_dma = Some(value.parse().ok()?),
        "errors" => hardware.bits_per_error = Some(value.parse().ok().filter(|bits| *bits > 0)?),
        "reset" => hardware.reset_ms = value.parse().ok()?,
        _ => hardware.drift_ppm = value.parse().ok()?,
    }
    Some(())
}

fn parse_address(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

fn parse_fault(text: &str) -> Option<Fault> {
    let (kind, rest) = text.split_once('=')?;
    if kind == "slow" {
        let mbps = rest.parse::<u32>().ok().filter(|gbps| *gbps > 0)?.checked_mul(1000)?;
        return Some(Fault::Slow { mbps });
    }
    let (who, when) = rest.split_once('@').unwrap_or((rest, "0"));
    let (number, node) = (when.parse().ok(), who.parse().ok());
    let ends = who.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match kind {
        "unanswered" => return Some(Fault::Unanswered { node: node?, after: number? }),
        "poisoned" => return Some(Fault::Poisoned { node: node?, after: number? }),
        "flip" => return Some(Fault::FlipBits { node: node?, address: parse_address(when)?, bits: 2 }),
        "garble" => return ends.and_then(|(from, to)| Some(Fault::Garble { from, to, after: number? })),
        "drop" => return ends.and_then(|(from, to)| Some(Fault::Drop { from, to, after: number? })),
        _ => {}
    }
    let when = parse_when(when)?;
    match kind {
        "stop" => Some(Fault::Freeze { node: node?, when }),
        "cut" => ends.map(|(a, b)| Fault::Cut { a, b, when }),
        "flap" => ends.map(|(a, b)| Fault::Flap { a, b, when, down_ps: FLAP_DOWN_PS, count: FLAPS }),
        _ => None,
    }
}
