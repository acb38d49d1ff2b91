//! Memory that was freed, and that the allocator keeps.

/// Returns to the kernel the memory that this process has freed. GNU's allocator keeps it for later allocations, even gigabytes,
/// if it was allocated in small pieces. It takes longer the more is free, and allocations wait meanwhile. With another C library
/// it does nothing.
pub fn release_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time and by any thread. It changes nothing that is allocated, only pages of free memory.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
