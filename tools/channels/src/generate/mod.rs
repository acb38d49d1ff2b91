//! Generates code from a definition, as the generator of the paper does: OpenCL kernels, host code, and handles in Rust.

mod device;
mod ends;
mod host;
mod names;
mod refusal;
mod rust;
mod template;

use crate::definition::Definition;
pub use refusal::Refusal;

/// A part of the generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// OpenCL kernels for Intel's FPGA SDK.
    Device,
    /// C code that starts the kernels.
    Host,
    /// Typed handles for `fpga-driver`.
    Rust,
}

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The part it belongs to.
    pub part: Part,
    /// Its name, which begins with the name of the application.
    pub name: String,
    /// Its content.
    pub text: String,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 3] = [Part::Device, Part::Host, Part::Rust];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Device => "device",
            Part::Host => "host",
            Part::Rust => "rust",
        }
    }
}

/// Generates `parts` of the code of an application, for the ends of these `names`, or for all ends if there are none.
///
/// The files are `APPLICATION_cl.h` (device), `APPLICATION_host.h` and `APPLICATION_host.c` (host), and
/// `APPLICATION_channels.rs` (Rust).
///
/// # Errors
/// A [`Refusal`] if the code cannot have a name, or if the definition lacks an end.
pub fn generate(
    definition: &Definition,
    application: &str,
    parts: &[Part],
    names: &[String],
) -> Result<Vec<File>, Refusal> {
    if !names::is_file_name(application) {
        return Err(Refusal::Application(application.into()));
    }
    let ends = ends::select(definition, names)?;
    let guard = application.replace('-', "_").to_ascii_uppercase();
    let file = |part, suffix: &str, text| File { part, name: format!("{application}{suffix}"), text };
    let mut files = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| parts.contains(part)) {
        match part {
            Part::Device => files.push(file(part, "_cl.h", device::device(application, &guard, &ends))),
            Part::Host => {
                files.push(file(part, "_host.h", host::header(application, &guard, &ends)));
                files.push(file(part, "_host.c", host::source(application, &ends)));
            }
            Part::Rust => {
                let name = application.replace('-', "_") + "_channels.rs";
                files.push(File { part, name, text: rust::module(application, &ends)? });
            }
        }
    }
    Ok(files)
}
