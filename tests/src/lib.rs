//! What the tests of the whole workspace share: data, and an oracle that uses neither planner nor mock.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod oracle;
pub mod pattern;
pub mod recorder;
pub mod run;
