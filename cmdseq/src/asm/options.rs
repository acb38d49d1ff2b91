//! What a source is assembled for, and what it may use up.

/// What a source may use up, so that none takes for ever or all memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub source_bytes: usize,
    /// Files, the first one included.
    pub files: usize,
    /// Files that include one another, without the first.
    pub include_depth: usize,
    /// Instructions of one rank.
    pub instructions: usize,
    /// Instructions of all ranks together.
    pub all_instructions: u64,
    /// Statements and rounds of loops, of all ranks together.
    pub steps: u64,
    /// Values of expressions that are computed, of all ranks together.
    pub values: u64,
    /// Buffers of all ranks together.
    pub buffers: u64,
    /// Members of communicators and blocks of tables, of all ranks together.
    pub entries: u64,
    /// Errors that are reported; the rest is counted.
    pub errors: usize,
    /// Warnings that are reported; the rest is counted.
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

/// What to assemble a source for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// How many ranks there are; without it, as the source says.
    pub ranks: Option<u32>,
    /// Only this rank; without it, all.
    pub only: Option<u32>,
    /// Whether an operand may be an address in host memory, which nobody checks. Without it, only host buffers are taken.
    pub raw_host: bool,
    /// What it may use up.
    pub limits: Limits,
}
