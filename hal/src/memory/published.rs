//! Files of 64-bit words that one process writes and others read while it does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memmap2::{MmapOptions, MmapRaw};
use nix::libc;

use super::copy;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::sigbus::{self, Watch};

/// A mapped file of words, of which this process is the only writer. Dropping it removes the file.
///
/// A store is one aligned store of 64 bits, little-endian, so a reader sees no part of one. Words are not ordered among each
/// other. The file must be in a file system without a disk, such as `/dev/shm`. Its mode lets only its owner truncate it. Then
/// the process goes on, and later words may reach nobody. For this, the first file installs a handler of SIGBUS, as
/// the first mapped BAR of [`vfio`](crate::vfio) does.
#[derive(Debug)]
pub struct PublishedWords {
    // The first field, so that it ends before the memory that it watches. `None`: too many mappings are watched.
    _watch: Option<Watch>,
    map: MmapRaw,
    words: usize,
    path: PathBuf,
    owner: Owner,
}

impl PublishedWords {
    /// Creates the file at `path` with the words `initial`. It appears under its name when they are written. Its mode is 0644
    /// without the bits of the process's umask. If the process watches 512 mappings already, this one is not watched, and if the
    /// file is truncated, SIGBUS ends the process: a warning says so.
    ///
    /// Until then the file has the suffix `.part`. One that is there is of a process that was killed, and is removed: nobody else
    /// may create a file at `path` at the same time.
    ///
    /// # Errors
    /// Those of the file system; also if this user may not remove what is at `path` with the suffix `.part`.
    pub fn create(path: &Path, initial: &[u64]) -> io::Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = match new_file(&part) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let left = |error: io::Error| {
                    io::Error::new(error.kind(), format!("cannot remove {}: {error}", part.display()))
                };
                fs::remove_file(&part).map_err(left)?;
                new_file(&part)
            }
            file => file,
        }?;
        let map = map(file, initial).and_then(|map| fs::rename(&part, path).map(|()| map));
        let map = map.inspect_err(|_| drop(fs::remove_file(&part)))?;
        let watch = sigbus::watch(map.as_mut_ptr(), map.len(), &Arc::default());
        if watch.is_none() {
            log::warn!("Too many mappings are watched: if {} is truncated, SIGBUS ends this process", path.display());
        }
        Ok(PublishedWords { _watch: watch, map, words: initial.len(), path: path.into(), owner: Owner::current() })
    }

    /// Stores a word. Does nothing outside of the file, or in a forked child.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if index < self.words && self.is_here() {
            // SAFETY: the mapping has `words` words, and `index` is less.
            let word = unsafe { self.map.as_mut_ptr().add(index * 8) };
            // SAFETY: `word` is inside of the mapping, which begins on a page, so it is aligned. No reference points there. If the
            // file is truncated, the watch puts other memory in its place.
            unsafe { copy::store_u64(word, value.to_le(), Ordering::Relaxed) };
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this process created the file, and is not a forked child.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.owner.is_here()
    }
}

/// Creates a file, which is no link to another.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(path)
}

fn map(mut file: File, initial: &[u64]) -> io::Result<MmapRaw> {
    let bytes: Vec<u8> = initial.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes)?;
    MmapOptions::new().len(bytes.len()).map_raw(&file)
}

impl Drop for PublishedWords {
    fn drop(&mut self) {
        if self.is_here() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads the first `count` words of a file of [`PublishedWords`], each as its owner stored it last. The file may be anything:
/// it is not followed if it is a link, and a file that is truncated meanwhile is an error.
///
/// # Errors
/// Those of the file system; [`ErrorKind::InvalidData`] for anything but a regular file of at least `count` words.
pub fn read_words(path: &Path, count: usize) -> io::Result<Vec<u64>> {
    let invalid = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(invalid("not a regular file"));
    }
    let bytes = count.saturating_mul(8);
    if metadata.len() < bytes as u64 || count == 0 {
        return Err(invalid(&format!("{} bytes: expected at least {bytes}", metadata.len())));
    }
    let map = MmapOptions::new().len(bytes).map_raw_read_only(&file)?;
    let removal = Arc::new(Removal::default());
    let Some(_watch) = sigbus::watch(map.as_mut_ptr(), bytes, &removal) else {
        return Err(io::Error::other("too many mappings are watched"));
    };
    let words = (0..count).map(|index| {
        // SAFETY: the mapping has `count` words, and `index` is less.
        let word = unsafe { map.as_mut_ptr().add(index * 8) };
        // SAFETY: `word` is inside of the mapping, which begins on a page, so it is aligned. If the file is truncated, the
        // watch puts other memory in its place.
        u64::from_le(unsafe { copy::load_u64(word) })
    });
    let words = words.collect();
    if removal.flag().load(Ordering::Acquire) {
        return Err(invalid("truncated while it was read"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn words_are_read_as_stored_and_the_file_goes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("words");
        let words = PublishedWords::create(&path, &[1, 2, 3]).unwrap();
        assert_eq!((words.path(), words.is_here()), (&*path, true));
        words.store(1, u64::MAX - 5);
        words.store(3, 7);
        assert_eq!(read_words(&path, 3).unwrap(), [1, u64::MAX - 5, 3]);
        assert_eq!(fs::read(&path).unwrap()[8..16], (u64::MAX - 5).to_le_bytes());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no other file is left");
        drop(words);
        assert_eq!(read_words(&path, 3).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_a_killed_process_left_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [path, part, other] = ["words", "words.part", "other"].map(|name| directory.path().join(name));
        fs::write(&other, "of somebody else").unwrap();
        fs::write(&part, [9; 100]).unwrap();
        drop(PublishedWords::create(&path, &[1, 2]).unwrap());
        for target in [other.clone(), directory.path().join("missing")] {
            std::os::unix::fs::symlink(&target, &part).unwrap();
            let words = PublishedWords::create(&path, &[1, 2]).unwrap();
            assert_eq!(read_words(&path, 2).unwrap(), [1, 2]);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "only the words and the other file");
            drop(words);
        }
        assert_eq!(fs::read(&other).unwrap(), b"of somebody else", "a link is followed");
        fs::create_dir(&part).unwrap();
        let refused = PublishedWords::create(&path, &[1, 2]).unwrap_err().to_string();
        assert!(refused.contains("cannot remove") && refused.contains("words.part"), "{refused}");
        assert!(part.is_dir() && !path.exists());
    }

    #[test]
    fn words_of_a_file_that_its_owner_truncated_are_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("words");
        // Two pages, as the counters of a card are.
        let words = PublishedWords::create(&path, &[1; 640]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        (0..640).for_each(|index| words.store(index, 7));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        drop(words);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("short");
        fs::write(&path, [0; 23]).unwrap();
        assert!(read_words(&path, 3).unwrap_err().to_string().contains("23 bytes: expected at least 24"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_words(&link, 2).is_err(), "a link is followed");
        assert!(read_words(directory.path(), 1).is_err());
        for count in [0, 1 << 58, (1 << 61) - 1, 1 << 61, usize::MAX] {
            assert_eq!(read_words(&path, count).unwrap_err().kind(), ErrorKind::InvalidData, "{count}");
        }
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_words(&pipe, 1).unwrap_err().to_string().contains("not a regular file"));
        assert!(PublishedWords::create(&directory.path().join("missing/file"), &[1]).is_err());
    }

    /// Words with equal halves: a torn one would have different ones.
    #[test]
    fn no_word_is_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("words");
        let words = PublishedWords::create(&path, &[0; 4]).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for value in (0..u64::from(u32::MAX)).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    (0..4).for_each(|index| words.store(index, value << 32 | value));
                }
            });
            for _ in 0..2000 {
                for word in read_words(&path, 4).unwrap() {
                    assert_eq!(word >> 32, word & u64::from(u32::MAX));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// Readers meet every state of a file that is truncated and grows again.
    #[test]
    fn a_file_that_is_truncated_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    file.set_len(0).unwrap();
                    file.set_len(512).unwrap();
                }
            });
            for _ in 0..5000 {
                match read_words(&path, 64) {
                    Ok(words) => assert!(words.iter().all(|word| *word == 0)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
