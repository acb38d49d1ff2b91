//! Sockets of a directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::part::Part;

/// Returns the socket at `path`, or all sockets of cards in the directory at `path`. A missing path fails when the card is opened.
pub(crate) fn sockets_at(selector: &str, path: PathBuf) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Directory { selector: selector.into(), path: path.clone(), source };
    let entries = match fs::read_dir(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => return Ok(vec![path]),
        entries => entries.map_err(unreadable)?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let socket = entry.map_err(unreadable)?.path();
        // A directory stands for its cards, not for their other functions.
        let is_other =
            socket.file_stem().and_then(|name| name.to_str()).is_some_and(|name| Part::strip(name).0 != Part::Card);
        if !is_other && socket.metadata().is_ok_and(|found| found.file_type().is_socket()) {
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

/// Returns the socket of the control function of the card at the socket `path`, if there is one beside it.
pub(crate) fn control_socket(path: &Path) -> Option<PathBuf> {
    let name = path.file_stem()?.to_str()?;
    let control = path.with_file_name(format!("{name}{}.sock", Part::Control.suffix()));
    let is_card = path.extension().is_some_and(|extension| extension == "sock") && Part::strip(name).0 == Part::Card;
    (is_card && control.metadata().is_ok_and(|found| found.file_type().is_socket())).then_some(control)
}
