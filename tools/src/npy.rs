//! NumPy files with the inputs and outputs of a collective.

use std::fs::{File, Metadata};
use std::io::{BufReader, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cmdseq::Element;
use npyz::{DType, NpyHeader, Order, TypeStr, WriterBuilder as _};

use crate::atomic_file::AtomicFile;
use crate::exit::{Exit, Failure, Result};
use crate::input_file;

/// Returns NumPy's type string. NumPy has no bf16, so files hold u16; pairs of value and index are opaque bytes (`|V`). If several
/// types have one type string, a file means the first, unless the command line selects another.
fn type_string(element: Element) -> &'static str {
    match element {
        Element::I8 => "|i1",
        Element::U8 => "|u1",
        Element::I16 => "<i2",
        Element::U16 | Element::Bf16 => "<u2",
        Element::I32 => "<i4",
        Element::U32 => "<u4",
        Element::I64 => "<i8",
        Element::U64 => "<u8",
        Element::F16 => "<f2",
        Element::F32 => "<f4",
        Element::F64 => "<f8",
        Element::I16Index | Element::I32Index | Element::F32Index => "|V8",
        Element::I64Index | Element::F64Index => "|V16",
    }
}

fn element_of(dtype: &DType) -> Option<Element> {
    let DType::Plain(text) = dtype else { return None };
    let text = text.to_string();
    Element::ALL.iter().copied().find(|one| type_string(*one) == text)
}

fn dtype_of(element: Element) -> Result<DType> {
    let parsed: std::result::Result<TypeStr, _> = type_string(element).parse();
    parsed.map(DType::Plain).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Whether files of both types have the same type string.
pub(crate) fn are_alike(one: Element, other: Element) -> bool {
    type_string(one) == type_string(other)
}

/// Whether the type string belongs to several pair types.
pub(crate) fn is_ambiguous(element: Element) -> bool {
    type_string(element).starts_with("|V")
}

/// Refuses a size that is not a whole number of elements.
pub(crate) fn check_size(element: Element, bytes: u64) -> Result<()> {
    let (size, name) = (element.bytes(), element.name());
    if bytes.is_multiple_of(size) {
        return Ok(());
    }
    Err(Failure::refused(format!("invalid size {bytes} B: expected a multiple of {size} B, the size of {name}")))
}

/// Why an array in Fortran order is refused.
pub(crate) const FORTRAN: &str = "unsupported Fortran order: save the array with numpy.ascontiguousarray";

/// Opens a file and reads its header. The data is what the reader gives next.
pub(crate) fn open(path: &Path) -> Result<(BufReader<File>, Metadata, NpyHeader)> {
    let (file, metadata) = input_file::open(path)?;
    let mut reader = BufReader::new(file);
    let header = NpyHeader::from_reader(&mut reader)
        .map_err(|error| Failure::refused(format!("{}: invalid .npy file: {error}", path.display())))?;
    Ok((reader, metadata, header))
}

/// An input file. Opening reads only the header.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    file: File,
    data_at: u64,
    pub(crate) element: Element,
    pub(crate) elements: u64,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let refuse = |why: String| Failure::refused(format!("{}: {why}", path.display()));
        let (mut reader, metadata, header) = open(path)?;
        let element = element_of(&header.dtype()).ok_or_else(|| {
            let names: Vec<_> = Element::ALL.iter().map(|one| one.name()).collect();
            refuse(format!("unsupported element type {} (available: {})", header.dtype().descr(), names.join(", ")))
        })?;
        if header.order() == Order::Fortran && header.shape().len() > 1 {
            return Err(refuse(FORTRAN.into()));
        }
        let lengths = header.shape();
        let elements = match lengths.contains(&0) {
            true => Some(0),
            false => lengths.iter().try_fold(1_u64, |product, length| product.checked_mul(*length)),
        };
        let elements = elements.ok_or_else(|| refuse("the shape has more than 2^64 - 1 elements".into()))?;
        let data_at = reader.stream_position().map_err(|error| refuse(error.to_string()))?;
        let file = reader.into_inner();
        let length = metadata.len();
        let needed = elements.checked_mul(element.bytes()).and_then(|bytes| bytes.checked_add(data_at));
        if needed != Some(length) {
            return Err(refuse(format!(
                "wrong file size: the header declares {elements} elements of {} B, the file holds {} B",
                element.bytes(),
                length.saturating_sub(data_at)
            )));
        }
        Ok(Input { path: path.into(), file, data_at, element, elements })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the data in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.elements * self.element.bytes()
    }

    /// Reads data from byte `offset` on, after the header.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(data, self.data_at + offset)
            .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", self.path.display())))
    }
}

/// Creates a file for `bytes` of data, a whole number of elements, and writes the header.
pub(crate) fn create(path: &Path, element: Element, bytes: u64) -> Result<AtomicFile> {
    check_size(element, bytes).map_err(|failure| failure.about(&path.display().to_string()))?;
    let mut file = AtomicFile::create(path)?;
    let shape = [bytes / element.bytes()];
    let header = npyz::WriteOptions::new_header_only().dtype(dtype_of(element)?).shape(&shape);
    let head = header.writer(&mut file).write_header_only();
    head.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))?;
    Ok(file)
}

/// Returns the path of rank `rank`'s file. If several ranks have files, inserts the rank before the extension.
pub(crate) fn path_of_rank(path: &Path, rank: u32, is_one_of_several: bool) -> PathBuf {
    if !is_one_of_several {
        return path.into();
    }
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{rank}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn files_of_several_ranks_have_the_rank_in_their_names() {
        assert_eq!(path_of_rank(Path::new("a/out.npy"), 3, true), Path::new("a/out-3.npy"));
        assert_eq!(path_of_rank(Path::new("out"), 0, true), Path::new("out-0"));
        let bytes = |name: &'static [u8]| Path::new(OsStr::from_bytes(name));
        assert_eq!(path_of_rank(bytes(b"o\xff.n\xfe"), 1, true), bytes(b"o\xff-1.n\xfe"));
        assert_eq!(path_of_rank(Path::new("out.npy"), 3, false), Path::new("out.npy"));
    }

    #[test]
    fn a_shape_may_be_larger_than_any_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("in.npy");
        for (shape, expected) in [
            ("4294967296, 4294967296, 2", "the shape has more than 2^64 - 1 elements"),
            // 2^64 + 1, which wraps around to the one element of the file.
            ("274177, 67280421310721", "the shape has more than 2^64 - 1 elements"),
            ("4294967296, 4294967296, 0", "wrong file size: the header declares 0 elements of 1 B, the file holds 1 B"),
        ] {
            let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape}), }}\n");
            let length = u16::try_from(text.len()).unwrap().to_le_bytes();
            std::fs::write(&path, [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), b"x"].concat()).unwrap();
            let refused = Input::open(&path).unwrap_err();
            assert!(refused.message().ends_with(expected), "{shape}: {}", refused.message());
        }
    }

    #[test]
    fn an_array_has_whole_elements() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.npy");
        let refused = create(&path, Element::F32, 6).err().unwrap();
        assert!(refused.message().ends_with("invalid size 6 B: expected a multiple of 4 B, the size of f32"));
        create(&path, Element::F32, 0).unwrap();
    }
}
