//! Prints `docs/architecture.svg`, drawn from `docs/architecture.md`:
//! `cargo run -p fpga-tests --example architecture > docs/architecture.svg`.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the test of the page uses all of it")]
#[path = "../tests/architecture/page.rs"]
mod page;
#[path = "../tests/architecture/picture.rs"]
mod picture;

fn main() {
    print!("{}", picture::draw(&page::Page::read()));
}
