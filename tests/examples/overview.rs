//! Prints `docs/overview.svg`, drawn from `docs/overview.txt`:
//! `cargo run -p fpga-tests --example overview > docs/overview.svg`.
#![forbid(unsafe_code)]

#[path = "../tests/documentation/overview.rs"]
mod overview;

fn main() {
    print!("{}", overview::draw(include_str!("../../docs/overview.txt")));
}
