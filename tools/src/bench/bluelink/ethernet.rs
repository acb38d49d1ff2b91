//! Framing of Ethernet, with and without IP and TCP, as bits on the line. Nothing is simulated.

use fpga_select::bluelink::Coding;

/// Preamble and start of frame, header, and frame check sequence (IEEE 802.3, 3.1.1).
const PREAMBLE: u64 = 8;
const HEADER: u64 = 14;
const CHECK: u64 = 4;
/// Shortest frame, from the header to the check sequence (IEEE 802.3, 4.4.2).
const FRAME_LEAST: u64 = 64;
/// Gap between frames (IEEE 802.3, 4.4.2).
const GAP: u64 = 12;
/// IPv4 header without options (RFC 791), and TCP header without options (RFC 9293).
const IP: u64 = 20;
const TCP: u64 = 20;
/// 10GBASE-R (IEEE 802.3, clause 49).
const CODING: Coding = Coding::B64B66;

/// What a frame carries before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stack {
    Ethernet,
    Ip,
    Tcp,
}

impl Stack {
    pub(super) const ALL: [Stack; 3] = [Stack::Ethernet, Stack::Ip, Stack::Tcp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Stack::Ethernet => "ethernet",
            Stack::Ip => "ip",
            Stack::Tcp => "tcp",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Stack::Ethernet => "Ethernet",
            Stack::Ip => "IP over Ethernet",
            Stack::Tcp => "TCP/IP over Ethernet",
        }
    }

    /// Returns the bits on the line for a frame with so many bytes of payload, the gap after it included.
    pub(super) fn line_bits(self, payload: u64) -> f64 {
        let headers = match self {
            Stack::Ethernet => 0,
            Stack::Ip => IP,
            Stack::Tcp => IP + TCP,
        };
        let frame = (HEADER + headers + payload + CHECK).max(FRAME_LEAST);
        let (data, line) = CODING.ratio();
        ((PREAMBLE + frame + GAP) * 8) as f64 * line as f64 / data as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_at_least_84_bytes_with_preamble_and_gap() {
        let bytes = |stack: Stack, payload| stack.line_bits(payload) / 8.0 * 64.0 / 66.0;
        assert_eq!([1, 46, 47, 1500].map(|payload| bytes(Stack::Ethernet, payload)), [84.0, 84.0, 85.0, 1538.0]);
        assert_eq!([6, 7].map(|payload| bytes(Stack::Tcp, payload)), [84.0, 85.0]);
        assert_eq!([26, 27].map(|payload| bytes(Stack::Ip, payload)), [84.0, 85.0]);
    }
}
