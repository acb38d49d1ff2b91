//! `fpgactl image` and `fpgactl mock image`.

mod card;
pub(crate) mod inspect;
mod kept;
pub(crate) mod load;
pub(crate) mod mock;
pub(crate) mod recover;
mod upstream;

use std::io::Read as _;
use std::path::Path;

use cmdseq::text::printable;
use fpga_image::{BYTES_MAX, Error, Image};

use crate::exit::{Failure, Result};
use crate::input_file;

/// Reads a file that may be an image.
fn read(path: &Path) -> Result<Vec<u8>> {
    let (file, metadata) = input_file::open(path)?;
    let bytes = metadata.len();
    if bytes > BYTES_MAX {
        return Err(refused(path, &Error::TooLong { bytes, limit: BYTES_MAX }));
    }
    let mut data = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut data).map_err(|error| Failure::file(path, &error))?;
    Ok(data)
}

/// Takes a file apart.
fn parse<'a>(path: &Path, data: &'a [u8]) -> Result<Image<'a>> {
    Image::parse(data).map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &Error) -> Failure {
    Failure::refused(format!("{}: {error}", printable(&path.to_string_lossy())))
}
