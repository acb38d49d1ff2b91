//! Builds generated code with the system's C compiler, and runs it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fpga_channels::{Channel, Definition, Part, generate};
use tempfile::TempDir;

/// The name of the application in all tests.
const NAME: &str = "app";

/// Generated code of some ends, built.
pub(crate) struct Application {
    directory: TempDir,
}

/// What to build.
pub(crate) struct Settings<'a> {
    pub(crate) definition: &'a Definition,
    /// Ends to generate code for; all if there are none.
    pub(crate) ends: &'a [&'a str],
    pub(crate) destination_bits: u32,
    pub(crate) has_table: bool,
}

impl<'a> Settings<'a> {
    pub(crate) fn new(definition: &'a Definition) -> Self {
        Settings { definition, ends: &[], destination_bits: 6, has_table: true }
    }

    fn has(&self, name: &str) -> bool {
        self.ends.is_empty() || self.ends.contains(&name)
    }

    fn writers(&self) -> Vec<&'a Channel> {
        self.definition.channels().iter().filter(|channel| self.has(&channel.writer.name)).collect()
    }

    fn readers(&self) -> Vec<&'a Channel> {
        self.definition.channels().iter().filter(|channel| self.has(&channel.reader.name)).collect()
    }
}

impl Application {
    /// Builds with warnings as errors, and with checks of every index.
    #[track_caller]
    pub(crate) fn build(settings: &Settings<'_>) -> Application {
        let directory = tempfile::tempdir().unwrap();
        let ends: Vec<String> = settings.ends.iter().copied().map(String::from).collect();
        let parts = [Part::Device, Part::Host];
        for file in generate(settings.definition, NAME, &parts, &ends).unwrap() {
            std::fs::write(directory.path().join(file.name), file.text).unwrap();
        }
        std::fs::write(directory.path().join("device.c"), device(settings)).unwrap();
        std::fs::write(directory.path().join("senders.h"), senders(settings)).unwrap();
        let application = Application { directory };
        let ours = sources();
        let checked = ["-O0", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
        let device = ["-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-psabi"];
        let bits = format!("-DCIRCUS_DESTINATION_BITS={}", settings.destination_bits);
        let table: &[&str] = if settings.has_table { &[] } else { &["-DCIRCUS_NO_TABLE"] };
        application.compile("device", &[&checked, &device as &[&str], &[&bits, "-std=gnu11"], table].concat());
        application.compile("app_host", &[&checked as &[&str], &["-std=c99", "-pedantic", &bits]].concat());
        let mut compiler = application.compiler();
        compiler.args(["-std=gnu11", "-O1", "-o", "app", "device.o", "app_host.o"]);
        compiler.args(["main.c", "runtime.c", "opencl.c"].map(|name| ours.join(name)));
        run(&mut compiler);
        application
    }

    /// Runs commands (see `c/main.c`), and returns what they print.
    #[track_caller]
    pub(crate) fn run(&self, commands: &str) -> String {
        let mut command = Command::new(self.directory.path().join("app"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let commands = commands.to_owned();
        let writer = std::thread::spawn(move || input.write_all(commands.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs commands, and returns the words they print.
    #[track_caller]
    pub(crate) fn words(&self, commands: &str) -> Vec<Vec<u8>> {
        let printed = self.run(commands);
        let word = |line: &str| line.strip_prefix("word ").map(bytes);
        printed.lines().filter_map(word).collect()
    }

    #[track_caller]
    fn compile(&self, name: &str, flags: &[&str]) {
        let mut compiler = self.compiler();
        compiler.args(flags).args(["-c", &format!("{name}.c"), "-o", &format!("{name}.o")]);
        run(&mut compiler);
    }

    fn compiler(&self) -> Command {
        // Rust's linker, so it is there.
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Wextra", "-Werror", "-I."]).arg("-I").arg(sources());
        compiler.current_dir(self.directory.path());
        compiler
    }
}

/// The folder of the C code of these tests.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fabric/generated_channels/c")
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("the C compiler starts");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The device code, and tables of its kernels and channels.
fn device(settings: &Settings<'_>) -> String {
    let (writers, readers) = (settings.writers(), settings.readers());
    let mut text = format!("#include \"opencl_c.h\"\n#include \"{NAME}_cl.h\"\n");
    let (mut kernels, mut channels) = (String::new(), String::new());
    let mut kernel = |name: &str, call: &str, bytes: [&str; 3], is_autorun| {
        let _ = writeln!(text, "static void run_{name}(void *const *arguments) {{ (void)arguments; {name}({call}); }}");
        let _ = writeln!(kernels, "{{\"{name}\", run_{name}, {{{}}}, {is_autorun}}},", bytes.join(", "));
    };
    let mut channel = |name: &str| {
        let _ = writeln!(channels, "{{\"{name}\", &{name}, sizeof {name}}},");
    };
    if settings.has_table {
        // The first argument is a buffer: its handle begins with its address.
        let call = "**(uchar ***)arguments[0], *(uint *)arguments[1]";
        kernel("circus_load_table", call, ["sizeof(void *)", "sizeof(uint)", "0"], false);
        channel("circus_table");
    }
    for one in &writers {
        let call = "*(uint *)arguments[0], *(ulong *)arguments[1], *(ulong *)arguments[2]";
        let name = format!("circus_send_{}", one.writer.name);
        kernel(&name, call, ["sizeof(uint)", "sizeof(ulong)", "sizeof(ulong)"], false);
        channel(&one.writer.name);
    }
    for one in &readers {
        kernel(&format!("circus_receive_{}", one.reader.name), "", ["0"; 3], true);
        channel(&one.reader.name);
    }
    for (is_there, name, io) in [
        (!writers.is_empty(), "circus_multiplexer", "circus_out"),
        (!readers.is_empty(), "circus_demultiplexer", "circus_in"),
    ] {
        if is_there {
            kernel(name, "", ["0"; 3], true);
            channel(io);
        }
    }
    let _ = writeln!(text, "const struct kernel kernels[] = {{\n{kernels}}};");
    let _ = writeln!(text, "const size_t kernel_count = sizeof kernels / sizeof *kernels;");
    let _ = writeln!(text, "const struct open_channel open_channels[] = {{\n{channels}}};");
    let _ = writeln!(text, "const size_t open_channel_count = sizeof open_channels / sizeof *open_channels;");
    text
}

/// A table of the functions of the host code.
fn senders(settings: &Settings<'_>) -> String {
    let mut text = format!("#include \"{NAME}_host.h\"\nstatic const struct {{ const char *name; ");
    text += "cl_int (*send)(struct circus *, cl_uint, cl_ulong, cl_ulong); } senders[] = {\n";
    for channel in settings.writers() {
        let _ = writeln!(text, "{{\"{0}\", circus_send_{0}}},", channel.writer.name);
    }
    text + "{NULL, NULL}};\n"
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.iter().map(|[high, low]| value(*high) << 4 | value(*low)).collect()
}
