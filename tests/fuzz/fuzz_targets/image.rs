//! Any bytes are read as an image file or refused; what is read lies inside of the file.
#![no_main]

use fpga_image::Image;
use libfuzzer_sys::fuzz_target;

/// What files of each format begin with, so that few inputs are raw bitstreams.
const BEGINNINGS: [&[u8]; 4] =
    [b"xclbin2\0", b"XeonFPGA\xb7GBSv001", &[0x80, 0x86, 0x1f, 0x1d], &[0, 9, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0, 0, 0, 1]];
/// Offset of the length in an xclbin file.
const LENGTH: usize = 304;

/// Returns an xclbin file whose only section is a device tree: its header, and these bytes.
fn with_tree(rest: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 456 + 40];
    file[..8].copy_from_slice(BEGINNINGS[0]);
    file[8..12].fill(0xff);
    file[448] = 1;
    file[456] = 20;
    let mut tree = rest.to_vec();
    tree.splice(0..0, [0xd0, 0x0d, 0xfe, 0xed, 0, 0, 0, 0]);
    let (bytes, length) = (tree.len() as u32, (file.len() + tree.len()) as u64);
    tree[4..8].copy_from_slice(&bytes.to_be_bytes());
    let at = file.len() as u64;
    file[456 + 24..456 + 32].copy_from_slice(&at.to_le_bytes());
    file[456 + 32..456 + 40].copy_from_slice(&u64::from(bytes).to_le_bytes());
    file[LENGTH..LENGTH + 8].copy_from_slice(&length.to_le_bytes());
    file.extend(tree);
    file
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut file = BEGINNINGS.get(usize::from(first % 6)).map_or(Vec::new(), |begin| begin.to_vec());
    file.extend(rest);
    if first % 6 == 5 {
        file = with_tree(rest);
    }
    if first & 0x80 != 0 && file.starts_with(BEGINNINGS[0]) && file.len() >= LENGTH + 8 {
        let length = file.len() as u64;
        file[LENGTH..LENGTH + 8].copy_from_slice(&length.to_le_bytes());
    }
    let inside = |part: &[u8]| file.as_ptr_range().start <= part.as_ptr() && part.as_ptr_range().end <= file.as_ptr_range().end;
    match Image::parse(&file) {
        Ok(Image::Xclbin(xclbin)) => {
            assert!(xclbin.sections.iter().all(|section| section.bytes.is_empty() || inside(section.bytes)));
            assert!(xclbin.connections.iter().all(|one| (one.memory as usize) < xclbin.memories.len()));
            for property in xclbin.partition.iter().flat_map(|tree| &tree.nodes).flat_map(|node| &node.properties) {
                assert!(inside(property.value));
            }
        }
        Ok(Image::Gbs(gbs)) => assert!(inside(gbs.bitstream) && !gbs.bitstream.is_empty()),
        Ok(Image::Bit(bit)) => assert!(inside(bit.stream) && !bit.stream.is_empty()),
        Ok(_) | Err(_) => {}
    }
});
