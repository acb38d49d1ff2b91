//! Commands on cards that another process serves.
#![forbid(unsafe_code)]

mod fpgactl;
mod served_memory;
mod server_killed;
mod slow_server;
