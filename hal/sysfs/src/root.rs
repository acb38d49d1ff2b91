//! The root directory, and the paths below it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fpga_pci::PciAddress;

use crate::attribute_writer::{AttributeWriter, DirectWriter};

/// The PCI functions below a root directory, `/` except in tests.
#[derive(Clone)]
pub struct Sysfs {
    root: PathBuf,
    pub(crate) writer: Arc<dyn AttributeWriter>,
}

impl Sysfs {
    /// Reads and writes below `root`: `/` except in tests.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Sysfs::with_writer(root, Arc::new(DirectWriter))
    }

    /// Reads below `root`, and writes attributes through `writer`.
    pub fn with_writer(root: impl Into<PathBuf>, writer: Arc<dyn AttributeWriter>) -> Self {
        Sysfs { root: root.into(), writer }
    }

    /// Returns the root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path below the root for an absolute path of the kernel.
    pub(crate) fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Returns the directory of a function.
    pub fn directory(&self, address: PciAddress) -> PathBuf {
        self.path("/sys/bus/pci/devices").join(address.to_string())
    }

    /// Returns the directory of a driver. It exists only if the driver does.
    pub(crate) fn driver_directory(&self, driver: &str) -> PathBuf {
        self.path("/sys/bus/pci/drivers").join(driver)
    }

    /// Returns whether the function exists now.
    pub(crate) fn is_there(&self, address: PciAddress) -> bool {
        self.directory(address).exists()
    }

    /// Returns whether a driver is available: built in, or its module is loaded.
    pub fn has_driver(&self, driver: &str) -> bool {
        self.driver_directory(driver).is_dir()
    }
}

impl fmt::Debug for Sysfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sysfs").field("root", &self.root).finish_non_exhaustive()
    }
}
