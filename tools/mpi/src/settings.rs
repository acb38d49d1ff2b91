//! Settings from the environment.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

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
    /// `FPGACTL_CARDS`: selectors of the cards of this host.
    pub(crate) cards: Vec<String>,
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
        Settings::of(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let invalid =
            |name: &str, value: &str, allowed: &str| Err(format!("invalid {name}={value}: expected {allowed}"));
        let cards = value("FPGACTL_CARDS").unwrap_or_default();
        let cards: Vec<String> = cards.split(',').filter(|card| !card.is_empty()).map(str::to_owned).collect();
        let twice = (1..cards.len()).find(|index| cards[..*index].contains(&cards[*index]));
        if let Some(index) = twice {
            return Err(format!("FPGACTL_CARDS names {} twice: expected each card of the host once", cards[index]));
        }
        let policy = value("FPGA_MPI_POLICY");
        let policy = match policy.as_deref().map(Policy::parse) {
            None => Policy::Always,
            Some(Some(known)) => known,
            Some(None) => return invalid("FPGA_MPI_POLICY", &policy.unwrap_or_default(), "always, auto or never"),
        };
        let in_rank_order = match value("FPGA_MPI_ORDER").as_deref() {
            None | Some("any") => false,
            Some("rank") => true,
            Some(other) => return invalid("FPGA_MPI_ORDER", other, "any or rank"),
        };
        let timeout = match value("FPGA_MPI_TIMEOUT") {
            None => None,
            Some(text) => {
                let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
                match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                    Some(timeout) => Some(timeout),
                    None => return invalid("FPGA_MPI_TIMEOUT", &text, "a number of seconds above 0"),
                }
            }
        };
        let output = match value("FPGA_MPI_STATS") {
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
    pub(crate) fn common(&self) -> [(&'static str, String); 3] {
        [
            ("FPGA_MPI_POLICY", self.policy.name().to_owned()),
            ("FPGA_MPI_ORDER", if self.in_rank_order { "rank" } else { "any" }.to_owned()),
            ("library version", env!("CARGO_PKG_VERSION").to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::of(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
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
        assert_eq!(all.cards, ["vfio-user:/a/0.sock", "vfio-user:/a/1.sock"]);
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
            ("FPGACTL_CARDS", "a,b,a", "each card of the host once"),
        ] {
            let refusal = settings(&[(name, value)]).unwrap_err();
            assert!(refusal.contains(name) && refusal.contains(allowed), "{refusal}");
        }
    }
}
