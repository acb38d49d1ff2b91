//! What both ends of a connection can do: the JSON of the version message (section "`VFIO_USER_VERSION`").

use serde_json::{Map, Value};

use super::codec::{DEFAULT_DESCRIPTORS, DEFAULT_MAPS, DEFAULT_TRANSFER_BYTES, DESCRIPTORS};

const MAX_MSG_FDS: &str = "max_msg_fds";
const MAX_DATA_XFER_SIZE: &str = "max_data_xfer_size";
const MAX_DMA_MAPS: &str = "max_dma_maps";
const PGSIZES: &str = "pgsizes";
/// Page size of DMA mappings: what everybody takes for granted.
pub(crate) const PAGE: u64 = 4096;

/// What a peer says it takes, with the defaults for what it does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Descriptors in one message.
    pub(crate) descriptors: u64,
    /// Bytes in one data transfer, at least one.
    pub(crate) transfer_bytes: u64,
    /// Mappings at a time.
    pub(crate) maps: u64,
    /// Page sizes of mappings, or'ed together.
    pub(crate) page_sizes: u64,
    /// Names of ours that it mentioned: an answer may contain no others.
    mentioned: Vec<&'static str>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            descriptors: DEFAULT_DESCRIPTORS,
            transfer_bytes: DEFAULT_TRANSFER_BYTES,
            maps: DEFAULT_MAPS,
            page_sizes: PAGE,
            mentioned: Vec::new(),
        }
    }
}

impl Capabilities {
    /// Of the data of a version message: none at all, or JSON with or without the NUL that should end it. `None`: it is
    /// something else. Names that are not known are ignored, as later versions may add some.
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
                MAX_DMA_MAPS => found.maps = value,
                _ => found.page_sizes = value,
            }
        }
        Some(found)
    }

    /// What is offered here, in answer to `self`, to a client that may have `maps` mappings: "The capability list must be a
    /// subset of those proposed". Nothing at all to a peer that sent nothing.
    pub(crate) fn answer(&self, maps: u64) -> Vec<u8> {
        if self.mentioned.is_empty() { Vec::new() } else { encode(&self.mentioned, maps.min(DEFAULT_MAPS)) }
    }
}

/// What is offered here, to begin with.
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
    fn what_is_not_said_has_its_default() {
        for data in [&b""[..], b"\0", b"{}", b"{}\0", b"{\"capabilities\":{}}\0", b"{\"capabilities\":{\"later\":[1]}}"]
        {
            let found = Capabilities::decode(data).unwrap();
            assert_eq!(found, Capabilities::default());
            assert!(found.answer(u64::MAX).is_empty(), "nothing was proposed");
        }
    }

    #[test]
    fn an_answer_names_only_what_was_proposed() {
        // As QEMU and as other clients send it.
        let qemu = br#"{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "pgsizes": 4096,
            "max_data_xfer_size": 1048576, "max_dma_maps": 65535, "max_msg_fds": 16, "write_multiple": true}}"#;
        let found = Capabilities::decode(qemu).unwrap();
        assert_eq!((found.descriptors, found.transfer_bytes, found.maps), (16, 1 << 20, 65535));
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
    fn nonsense_is_refused() {
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
        // Deeper than any stack should have to go.
        assert_eq!(Capabilities::decode(&[b'['; 1 << 16]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_bytes_are_answered(data in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(found) = Capabilities::decode(&data) {
                prop_assert!(Capabilities::decode(&found.answer(u64::MAX)).is_some());
            }
        }
    }
}
