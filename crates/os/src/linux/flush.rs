//! Writes cache lines back to the persistent medium behind memory.
//!
//! On persistent memory a store is durable once its cache line has been written back and a fence has passed (Intel SDM
//! vol. 1, 10.6.3 and vol. 2, CLWB, CLFLUSHOPT). CLWB keeps the line in the cache; CLFLUSHOPT, its predecessor, drops
//! it. Other architectures go through `msync`, which is right everywhere and slower.

/// Method of writing cache lines back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// The instruction CLWB and a fence.
    Clwb,
    /// The instruction CLFLUSHOPT and a fence.
    Clflushopt,
    /// The `msync` system call; right everywhere, and slower.
    Msync,
}

/// The best method that this CPU supports.
pub(super) fn flush_instruction() -> Flush {
    #[cfg(target_arch = "x86_64")]
    {
        /// Bits of CPUID leaf 7, subleaf 0, register EBX.
        const CLWB: u32 = 1 << 24;
        const CLFLUSHOPT: u32 = 1 << 23;
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let features = if __cpuid(0).eax >= 7 {
            __cpuid_count(7, 0).ebx
        } else {
            0
        };
        if features & CLWB != 0 {
            return Flush::Clwb;
        }
        if features & CLFLUSHOPT != 0 {
            return Flush::Clflushopt;
        }
    }
    Flush::Msync
}

/// Writes the cache lines of `bytes` back and orders that before later stores. Does nothing for [`Flush::Msync`]: the
/// caller calls msync(2) itself.
pub(super) fn write_back(bytes: &[u8], how: Flush) {
    if bytes.is_empty() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    {
        const LINE: usize = 64;
        let first = bytes.as_ptr() as usize & !(LINE - 1);
        let end = bytes.as_ptr() as usize + bytes.len();
        for line in (first..end).step_by(LINE) {
            // SAFETY: `flush_instruction` found the instruction; it changes no memory, and the line holds a byte of
            // ours.
            unsafe {
                match how {
                    Flush::Clwb => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Flush::Clflushopt => {
                        std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Flush::Msync => return,
                }
            }
        }
        // SAFETY: every x86_64 CPU has `sfence`.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, how);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_changes_nothing() {
        let bytes: Vec<u8> = (0..200).collect();
        write_back(&bytes[3..150], flush_instruction());
        write_back(&[], flush_instruction());
        assert!(bytes.iter().copied().eq(0..200));
    }
}
