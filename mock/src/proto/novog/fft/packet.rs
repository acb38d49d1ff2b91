//! Packets of corner turns: 256 bits with three points of 85 bits each (section 7.3.1), and one bit that says which turn.
//!
//! A point is two single-precision numbers, and the address in the receiver's memory. The first three words of a packet are the
//! numbers. The fourth has the addresses, 21 bits each, the first one lowest, and the turn in its highest bit.

use cmdseq::routing::FftMapping;
use rustfft::num_complex::Complex32;

use crate::proto::novog::router::Payload;

/// Points of a packet.
pub(super) const POINTS: usize = FftMapping::PACKET_POINTS as usize;
/// Bits of an address.
const ADDRESS_BITS: usize = 21;
/// Points that addresses reach.
#[cfg(test)]
const ADDRESSES: u32 = 1 << ADDRESS_BITS;

/// A point on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Datum {
    pub(super) address: u32,
    pub(super) value: Complex32,
}

/// Packs one to three points. The last one is repeated in a packet of fewer.
pub(super) fn pack(is_second_turn: bool, points: &[Datum]) -> Payload {
    let mut payload = [0, 0, 0, u64::from(is_second_turn) << 63];
    for place in 0..POINTS {
        let Some(Datum { address, value }) = points.get(place).or(points.last()) else { break };
        payload[place] = u64::from(value.re.to_bits()) | u64::from(value.im.to_bits()) << 32;
        payload[3] |= u64::from(*address) << (place * ADDRESS_BITS);
    }
    payload
}

/// Returns whether a packet is of the second turn, and its points. Repeated ones are equal.
pub(super) fn unpack(payload: Payload) -> (bool, [Datum; POINTS]) {
    let datum = |place: usize| {
        let [re, im] = [0, 32].map(|shift| f32::from_bits((payload[place] >> shift) as u32));
        let address = (payload[3] >> (place * ADDRESS_BITS)) as u32 & ((1 << ADDRESS_BITS) - 1);
        Datum { address, value: Complex32 { re, im } }
    };
    (payload[3] >> 63 == 1, [datum(0), datum(1), datum(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_come_out_as_they_went_in() {
        let points = [(0, 1.5, -2.0), (ADDRESSES - 1, -0.0, f32::MAX), (0x12345, f32::MIN_POSITIVE, 7.0)]
            .map(|(address, re, im)| Datum { address, value: Complex32 { re, im } });
        for is_second in [false, true] {
            assert_eq!(unpack(pack(is_second, &points)), (is_second, points));
            let [one, two, _] = points;
            assert_eq!(unpack(pack(is_second, &[one, two])), (is_second, [one, two, two]));
            assert_eq!(unpack(pack(is_second, &[one])), (is_second, [one; 3]));
        }
    }
}
