//! Capabilities: the JSON of the version message (section "`VFIO_USER_VERSION`").

use serde_json::{Map, Value};

use super::version::{DEFAULT_DESCRIPTORS, DEFAULT_MAPS, DEFAULT_TRANSFER_BYTES, DESCRIPTORS};

const MAX_MSG_FDS: &str = "max_msg_fds";
const MAX_DATA_XFER_SIZE: &str = "max_data_xfer_size";
const MAX_DMA_MAPS: &str = "max_dma_maps";
const PGSIZES: &str = "pgsizes";
/// The default page size of DMA mappings (`pgsizes`).
pub(crate) const PAGE: u64 = 4096;

/// The capabilities of a peer, with the defaults of the section for those it does not mention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// `max_msg_fds`: descriptors that it accepts in one message.
    pub(crate) descriptors: u64,
    /// `max_data_xfer_size`: bytes in one data transfer, at least one.
    pub(crate) transfer_bytes: u64,
    /// `pgsizes`: page sizes of mappings, or'ed together.
    pub(crate) page_sizes: u64,
    /// The known names that it mentioned: a reply may contain no others.
    mentioned: Vec<&'static str>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            descriptors: DEFAULT_DESCRIPTORS,
            transfer_bytes: DEFAULT_TRANSFER_BYTES,
            page_sizes: PAGE,
            mentioned: Vec::new(),
        }
    }
}

impl Capabilities {
    /// Decodes the data of a version message: nothing, or JSON, with or without the final NUL. `None`: anything else. Unknown
    /// names are ignored, as later versions may add some.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let text = data.strip_suffix(&[0]).unwrap_or(data);
        let mut found = Capabilities::default();
        if text.is_empty() {
            return Some(found);
        }
        let Value::Object(object) = serde_json::from_slice(text).ok()? else { return None };
        let capabilities = match object.get("capabilities") {
            None => return Some(found),
            Some(Value::Object(capabilities)) => capabilities,
            Some(_) => return None,
        };
        for name in [MAX_MSG_FDS, MAX_DATA_XFER_SIZE, MAX_DMA_MAPS, PGSIZES] {
            let Some(value) = capabilities.get(name) else { continue };
            let value = value.as_u64()?;
            found.mentioned.push(name);
            match name {
                MAX_MSG_FDS => found.descriptors = value,
                MAX_DATA_XFER_SIZE if value == 0 => return None,
                MAX_DATA_XFER_SIZE => found.transfer_bytes = value,
                // A limit of the server, which refuses further mappings itself.
                MAX_DMA_MAPS => {}
                _ => found.page_sizes = value,
            }
        }
        Some(found)
    }

    /// Returns the reply to a client that may have `maps` mappings: "The capability list must be a subset of those proposed".
    /// It is empty for a client that proposed nothing.
    pub(crate) fn answer(&self, maps: u64) -> Vec<u8> {
        if self.mentioned.is_empty() { Vec::new() } else { encode(&self.mentioned, maps.min(DEFAULT_MAPS)) }
    }
}

/// Returns what this client proposes.
pub(crate) fn offer() -> Vec<u8> {
    encode(&[MAX_MSG_FDS, MAX_DATA_XFER_SIZE, MAX_DMA_MAPS, PGSIZES], DEFAULT_MAPS)
}

fn encode(names: &[&str], maps: u64) -> Vec<u8> {
    let value = |name: &str| match name {
        MAX_MSG_FDS => DESCRIPTORS as u64,
        MAX_DATA_XFER_SIZE => DEFAULT_TRANSFER_BYTES,
        MAX_DMA_MAPS => maps,
        _ => PAGE,
    };
    let capabilities: Map<_, _> = names.iter().map(|name| ((*name).to_owned(), value(name).into())).collect();
    let mut bytes = serde_json::json!({ "capabilities": capabilities }).to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unmentioned_capability_has_its_default() {
        for data in [&b""[..], b"\0", b"{}", b"{}\0", b"{\"capabilities\":{}}\0", b"{\"capabilities\":{\"later\":[1]}}"]
        {
            let found = Capabilities::decode(data).unwrap();
            assert_eq!(found, Capabilities::default());
            assert!(found.answer(u64::MAX).is_empty(), "nothing was proposed");
        }
    }

    #[test]
    fn a_reply_mentions_only_what_was_proposed() {
        // As QEMU and another client send it.
        let qemu = br#"{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "pgsizes": 4096,
            "max_data_xfer_size": 1048576, "max_dma_maps": 65535, "max_msg_fds": 16, "write_multiple": true}}"#;
        let found = Capabilities::decode(qemu).unwrap();
        assert_eq!((found.descriptors, found.transfer_bytes, found.page_sizes), (16, 1 << 20, 4096));
        assert_eq!(found.answer(u64::MAX), offer());
        let other =
            b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":1048576,\"migration\":{\"pgsize\":4096}}}\0";
        let found = Capabilities::decode(other).unwrap();
        assert_eq!(found.descriptors, 1);
        let answer = Capabilities::decode(&found.answer(u64::MAX)).unwrap();
        assert_eq!(answer.mentioned, [MAX_MSG_FDS, MAX_DATA_XFER_SIZE]);
        assert_eq!(answer.descriptors, 16);
    }

    #[test]
    fn each_name_is_its_own_field() {
        const NUMBER: u64 = 12345;
        let text = |name: &str| format!("{{\"capabilities\":{{\"{name}\":{NUMBER}}}}}\0");
        for (name, expected) in [
            (MAX_MSG_FDS, Capabilities { descriptors: NUMBER, ..Capabilities::default() }),
            (MAX_DATA_XFER_SIZE, Capabilities { transfer_bytes: NUMBER, ..Capabilities::default() }),
            (MAX_DMA_MAPS, Capabilities::default()),
            (PGSIZES, Capabilities { page_sizes: NUMBER, ..Capabilities::default() }),
        ] {
            let found = Capabilities::decode(text(name).as_bytes()).unwrap();
            assert_eq!(found, Capabilities { mentioned: vec![name], ..expected });
        }
        // The defaults of the specification.
        let Capabilities { descriptors, transfer_bytes, page_sizes, mentioned } = Capabilities::default();
        assert_eq!((descriptors, transfer_bytes, page_sizes, mentioned.len()), (1, 1 << 20, 4096, 0));
        let zero = br#"{"capabilities":{"max_msg_fds":0,"max_dma_maps":0,"pgsizes":0}}"#;
        let found = Capabilities::decode(zero).unwrap();
        assert_eq!((found.descriptors, found.page_sizes), (0, 0));
    }

    #[test]
    fn each_name_is_answered_with_the_local_value() {
        for (name, here) in [(MAX_MSG_FDS, 16), (MAX_DATA_XFER_SIZE, 1 << 20), (MAX_DMA_MAPS, 77), (PGSIZES, 4096)] {
            let proposed = format!("{{\"capabilities\":{{\"{name}\":1}}}}");
            let answer = Capabilities::decode(proposed.as_bytes()).unwrap().answer(77);
            assert_eq!(answer, format!("{{\"capabilities\":{{\"{name}\":{here}}}}}\0").into_bytes());
        }
        let all = "{\"capabilities\":{\"max_data_xfer_size\":1048576,\"max_dma_maps\":65535,\"max_msg_fds\":16,\"pgsizes\":4096}}\0";
        assert_eq!(offer(), all.as_bytes());
        let maps = Capabilities::decode(b"{\"capabilities\":{\"max_dma_maps\":5}}").unwrap();
        assert_eq!(maps.answer(1 << 40), b"{\"capabilities\":{\"max_dma_maps\":65535}}\0");
    }

    #[test]
    fn malformed_data_is_refused() {
        for data in [
            &b"{"[..],
            b"[]",
            b"1",
            b"\0\0",
            b"\xff\xfe",
            b"{\"capabilities\":1}",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}",
            b"{\"capabilities\":{\"max_msg_fds\":\"16\"}}",
            b"{\"capabilities\":{\"max_data_xfer_size\":0}}",
            b"{\"capabilities\":{\"pgsizes\":1e99}}",
        ] {
            assert_eq!(Capabilities::decode(data), None, "{}", String::from_utf8_lossy(data));
        }
        // Too deep for a stack.
        assert_eq!(Capabilities::decode(&[b'['; 1 << 16]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_bytes_are_refused_or_answered(data in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(found) = Capabilities::decode(&data) {
                prop_assert!(Capabilities::decode(&found.answer(u64::MAX)).is_some());
            }
        }
    }
}
