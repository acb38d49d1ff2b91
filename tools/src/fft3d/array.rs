//! Arrays of complex numbers: random ones, and those of .npy files. `array[z, y, x]` is the point (x, y, z).

use std::io::BufReader;
use std::path::Path;

use fpga_select::novog::Complex32;
use npyz::{NpyFile, Order, WriterBuilder as _};

use crate::atomic_file::AtomicFile;
use crate::exit::{Exit, Failure, Result};
use crate::input_file;

const TYPE: &str = "<c8";

/// Returns `n` x `n` x `n` numbers with parts from -1 to 1: SplitMix64.
pub(super) fn random(n: u32, seed: u64) -> Vec<Complex32> {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n.pow(3)).map(|_| Complex32 { re: number(), im: number() }).collect()
}

/// Reads an array.
///
/// # Errors
/// Exit code 7 unless the file has complex64 numbers of this shape; 4 if it cannot be opened.
pub(super) fn read(path: &Path, n: u32) -> Result<Vec<Complex32>> {
    let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
    let (file, _) = input_file::open(path)?;
    let array = NpyFile::new(BufReader::new(file)).map_err(|error| refuse(format!("invalid .npy file: {error}")))?;
    let found = array.dtype().descr();
    if found.trim_matches('\'') != TYPE {
        return Err(refuse(format!("unsupported element type {found} (expected '{TYPE}', numpy.complex64)")));
    }
    if array.shape() != [u64::from(n); 3] {
        return Err(refuse(format!("an array of shape {:?} (expected [{n}, {n}, {n}])", array.shape())));
    }
    if array.order() == Order::Fortran {
        return Err(refuse("unsupported Fortran order: save the array with numpy.ascontiguousarray".into()));
    }
    array.into_vec().map_err(|error| refuse(format!("invalid .npy file: {error}")))
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
