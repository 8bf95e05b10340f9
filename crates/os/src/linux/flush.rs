//! Writes cache lines back to the persistent medium behind memory, on x86-64.
//!
//! On persistent memory a store is durable once its cache line has been written back and a fence has passed (Intel SDM
//! vol. 1, 10.6.3 and vol. 2, CLWB, CLFLUSH). CLWB keeps the line in the cache; CLFLUSH, which every x86-64 CPU has,
//! drops it, one line after the other.

use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
use std::sync::atomic::AtomicU64;

const LINE: usize = 64;

/// Whether this CPU has the instruction CLWB: bit 24 of EBX in leaf 7 of CPUID, subleaf 0.
pub(super) fn has_clwb() -> bool {
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 << 24 != 0
}

/// Writes the cache lines of `words` back and orders that before later stores.
pub(super) fn write_back(words: &[AtomicU64], has_clwb: bool) {
    if words.is_empty() {
        return; // its address is none
    }
    let first = words.as_ptr() as usize & !(LINE - 1);
    for line in (first..words.as_ptr() as usize + size_of_val(words)).step_by(LINE) {
        // SAFETY: the instruction is there; it changes no memory, and the line holds a word of ours.
        unsafe {
            match has_clwb {
                true => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                false => _mm_clflush(line as *const u8),
            }
        }
    }
    // SAFETY: every x86-64 CPU has `sfence`.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_changes_nothing() {
        let words: Vec<AtomicU64> = (0..200).map(AtomicU64::new).collect();
        for has_clwb in [has_clwb(), false] {
            write_back(&words[3..150], has_clwb);
            write_back(&[], has_clwb);
        }
        assert!(words.into_iter().map(AtomicU64::into_inner).eq(0..200));
    }
}
