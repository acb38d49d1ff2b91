//! PCI functions and their memory, on buses that the tests make.

mod dma;
mod fake;
mod function;
mod registered;
mod saved_config;
mod vfio;
