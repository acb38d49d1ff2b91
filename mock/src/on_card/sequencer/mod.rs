//! The command sequencer: fetches instructions, issues them in order, writes completions.

mod begin;
mod issue;
mod launch;
mod retire;
