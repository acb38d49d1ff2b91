//! Settings from the environment.

use std::env::{self, VarError};
use std::path::PathBuf;
use std::time::Duration;

use fpga_select::Selector;

use crate::engine::with_causes;

/// Which calls go to the cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// All that they can run.
    Always,
    /// Those that the cards do faster than the MPI library, as measured by the first call of its kind.
    Auto,
    /// None.
    Never,
}

impl Policy {
    /// The policy with a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Policy::Always, Policy::Auto, Policy::Never].into_iter().find(|policy| policy.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Policy::Always => "always",
            Policy::Auto => "auto",
            Policy::Never => "never",
        }
    }
}

/// How statistics are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Text,
}

/// Where statistics are printed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// `None` for stderr.
    pub(crate) file: Option<PathBuf>,
}

/// The settings of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `FPGACTL_CARDS`: the cards of this host.
    pub(crate) cards: Vec<Selector>,
    /// `FPGA_MPI_POLICY`.
    pub(crate) policy: Policy,
    /// `FPGA_MPI_ORDER=rank`: folds in the order of ranks.
    pub(crate) in_rank_order: bool,
    /// `FPGA_MPI_TIMEOUT`, seconds; `None` waits as long as the card is well.
    pub(crate) timeout: Option<Duration>,
    /// `FPGA_MPI_STATS`.
    pub(crate) output: Option<Output>,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// A sentence that names the variable, its value and what is allowed.
    pub(crate) fn read() -> Result<Self, String> {
        Settings::of(|name| env::var(name))
    }

    fn of(variable: impl Fn(&str) -> Result<String, VarError>) -> Result<Self, String> {
        let value = |name: &str| match variable(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(format!("invalid {name}: expected UTF-8")),
        };
        let invalid =
            |name: &str, value: &str, allowed: &str| Err(format!("invalid {name}={value}: expected {allowed}"));
        let cards = value("FPGACTL_CARDS")?.map_or(Ok(Vec::new()), |text| cards(&text))?;
        let policy = value("FPGA_MPI_POLICY")?;
        let policy = match policy.as_deref().map(Policy::parse) {
            None => Policy::Always,
            Some(Some(known)) => known,
            Some(None) => return invalid("FPGA_MPI_POLICY", &policy.unwrap_or_default(), "always, auto or never"),
        };
        let in_rank_order = match value("FPGA_MPI_ORDER")?.as_deref() {
            None | Some("any") => false,
            Some("rank") => true,
            Some(other) => return invalid("FPGA_MPI_ORDER", other, "any or rank"),
        };
        let timeout = match value("FPGA_MPI_TIMEOUT")? {
            None => None,
            Some(text) => {
                let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
                match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                    Some(timeout) => Some(timeout),
                    None => return invalid("FPGA_MPI_TIMEOUT", &text, "a number of seconds above 0"),
                }
            }
        };
        let output = match value("FPGA_MPI_STATS")? {
            None => None,
            Some(text) => {
                let (format, file) = text.split_once(':').map_or((text.as_str(), None), |(a, b)| (a, Some(b.into())));
                let format = match format {
                    "json" => Format::Json,
                    "text" => Format::Text,
                    _ => return invalid("FPGA_MPI_STATS", &text, "json, text, json:FILE or text:FILE"),
                };
                Some(Output { format, file })
            }
        };
        Ok(Settings { cards, policy, in_rank_order, timeout, output })
    }

    /// What all ranks must have alike: name and value.
    pub(crate) fn common(&self) -> [(&'static str, String); 4] {
        let timeout = self.timeout.map_or_else(|| "no limit".to_owned(), |timeout| timeout.as_secs_f64().to_string());
        [
            ("FPGA_MPI_POLICY", self.policy.name().to_owned()),
            ("FPGA_MPI_ORDER", if self.in_rank_order { "rank" } else { "any" }.to_owned()),
            ("FPGA_MPI_TIMEOUT", timeout),
            ("library version", env!("CARGO_PKG_VERSION").to_owned()),
        ]
    }
}

/// Returns the single cards that `FPGACTL_CARDS` selects.
fn cards(text: &str) -> Result<Vec<Selector>, String> {
    let selector = Selector::parse(text).map_err(|error| format!("FPGACTL_CARDS: {}", with_causes(&error)))?;
    let cards = selector.each();
    if cards.is_empty() {
        return Err(format!(
            "FPGACTL_CARDS={text} selects mock cards of this process: serve them with `fpgactl mock serve`, and select their sockets"
        ));
    }
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let value = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::of(|name| value(name).ok_or(VarError::NotPresent))
    }

    fn names(settings: &Settings) -> Vec<&str> {
        settings.cards.iter().map(Selector::text).collect()
    }

    #[test]
    fn settings_are_read() {
        let none = settings(&[]).unwrap();
        assert_eq!((none.cards.len(), none.policy, none.timeout, none.output), (0, Policy::Always, None, None));
        let all = settings(&[
            ("FPGACTL_CARDS", "vfio-user:/a/0.sock,vfio-user:/a/1.sock"),
            ("FPGA_MPI_POLICY", "never"),
            ("FPGA_MPI_ORDER", "rank"),
            ("FPGA_MPI_TIMEOUT", "2.5"),
            ("FPGA_MPI_STATS", "json:/tmp/a:b"),
        ]);
        let all = all.unwrap();
        assert_eq!(names(&all), ["vfio-user:/a/0.sock", "vfio-user:/a/1.sock"]);
        assert_eq!((all.policy, all.in_rank_order), (Policy::Never, true));
        assert_eq!(all.timeout, Some(Duration::from_millis(2500)));
        assert_eq!(all.output, Some(Output { format: Format::Json, file: Some("/tmp/a:b".into()) }));
    }

    #[test]
    fn refusals_name_the_value_and_what_is_allowed() {
        for (name, value, allowed) in [
            ("FPGA_MPI_POLICY", "sometimes", "always, auto or never"),
            ("FPGA_MPI_ORDER", "x", "any or rank"),
            ("FPGA_MPI_TIMEOUT", "0", "seconds"),
            ("FPGA_MPI_TIMEOUT", "inf", "seconds"),
            ("FPGA_MPI_STATS", "xml", "json, text"),
            ("FPGACTL_CARDS", "vfio-user:/a,vfio-user:/b,vfio-user:/a", "duplicate card vfio"),
            ("FPGACTL_CARDS", "0000:3b:00.0,vfio:0000:3b:00.0", "duplicate card vfio"),
            ("FPGACTL_CARDS", "mock:optweb:2", "serve them with `fpgactl mock serve`"),
            ("FPGACTL_CARDS", "mock:optweb:2/0", "serve them with `fpgactl mock serve`"),
            ("FPGACTL_CARDS", "optweb", "expected mock:PROFILE:SHAPE, vfio:ADDRESS or vfio-user:PATH"),
        ] {
            let refusal = settings(&[(name, value)]).unwrap_err();
            assert!(refusal.contains(name) && refusal.contains(allowed), "{refusal}");
        }
    }

    #[test]
    fn a_directory_names_the_cards_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let sockets = ["9.sock", "10.sock"].map(|name| directory.path().join(name));
        let _listening = sockets.each_ref().map(|socket| UnixListener::bind(socket).unwrap());
        let selector = format!("vfio-user:{}", directory.path().display());
        let settings = settings(&[("FPGACTL_CARDS", &selector)]).unwrap();
        assert_eq!(names(&settings), sockets.map(|socket| format!("vfio-user:{}", socket.display())));
    }

    #[test]
    fn a_value_that_is_not_utf_8_is_refused() {
        for name in ["FPGACTL_CARDS", "FPGA_MPI_POLICY", "FPGA_MPI_ORDER", "FPGA_MPI_TIMEOUT", "FPGA_MPI_STATS"] {
            let value = || VarError::NotUnicode(OsString::from_vec(vec![b'/', 0xff]));
            let refusal = Settings::of(|one| Err(if one == name { value() } else { VarError::NotPresent }));
            assert_eq!(refusal, Err(format!("invalid {name}: expected UTF-8")));
        }
    }
}
