//! What links, time and neighbours do to cards.
#![forbid(unsafe_code)]

mod agenda;
mod bit_errors;
mod channel_handles;
mod channels;
mod completion_timeouts;
mod components;
mod faults;
mod flapping_links;
mod foreign_device;
mod generated_channels;
mod intx;
mod odd_profiles;
mod pipe;
mod served_fabric;
mod slow_accesses;
mod slow_resets;
mod virtual_time;
