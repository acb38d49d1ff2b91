//! Barriers, named by what they order. Each has one definition per architecture.
//!
//! They order accesses of this processor to memory (write-back, coherent with the card) and to mapped registers (uncached).
//! Accesses to registers need no barrier between them.

#[cfg(not(target_arch = "aarch64"))]
use std::sync::atomic::{self, Ordering};

/// Orders stores to memory before the next MMIO store: data that a doorbell announces is visible before the doorbell.
///
/// x86-64 needs no instruction. Stores become visible in program order, and a store to uncached memory never passes earlier
/// stores (Intel SDM volume 3, "Memory Ordering"). `sfence` is for non-temporal and write-combining stores only. Copies into
/// buffers are not non-temporal: their string instruction is ordered before later stores. VFIO maps no BAR as
/// write-combining. The compiler still needs a fence.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn memory_before_mmio() {
    atomic::compiler_fence(Ordering::SeqCst);
}

/// Orders stores to memory before the next MMIO store: data that a doorbell announces is visible before the doorbell.
///
/// A fence of the language orders for other processors only (inner shareable domain, `dmb ishst`). A card is in the outer
/// shareable domain. Linux's `writel` has the same barrier before its store: `__iowmb`, which is `dma_wmb`, which is `dmb oshst`
/// (`arch/arm64/include/asm/io.h` and `barrier.h`). Linux's `wmb`, a `dsb st`, also waits for completion. That is not needed,
/// because the doorbell is the next access that reaches the card.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn memory_before_mmio() {
    // SAFETY: a barrier instruction changes neither registers, flags nor stack. Without `nomem` the compiler moves no memory
    // access across it.
    unsafe { std::arch::asm!("dmb oshst", options(nostack, preserves_flags)) }
}

/// Orders stores to memory before the next MMIO store: data that a doorbell announces is visible before the doorbell.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub fn memory_before_mmio() {
    atomic::fence(Ordering::SeqCst);
}

/// Orders the load of a word that the device wrote before loads of the data that the word announces.
///
/// The word may be in memory (a completion) or in a register (a status read by MMIO). Linux has the same barrier for both:
/// `dma_rmb`, and `__iormb` after the load of `readl`, are `dmb oshld` (`arch/arm64/include/asm/barrier.h` and `io.h`). It
/// orders later stores too, so a doorbell that releases a slot does not pass the load that saw the slot full.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn device_word_before_data() {
    // SAFETY: a barrier instruction changes neither registers, flags nor stack. Without `nomem` the compiler moves no memory
    // access across it.
    unsafe { std::arch::asm!("dmb oshld", options(nostack, preserves_flags)) }
}

/// Orders the load of a word that the device wrote before loads of the data that the word announces.
///
/// The word may be in memory (a completion) or in a register (a status read by MMIO).
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
pub fn device_word_before_data() {
    atomic::fence(Ordering::Acquire);
}
