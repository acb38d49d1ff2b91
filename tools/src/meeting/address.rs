//! Addresses of meeting points: `unix:/path` or `tcp:host:port`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use cmdseq::text::printable;

/// Where ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A UNIX socket.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid address {text:?}: expected unix:/PATH or tcp:HOST:PORT");
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", place)) => {
                let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
                let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
                if host.is_empty() || !is_port { Err(wrong()) } else { Ok(Address::Tcp(place.into())) }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", printable(&path.to_string_lossy())),
            Address::Tcp(place) => write!(f, "tcp:{}", printable(place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_they_are_read() {
        for text in ["unix:/run/job", "unix:job", "tcp:localhost:7000", "tcp:[::1]:7000"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("unix:/run/\u{1b}c".parse::<Address>().unwrap().to_string(), "unix:/run/\u{fffd}c");
        for text in
            ["", "unix:", "tcp:", "tcp:host", "tcp::7000", "tcp:host:0", "tcp:host:70000", "/run/job", "udp:a:1"]
        {
            assert!(text.parse::<Address>().unwrap_err().contains("expected unix:/PATH"), "{text}");
        }
    }
}
