//! Protocol between guest and host: lines of text on the guest's second serial port.
//!
//! The guest reports tests, and requests what only the host can do (pull a card, kill its server). The host answers each
//! request once. It shows all other lines as they are.

use std::fmt;
use std::str::FromStr;

/// Kernel parameter with the scenario of the machine.
pub const SCENARIO: &str = "fpga.scenario";
/// Kernel parameter with a part of the names of the tests to run; without it, all of the scenario.
pub const FILTER: &str = "fpga.filter";
/// The guest's end of the line.
pub const GUEST_PORT: &str = "/dev/ttyS1";
/// Mock cards of a machine, each behind a root port of its own.
pub const CARDS: usize = 4;
/// Device number of the root port of card 0 on bus 0; the others follow.
pub const FIRST_PORT: u8 = 0x10;

/// A message of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromGuest {
    /// An observation or measurement.
    Log(String),
    /// A test begins.
    Begin(String),
    /// A test ended.
    Test {
        /// Its name.
        name: String,
        /// Whether it passed.
        passed: bool,
    },
    /// A request; the host answers with its number.
    Ask {
        /// Number of the request.
        number: u64,
        /// The request.
        request: Request,
    },
    /// All tests ended.
    Done {
        /// Tests that passed.
        passed: usize,
        /// Tests that failed.
        failed: usize,
    },
}

/// A request to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Pull a device in an orderly way; answered when it is gone.
    Unplug {
        /// Its name: `card0`, …
        device: String,
    },
    /// Kill the process that serves the cards.
    KillServer,
    /// Let a device report an uncorrected error (PCIe advanced error reporting).
    ReportError {
        /// Its name.
        device: String,
    },
    /// When the machine has stopped, compare a block of the medium.
    Medium {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// FNV-1a of its contents.
        hash: u64,
    },
}

/// The host's answer: a note for the log, or the reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Number of the request.
    pub number: u64,
    /// Note or reason.
    pub outcome: Result<String, String>,
}

/// A line that is not part of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not what guest and host say to each other")]
pub struct Unknown(pub String);

/// Text on one line.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| write!(f, "{}", if letter.is_control() { ' ' } else { letter }))
    }
}

impl fmt::Display for FromGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FromGuest::Log(text) => write!(f, "log {}", OneLine(text)),
            FromGuest::Begin(name) => write!(f, "begin {}", OneLine(name)),
            FromGuest::Test { name, passed } => {
                write!(f, "{} {}", if *passed { "passed" } else { "failed" }, OneLine(name))
            }
            FromGuest::Ask { number, request } => write!(f, "ask {number} {request}"),
            FromGuest::Done { passed, failed } => write!(f, "done {passed} {failed}"),
        }
    }
}

impl FromStr for FromGuest {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Self, Unknown> {
        let parse = || {
            let (word, rest) = line.split_once(' ')?;
            Some(match word {
                "log" => FromGuest::Log(rest.to_owned()),
                "begin" => FromGuest::Begin(rest.to_owned()),
                "passed" => FromGuest::Test { name: rest.to_owned(), passed: true },
                "failed" => FromGuest::Test { name: rest.to_owned(), passed: false },
                "ask" => {
                    let (number, request) = rest.split_once(' ')?;
                    FromGuest::Ask { number: number.parse().ok()?, request: request.parse().ok()? }
                }
                "done" => {
                    let (passed, failed) = rest.split_once(' ')?;
                    FromGuest::Done { passed: passed.parse().ok()?, failed: failed.parse().ok()? }
                }
                _ => return None,
            })
        };
        parse().ok_or_else(|| Unknown(line.to_owned()))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Unplug { device } => write!(f, "unplug {}", OneLine(device)),
            Request::KillServer => f.write_str("kill-server"),
            Request::ReportError { device } => write!(f, "report-error {}", OneLine(device)),
            Request::Medium { offset, bytes, hash } => write!(f, "medium {offset} {bytes} {hash:016x}"),
        }
    }
}

impl FromStr for Request {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let mut words = text.split(' ');
        let mut parse = || {
            let request = match words.next()? {
                "unplug" => Request::Unplug { device: words.next()?.to_owned() },
                "kill-server" => Request::KillServer,
                "report-error" => Request::ReportError { device: words.next()?.to_owned() },
                "medium" => Request::Medium {
                    offset: words.next()?.parse().ok()?,
                    bytes: words.next()?.parse().ok()?,
                    hash: u64::from_str_radix(words.next()?, 16).ok()?,
                },
                _ => return None,
            };
            words.next().is_none().then_some(request)
        };
        parse().ok_or_else(|| Unknown(text.to_owned()))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { number, outcome } = self;
        match outcome {
            Ok(text) => write!(f, "answer {number} ok {}", OneLine(text)),
            Err(text) => write!(f, "answer {number} error {}", OneLine(text)),
        }
    }
}

impl FromStr for Answer {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Self, Unknown> {
        let parse = || {
            let (number, rest) = line.strip_prefix("answer ")?.split_once(' ')?;
            let outcome = match rest.split_once(' ')? {
                ("ok", text) => Ok(text.to_owned()),
                ("error", text) => Err(text.to_owned()),
                _ => return None,
            };
            Some(Answer { number: number.parse().ok()?, outcome })
        };
        parse().ok_or_else(|| Unknown(line.to_owned()))
    }
}

/// FNV-1a, 64 bits: the hash of a [`Request::Medium`].
pub fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            "[a-z0-9]{1,9}".prop_map(|device| Request::Unplug { device }),
            Just(Request::KillServer),
            "[a-z0-9]{1,9}".prop_map(|device| Request::ReportError { device }),
            any::<(u64, u64, u64)>().prop_map(|(offset, bytes, hash)| Request::Medium { offset, bytes, hash }),
        ]
    }

    proptest! {
        #[test]
        fn what_the_guest_says_survives_the_line(
            said in prop_oneof![
                "[ -~]{0,40}".prop_map(FromGuest::Log),
                "[a-z_]{1,40}".prop_map(FromGuest::Begin),
                ("[a-z_]{1,40}", any::<bool>()).prop_map(|(name, passed)| FromGuest::Test { name, passed }),
                (any::<u64>(), request()).prop_map(|(number, request)| FromGuest::Ask { number, request }),
                any::<(usize, usize)>().prop_map(|(passed, failed)| FromGuest::Done { passed, failed }),
            ]
        ) {
            prop_assert_eq!(said.to_string().parse(), Ok(said));
        }

        #[test]
        fn answers_survive_the_line(number: u64, text in "[ -~]{0,40}", good: bool) {
            let answer = Answer { number, outcome: if good { Ok(text) } else { Err(text) } };
            prop_assert_eq!(answer.to_string().parse(), Ok(answer));
        }

        #[test]
        fn no_line_is_two(text: String) {
            prop_assert!(!FromGuest::Log(text).to_string().contains(['\n', '\r']));
        }

        #[test]
        fn any_line_is_said_or_is_not(line: String) {
            if let Ok(said) = line.parse::<FromGuest>() {
                prop_assert_eq!(said.to_string().parse(), Ok(said));
            }
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the authors' list of test vectors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
