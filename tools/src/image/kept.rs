//! Images kept on disk for each card: the last that was loaded, and the one whose loading has not ended.
//!
//! The second is the journal: it is there exactly while a load is under way, or after one that was killed.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fpga_select::Selector;

use crate::exit::{Failure, Result};
use crate::image::read;
use crate::{atomic_file, cli};

/// The last image that was loaded.
const GOOD: &str = "good";
/// The image whose loading has not ended.
const PENDING: &str = "pending";

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
