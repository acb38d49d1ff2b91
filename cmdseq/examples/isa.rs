//! Makes the tables of `docs/isa.md` anew: `cargo run -p cmdseq --example isa`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isa.md");
    std::fs::write(path, cmdseq::markdown::render(&std::fs::read_to_string(path)?))
}
