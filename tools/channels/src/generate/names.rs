//! Names that generated code cannot have.

use crate::word::Word;

/// Begins all names of the generated code that are not of the definition.
const OURS: &str = "circus_";

/// Keywords of C99, and OpenCL C 2.0 (6.9): qualifiers and reserved words.
const KEYWORDS: &str = "
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof
    kernel global local constant private generic read_only write_only read_write uniform pipe channel
    complex imaginary bool true false NULL half quad";

/// Types of OpenCL C without a number (6.1), and those of Intel's extension.
const TYPES: &str = "
    uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t image2d_t image3d_t image2d_array_t image1d_t
    image1d_buffer_t image1d_array_t image2d_depth_t image2d_array_depth_t sampler_t queue_t ndrange_t clk_event_t
    reserve_id_t event_t cl_mem_fence_flags memory_order memory_scope kernel_enqueue_flags_t clk_profiling_info
    atomic_int atomic_uint atomic_long atomic_ulong atomic_float atomic_double atomic_intptr_t atomic_uintptr_t
    atomic_size_t atomic_ptrdiff_t atomic_flag";

/// Functions and constants of OpenCL C (6.13), and of Intel's extension. Kernels may use them.
const FUNCTIONS: &str = "
    get_work_dim get_global_size get_global_id get_local_size get_enqueued_local_size get_local_id get_num_groups
    get_group_id get_global_offset get_global_linear_id get_local_linear_id
    acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh cospi erfc erf exp
    exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma lgamma_r log log2 log10
    log1p logb mad maxmag minmag modf nan nextafter pow pown powr remainder remquo rint rootn round rsqrt sin sincos
    sinh sinpi sqrt tan tanh tanpi tgamma trunc half_cos half_divide half_exp half_exp2 half_exp10 half_log half_log2
    half_log10 half_powr half_recip half_rsqrt half_sin half_sqrt half_tan native_cos native_divide native_exp
    native_exp2 native_exp10 native_log native_log2 native_log10 native_powr native_recip native_rsqrt native_sin
    native_sqrt native_tan abs abs_diff add_sat hadd rhadd clamp clz ctz mad_hi mad_sat max min mul_hi rotate sub_sat
    upsample popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length normalize
    fast_distance fast_length fast_normalize isequal isnotequal isgreater isgreaterequal isless islessequal
    islessgreater isfinite isinf isnan isnormal isordered isunordered signbit any all bitselect select
    barrier work_group_barrier mem_fence read_mem_fence write_mem_fence async_work_group_copy
    async_work_group_strided_copy wait_group_events prefetch vec_step shuffle shuffle2 printf
    atomic_init atomic_work_item_fence atomic_store atomic_load atomic_exchange atomic_add atomic_sub atomic_xchg
    atomic_inc atomic_dec atomic_cmpxchg atomic_min atomic_max atomic_and atomic_or atomic_xor
    read_imagef read_imagei read_imageui write_imagef write_imagei write_imageui
    read_channel_intel write_channel_intel read_channel_nb_intel write_channel_nb_intel read_pipe write_pipe
    MAXFLOAT HUGE_VALF HUGE_VAL INFINITY NAN CHAR_BIT CHAR_MAX CHAR_MIN INT_MAX INT_MIN LONG_MAX LONG_MIN SCHAR_MAX
    SCHAR_MIN SHRT_MAX SHRT_MIN UCHAR_MAX USHRT_MAX UINT_MAX ULONG_MAX FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_MIN
    DBL_EPSILON M_E M_LOG2E M_LOG10E M_LN2 M_LN10 M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI M_2_SQRTPI M_SQRT2 M_SQRT1_2";

/// Returns why OpenCL code cannot have a variable of this name; `None` if it can.
pub(super) fn reserved(name: &str) -> Option<&'static str> {
    let is_in = |list: &str| list.split_ascii_whitespace().any(|one| one == name);
    let number = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_type = |name: &str| Word::named(name).is_some() || is_in(TYPES);
    // Vectors of 3, and of the reserved scalars.
    let is_vector = number != name && (Word::named(number).is_some() || ["bool", "quad"].contains(&number));
    let converts = |prefix| name.strip_prefix(prefix).is_some_and(|rest: &str| Word::named(base(rest)).is_some());
    match () {
        () if name.starts_with('_') => Some("C reserves names that begin with _"),
        () if name.to_ascii_lowercase().starts_with(OURS) => Some("names of the generated code begin with circus_"),
        () if is_in(KEYWORDS) || is_type(name) || is_vector => Some("it is a keyword or a type of OpenCL"),
        () if is_in(FUNCTIONS) || converts("convert_") || converts("as_") || is_memory(name) => {
            Some("it is a function or a constant of OpenCL")
        }
        () => None,
    }
}

/// Returns a conversion's type without its rounding.
fn base(conversion: &str) -> &str {
    conversion.split('_').next().unwrap_or(conversion)
}

/// Returns whether this is a function that reads or writes a vector in memory, such as `vload4` or `vstore_half8_rte`.
fn is_memory(name: &str) -> bool {
    let rest = ["vload", "vstore"].into_iter().find_map(|prefix| name.strip_prefix(prefix));
    let rest = rest.map(|rest| rest.trim_start_matches("a_half").trim_start_matches("_half"));
    rest.is_some_and(|rest| base(rest).bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether files may be called after `name`, which also appears in the text of the files.
pub(super) fn is_file_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_inner) && !name.starts_with('-')
}

/// Returns `name` in camel case, such as `SimpleOut` for `simple_out`.
pub(super) fn camel_case(name: &str) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_opencl_are_reserved() {
        let reserved_names = [
            "float",
            "float3",
            "uint16",
            "double16",
            "kernel",
            "channel",
            "_x",
            "__global",
            "circus_out",
            "CIRCUS_X",
            "min",
            "as_float",
            "as_uchar16",
            "convert_int_sat_rte",
            "vload4",
            "vstore_half8",
            "vstorea_half16_rtz",
            "bool2",
            "quad4",
            "read_channel_intel",
            "size_t",
            "asm",
            "M_PI",
        ];
        for name in reserved_names {
            assert!(reserved(name).is_some(), "{name}");
        }
        for name in ["simple_out", "match", "self", "Float", "float5x", "min_out", "as_is", "vloads", "circus", "x__y"]
        {
            assert_eq!(reserved(name), None, "{name}");
        }
    }

    #[test]
    fn names_of_types_are_in_camel_case() {
        for (name, expected) in [("simple_out", "SimpleOut"), ("x", "X"), ("a__b_", "AB"), ("a1_2b", "A12b")] {
            assert_eq!(camel_case(name), expected);
        }
    }
}
