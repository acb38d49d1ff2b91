//! Arrays of complex numbers: random ones, and those of .npy files. `array[z, y, x]` is the point (x, y, z).

use std::io::Seek as _;
use std::path::Path;

use fpga_select::novog::Complex32;
use npyz::{NpyFile, Order, WriterBuilder as _};

use crate::atomic_file::AtomicFile;
use crate::data::{GOLDEN, mix};
use crate::exit::{Exit, Failure, Result};
use crate::npy;

const TYPE: &str = "<c8";

/// Returns `n` x `n` x `n` numbers with parts from -1 to 1: SplitMix64.
pub(super) fn random(n: u32, seed: u64) -> Vec<Complex32> {
    let number =
        |index: u64| (mix(seed.wrapping_add(index.wrapping_mul(GOLDEN))) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..u64::from(n.pow(3))).map(|at| Complex32 { re: number(2 * at), im: number(2 * at + 1) }).collect()
}

/// Reads an array.
///
/// # Errors
/// Exit code 7 unless the file has finite complex64 numbers of this shape, and nothing more; 4 if it cannot be opened.
pub(super) fn read(path: &Path, n: u32) -> Result<Vec<Complex32>> {
    let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
    let (mut reader, metadata, header) = npy::open(path)?;
    let data_at = reader.stream_position().map_err(|error| refuse(error.to_string()))?;
    let array = NpyFile::with_header(header, reader);
    let found = array.dtype().descr();
    if found.trim_matches('\'') != TYPE {
        return Err(refuse(format!("unsupported element type {found} (expected '{TYPE}', numpy.complex64)")));
    }
    if array.shape() != [u64::from(n); 3] {
        return Err(refuse(format!("an array of shape {:?} (expected [{n}, {n}, {n}])", array.shape())));
    }
    if array.order() == Order::Fortran {
        return Err(refuse(npy::FORTRAN.into()));
    }
    let (expected, length) = (u128::from(data_at) + 8 * u128::from(n).pow(3), metadata.len());
    if u128::from(length) != expected {
        return Err(refuse(format!(
            "wrong file size: header and {n} x {n} x {n} points have {expected} B, the file has {length} B"
        )));
    }
    let points: Vec<Complex32> = array.into_vec().map_err(|error| refuse(format!("invalid .npy file: {error}")))?;
    match points.iter().position(|point| !point.is_finite()) {
        Some(index) => {
            let Complex32 { re, im } = points[index];
            Err(refuse(format!("the point {} has the parts {re} and {im} (expected finite numbers)", place(index, n))))
        }
        None => Ok(points),
    }
}

/// Returns the coordinates (x, y, z) of the point with this index.
pub(super) fn place(index: usize, n: u32) -> String {
    let n = n as usize;
    format!("({}, {}, {})", index % n, index / n % n, index / n / n)
}

/// Writes an array.
pub(super) fn write(path: &Path, n: u32, points: &[Complex32]) -> Result<()> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("{}: {error}", path.display()));
    let mut file = AtomicFile::create(path)?;
    let shape = [u64::from(n); 3];
    let mut writer =
        npyz::WriteOptions::new().default_dtype().shape(&shape).writer(&mut file).begin_nd().map_err(failed)?;
    writer.extend(points.iter().copied()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    file.commit()
}
