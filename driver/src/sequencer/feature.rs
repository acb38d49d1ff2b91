//! Finding a block of registers in the Device Feature List.

use fpga_hal::{Result, Window};
use fpga_regs::feature_list::{HEADERS_MAX, Header, START};

/// Bytes of a header and the GUID behind it.
const HEADER_BYTES: u64 = 24;

/// Offset of the block of `bytes` bytes with this GUID in the register BAR, or where the walk of the list ended, and why.
///
/// The list is not trusted: every link is checked, and the walk ends after [`HEADERS_MAX`] headers.
pub(crate) fn find_feature(window: &Window, guid: u128, bytes: u32) -> Result<std::result::Result<u64, String>> {
    let mut offset = u64::from(START);
    for count in 0..HEADERS_MAX {
        if offset + HEADER_BYTES > window.len() {
            let size = window.len();
            return Ok(Err(format!("header {count} at {offset:#x} is outside of the BAR's {size:#x} bytes")));
        }
        let word = read_u64(window, offset)?;
        if word == u64::MAX {
            return Ok(Err(format!("header {count} at {offset:#x} reads all-ones")));
        }
        let header = Header::decode(word);
        if header.has_guid() {
            let (low, high) = (read_u64(window, offset + 8)?, read_u64(window, offset + 16)?);
            if u128::from(low) | u128::from(high) << 64 == guid {
                let fits = offset + u64::from(bytes) <= window.len();
                return Ok(if fits {
                    Ok(offset)
                } else {
                    Err(format!("its block at {offset:#x} does not fit into the BAR"))
                });
            }
        }
        if header.end_of_list || header.next == 0 {
            let headers = if count == 0 { "its first header".to_owned() } else { format!("{} headers", count + 1) };
            return Ok(Err(format!("the feature list ends after {headers}")));
        }
        if header.next < 8 || header.next % 8 != 0 {
            return Ok(Err(format!("header {count} at {offset:#x} says the next is {:#x} further on", header.next)));
        }
        offset += u64::from(header.next);
    }
    Ok(Err(format!("the feature list does not end within {HEADERS_MAX} headers")))
}

fn read_u64(window: &Window, offset: u64) -> Result<u64> {
    Ok(u64::from(window.read_u32(offset)?) | u64::from(window.read_u32(offset + 4)?) << 32)
}
