//! Names the shared library as programs load it. The number changes with a change that breaks programs.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfpga.so.0");
}
