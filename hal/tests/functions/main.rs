//! PCI functions and their memory, on buses that the tests make.
#![forbid(unsafe_code)]

mod dma;
mod fake;
mod function;
mod registered;
mod saved_config;
mod vfio;
