//! Exit codes and error messages.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use cmdseq::Reason;
use cmdseq::Refusal;
use cmdseq::asm::Diagnostic;
use cmdseq::text::{causes, printable, printable_lines};
use fpga_driver::{ErrorKind, PeersError};
use schemars::JsonSchema;
use serde::Serialize;

use crate::meeting::part::MeetError;

/// Why the command fails. The exit codes are a contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The result is wrong.
    Verification,
    /// A card does not exist, or this user may not open it.
    NoCard,
    /// A file or directory does not exist, or this user may not use it.
    NoFile,
    /// A time limit expired.
    Timeout,
    /// A card or a link is gone.
    Gone,
    /// Refused before any launch.
    Refused,
    /// Ended by Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
}

impl Exit {
    /// Returns the failure of a number, which is `exit as u8`. Ranks tell each other numbers: two failures have the same exit code.
    pub(crate) fn of_number(number: u8) -> Option<Exit> {
        let all = [
            Exit::Failed,
            Exit::Usage,
            Exit::Verification,
            Exit::NoCard,
            Exit::NoFile,
            Exit::Timeout,
            Exit::Gone,
            Exit::Refused,
            Exit::Interrupted,
        ];
        all.into_iter().find(|exit| *exit as u8 == number)
    }

    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Verification => 3,
            Exit::NoCard | Exit::NoFile => 4,
            Exit::Timeout => 5,
            Exit::Gone => 6,
            Exit::Refused => 7,
            // 128 plus the number of SIGINT, as in shells.
            Exit::Interrupted => 130,
        }
    }

    /// Returns the name in `fpgactl.error/1`.
    const fn kind(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::Verification => "verification",
            Exit::NoCard => "no-card",
            Exit::NoFile => "no-file",
            Exit::Timeout => "timeout",
            Exit::Gone => "gone",
            Exit::Refused => "refused",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// An error that ends the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    rank: Option<u32>,
    instruction: Option<usize>,
    reason: Option<Reason>,
    causes: Vec<String>,
    locations: Vec<Diagnostic>,
    /// Whether a selected card could not be opened.
    is_unopened: bool,
}

/// Result of a function whose error ends the command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    exit: u8,
    kind: &'static str,
    message: &'a str,
    rank: Option<u32>,
    instruction: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    cause: Option<String>,
    #[serde(rename = "places", skip_serializing_if = "Vec::is_empty")]
    locations: Vec<Location<'a>>,
}

/// A location in a source and its message, as in `fpgactl.error/1`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Location<'a> {
    file: &'a str,
    line: u32,
    column: u32,
    width: u32,
    message: &'a str,
    rank: Option<u32>,
    source: &'a str,
}

impl<'a> From<&'a Diagnostic> for Location<'a> {
    fn from(diagnostic: &'a Diagnostic) -> Self {
        let Diagnostic { file, line, column, width, source, message, rank } = diagnostic;
        Location { file, line: *line, column: *column, width: *width, message, rank: *rank, source }
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        let (causes, locations) = (Vec::new(), Vec::new());
        Failure { exit, message, rank: None, instruction: None, reason: None, causes, locations, is_unopened: false }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Failure::new(Exit::Refused, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message)
    }

    /// An I/O error of a file or directory; a missing or inaccessible file has its own exit code.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => Exit::NoFile,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{}: {error}", printable(&path.to_string_lossy())))
    }

    /// The system refuses a thread.
    pub(crate) fn no_thread(error: io::Error) -> Self {
        Failure::new(Exit::Failed, format!("cannot start a thread: {error}"))
    }

    /// Adds the rank.
    pub(crate) fn of_rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Adds the rank if the failure has none.
    pub(crate) fn or_of_rank(mut self, rank: Option<u32>) -> Self {
        self.rank = self.rank.or(rank);
        self
    }

    /// Prefixes the message with the name of its subject.
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds locations in a source.
    pub(crate) fn at_locations(mut self, locations: Vec<Diagnostic>) -> Self {
        self.locations = locations;
        self
    }

    /// Adds the rank, and the instruction of its program.
    pub(crate) fn of_instruction(self, rank: u32, instruction: usize) -> Self {
        self.at(Some(rank), Some(instruction))
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Puts the rank and the causes into the message, as all ranks of a job print it.
    pub(crate) fn of_job(mut self, rank: u32) -> Self {
        let causes = std::mem::take(&mut self.causes);
        let message = std::iter::once(self.message).chain(causes).collect::<Vec<_>>().join(": ");
        let prefix = format!("rank {rank}");
        self.message = match message.to_lowercase().starts_with("rank ") {
            true => message,
            false => format!("{prefix}: {message}"),
        };
        self.or_of_rank(Some(rank))
    }

    /// Replaces what would steer a terminal in the message.
    pub(crate) fn printable(mut self) -> Self {
        let lines: Vec<String> = self.message.split('\n').map(printable).collect();
        self.message = lines.join("\n");
        self
    }

    /// Returns the kind of failure.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether a selected card could not be opened, for a reason that checks of the card may find.
    pub(crate) fn is_unopened(&self) -> bool {
        self.is_unopened
    }

    /// Appends the fix to the message.
    pub(crate) fn with_help(mut self, help: &str) -> Self {
        self.message += "; ";
        self.message += help;
        self
    }

    fn with_destinations_undefined(mut self) -> Self {
        // The driver already adds this to errors of data transfers.
        if !self.message.contains("undefined") {
            self.message += "; destinations are undefined";
        }
        self
    }

    fn at(mut self, rank: Option<u32>, instruction: Option<usize>) -> Self {
        (self.rank, self.instruction) = (rank, instruction);
        self
    }

    /// Converts an error with its sources; omits a source whose text is part of its parent's.
    pub(crate) fn chain(exit: Exit, error: &dyn std::error::Error) -> Self {
        Failure { causes: causes(error), ..Failure::new(exit, error.to_string()) }
    }

    /// Prints the error on stderr, as text or JSON, and returns the exit code. Waits for whoever reads stderr.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        // If stderr is closed, the exit code still reports the failure.
        let _ = std::io::stderr().write_all(self.printed(as_json).as_bytes());
        ExitCode::from(self.exit.code())
    }

    /// Formats the error as text or JSON.
    pub(crate) fn printed(&self, as_json: bool) -> String {
        if as_json { self.json() } else { self.text() }
    }

    fn json(&self) -> String {
        let printed = Printed {
            schema: "fpgactl.error/1",
            exit: self.exit.code(),
            kind: self.exit.kind(),
            message: &self.message,
            rank: self.rank,
            instruction: self.instruction,
            reason: self.reason.map(Reason::name),
            cause: (!self.causes.is_empty()).then(|| self.causes.join(": ")),
            locations: self.locations.iter().map(Location::from).collect(),
        };
        serde_json::to_string(&printed).unwrap_or_default() + "\n"
    }

    fn text(&self) -> String {
        let mut text = format!("fpgactl: {}\n", self.message);
        for cause in &self.causes {
            let _ = writeln!(text, "  caused by: {cause}");
        }
        for location in &self.locations {
            let _ = writeln!(text, "{location}");
        }
        printable_lines(&text)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let failure = Failure::refused(refusal.to_string()).at(refusal.rank, refusal.instruction);
        Failure { reason: Some(refusal.reason), ..failure }
    }
}

impl From<fpga_select::Error> for Failure {
    fn from(error: fpga_select::Error) -> Self {
        use fpga_select::Error::{NotMock, Open, Syntax};
        let exit = match error {
            _ if error.is_out_of_resources() => Exit::Failed,
            Syntax { .. } | NotMock { .. } => Exit::Usage,
            Open { source: fpga_hal::Error::Removed { .. }, .. } => Exit::Gone,
            Open { source: fpga_hal::Error::Unresponsive { .. }, .. } => Exit::Timeout,
            _ => Exit::NoCard,
        };
        let is_unopened = exit == Exit::NoCard && matches!(error, Open { .. });
        Failure { is_unopened, ..Failure::chain(exit, &error) }
    }
}

impl From<fpga_hal::sysfs::Error> for Failure {
    fn from(error: fpga_hal::sysfs::Error) -> Self {
        let is_none = matches!(error, fpga_hal::sysfs::Error::NoFunction { .. });
        Failure::chain(if is_none { Exit::NoCard } else { Exit::Failed }, &error)
    }
}

impl From<fpga_hal::Error> for Failure {
    fn from(error: fpga_hal::Error) -> Self {
        let is_gone = matches!(error, fpga_hal::Error::Removed { .. });
        Failure::chain(if is_gone { Exit::Gone } else { Exit::Failed }, &error)
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Failed => Exit::Failed,
            ErrorKind::Refused => Exit::Refused,
            ErrorKind::Timeout => Exit::Timeout,
            ErrorKind::Gone => Exit::Gone,
        }
    }
}

impl From<fpga_driver::Error> for Failure {
    fn from(error: fpga_driver::Error) -> Self {
        use fpga_driver::Error::{Differs, Failed, Peer, Peers, Refused, Timeout};
        let exit = error.kind().into();
        match error {
            Refused(refusal) => refusal.into(),
            Peers(error) => error.into(),
            Timeout { rank, instruction, .. } => {
                Failure::chain(exit, &error).at(rank, instruction).with_destinations_undefined()
            }
            Failed { rank, instruction, .. } => {
                Failure::chain(exit, &error).at(rank, Some(instruction)).with_destinations_undefined()
            }
            Differs { rank, .. } | Peer { rank, .. } => Failure::chain(exit, &error).of_rank(rank),
            _ => Failure::chain(exit, &error),
        }
    }
}

impl From<PeersError> for Failure {
    fn from(error: PeersError) -> Self {
        let (exit, rank) = match &error {
            PeersError::Gone { rank, .. } => (Exit::Gone, Some(*rank)),
            PeersError::Late { rank, .. } => (Exit::Timeout, Some(*rank)),
            PeersError::Malformed { rank, .. } => (Exit::Failed, Some(*rank)),
            _ => (Exit::Failed, None),
        };
        let failure = Failure::chain(exit, &error);
        rank.into_iter().fold(failure, Failure::of_rank)
    }
}

impl From<MeetError> for Failure {
    fn from(error: MeetError) -> Self {
        match error {
            MeetError::Peers(error) => error.into(),
            MeetError::Listen { .. } => Failure::chain(Exit::Failed, &error).of_rank(0),
            MeetError::Connect { .. } => Failure::chain(Exit::Timeout, &error).of_rank(0),
            MeetError::Missing { rank, .. } => Failure::chain(Exit::Timeout, &error).of_rank(rank),
            MeetError::Refused { rank, .. } => Failure::chain(Exit::Refused, &error).of_rank(rank),
            MeetError::Interrupted => Failure::chain(Exit::Interrupted, &error),
        }
    }
}

impl From<fpga_driver::dfl::Error> for Failure {
    fn from(error: fpga_driver::dfl::Error) -> Self {
        use fpga_driver::dfl::Error::{Card, Interrupted};
        let exit = match error {
            Card(error) => return error.into(),
            Interrupted { .. } => Exit::Interrupted,
            _ => error.kind().into(),
        };
        Failure::chain(exit, &error)
    }
}

impl From<fpga_driver::xdma::Error> for Failure {
    fn from(error: fpga_driver::xdma::Error) -> Self {
        use fpga_driver::xdma::Error::{Card, NoEngine, Refused, TimedOut};
        let exit = match error {
            Card(error) => return error.into(),
            TimedOut { .. } => Exit::Timeout,
            Refused { .. } | NoEngine { .. } => Exit::Refused,
            _ => Exit::Failed,
        };
        Failure::chain(exit, &error)
    }
}

impl From<fpga_driver::alveo::Error> for Failure {
    fn from(error: fpga_driver::alveo::Error) -> Self {
        use fpga_driver::alveo::Error::{Card, Engine, Interrupted, NoManagement, NoShell, Refused, TimedOut};
        let exit = match error {
            Card(error) => return error.into(),
            Engine(error) => return error.into(),
            TimedOut { .. } => Exit::Timeout,
            Interrupted { .. } => Exit::Interrupted,
            Refused { .. } | NoShell { .. } | NoManagement { .. } => Exit::Refused,
            _ => Exit::Failed,
        };
        Failure::chain(exit, &error)
    }
}

impl From<fpga_driver::region::Error> for Failure {
    fn from(error: fpga_driver::region::Error) -> Self {
        use fpga_driver::region::Error;
        match error {
            Error::Control(error) => error.into(),
            Error::Alveo(error) => error.into(),
            Error::NoRegion { .. } => Failure::chain(Exit::Refused, &error),
            _ => Failure::chain(Exit::Failed, &error),
        }
    }
}

impl From<fpga_driver::readings::Error> for Failure {
    fn from(error: fpga_driver::readings::Error) -> Self {
        use fpga_driver::readings::Error;
        match error {
            Error::Alveo(error) => error.into(),
            Error::Control(error) => error.into(),
            Error::Engine(error) => error.into(),
            Error::Card(error) => error.into(),
            _ => Failure::chain(Exit::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use cmdseq::Status;

    use super::*;

    fn exit_of(failure: impl Into<Failure>) -> Exit {
        failure.into().exit
    }

    #[test]
    fn selector_errors_have_their_codes() {
        assert_eq!(exit_of(fpga_select::Selector::parse("moc:optweb:4").unwrap_err()), Exit::Usage);
        assert_eq!(exit_of(fpga_select::Selector::parse("mock:optweb:65").unwrap_err()), Exit::NoCard);
        let card = fpga_select::Selector::parse("vfio:0000:3b:00.0").unwrap();
        assert_eq!(exit_of(card.fabric().err().unwrap()), Exit::Usage);
    }

    /// Of failures with the same exit code, checks of the card explain only one to open it.
    #[test]
    fn only_a_card_that_could_not_be_opened_is_unopened() {
        let missing = fpga_select::Selector::parse("vfio-user:/nowhere/0.sock").unwrap();
        let unopened = Failure::from(missing.open().err().unwrap());
        let unknown = Failure::from(fpga_select::Selector::parse("mock:optweb:65").unwrap_err());
        let other = Failure::new(Exit::NoCard, "no node 9");
        let found = [unopened, unknown, other].map(|one| (one.exit(), one.is_unopened()));
        assert_eq!(found, [true, false, false].map(|is_unopened| (Exit::NoCard, is_unopened)));
    }

    #[test]
    fn paths_are_shown_without_what_harms_a_terminal() {
        let path = Path::new("/tmp/\u{1b}]0;owned\u{7}\u{2067}\n");
        let failure = Failure::file(path, &io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(failure.exit, Exit::NoFile);
        assert!(
            failure.message.starts_with("/tmp/\u{fffd}]0;owned\u{fffd}\u{fffd}\u{fffd}: "),
            "{:?}",
            failure.message
        );
    }

    /// Every known status, and an unknown one, reaches the exit code and the message.
    #[test]
    fn every_status_ends_the_command() {
        for status in Status::ALL.iter().copied().chain([Status::Unknown(200)]).filter(|one| *one != Status::Done) {
            let error = fpga_driver::Error::Failed {
                node: 3,
                rank: Some(2),
                instruction: 1,
                operation: cmdseq::Operation::Allgather,
                status,
                detail: 0,
            };
            let failure = Failure::from(error);
            let expected = if status == Status::LinkDown { Exit::Gone } else { Exit::Failed };
            assert_eq!((failure.exit, failure.rank, failure.instruction), (expected, Some(2), Some(1)));
            assert!(failure.message.contains(&status.to_string()), "{}", failure.message);
        }
    }

    /// Every error bit of an engine's channel, of partial reconfiguration and of the FPGA's configuration logic.
    #[test]
    fn every_error_bit_of_a_shell_ends_the_command() {
        use fpga_driver::{alveo, dfl, msgdma, xdma};

        let name = || "card 0".to_owned();
        let bits = |all: u64| (0..64).map(|bit| 1 << bit).filter(move |bit| all & bit != 0);
        let mut texts = std::collections::BTreeSet::new();
        let mut check = |failure: Failure| {
            assert_eq!(failure.exit, Exit::Failed, "{failure:?}");
            assert!(texts.insert(failure.text()), "two errors are told alike: {}", failure.text());
        };
        let behind_a_card = |error: xdma::Error| exit_of(fpga_driver::Error::from(error));
        for bit in bits(fpga_regs::xdma::Status::FAILURES.bits().into()) {
            for direction in xdma::Direction::ALL {
                let error = || xdma::Error::Failed {
                    channel: xdma::ChannelName { function: name(), direction, number: 0 },
                    completed: 2,
                    descriptors: 3,
                    address: Some(4096),
                    status: fpga_regs::xdma::Status::from_bits_retain(bit as u32),
                };
                check(error().into());
                assert_eq!(behind_a_card(error()), Exit::Failed);
            }
        }
        // STATUS: stopped on an error, stopped early.
        for bit in bits(0x180) {
            let status = fpga_regs::msgdma::Status::from_bits_retain(bit as u32);
            let error = msgdma::Error::Failed { name: name(), descriptor: 2, descriptors: 3, address: 4096, status };
            check(fpga_driver::Error::from(error).into());
        }
        for bit in bits(0x7f) {
            check(dfl::Error::Failed { name: name(), pushed: 1, total: 2, errors: bit }.into());
        }
        for (bit, _) in fpga_regs::hwicap::words::ERRORS {
            check(alveo::Error::Failed { name: name(), errors: 1 << bit }.into());
        }
        let channel = || xdma::ChannelName { function: name(), direction: xdma::Direction::H2c, number: 0 };
        let waited = std::time::Duration::from_secs(1);
        let late = || xdma::Error::TimedOut { channel: channel(), completed: 0, descriptors: 1, waited };
        assert_eq!([exit_of(late()), behind_a_card(late())], [Exit::Timeout; 2]);
        let late = msgdma::Error::TimedOut { name: name(), descriptor: 0, descriptors: 1, waited };
        assert_eq!(exit_of(fpga_driver::Error::from(late)), Exit::Timeout);
        let late = || dfl::Error::TimedOut { name: name(), to: "end a reset", waited, last_seen: "0x0".to_owned() };
        assert_eq!([exit_of(late()), exit_of(fpga_driver::Error::from(late()))], [Exit::Timeout; 2]);
        let status = fpga_regs::msgdma::Status::BUSY;
        assert_eq!(exit_of(fpga_driver::Error::from(msgdma::Error::Stuck { name: name(), status })), Exit::Failed);
        assert_eq!(exit_of(xdma::Error::Stuck { channel: channel(), completed: 0, descriptors: 1 }), Exit::Failed);
    }

    #[test]
    fn refusals_name_rank_and_instruction() {
        let refusal = Refusal::at(3, 0, "too long".to_owned()).because(Reason::Stripe);
        let failure = Failure::from(fpga_driver::Error::Refused(refusal));
        assert_eq!(failure.text(), "fpgactl: rank 3, instruction 0: too long\n");
        let json: serde_json::Value = serde_json::from_str(&failure.json()).unwrap();
        assert_eq!(json["exit"], 7);
        assert_eq!(json["rank"], 3);
        assert_eq!(json["reason"], "stripe");
        assert_eq!(json["cause"], serde_json::Value::Null);
    }
}
