//! Prints `docs/isa.md`: `cargo run -p cmdseq --example isa > docs/isa.md`.

fn main() {
    print!("{}", cmdseq::markdown::render());
}
