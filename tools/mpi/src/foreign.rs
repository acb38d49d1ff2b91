//! Finds the functions and objects of the MPI library that the program uses.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle, an address or an integer argument, as the calling convention passes it: an argument narrower than a word is in the
/// low bits, and the rest is undefined.
pub(crate) type Word = usize;

/// A function of the MPI library, looked up when it is first called: Open MPI 4.1 lacks those with large counts.
pub(crate) struct Function {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Function { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, to be called with as many words as it has arguments.
    pub(crate) fn get<F: Foreign>(&self) -> F {
        F::at(self.address())
    }

    /// Its address. Ends the process if the MPI library has no such function: the program could not have been linked.
    fn address(&self) -> *mut c_void {
        self.find().unwrap_or_else(|| {
            eprintln!("fpga-mpi: no MPI library of this process has {}", self.name.to_string_lossy());
            std::process::abort();
        })
    }

    /// Whether the MPI library has it.
    pub(crate) fn is_there(&self) -> bool {
        self.find().is_some()
    }

    fn find(&self) -> Option<*mut c_void> {
        let mut known = self.found.load(Ordering::Relaxed);
        if known.is_null() {
            known = behind(self.name).or_else(|| in_library(self.name)).unwrap_or(ABSENT);
            self.found.store(known, Ordering::Relaxed);
        }
        (known != ABSENT).then_some(known)
    }
}

/// Stands for a function that was looked for and is not there.
const ABSENT: *mut c_void = ptr::dangling_mut::<u8>().cast();

/// Functions of C whose arguments are words. An error handler of the program may leave them by an exception of C++.
pub(crate) trait Foreign: Copy {
    /// The function at `address`.
    fn at(address: *mut c_void) -> Self;
}

macro_rules! foreign {
    ($(($($word:ident)*))*) => {$(
        impl Foreign for unsafe extern "C-unwind" fn($($word),*) -> c_int {
            fn at(address: *mut c_void) -> Self {
                // SAFETY: a pointer to a function is an address. Whoever calls it vouches for what is there.
                unsafe { std::mem::transmute(address) }
            }
        }
    )*};
}

foreign! {
    ()
    (Word)
    (Word Word)
    (Word Word Word)
    (Word Word Word Word)
    (Word Word Word Word Word)
    (Word Word Word Word Word Word)
    (Word Word Word Word Word Word Word)
    (Word Word Word Word Word Word Word Word)
    (Word Word Word Word Word Word Word Word Word)
    (Word Word Word Word Word Word Word Word Word Word)
}

/// Calls the next function of this name after this library, with words as arguments. Under a name `MPI_` that is the function of a
/// profiling tool, if one is loaded behind this library.
macro_rules! next {
    ($($part:ident)+ $(, $argument:expr)* $(,)?) => {{
        static FUNCTION: $crate::foreign::Function = $crate::foreign::Function::new($crate::foreign::name!($($part)+));
        let function: unsafe extern "C-unwind" fn($($crate::foreign::word!($argument)),*) -> std::ffi::c_int = FUNCTION.get();
        function($($argument as $crate::foreign::Word),*)
    }};
}

/// Calls a function of the MPI library for this library itself, under its name in the profiling interface.
macro_rules! pmpi {
    ($name:ident $(, $argument:expr)* $(,)?) => { $crate::foreign::next!(P $name $(, $argument)*) };
}

/// A name of these parts.
macro_rules! name {
    ($($part:ident)+) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!($(stringify!($part),)+ "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}

/// The type of an argument of [`next`], whatever it is.
macro_rules! word {
    ($argument:expr) => {
        $crate::foreign::Word
    };
}

pub(crate) use {name, next, pmpi, word};

/// Looks for a function in the libraries after this one.
fn behind(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is terminated; dlsym keeps nothing of it.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns the address of an object of the MPI library, such as `ompi_mpi_int`. A program may hold a copy of its own, which is
/// then the one that all use.
pub(crate) fn object(name: &CStr) -> Option<Word> {
    // SAFETY: the name is terminated; dlsym keeps nothing of it.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { in_library(name).map(|found| found as Word) } else { Some(found as Word) }
}

/// Looks in the MPI library that was loaded for one other library alone, as Python does.
fn in_library(name: &CStr) -> Option<*mut c_void> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let find = |library: *mut c_void, name: &CStr| {
        // SAFETY: `library` is open for as long as the process lives; the name is terminated.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let known = *LIBRARY.get().unwrap_or(&0);
    if known != 0 {
        return find(known as *mut c_void, name);
    }
    let library = loaded().into_iter().find(|library| find(*library, c"PMPI_Init").is_some())?;
    let _ = LIBRARY.set(library as usize);
    find(library, name)
}

/// The loaded libraries that may be MPI's, by their file names.
fn loaded() -> Vec<*mut c_void> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<&str> = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect();
    paths.dedup();
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    paths.retain(|path| name(path).starts_with("libmpi") && name(path).contains(".so"));
    let open = |path: &str| {
        let path = CString::new(path).ok()?;
        // SAFETY: the path is terminated, and RTLD_NOLOAD runs no code of the library: it is loaded already.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!library.is_null()).then_some(library)
    };
    paths.into_iter().filter_map(open).collect()
}

/// A result of MPI.
pub(crate) type Code = c_int;

/// `MPI_SUCCESS`, 0 in every ABI.
pub(crate) const SUCCESS: Code = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_mpi_has_none_of_its_functions() {
        let function = Function::new(c"PMPI_Comm_rank");
        assert!(!function.is_there() && !function.is_there());
        assert_eq!(object(c"ompi_mpi_comm_world"), None);
    }
}
