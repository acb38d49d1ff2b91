//! Exit codes, and what is printed with them.

use std::fmt::Write as _;
use std::process::ExitCode;

use cmdseq::Status;
use cmdseq::plan::Refusal;
use serde::Serialize;

/// How the command ends. The numbers are a contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed = 1,
    /// The command line cannot be understood.
    Usage = 2,
    /// The data that came out is not what should have come out.
    Verification = 3,
    /// There is no such card, or it may not be opened.
    NoCard = 4,
    /// Something did not happen in time.
    Timeout = 5,
    /// A card or a link is gone.
    Gone = 6,
    /// Refused before anything was launched.
    Refused = 7,
    /// Ended by Ctrl-C, as shells number it.
    Interrupted = 130,
}

impl Exit {
    /// Name in `fpgactl.error/1`.
    const fn kind(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::Verification => "verification",
            Exit::NoCard => "no-card",
            Exit::Timeout => "timeout",
            Exit::Gone => "gone",
            Exit::Refused => "refused",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// Why the command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    rank: Option<u32>,
    instruction: Option<usize>,
    causes: Vec<String>,
}

/// Result of everything that can end the command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    exit: u8,
    kind: &'static str,
    message: &'a str,
    rank: Option<u32>,
    instruction: Option<usize>,
    cause: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), rank: None, instruction: None, causes: Vec::new() }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Failure::new(Exit::Refused, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message)
    }

    pub(crate) fn of_rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    fn with_destinations_undefined(mut self) -> Self {
        // The driver says so itself when it was moving data.
        if !self.message.contains("undefined") {
            self.message += "; destinations are undefined";
        }
        self
    }

    fn at(mut self, rank: Option<u32>, instruction: Option<usize>) -> Self {
        (self.rank, self.instruction) = (rank, instruction);
        self
    }

    /// The error and its sources; a source that its parent prints already is left out.
    fn chain(exit: Exit, error: &dyn std::error::Error) -> Self {
        let mut failure = Failure::new(exit, error.to_string());
        let mut next = error.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            let said = failure.causes.last().unwrap_or(&failure.message);
            if !said.contains(&text) {
                failure.causes.push(text);
            }
            next = cause.source();
        }
        failure
    }

    /// Prints it on stderr, as JSON if asked, and gives the exit code.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        eprint!("{}", if as_json { self.json() } else { self.text() });
        ExitCode::from(self.exit as u8)
    }

    fn json(&self) -> String {
        let printed = Printed {
            schema: "fpgactl.error/1",
            exit: self.exit as u8,
            kind: self.exit.kind(),
            message: &self.message,
            rank: self.rank,
            instruction: self.instruction,
            cause: (!self.causes.is_empty()).then(|| self.causes.join(": ")),
        };
        serde_json::to_string(&printed).unwrap_or_default() + "\n"
    }

    fn text(&self) -> String {
        let mut text = format!("fpgactl: {}\n", self.message);
        for cause in &self.causes {
            let _ = writeln!(text, "  because: {cause}");
        }
        text
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::refused(refusal.to_string()).at(refusal.rank, refusal.instruction)
    }
}

impl From<fpga_select::Error> for Failure {
    fn from(error: fpga_select::Error) -> Self {
        use fpga_select::Error::{Open, Profile, Syntax};
        let exit = match error {
            Syntax { .. } => Exit::Usage,
            Profile { .. } => Exit::NoCard,
            Open { source: fpga_hal::Error::Removed, .. } => Exit::Gone,
            _ => Exit::NoCard,
        };
        Failure::chain(exit, &error)
    }
}

impl From<fpga_driver::Error> for Failure {
    fn from(error: fpga_driver::Error) -> Self {
        use fpga_driver::Error::{BadArgument, Bus, Failed, Full, Mismatch, Refused, Removed, Timeout};
        match error {
            Refused(refusal) => refusal.into(),
            Timeout { rank, instruction, .. } => {
                Failure::chain(Exit::Timeout, &error).at(rank, instruction).with_destinations_undefined()
            }
            Failed { rank, instruction, status, .. } => {
                let exit = if status == Status::LinkDown { Exit::Gone } else { Exit::Failed };
                Failure::chain(exit, &error).at(rank, Some(instruction)).with_destinations_undefined()
            }
            Removed { .. } | Bus(fpga_hal::Error::Removed) => Failure::chain(Exit::Gone, &error),
            Full { .. } | Mismatch { .. } | BadArgument { .. } => Failure::chain(Exit::Refused, &error),
            _ => Failure::chain(Exit::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_of(failure: impl Into<Failure>) -> Exit {
        failure.into().exit
    }

    #[test]
    fn selector_errors_have_their_codes() {
        assert_eq!(exit_of(fpga_select::Selector::parse("moc:optweb:4").unwrap_err()), Exit::Usage);
        assert_eq!(exit_of(fpga_select::Selector::parse("mock:optweb:65").unwrap_err()), Exit::NoCard);
        assert_eq!(exit_of(fpga_select::Selector::parse("vfio:0000:3b:00.0").unwrap_err()), Exit::NoCard);
    }

    /// Every status a card can give, and one it cannot yet, reaches the exit code and the message.
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

    #[test]
    fn refusals_name_rank_and_instruction() {
        let refusal = Refusal { rank: Some(3), instruction: Some(0), cause: "too long".into() };
        let failure = Failure::from(fpga_driver::Error::Refused(refusal));
        assert_eq!(failure.text(), "fpgactl: rank 3, instruction 0: too long\n");
        let json: serde_json::Value = serde_json::from_str(&failure.json()).unwrap();
        assert_eq!(json["exit"], 7);
        assert_eq!(json["rank"], 3);
        assert_eq!(json["cause"], serde_json::Value::Null);
    }
}
