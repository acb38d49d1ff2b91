//! What is kept on disk. For each card: the last image that was loaded, the one whose loading has not ended, and the port above whose
//! errors are masked. For each port: its masks from before, whichever card's load has masked it.
//!
//! All but the first are the journal. It is there while a load is under way, or after one that was killed, or that could not be
//! undone.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cmdseq::text::printable;
use fpga_hal::PciAddress;
use fpga_select::Selector;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Result};
use crate::image::read;
use crate::{atomic_file, cli, input_file};

/// The last image that was loaded.
const GOOD: &str = "good";
/// The image whose loading has not ended.
const PENDING: &str = "pending";
/// The one that was [`PENDING`] when the present load began.
const EARLIER: &str = "earlier";
/// Of a card: the port above, whose errors are masked. Also the folder of all ports.
const PORT: &str = "port";
/// Of a port: the masks from before.
const MASKS: &str = "masks";
/// Limit on the length of a note, in bytes.
const NOTE_BYTES_MAX: u64 = 4096;

/// Which port the load of a card masks, noted before [`MaskNote`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortNote {
    /// Address of the port.
    pub(super) port: String,
    /// What tells the boot of the machine from others.
    pub(super) boot: Option<String>,
}

/// Masks of a port, noted before they change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MaskNote {
    /// Mask of uncorrectable errors.
    pub(super) uncorrectable: u32,
    /// Mask of correctable errors.
    pub(super) correctable: u32,
    /// What tells the boot of the machine from others.
    pub(super) boot: Option<String>,
}

/// What is kept of one card, and of the ports.
pub(super) struct Kept {
    folder: PathBuf,
    /// Folder of the ports.
    ports: PathBuf,
}

impl Kept {
    /// Returns what is kept of a card. `None` of an in-process mock card, which ends with the command.
    pub(super) fn of(selector: &Selector, state: &cli::StateDirectory) -> Result<Option<Self>> {
        let card = match (selector.addresses().as_slice(), selector.sockets()) {
            ([address, ..], _) => Path::new("vfio").join(address.to_string()),
            (_, [socket, ..]) => {
                let socket = canonical(socket)?;
                Path::new("vfio-user").join(socket.strip_prefix("/").unwrap_or(&socket))
            }
            _ => return Ok(None),
        };
        let state = state.path()?;
        let (folder, ports) = (state.join(card), state.join(PORT));
        make_folder(&folder)?;
        Ok(Some(Kept { folder, ports }))
    }

    /// Notes that an image is being loaded. The one of a load that was killed before is put aside, for [`not_begun`](Self::not_begun).
    pub(super) fn begin(&self, image: &[u8]) -> Result<()> {
        let (pending, earlier) = (self.folder.join(PENDING), self.folder.join(EARLIER));
        self.remove_unfinished();
        remove(&earlier)?;
        // A second name, so that there is a pending image at any time.
        match fs::hard_link(&pending, &earlier) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Failure::file(&earlier, &error)),
            _ => {}
        }
        atomic_file::write(&pending, image).inspect_err(|_| {
            // Without a new image the second name is of no use. If it stays, `refused` knows it.
            let _ = remove(&earlier);
        })?;
        // The caller loads nothing: the image must not stay for `image recover`. The first failure is the one to tell.
        synchronise(&self.folder).inspect_err(|_| drop(self.not_begun()))
    }

    /// Removes what commands have left that were killed while they wrote here. Whoever loads an image has the card to itself. No load
    /// fails for what stays.
    fn remove_unfinished(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            if [PENDING, PORT].iter().any(|of| atomic_file::is_unfinished(&name.to_string_lossy(), of)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Notes that the image was loaded.
    pub(super) fn succeeded(&self) -> Result<()> {
        remove(&self.folder.join(EARLIER))?;
        let (from, to) = (self.folder.join(PENDING), self.folder.join(GOOD));
        fs::rename(&from, &to).map_err(|error| Failure::file(&from, &error))?;
        synchronise(&self.folder)
    }

    /// Notes that the image was not loaded, and that the card holds what it is said to hold.
    pub(super) fn gave_up(&self) -> Result<()> {
        remove(&self.folder.join(EARLIER))?;
        remove(&self.folder.join(PENDING))?;
        synchronise(&self.folder)
    }

    /// Notes that the load was not begun: one that was killed before is still to be recovered.
    pub(super) fn not_begun(&self) -> Result<()> {
        let (pending, earlier) = (self.folder.join(PENDING), self.folder.join(EARLIER));
        let inode = |path: &Path| path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()));
        if let Some(one) = inode(&earlier)
            && inode(&pending) == Some(one)
        {
            // A load was killed between the two names and its own image: renaming would leave both.
            return self.gave_up();
        }
        match fs::rename(&earlier, &pending) {
            Ok(()) => synchronise(&self.folder),
            Err(error) if error.kind() == ErrorKind::NotFound => self.gave_up(),
            Err(error) => Err(Failure::file(&earlier, &error)),
        }
    }

    /// Notes which port the load of this card masks.
    pub(super) fn note_port(&self, note: &PortNote) -> Result<()> {
        write_note(&self.folder, PORT, note)
    }

    /// Notes that the load of this card masks no port any more.
    pub(super) fn forget_port(&self) -> Result<()> {
        remove(&self.folder.join(PORT))?;
        synchronise(&self.folder)
    }

    /// Returns the port that a load of this card has masked.
    pub(super) fn noted_port(&self) -> Result<Option<PortNote>> {
        read_note(&self.folder.join(PORT))
    }

    /// Notes the masks of a port, before they change.
    pub(super) fn note_masks(&self, port: PciAddress, note: &MaskNote) -> Result<()> {
        let folder = self.port_folder(port);
        make_folder(&folder)?;
        write_note(&folder, MASKS, note)
    }

    /// Notes that the masks of a port are as before.
    pub(super) fn masks_restored(&self, port: PciAddress) -> Result<()> {
        let folder = self.port_folder(port);
        if remove(&folder.join(MASKS))? { synchronise(&folder) } else { Ok(()) }
    }

    /// Returns the masks of a port that were not restored.
    pub(super) fn noted_masks(&self, port: PciAddress) -> Result<Option<MaskNote>> {
        read_note(&self.port_folder(port).join(MASKS))
    }

    fn port_folder(&self, port: PciAddress) -> PathBuf {
        self.ports.join(port.to_string())
    }

    /// Returns the last image that was loaded.
    pub(super) fn good(&self) -> Result<Option<Vec<u8>>> {
        self.read(GOOD)
    }

    /// Returns the image whose loading has not ended.
    pub(super) fn pending(&self) -> Result<Option<Vec<u8>>> {
        self.read(PENDING)
    }

    /// Returns where an image is kept, for messages.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.folder.join(name);
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            _ => read(&path).map(Some),
        }
    }
}

/// Returns the one path that a socket has, by whatever links and `..` it was named.
///
/// The socket itself may be missing: its server may have ended since a load was killed. If its folder is missing, this fails as opening
/// the card does.
fn canonical(socket: &Path) -> Result<PathBuf> {
    let missing = |source| fpga_select::Error::Open {
        selector: format!("vfio-user:{}", socket.display()),
        source: fpga_hal::Error::Socket { action: "connect to", path: socket.to_owned(), source },
    };
    let folder = input_file::folder(socket).canonicalize().map_err(missing)?;
    let name = socket.file_name().ok_or_else(|| missing(ErrorKind::NotFound.into()))?;
    Ok(folder.join(name))
}

fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file(folder, &error))
}

/// Removes a file. Returns whether it was there.
fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::file(path, &error)),
    }
}

fn write_note(folder: &Path, name: &str, note: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(note).unwrap_or_default();
    atomic_file::write(&folder.join(name), &text)?;
    synchronise(folder)
}

/// What to do about a note of a port that cannot be read.
const BY_HAND: &str = "set its masks by setpci (ECAP_AER+08.l and +14.l), and delete the file";

fn read_note<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        _ => input_file::read(path, ("a note", NOTE_BYTES_MAX)).map_err(|failure| failure.with_help(BY_HAND))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let what = format!("{}: invalid note of a port: {error}", printable(&path.to_string_lossy()));
        Failure::refused(what).with_help(BY_HAND)
    })
}

/// Has names survive a loss of power.
fn synchronise(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| Failure::file(folder, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::{Gid, Uid, chown, setfsuid};

    use super::*;

    /// A folder in which files can be made, but which cannot be opened to synchronise it.
    #[test]
    fn a_load_that_does_not_begin_leaves_nothing_to_recover() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("card");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(directory.path(), 0o755);
        for left in [None, Some(b"left")] {
            fs::create_dir(&folder).unwrap();
            let user = if Uid::effective().is_root() { Uid::from_raw(65534) } else { Uid::effective() };
            chown(&folder, Some(user), None::<Gid>).unwrap();
            if let Some(left) = left {
                fs::write(folder.join(PENDING), left).unwrap();
                chown(&folder.join(PENDING), Some(user), None::<Gid>).unwrap();
            }
            set(&folder, 0o300);
            let kept = Kept { folder: folder.clone(), ports: directory.path().join(PORT) };
            // Only the files of this thread are another user's.
            let begin = move || {
                setfsuid(user);
                kept.begin(b"new")
            };
            let failure = std::thread::spawn(begin).join().unwrap().unwrap_err();
            let message = failure.message();
            assert!(message.starts_with(&format!("{}: ", folder.display())), "{message}");
            assert!(message.contains("Permission denied"), "{message}");
            set(&folder, 0o700);
            let pending = fs::read(folder.join(PENDING)).ok();
            assert_eq!((pending.as_deref(), folder.join(EARLIER).exists()), (left.map(|left| &left[..]), false));
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}
