//! What is kept on disk for each card: the last image that was loaded, the one whose loading has not ended, and the masks of the port
//! above.
//!
//! The latter two are the journal: they are there exactly while a load is under way, or after one that was killed.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fpga_select::Selector;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Result};
use crate::image::read;
use crate::{atomic_file, cli, input_file};

/// The last image that was loaded.
const GOOD: &str = "good";
/// The image whose loading has not ended.
const PENDING: &str = "pending";
/// The masks from before of a port whose errors are masked.
const MASKS: &str = "masks";
/// Limit on the length of the masks, in bytes.
const MASKS_BYTES_MAX: u64 = 4096;

/// Masks of a port, noted before they change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MaskNote {
    /// Address of the port.
    pub(super) port: String,
    /// Mask of uncorrectable errors.
    pub(super) uncorrectable: u32,
    /// Mask of correctable errors.
    pub(super) correctable: u32,
    /// What tells the boot of the machine from others.
    pub(super) boot: Option<String>,
}

/// The kept images of one card.
pub(super) struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// Returns the images of a card. `None` of an in-process mock card, which ends with the command.
    pub(super) fn of(selector: &Selector, state: &cli::StateDirectory) -> Result<Option<Self>> {
        let card = match (selector.addresses().as_slice(), selector.sockets()) {
            ([address, ..], _) => Path::new("vfio").join(address.to_string()),
            (_, [socket, ..]) => {
                let socket = std::path::absolute(socket).map_err(|error| Failure::file(socket, &error))?;
                Path::new("vfio-user").join(socket.strip_prefix("/").unwrap_or(&socket))
            }
            _ => return Ok(None),
        };
        let folder = state.path()?.join(card);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| Failure::file(&folder, &error))?;
        Ok(Some(Kept { folder }))
    }

    /// Notes that an image is being loaded.
    pub(super) fn begin(&self, image: &[u8]) -> Result<()> {
        atomic_file::write(&self.folder.join(PENDING), image)?;
        self.synchronise()
    }

    /// Notes that the image was loaded.
    pub(super) fn succeeded(&self) -> Result<()> {
        let (from, to) = (self.folder.join(PENDING), self.folder.join(GOOD));
        fs::rename(&from, to).map_err(|error| Failure::file(&from, &error))?;
        self.synchronise()
    }

    /// Notes that the image was not loaded, and that the card holds what it is said to hold.
    pub(super) fn gave_up(&self) -> Result<()> {
        let pending = self.folder.join(PENDING);
        fs::remove_file(&pending).map_err(|error| Failure::file(&pending, &error))?;
        self.synchronise()
    }

    /// Notes the masks of a port, before they change.
    pub(super) fn note_masks(&self, note: &MaskNote) -> Result<()> {
        let text = serde_json::to_vec(note).unwrap_or_default();
        atomic_file::write(&self.folder.join(MASKS), &text)?;
        self.synchronise()
    }

    /// Notes that the masks are as before.
    pub(super) fn masks_restored(&self) -> Result<()> {
        let path = self.folder.join(MASKS);
        fs::remove_file(&path).map_err(|error| Failure::file(&path, &error))?;
        self.synchronise()
    }

    /// Returns the masks that were not restored.
    pub(super) fn noted_masks(&self) -> Result<Option<MaskNote>> {
        let path = self.folder.join(MASKS);
        let (file, _) = match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            _ => input_file::open(&path)?,
        };
        let mut text = Vec::new();
        file.take(MASKS_BYTES_MAX).read_to_end(&mut text).map_err(|error| Failure::file(&path, &error))?;
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let what = format!("{}: invalid masks of a port: {error}", path.display());
            Failure::refused(what).with_help("set the masks by setpci (ECAP_AER+08.l and +14.l), and delete the file")
        })
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

    /// Has names survive a loss of power.
    fn synchronise(&self) -> Result<()> {
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| Failure::file(&self.folder, &error))
    }
}
