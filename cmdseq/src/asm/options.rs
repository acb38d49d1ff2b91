//! Options and limits of the assembler.

/// Limits of time and memory for one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub source_bytes: usize,
    /// Files, the first one included.
    pub files: usize,
    /// Levels of includes, without the first file; above 64, it is 64.
    pub include_depth: usize,
    /// Instructions of one rank.
    pub instructions: usize,
    /// Instructions of all ranks together.
    pub all_instructions: u64,
    /// Statements and rounds of loops, of all ranks together.
    pub steps: u64,
    /// Computed values of expressions, of all ranks together.
    pub values: u64,
    /// Buffers of all ranks together.
    pub buffers: u64,
    /// Members of communicators and blocks of tables, of all ranks together.
    pub entries: u64,
    /// Errors that are reported; the others are counted, as far as the search goes ([`is_partial`](super::Errors::is_partial)).
    pub errors: usize,
    /// Warnings that are reported; the others are counted.
    pub warnings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            source_bytes: 8 << 20,
            files: 256,
            include_depth: 16,
            instructions: 1 << 16,
            all_instructions: 1 << 20,
            steps: 1 << 24,
            values: 1 << 26,
            buffers: 1 << 20,
            entries: 1 << 23,
            errors: 20,
            warnings: 100,
        }
    }
}

/// Options of the assembler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Number of ranks; `None` for that of the source.
    pub ranks: Option<u32>,
    /// Assembles only this rank; `None` for all.
    pub only: Option<u32>,
    /// Allows operands that are addresses in host memory, which nobody checks. Otherwise only host buffers are accepted.
    pub raw_host: bool,
    /// Limits.
    pub limits: Limits,
}
