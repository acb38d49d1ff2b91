//! Prints `docs/registers.md`.

fn main() {
    print!("{}", fpga_regs::markdown::render());
}
