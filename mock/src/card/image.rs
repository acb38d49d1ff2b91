//! Images of accelerators that the model understands. What a real image holds is the maker's secret.

/// What an image begins with.
const MAGIC: [u8; 16] = *b"FPGA MOCK IMAGE\0";
/// Bytes of the magic and the GUID.
const HEADER_BYTES: usize = 32;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// Fewest bytes of an image.
const BYTES_MIN: usize = HEADER_BYTES + CHECKSUM_BYTES;

/// Makes an image of `bytes` bytes, a multiple of 4 and at least 36, that configures the accelerator with this GUID.
pub fn image(guid: u128, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(BYTES_MIN).next_multiple_of(4);
    let mut image = Vec::with_capacity(bytes);
    image.extend_from_slice(&MAGIC);
    image.extend_from_slice(&guid.to_le_bytes());
    let filler = (image.len()..bytes - CHECKSUM_BYTES).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    image.extend(filler.map(|word| (word >> 56) as u8));
    let checksum = crc32c::crc32c(&image);
    image.extend_from_slice(&checksum.to_le_bytes());
    image
}

/// Checks an image while it arrives, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    header: Vec<u8>,
    /// Checksum of all words but the last.
    checksum: u32,
    last: Option<[u8; 4]>,
}

impl Checker {
    pub(crate) fn push(&mut self, word: u32) {
        if let Some(before) = self.last.replace(word.to_le_bytes()) {
            self.checksum = crc32c::crc32c_append(self.checksum, &before);
        }
        if self.header.len() < HEADER_BYTES {
            self.header.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Returns the GUID of the accelerator, if the image is whole.
    pub(crate) fn finish(&self) -> Option<u128> {
        let guid = self.header.get(MAGIC.len()..HEADER_BYTES)?;
        let is_whole = self.header.starts_with(&MAGIC) && self.last == Some(self.checksum.to_le_bytes());
        is_whole.then(|| guid.try_into().ok().map(u128::from_le_bytes)).flatten()
    }
}
