//! Symbolic values of bytes, and memory as a map from ranges to values.

use std::collections::BTreeMap;
use std::collections::hash_map::{DefaultHasher, HashMap};
use std::hash::{Hash as _, Hasher as _};

use crate::Combine;
use crate::limits::{MOVED_MAX, PIECES_MAX, too_long};
use crate::refusal::Refusal;

/// The symbolic value of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// Unknown.
    Undefined,
    /// A rank's input from this offset on.
    Input { rank: u32, offset: u64 },
    /// A pattern of eight bytes, repeated, from its first byte on.
    Fill { pattern: u64 },
    /// The result of a fold, from this offset on.
    Fold { node: usize, offset: u64 },
}

impl Value {
    /// Returns the value without its first `bytes` bytes.
    pub(super) fn skip(self, bytes: u64) -> Self {
        match self {
            Value::Undefined => Value::Undefined,
            Value::Input { rank, offset } => Value::Input { rank, offset: offset + bytes },
            Value::Fill { pattern } => Value::Fill { pattern: pattern.rotate_right((bytes % 8) as u32 * 8) },
            Value::Fold { node, offset } => Value::Fold { node, offset: offset + bytes },
        }
    }
}

/// A value and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) bytes: u64,
    pub(super) value: Value,
}

/// Memory of a fold besides its operands, in pieces.
const NODE_PIECES: usize = 4;

/// Counts pieces of memory against the limits.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    moved: usize,
    kept: usize,
    in_flight: usize,
}

impl Pieces {
    /// Counts `pieces` that were read, and are in flight until [`arrived`](Self::arrived).
    pub(super) fn send(&mut self, pieces: usize) -> Result<(), Refusal> {
        self.in_flight += pieces;
        self.count(pieces)
    }

    /// Ends the flight of all pieces: they are written.
    pub(super) fn arrived(&mut self) {
        self.in_flight = 0;
    }

    /// Counts `pieces` that were written to a memory or a fold, which had `before` pieces and has `after` now.
    pub(super) fn keep(&mut self, pieces: usize, before: usize, after: usize) -> Result<(), Refusal> {
        self.kept = (self.kept + after).saturating_sub(before);
        self.count(pieces)
    }

    fn count(&mut self, pieces: usize) -> Result<(), Refusal> {
        self.moved += pieces;
        if self.moved > MOVED_MAX {
            return Err(too_long("MOVED_MAX", MOVED_MAX, "moved pieces of memory"));
        }
        if self.kept + self.in_flight > PIECES_MAX {
            return Err(too_long("PIECES_MAX", PIECES_MAX, "stored pieces of memory"));
        }
        Ok(())
    }
}

/// Memory of one card. Bytes outside of all ranges are undefined.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// End and value of each range, by address.
    ranges: BTreeMap<u64, (u64, Value)>,
}

impl Memory {
    /// Returns the values of `bytes` bytes from `address` on.
    pub(super) fn read(&self, address: u64, bytes: u64) -> Vec<Segment> {
        let end = address.saturating_add(bytes);
        let mut segments = Vec::new();
        let mut at = address;
        let before = self.ranges.range(..address).next_back();
        for (start, (until, value)) in before.into_iter().chain(self.ranges.range(address..end)) {
            let (from, to) = ((*start).max(at), (*until).min(end));
            if from >= to {
                continue;
            }
            if from > at {
                segments.push(Segment { bytes: from - at, value: Value::Undefined });
            }
            segments.push(Segment { bytes: to - from, value: value.skip(from - start) });
            at = to;
        }
        if at < end {
            segments.push(Segment { bytes: end - at, value: Value::Undefined });
        }
        segments
    }

    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Writes `segments` at `address`.
    pub(super) fn write(&mut self, address: u64, segments: &[Segment]) {
        let bytes: u64 = segments.iter().map(|one| one.bytes).sum();
        let end = address.saturating_add(bytes);
        self.split(address);
        self.split(end);
        while let Some(start) = self.ranges.range(address..end).next().map(|(start, _)| *start) {
            self.ranges.remove(&start);
        }
        let mut at = address;
        for segment in segments.iter().filter(|one| one.bytes > 0) {
            self.ranges.insert(at, (at + segment.bytes, segment.value));
            at += segment.bytes;
        }
    }

    fn split(&mut self, at: u64) {
        let Some((start, (end, value))) = self.ranges.range_mut(..at).next_back() else { return };
        if *end > at {
            let upper = (*end, value.skip(at - start));
            *end = at;
            self.ranges.insert(at, upper);
        }
    }
}

/// One fold of values of equal length, element by element.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) combine: Combine,
    /// In the order of the fold if it is known; at least two.
    pub(super) operands: Vec<Value>,
    /// The call whose switches folded, in an order of their own that another call need not have. `None`: in the order of the operands.
    pub(super) call: Option<usize>,
    /// Number of inputs, each counted as often as it occurs. Saturates.
    pub(super) inputs: u64,
}

/// All folds, by number.
#[derive(Debug, Default)]
pub(super) struct Folds {
    pub(super) nodes: Vec<Node>,
    /// By hash of operands and reduction, so that equal folds of several ranks are shared.
    known: HashMap<u64, usize>,
}

impl Folds {
    /// Returns the fold of `operands`, of equal length, in this order or in that of a `call`.
    fn node(
        &mut self,
        combine: Combine,
        call: Option<usize>,
        operands: Vec<Value>,
        pieces: &mut Pieces,
    ) -> Result<usize, Refusal> {
        let mut hasher = DefaultHasher::new();
        (combine, call, &operands).hash(&mut hasher);
        let hash = hasher.finish();
        let is_same = |node: &&usize| {
            let node = &self.nodes[**node];
            (node.combine, node.call) == (combine, call) && node.operands == operands
        };
        if let Some(node) = self.known.get(&hash).filter(is_same) {
            pieces.keep(operands.len(), 0, 0)?;
            return Ok(*node);
        }
        pieces.keep(operands.len(), 0, operands.len() + NODE_PIECES)?;
        let inputs = operands.iter().fold(0, |sum: u64, one| sum.saturating_add(self.inputs(*one)));
        self.known.insert(hash, self.nodes.len());
        self.nodes.push(Node { combine, operands, call, inputs });
        Ok(self.nodes.len() - 1)
    }

    fn inputs(&self, value: Value) -> u64 {
        match value {
            Value::Fold { node, .. } => self.nodes[node].inputs,
            _ => 1,
        }
    }

    /// Folds contributions of equal length in this order, or in that of a `call` of the switches. A single one stays unchanged.
    pub(super) fn fold(
        &mut self,
        combine: Combine,
        call: Option<usize>,
        contributions: &[Vec<Segment>],
        pieces: &mut Pieces,
    ) -> Result<Vec<Segment>, Refusal> {
        let [first, _, ..] = contributions else { return Ok(contributions.first().cloned().unwrap_or_default()) };
        let bytes: u64 = first.iter().map(|one| one.bytes).sum();
        let element = combine.element.bytes();
        // Split where the value of a contribution changes. An element with a split inside is undefined.
        let mut cuts = vec![0, bytes];
        for segments in contributions {
            let mut at = 0;
            for segment in segments {
                at += segment.bytes;
                cuts.extend([at / element * element, at.next_multiple_of(element).min(bytes)]);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut cursors: Vec<Cursor<'_>> = contributions.iter().map(|segments| Cursor::new(segments)).collect();
        let mut result = Vec::with_capacity(cuts.len());
        for cut in cuts.windows(2) {
            let length = cut[1] - cut[0];
            let operands: Vec<Option<Value>> = cursors.iter_mut().map(|cursor| cursor.take(length)).collect();
            let known: Option<Vec<Value>> = operands.into_iter().collect();
            let value = match known.filter(|all| !all.contains(&Value::Undefined)) {
                Some(operands) => Value::Fold { node: self.node(combine, call, operands, pieces)?, offset: 0 },
                None => Value::Undefined,
            };
            result.push(Segment { bytes: length, value });
        }
        Ok(result)
    }
}

/// A position in a list of segments.
struct Cursor<'a> {
    rest: &'a [Segment],
    /// Bytes taken from the first segment.
    taken: u64,
}

impl<'a> Cursor<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        Cursor { rest: segments, taken: 0 }
    }

    /// Takes the next `bytes` bytes; `None` if they span several segments.
    fn take(&mut self, mut bytes: u64) -> Option<Value> {
        let first = *self.rest.first()?;
        let value = first.value.skip(self.taken);
        let is_whole = bytes <= first.bytes - self.taken;
        while let Some((first, rest)) = self.rest.split_first() {
            let left = first.bytes - self.taken;
            if bytes < left {
                self.taken += bytes;
                break;
            }
            bytes -= left;
            (self.rest, self.taken) = (rest, 0);
        }
        is_whole.then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Element, Reduction};

    fn input(rank: u32, offset: u64, bytes: u64) -> Segment {
        Segment { bytes, value: Value::Input { rank, offset } }
    }

    #[test]
    fn parts_of_ranges_keep_their_values() {
        let mut memory = Memory::default();
        memory.write(100, &[input(0, 0, 50)]);
        memory.write(120, &[Segment { bytes: 10, value: Value::Fill { pattern: 0x0102 } }]);
        let undefined = |bytes| Segment { bytes, value: Value::Undefined };
        let fill = Segment { bytes: 9, value: Value::Fill { pattern: 0x0200_0000_0000_0001 } };
        assert_eq!(memory.read(90, 20), [undefined(10), input(0, 0, 10)]);
        assert_eq!(memory.read(121, 34), [fill, input(0, 30, 20), undefined(5)]);
        memory.write(0, &memory.clone().read(110, 30));
        assert_eq!(memory.read(25, 5), [input(0, 35, 5)]);
        assert_eq!(memory.read(5, 0), []);
    }

    #[test]
    fn folds_are_cut_where_contributions_are() {
        let mut folds = Folds::default();
        let combine = Combine::new(Reduction::Sum, Element::U32);
        let contributions = [vec![input(0, 0, 16)], vec![input(1, 0, 6), input(2, 6, 10)]];
        let parts = folds.fold(combine, None, &contributions, &mut Pieces::default()).unwrap();
        let lengths: Vec<u64> = parts.iter().map(|one| one.bytes).collect();
        assert_eq!(lengths, [4, 4, 8]);
        assert_eq!(parts[1].value, Value::Undefined, "an element of two");
        let Value::Fold { node, offset: 0 } = parts[2].value else { panic!("{:?}", parts[2]) };
        let operands = [Value::Input { rank: 0, offset: 8 }, Value::Input { rank: 2, offset: 8 }];
        assert_eq!(folds.nodes[node].operands, operands);
        assert_eq!(folds.nodes[node].inputs, 2);
    }
}
