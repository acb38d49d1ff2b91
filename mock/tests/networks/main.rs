//! Packets, links, routers and protocols of each network, without a driver.
#![forbid(unsafe_code)]

mod bluelink_fabric;
mod bluelink_memory;
mod bluelink_pipes;
mod bluelink_protocol;
mod bluelink_soak;
mod circus;
mod communicator_table;
mod direct_transform;
mod mpi_fpga;
mod novog_fft;
mod novog_static;
mod novog_wormhole;
