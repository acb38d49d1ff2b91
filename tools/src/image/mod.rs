//! `fpgactl image` and `fpgactl mock image`.

mod card;
pub(crate) mod inspect;
mod kept;
pub(crate) mod load;
pub(crate) mod mock;
pub(crate) mod recover;
mod upstream;

use std::path::Path;

use cmdseq::text::printable;
use fpga_image::{BYTES_MAX, Image};

use crate::exit::{Failure, Result};
use crate::input_file;

/// Reads a file that may be an image.
fn read(path: &Path) -> Result<Vec<u8>> {
    input_file::read(path, ("an image", BYTES_MAX))
}

/// Takes a file apart.
fn parse<'a>(path: &Path, data: &'a [u8]) -> Result<Image<'a>> {
    let refused =
        |error: fpga_image::Error| Failure::refused(format!("{}: {error}", printable(&path.to_string_lossy())));
    Image::parse(data).map_err(refused)
}
