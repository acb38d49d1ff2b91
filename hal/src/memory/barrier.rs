//! Barriers, named for what they order. There is one definition of each per architecture.
//!
//! They order this processor's accesses to memory (written back, coherent with the card) and to mapped registers
//! (uncached). Nothing here is needed between two accesses to registers: those are ordered already.

#[cfg(not(target_arch = "aarch64"))]
use std::sync::atomic::{self, Ordering};

/// Orders stores to memory before the MMIO store that follows: what a doorbell announces is there when it rings.
///
/// x86-64 needs no instruction: stores are seen in program order, a store to uncached memory never passes an earlier one
/// (Intel SDM volume 3, "Memory Ordering"), and `sfence` is only for non-temporal and write-combining stores. Copies
/// into buffers make none of the former: their string instruction is ordered before the stores that follow it. VFIO maps no BAR
/// as the latter. The compiler must still be held back.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn memory_before_mmio() {
    atomic::compiler_fence(Ordering::SeqCst);
}

/// Orders stores to memory before the MMIO store that follows: what a doorbell announces is there when it rings.
///
/// A fence of the language orders for other processors only (the inner shareable domain, `dmb ishst`). A card is in the outer
/// one. Linux's `writel` has this very barrier before its store: `__iowmb`, which is `dma_wmb`, which is `dmb oshst`
/// (`arch/arm64/include/asm/io.h` and `barrier.h`). Its `wmb`, a `dsb st`, would wait for completion as well: nobody needs that,
/// because the doorbell itself is the next access to reach the card.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn memory_before_mmio() {
    // SAFETY: a barrier instruction touches neither registers, flags nor stack. Without `nomem` the compiler also keeps
    // memory accesses on their side of it.
    unsafe { std::arch::asm!("dmb oshst", options(nostack, preserves_flags)) }
}

/// Orders stores to memory before the MMIO store that follows: what a doorbell announces is there when it rings.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub fn memory_before_mmio() {
    atomic::fence(Ordering::SeqCst);
}

/// Orders the load that saw a word written by the device before loads of what that word announces.
///
/// The word may be in memory (a completion) or in a register (a status read by MMIO). Linux has this very barrier for both:
/// `dma_rmb`, and `__iormb` after the load of `readl`, are `dmb oshld` (`arch/arm64/include/asm/barrier.h` and `io.h`). It holds
/// back stores after it as well, so that a doorbell that gives a slot back does not overtake the load that saw it full.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn device_word_before_data() {
    // SAFETY: as in `memory_before_mmio`.
    unsafe { std::arch::asm!("dmb oshld", options(nostack, preserves_flags)) }
}

/// Orders the load that saw a word written by the device before loads of what that word announces.
///
/// The word may be in memory (a completion) or in a register (a status read by MMIO).
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
pub fn device_word_before_data() {
    atomic::fence(Ordering::Acquire);
}
