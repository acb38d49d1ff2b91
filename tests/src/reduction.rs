//! The results of reductions, from `docs/isa.md`: an oracle independent of the cards' arithmetic and order of arrival.

use cmdseq::plan::{Order, Plan};
use half::{bf16, f16};

use crate::folding::{Grid, Way};
use crate::pattern;
use crate::sweep::Data;

/// The operations, by the names of the command line.
pub const OPERATIONS: [&str; 5] = ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"];
/// Integers: bytes, and whether signed.
const INTEGERS: [(&str, usize, bool); 8] = [
    ("i8", 1, true),
    ("u8", 1, false),
    ("i16", 2, true),
    ("u16", 2, false),
    ("i32", 4, true),
    ("u32", 4, false),
    ("i64", 8, true),
    ("u64", 8, false),
];
/// Floating-point numbers: bytes.
pub const FLOATS: [(&str, usize); 4] = [("f16", 2), ("bf16", 2), ("f32", 4), ("f64", 8)];
/// Pairs of value and index: bytes, type of the value, offset of the index.
pub const PAIRS: [(&str, usize, &str, usize); 5] = [
    ("i16i32", 8, "i16", 4),
    ("i32i32", 8, "i32", 4),
    ("i64i32", 16, "i64", 8),
    ("f32i32", 8, "f32", 4),
    ("f64i32", 16, "f64", 8),
];

/// Every reduction with every element type it takes, by name.
pub fn combinations() -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for (element, ..) in INTEGERS {
        let reductions = ["sum", "prod", "min", "max", "and", "or", "xor", "land", "lor", "lxor"];
        all.extend(reductions.map(|reduction| (reduction, element)));
    }
    for (element, _) in FLOATS {
        all.extend(["sum", "prod", "min", "max"].map(|reduction| (reduction, element)));
    }
    for (element, ..) in PAIRS {
        all.extend(["minloc", "maxloc"].map(|reduction| (reduction, element)));
    }
    all
}

/// Returns the bytes of an element.
///
/// # Panics
/// If the type is unknown.
pub fn element_bytes(element: &str) -> usize {
    let integers = INTEGERS.iter().map(|one| (one.0, one.1));
    let pairs = PAIRS.iter().map(|one| (one.0, one.1));
    let mut all = integers.chain(FLOATS).chain(pairs);
    all.find(|one| one.0 == element).expect("an element type").1
}

/// Values that expose wrong arithmetic: the ends of ranges, zeros, subnormals, infinities, NaNs with payloads,
/// and numbers near one another.
///
/// # Panics
/// If the type is unknown.
pub fn special(element: &str) -> Vec<Vec<u8>> {
    let words = |words: &[u64], bytes: usize| words.iter().map(|word| word.to_le_bytes()[..bytes].to_vec()).collect();
    match element {
        "f16" => words(
            &[
                0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01,
                0xfe33,
            ],
            2,
        ),
        "bf16" => words(
            &[0, 0x8000, 1, 0x8001, 0x7f, 0x80, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0xffd3],
            2,
        ),
        "f32" => words(
            &[
                0,
                0x8000_0000,
                1,
                0x8000_0001,
                0x7f_ffff,
                0x80_0000,
                0x3f80_0000,
                0xbf80_0000,
                0x3f80_0001,
                0x3380_0000,
                0x7f7f_ffff,
                0xff7f_ffff,
                0x7f80_0000,
                0xff80_0000,
                0x7f80_0001,
                0xffc1_2345,
            ],
            4,
        ),
        "f64" => words(
            &[
                0,
                1 << 63,
                1,
                1 << 63 | 1,
                (1 << 52) - 1,
                1 << 52,
                0x3ff0 << 48,
                0xbff0 << 48,
                0x3ff0 << 48 | 1,
                0x3ca0 << 48,
                0x7fef_ffff_ffff_ffff,
                0xffef_ffff_ffff_ffff,
                0x7ff0 << 48,
                0xfff0 << 48,
                0x7ff0 << 48 | 1,
                0xfff8_0000_dead_beef,
            ],
            8,
        ),
        _ => match PAIRS.iter().find(|pair| pair.0 == element) {
            Some((_, bytes, value, index_at)) => {
                let indices = [0_i32, -1, i32::MIN, 7].into_iter().cycle();
                let pair = |(value, index): (Vec<u8>, i32)| {
                    let mut pair = vec![0xa5; *bytes];
                    pair[..value.len()].copy_from_slice(&value);
                    pair[*index_at..*index_at + 4].copy_from_slice(&index.to_le_bytes());
                    pair
                };
                // Each value twice, with different indices.
                let values = special(value);
                values.iter().chain(&values[..values.len() - 1]).cloned().zip(indices).map(pair).collect()
            }
            None => {
                let bytes = element_bytes(element);
                let top = 1_u64 << (8 * bytes - 1);
                words(&[0, 1, u64::MAX, top, top - 1, 2, u64::MAX - 1, 0x5555_5555_5555_5555], bytes)
            }
        },
    }
}

/// Input `bytes` long: mostly numbers of moderate size, with special values in between.
///
/// # Panics
/// If there is no such type, or the bytes are not whole elements.
pub fn input(seed: u64, rank: u32, element: &str, bytes: u64) -> Vec<u8> {
    let size = element_bytes(element);
    let mut data = vec![0; bytes as usize];
    pattern::fill(seed, rank, 0, &mut data);
    let special = special(element);
    let mut choice = vec![0; data.len() / size];
    pattern::fill(seed ^ 0x5eed, rank, 0, &mut choice);
    for (element_data, choice) in data.chunks_exact_mut(size).zip(choice) {
        match choice {
            0..32 => element_data.copy_from_slice(&special[usize::from(choice) % special.len()]),
            // Few different values: ties, and ones and zeros.
            32..64 => {
                let low = element_data[0] & 3;
                element_data.fill(0);
                element_data[0] = low;
            }
            // Floats near one, which round when they are added.
            64.. => match element {
                "f16" => element_data[1] = element_data[1] & 0x83 | 0x38,
                "bf16" | "f32" | "f64" => {
                    element_data[size - 1] = element_data[size - 1] & 0x80 | 0x3f;
                }
                _ => {}
            },
        }
    }
    data
}

/// One operation of a group of ranks.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Name of the operation.
    pub operation: &'a str,
    /// Name of the reduction.
    pub reduction: &'a str,
    /// Name of the element type.
    pub element: &'a str,
    /// Ranks.
    pub ranks: u32,
    /// Bytes as the command line counts them.
    pub bytes: u64,
    /// Root of a reduce.
    pub root: u32,
}

impl Case<'_> {
    /// Returns the bytes of each rank's input.
    pub fn input_bytes(&self) -> u64 {
        if self.operation == "reduce_scatter" { self.bytes * u64::from(self.ranks) } else { self.bytes }
    }

    /// How an algorithm reduces it: see [`Way`].
    pub fn way<'b>(&'b self, algorithm: &'b str, grid: impl Into<Grid>, is_rank_order: bool) -> Way<'b> {
        let grid = grid.into();
        let is_rounded = matches!(self.reduction, "sum" | "prod") && FLOATS.iter().any(|one| one.0 == self.element);
        let in_order = is_rank_order && is_rounded && self.ranks > 2;
        Way { algorithm, operation: self.operation, ranks: self.ranks, root: self.root, grid, in_order }
    }

    /// Returns the expected output of rank `rank` for these inputs.
    pub fn output(&self, way: &Way<'_>, rank: u32, inputs: &[Vec<u8>]) -> Vec<u8> {
        if self.operation == "reduce" && rank != self.root {
            return Vec::new();
        }
        let is_scattered = self.operation == "reduce_scatter";
        let at = if is_scattered { rank as usize * self.bytes as usize } else { 0 };
        let mut output = Vec::new();
        for (number, offset) in (0..).zip((0..self.bytes).step_by(way.chunk_bytes(self.bytes) as usize)) {
            let end = (offset + way.chunk_bytes(self.bytes)).min(self.bytes);
            let blocks: Vec<&[u8]> =
                inputs.iter().map(|input| &input[at + offset as usize..at + end as usize]).collect();
            let is_block = is_scattered && way.algorithm == "ring";
            let Some(tree) = way.tree(rank, if is_block { rank } else { number }) else { break };
            output.extend(tree.evaluate(self.reduction, self.element, &blocks));
        }
        output
    }
}

/// A case with its inputs.
#[derive(Debug)]
pub struct Reducing<'a> {
    case: Case<'a>,
    /// Shape of the fabric, if a Dragonfly.
    grid: Grid,
    inputs: Vec<Vec<u8>>,
    /// Whether algorithms on grids number the ranks by their nodes.
    is_renumbered: bool,
}

impl<'a> Reducing<'a> {
    /// Inputs of `seed`.
    pub fn new(case: Case<'a>, grid: impl Into<Grid>, seed: u64) -> Self {
        let inputs = (0..case.ranks).map(|rank| input(seed, rank, case.element, case.input_bytes())).collect();
        Reducing { case, grid: grid.into(), inputs, is_renumbered: false }
    }

    /// The same, for a group that is a grid once its ranks are numbered by their nodes.
    pub fn renumbered(self) -> Self {
        Reducing { is_renumbered: true, ..self }
    }

    /// The case with ranks numbered by their nodes.
    fn in_rows(&self, plan: &Plan) -> Self {
        let group = &plan.request.group;
        let mut ranks: Vec<usize> = (0..group.len()).collect();
        ranks.sort_by_key(|rank| group[*rank]);
        let in_rows = |input: &Vec<u8>| match self.case.operation {
            "reduce_scatter" => {
                let bytes = self.case.bytes as usize;
                ranks.iter().flat_map(|rank| &input[rank * bytes..][..bytes]).copied().collect()
            }
            _ => input.clone(),
        };
        let root = ranks.iter().position(|rank| *rank == self.case.root as usize).expect("a rank") as u32;
        let inputs = ranks.iter().map(|rank| in_rows(&self.inputs[*rank])).collect();
        Reducing { case: Case { root, ..self.case }, grid: self.grid, inputs, is_renumbered: false }
    }

    /// The output of `rank` of the plan, if these are its ranks numbered by their nodes.
    fn output_of(&self, plan: &Plan, is_rank_order: bool, rank: u32) -> Vec<u8> {
        let group = &plan.request.group;
        let node = group[rank as usize];
        let place = group.iter().filter(|other| **other < node).count() as u32;
        let way = self.case.way(plan.algorithm.name(), self.grid, is_rank_order);
        self.case.output(&way, place, &self.inputs)
    }

    /// These inputs, one for each rank.
    pub fn of(case: Case<'a>, grid: impl Into<Grid>, inputs: Vec<Vec<u8>>) -> Self {
        Reducing { case, grid: grid.into(), inputs, is_renumbered: false }
    }
}

impl Data for Reducing<'_> {
    fn input_bytes(&self, _: u32) -> u64 {
        self.case.input_bytes()
    }

    fn output_bytes(&self, rank: u32) -> u64 {
        match self.case.operation {
            "reduce" if rank != self.case.root => 0,
            "exscan" if rank == 0 => 0,
            _ => self.case.bytes,
        }
    }

    fn fill(&self, rank: u32, offset: u64, data: &mut [u8]) {
        data.copy_from_slice(&self.inputs[rank as usize][offset as usize..][..data.len()]);
    }

    fn first_wrong(&self, plan: &Plan, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        let is_rank_order = plan.request.order == Order::Rank;
        let way = self.case.way(plan.algorithm.name(), self.grid, is_rank_order);
        let is_renumbered =
            self.is_renumbered && !way.in_order && ["two-level", "multipath", "lanes"].contains(&way.algorithm);
        let expected = match is_renumbered {
            true => self.in_rows(plan).output_of(plan, is_rank_order, rank),
            false => self.case.output(&way, rank, &self.inputs),
        };
        let expected = expected[offset as usize..].iter().chain(std::iter::repeat(&0));
        data.iter().zip(expected).position(|(found, right)| found != right).map(|at| offset + at as u64)
    }
}

/// Folds `(((c0 . c1) . c2) . c3)`, element by element; no contributions give an empty result.
///
/// # Panics
/// If the type or reduction is unknown.
pub fn fold(reduction: &str, element: &str, contributions: &[&[u8]]) -> Vec<u8> {
    let Some(first) = contributions.first() else { return Vec::new() };
    if contributions.len() == 1 {
        return first.to_vec();
    }
    let size = element_bytes(element);
    let column = |at: usize| contributions.iter().map(|one| &one[at..at + size]).collect::<Vec<_>>();
    (0..first.len()).step_by(size).flat_map(|at| fold_element(reduction, element, &column(at))).collect()
}

fn fold_element(reduction: &str, element: &str, column: &[&[u8]]) -> Vec<u8> {
    if let Some((_, size, is_signed)) = INTEGERS.iter().find(|one| one.0 == element) {
        let folded = column.iter().map(|one| read_integer(one, *is_signed)).reduce(|a, b| {
            // Cut to size after each step, as a unit of that width does.
            read_integer(&integers(reduction, a, b).to_le_bytes()[..*size], *is_signed)
        });
        return folded.expect("contributions").to_le_bytes()[..*size].to_vec();
    }
    let in_f32 = |values: Vec<f32>| values.into_iter().reduce(|a, b| floats(reduction, a, b)).expect("contributions");
    match element {
        "f16" => {
            let sum = in_f32(column.iter().map(|one| f16::from_le_bytes([one[0], one[1]]).to_f32()).collect());
            if sum.is_nan() { vec![0x00, 0x7e] } else { f16::from_f32(sum).to_le_bytes().to_vec() }
        }
        "bf16" => {
            let sum = in_f32(column.iter().map(|one| bf16::from_le_bytes([one[0], one[1]]).to_f32()).collect());
            if sum.is_nan() { vec![0xc0, 0x7f] } else { bf16::from_f32(sum).to_le_bytes().to_vec() }
        }
        "f32" => {
            let sum = in_f32(column.iter().map(|one| f32::from_le_bytes((*one).try_into().unwrap())).collect());
            if sum.is_nan() { vec![0, 0, 0xc0, 0x7f] } else { sum.to_le_bytes().to_vec() }
        }
        "f64" => {
            let values = column.iter().map(|one| f64::from_le_bytes((*one).try_into().unwrap()));
            let sum = values.reduce(|a, b| floats(reduction, a, b)).expect("contributions");
            if sum.is_nan() { vec![0, 0, 0, 0, 0, 0, 0xf8, 0x7f] } else { sum.to_le_bytes().to_vec() }
        }
        _ => locate(reduction, element, column),
    }
}

fn read_integer(bytes: &[u8], is_signed: bool) -> i128 {
    let is_negative = is_signed && bytes[bytes.len() - 1] >= 0x80;
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn integers(reduction: &str, a: i128, b: i128) -> i128 {
    let truth = |value: bool| if value { 1 } else { 0 };
    match reduction {
        "sum" => a + b,
        "prod" => a.wrapping_mul(b),
        "min" => {
            if a < b {
                a
            } else {
                b
            }
        }
        "max" => {
            if a < b {
                b
            } else {
                a
            }
        }
        "and" => a & b,
        "or" => a | b,
        "xor" => a ^ b,
        "land" => truth(a != 0 && b != 0),
        "lor" => truth(a != 0 || b != 0),
        "lxor" => truth((a == 0) != (b == 0)),
        other => panic!("no reduction {other} of integers"),
    }
}

trait Float: Copy + PartialOrd + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    fn is_negative(self) -> bool;
}

impl Float for f32 {
    fn is_negative(self) -> bool {
        self.to_bits() >> 31 == 1
    }
}

impl Float for f64 {
    fn is_negative(self) -> bool {
        self.to_bits() >> 63 == 1
    }
}

#[allow(clippy::eq_op, reason = "a NaN is what differs from itself")]
fn is_nan<T: Float>(value: T) -> bool {
    value != value
}

fn is_less<T: Float>(a: T, b: T) -> bool {
    a < b || (a == b && a.is_negative() && !b.is_negative())
}

fn floats<T: Float>(reduction: &str, a: T, b: T) -> T {
    match reduction {
        "sum" => a + b,
        "prod" => a * b,
        _ if is_nan(a) => a,
        _ if is_nan(b) => b,
        "min" => {
            if is_less(b, a) {
                b
            } else {
                a
            }
        }
        "max" => {
            if is_less(a, b) {
                b
            } else {
                a
            }
        }
        other => panic!("no reduction {other} of floats"),
    }
}

/// Returns the best pair: by value, then by index. The order of contributions does not matter.
fn locate(reduction: &str, element: &str, column: &[&[u8]]) -> Vec<u8> {
    let (_, bytes, value, index_at) = *PAIRS.iter().find(|pair| pair.0 == element).expect("an element type");
    let is_min = match reduction {
        "minloc" => true,
        "maxloc" => false,
        other => panic!("no reduction {other} of pairs"),
    };
    let value_bytes = element_bytes(value);
    // A number that is the smaller, the better the value.
    let rank = |pair: &[u8]| -> i128 {
        let number = match value {
            "f32" | "f64" => {
                let bits = read_integer(&pair[..value_bytes], false);
                let sign = 1_i128 << (8 * value_bytes - 1);
                let infinity = if value == "f32" { 0x7f80_0000 } else { 0x7ff0 << 48 };
                if bits % sign > infinity {
                    return i128::MIN;
                }
                if bits >= sign { sign - 1 - bits } else { bits }
            }
            _ => read_integer(&pair[..value_bytes], true),
        };
        if is_min { number } else { -number }
    };
    let index = |pair: &[u8]| i32::from_le_bytes(pair[index_at..index_at + 4].try_into().unwrap());
    let best = column.iter().min_by_key(|pair| (rank(pair), index(pair))).expect("contributions");
    let mut result = vec![0; bytes];
    result[..value_bytes].copy_from_slice(&best[..value_bytes]);
    result[index_at..index_at + 4].copy_from_slice(&best[index_at..index_at + 4]);
    if rank(best) == i128::MIN {
        let nan: &[u8] = if value == "f32" { &[0, 0, 0xc0, 0x7f] } else { &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f] };
        result[..value_bytes].copy_from_slice(nan);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(fold("sum", "u8", &[&[250], &[10], &[1]]), [5]);
        assert_eq!(fold("prod", "i16", &[&[0xff, 0xff], &[3, 0], &[5, 0]]), (-15_i16).to_le_bytes());
        assert_eq!(fold("lxor", "u16", &[&[0, 1], &[7, 0], &[0, 0]]), [0, 0]);
        let floats = |values: &[f32]| values.iter().map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let sum = |values: &[f32]| {
            let bytes = floats(values);
            fold("sum", "f32", &bytes.iter().map(|one| &one[..]).collect::<Vec<_>>())
        };
        assert_eq!(sum(&[1e8, 1.0, -1e8]), 0_f32.to_le_bytes());
        assert_eq!(sum(&[1e8, -1e8, 1.0]), 1_f32.to_le_bytes());
        assert_eq!(sum(&[f32::INFINITY, f32::NEG_INFINITY]), [0, 0, 0xc0, 0x7f]);
        assert_eq!(fold("min", "bf16", &[&[0, 0], &[0, 0x80]]), [0, 0x80]);
        let pair = |value: u8, index: u8| [value, 0, 0, 0, index, 0, 0, 0];
        assert_eq!(fold("maxloc", "i32i32", &[&pair(5, 9), &pair(6, 4), &pair(6, 3)]), pair(6, 3));
        assert_eq!(fold("minloc", "f32i32", &[&pair(1, 9), &pair(0, 4), &pair(0, 5)]), pair(0, 4));
    }

    #[test]
    fn ranks_and_blocks_are_those_of_the_definition() {
        let inputs: Vec<Vec<u8>> = [[1, 10, 100], [2, 20, 200], [4, 40, 7]].map(Vec::from).into();
        let output = |operation, bytes, rank| {
            let case = Case { operation, reduction: "sum", element: "u8", ranks: 3, bytes, root: 1 };
            case.output(&case.way("direct", (1, 3), false), rank, &inputs)
        };
        assert_eq!(output("reduce", 3, 1), [7, 70, 51]);
        assert!(output("reduce", 3, 0).is_empty());
        assert_eq!(output("allreduce", 3, 2), [7, 70, 51]);
        assert_eq!(output("reduce_scatter", 1, 1), [70]);
        assert_eq!(output("scan", 3, 1), [3, 30, 44]);
        assert_eq!(output("exscan", 3, 2), [3, 30, 44]);
        assert!(output("exscan", 3, 0).is_empty());
    }
}
