//! The vfio-user server and client: against raw bytes, against each other, and against a client of other people's.
//!
//! `FPGA_TESTS_FULL=1` has clients come and go for a minute instead of some seconds.
#![allow(unreachable_pub, reason = "the files of one test share more than they would show")]

mod card;
mod functions;
mod malformed;
mod others;
mod protocol;
mod raw;
mod setting;
