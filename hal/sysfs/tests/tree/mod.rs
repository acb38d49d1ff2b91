//! A directory with what the kernel shows of a machine in `/sys`, `/proc` and `/dev`, made from a listing.
//!
//! Each line makes or changes one entry, in order; directories are made as needed:
//!
//! ```text
//! set NAME TEXT       later, $NAME is TEXT; $GID is the group that the entries have
//! PATH/               a directory
//! PATH = TEXT         a file with this line; \n begins another, \t is a tabulator
//! PATH -> TARGET      a link
//! PATH x BYTES        a file of zeros
//! PATH @ OFFSET HEX   bytes of a file, changed; both hexadecimal
//! PATH mode OCTAL     permissions
//! - PATH              it is not there
//! ```

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// The directory; it goes with the value.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
    names: Vec<(String, String)>,
}

#[allow(dead_code)]
impl Tree {
    /// From listings of `hal/sysfs/tests/trees`, one after the other.
    pub(crate) fn new(listings: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let group = fs::metadata(directory.path()).unwrap().gid();
        let mut tree = Tree { directory, names: vec![("$GID".to_owned(), group.to_string())] };
        listings.iter().for_each(|listing| tree.add(listing));
        tree
    }

    /// Changes it by one more listing.
    pub(crate) fn add(&mut self, listing: &str) {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let folder = above.map(|folder| folder.join("hal/sysfs/tests/trees")).find(|folder| folder.is_dir()).unwrap();
        let path = folder.join(format!("{listing}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.apply(&text);
    }

    /// Changes it by the lines of a listing.
    pub(crate) fn apply(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            self.line(line);
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    fn line(&mut self, line: &str) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first == "set" {
            let (name, text) = rest.split_once(' ').unwrap();
            let text = self.expanded(text);
            self.names.push((format!("${name}"), text));
            return;
        }
        if first == "-" {
            let path = self.path(&self.expanded(rest));
            let is_directory = path.symlink_metadata().unwrap_or_else(|e| panic!("{line}: {e}")).is_dir();
            if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
            return;
        }
        let path = self.path(&self.expanded(first));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let (operation, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match operation {
            "" => fs::create_dir_all(&path).unwrap(),
            "=" => fs::write(&path, self.expanded(rest).replace("\\n", "\n").replace("\\t", "\t") + "\n").unwrap(),
            "->" => {
                if path.symlink_metadata().is_ok() {
                    fs::remove_file(&path).unwrap();
                }
                symlink(self.expanded(rest), &path).unwrap();
            }
            "x" => fs::write(&path, vec![0; rest.parse().unwrap()]).unwrap(),
            "@" => {
                let mut words = rest.split_ascii_whitespace();
                let offset = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
                let bytes: Vec<u8> = words.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&bytes, offset).unwrap();
            }
            "mode" => {
                let mode = u32::from_str_radix(rest, 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            _ => panic!("{line:?} is no line of a listing"),
        }
    }

    fn expanded(&self, text: &str) -> String {
        self.names.iter().rev().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}
