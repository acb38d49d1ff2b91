//! The binary interfaces of MPI libraries: which one this process has, and its constants.
//!
//! Sources: `mpi.h` of Open MPI 4.1 and of MPICH 4.0, and `mpi_abi.h` of the MPI-5 ABI (MPI 5.0, chapter 20).

use std::ffi::{CStr, c_int};

use cmdseq::{Element, Reduction};

use crate::foreign::{self, Function, Word, pmpi};

/// A binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abi {
    OpenMpi,
    Mpich,
    Standard,
}

/// What a predefined datatype holds. All have the size that their elements have, without gaps, except pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Characters, which are moved and not combined.
    Text,
    /// Bytes, which have bitwise operations only.
    Byte,
    /// Numbers.
    Number(Element),
    /// Integers of Fortran, which have no logical operations (MPI 4.0, section 6.9.2).
    Integer(Element),
    /// A value with an index. There may be a gap between the pairs, or in them.
    Pair(Element),
}

/// The constants of one interface.
#[derive(Debug)]
pub(crate) struct Constants {
    pub(crate) abi: Abi,
    pub(crate) world: Word,
    pub(crate) comm_self: Word,
    pub(crate) comm_null: Word,
    pub(crate) errors_return: Word,
    pub(crate) datatype_null: Word,
    pub(crate) in_place: Word,
    pub(crate) status_ignore: Word,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    pub(crate) type_shared: c_int,
    pub(crate) info_null: Word,
    pub(crate) thread_multiple: c_int,
    pub(crate) byte: Word,
    pub(crate) int64: Word,
    pub(crate) sum: Word,
    datatypes: Vec<(Word, Kind)>,
    operations: Vec<(Word, Reduction)>,
}

/// Datatypes: kind, object of Open MPI, handle of MPICH, handle of the MPI-5 ABI.
const DATATYPES: &[(Kind, &CStr, u32, Word)] = {
    use Element::{F32, F32Index, F64, F64Index, I8, I16, I16Index, I32, I32Index, I64, I64Index, U8, U16, U32, U64};
    use Kind::{Byte, Integer, Number, Pair, Text};
    &[
        (Text, c"ompi_mpi_char", 0x4c00_0101, 0x243),
        (Byte, c"ompi_mpi_byte", 0x4c00_010d, 0x247),
        (Number(I8), c"ompi_mpi_signed_char", 0x4c00_0118, 0x244),
        (Number(U8), c"ompi_mpi_unsigned_char", 0x4c00_0102, 0x245),
        (Number(I16), c"ompi_mpi_short", 0x4c00_0203, 0x208),
        (Number(U16), c"ompi_mpi_unsigned_short", 0x4c00_0204, 0x20c),
        (Number(I32), c"ompi_mpi_int", 0x4c00_0405, 0x209),
        (Number(U32), c"ompi_mpi_unsigned", 0x4c00_0406, 0x20d),
        (Number(I64), c"ompi_mpi_long", 0x4c00_0807, 0x20a),
        (Number(U64), c"ompi_mpi_unsigned_long", 0x4c00_0808, 0x20e),
        (Number(I64), c"ompi_mpi_long_long_int", 0x4c00_0809, 0x20b),
        (Number(U64), c"ompi_mpi_unsigned_long_long", 0x4c00_0819, 0x20f),
        (Number(F32), c"ompi_mpi_float", 0x4c00_040a, 0x210),
        (Number(F64), c"ompi_mpi_double", 0x4c00_080b, 0x214),
        (Number(I8), c"ompi_mpi_int8_t", 0x4c00_0137, 0x240),
        (Number(I16), c"ompi_mpi_int16_t", 0x4c00_0238, 0x248),
        (Number(I32), c"ompi_mpi_int32_t", 0x4c00_0439, 0x250),
        (Number(I64), c"ompi_mpi_int64_t", 0x4c00_083a, 0x258),
        (Number(U8), c"ompi_mpi_uint8_t", 0x4c00_013b, 0x241),
        (Number(U16), c"ompi_mpi_uint16_t", 0x4c00_023c, 0x249),
        (Number(U32), c"ompi_mpi_uint32_t", 0x4c00_043d, 0x251),
        (Number(U64), c"ompi_mpi_uint64_t", 0x4c00_083e, 0x259),
        (Number(I64), c"ompi_mpi_aint", 0x4c00_0843, 0x201),
        (Number(I64), c"ompi_mpi_offset", 0x4c00_0844, 0x203),
        (Number(I64), c"ompi_mpi_count", 0x4c00_0845, 0x202),
        (Integer(I32), c"ompi_mpi_integer", 0x4c00_041b, 0x219),
        (Number(F32), c"ompi_mpi_real", 0x4c00_041c, 0x21a),
        (Number(F64), c"ompi_mpi_dblprec", 0x4c00_081f, 0x21c),
        (Integer(I8), c"ompi_mpi_integer1", 0x4c00_012d, 0x2c1),
        (Integer(I16), c"ompi_mpi_integer2", 0x4c00_022f, 0x2c9),
        (Integer(I32), c"ompi_mpi_integer4", 0x4c00_0430, 0x2d1),
        (Integer(I64), c"ompi_mpi_integer8", 0x4c00_0831, 0x2d9),
        (Number(F32), c"ompi_mpi_real4", 0x4c00_0427, 0x2d2),
        (Number(F64), c"ompi_mpi_real8", 0x4c00_0829, 0x2da),
        (Pair(I16Index), c"ompi_mpi_short_int", 0x8c00_0003, 0x22c),
        (Pair(I32Index), c"ompi_mpi_2int", 0x4c00_0816, 0x22b),
        (Pair(I64Index), c"ompi_mpi_long_int", 0x8c00_0002, 0x22a),
        (Pair(F32Index), c"ompi_mpi_float_int", 0x8c00_0000, 0x228),
        (Pair(F64Index), c"ompi_mpi_double_int", 0x8c00_0001, 0x229),
    ]
};

/// Operations, in the same columns.
const OPERATIONS: &[(Reduction, &CStr, u32, Word)] = &[
    (Reduction::Max, c"ompi_mpi_op_max", 0x5800_0001, 0x23),
    (Reduction::Min, c"ompi_mpi_op_min", 0x5800_0002, 0x22),
    (Reduction::Sum, c"ompi_mpi_op_sum", 0x5800_0003, 0x21),
    (Reduction::Prod, c"ompi_mpi_op_prod", 0x5800_0004, 0x24),
    (Reduction::Land, c"ompi_mpi_op_land", 0x5800_0005, 0x30),
    (Reduction::And, c"ompi_mpi_op_band", 0x5800_0006, 0x28),
    (Reduction::Lor, c"ompi_mpi_op_lor", 0x5800_0007, 0x31),
    (Reduction::Or, c"ompi_mpi_op_bor", 0x5800_0008, 0x29),
    (Reduction::Lxor, c"ompi_mpi_op_lxor", 0x5800_0009, 0x32),
    (Reduction::Xor, c"ompi_mpi_op_bxor", 0x5800_000a, 0x2a),
    (Reduction::Minloc, c"ompi_mpi_op_minloc", 0x5800_000b, 0x38),
    (Reduction::Maxloc, c"ompi_mpi_op_maxloc", 0x5800_000c, 0x39),
];

impl Abi {
    /// Finds out which MPI library the process has.
    fn detect() -> Self {
        if Function::new(c"PMPI_Abi_get_version").is_there() {
            let (mut major, mut minor): (c_int, c_int) = (0, 0);
            // SAFETY: MPI_Abi_get_version takes two addresses of integers, at any time (MPI 5.0, section 20.4).
            let code = unsafe { pmpi!(MPI_Abi_get_version, &raw mut major, &raw mut minor) };
            if code == foreign::SUCCESS && major >= 1 {
                return Abi::Standard;
            }
        }
        if foreign::object(c"ompi_mpi_comm_world").is_some() { Abi::OpenMpi } else { Abi::Mpich }
    }

    /// Its column of a line of the tables: `None` if the library lacks the object.
    fn choose(self, name: &CStr, mpich: u32, standard: Word) -> Option<Word> {
        match self {
            Abi::OpenMpi => foreign::object(name),
            Abi::Mpich => Some(mpich as Word),
            Abi::Standard => Some(standard),
        }
    }

    /// The part of a word that is a handle.
    pub(crate) fn handle(self, word: Word) -> Word {
        if self == Abi::Mpich { word & 0xffff_ffff } else { word }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Abi::OpenMpi => "Open MPI",
            Abi::Mpich => "MPICH",
            Abi::Standard => "the MPI-5 ABI",
        }
    }
}

impl Constants {
    /// The constants of the MPI library that the process has.
    pub(crate) fn detect() -> Self {
        Constants::of(Abi::detect())
    }

    fn of(abi: Abi) -> Self {
        let one = |name: &CStr, mpich: u32, standard: Word| abi.choose(name, mpich, standard).unwrap_or(0);
        // Of each row, the value of this interface: Open MPI, MPICH, MPI-5.
        let number = |values: [c_int; 3]| values[abi as usize];
        let datatype = |(kind, name, mpich, standard): &(Kind, &CStr, u32, Word)| {
            abi.choose(name, *mpich, *standard).map(|handle| (handle, *kind))
        };
        let operation = |(reduction, name, mpich, standard): &(Reduction, &CStr, u32, Word)| {
            abi.choose(name, *mpich, *standard).map(|handle| (handle, *reduction))
        };
        Constants {
            abi,
            world: one(c"ompi_mpi_comm_world", 0x4400_0000, 0x101),
            comm_self: one(c"ompi_mpi_comm_self", 0x4400_0001, 0x102),
            errors_return: one(c"ompi_mpi_errors_return", 0x5400_0001, 0x143),
            comm_null: one(c"ompi_mpi_comm_null", 0x0400_0000, 0x100),
            datatype_null: one(c"ompi_mpi_datatype_null", 0x0c00_0000, 0x200),
            in_place: if abi == Abi::Mpich { Word::MAX } else { 1 },
            status_ignore: if abi == Abi::Mpich { 1 } else { 0 },
            any_source: number([-1, -2, -1]),
            any_tag: number([-1, -1, -2]),
            type_shared: number([0, 1, 221]),
            info_null: one(c"ompi_mpi_info_null", 0x1c00_0000, 0x130),
            thread_multiple: number([3, 3, 4096]),
            byte: one(c"ompi_mpi_byte", 0x4c00_010d, 0x247),
            int64: one(c"ompi_mpi_int64_t", 0x4c00_083a, 0x258),
            sum: one(c"ompi_mpi_op_sum", 0x5800_0003, 0x21),
            datatypes: DATATYPES.iter().filter_map(datatype).collect(),
            operations: OPERATIONS.iter().filter_map(operation).collect(),
        }
    }

    /// What a predefined datatype holds; `None` for others, derived or not combined by cards.
    pub(crate) fn kind(&self, datatype: Word) -> Option<Kind> {
        let datatype = self.abi.handle(datatype);
        self.datatypes.iter().find(|(handle, _)| *handle == datatype).map(|(_, kind)| *kind)
    }

    /// The reduction of a predefined operation; `None` for others.
    pub(crate) fn reduction(&self, operation: Word) -> Option<Reduction> {
        let operation = self.abi.handle(operation);
        self.operations.iter().find(|(handle, _)| *handle == operation).map(|(_, reduction)| *reduction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_each_handle_once() {
        for abi in [Abi::Mpich, Abi::Standard] {
            let constants = Constants::of(abi);
            let mut handles: Vec<Word> = constants.datatypes.iter().map(|(handle, _)| *handle).collect();
            handles.extend(constants.operations.iter().map(|(handle, _)| *handle));
            let count = handles.len();
            handles.sort_unstable();
            handles.dedup();
            assert_eq!((handles.len(), count), (count, DATATYPES.len() + OPERATIONS.len()), "{abi:?}");
        }
    }

    /// MPICH encodes the size of most datatypes in bits 8 to 15 of the handle (mpi.h), the MPI-5 ABI the logarithm of those with a
    /// fixed size in bits 3 to 5 (MPI 5.0, section 20.4.2): a wrong line shows.
    #[test]
    fn sizes_in_handles_are_those_of_the_elements() {
        for (kind, name, mpich, standard) in DATATYPES.iter().filter(|one| one.2 >> 24 == 0x4c) {
            let bytes = match kind {
                Kind::Text | Kind::Byte => 1,
                Kind::Number(element) | Kind::Integer(element) | Kind::Pair(element) => element.bytes(),
            };
            assert_eq!(u64::from(mpich >> 8 & 0xff), bytes, "{name:?}");
            if *standard >= 0x240 {
                assert_eq!(1 << (standard >> 3 & 7), bytes, "{name:?}");
            }
        }
    }

    #[test]
    fn upper_halves_of_words_are_no_part_of_handles_of_mpich() {
        let constants = Constants::of(Abi::Mpich);
        assert_eq!(constants.kind(0xdead_beef_4c00_0405), Some(Kind::Number(Element::I32)));
        assert_eq!(constants.reduction(0xffff_ffff_5800_0003), Some(Reduction::Sum));
        assert_eq!(constants.kind(0x4c00_0406 | 1), None);
    }
}
