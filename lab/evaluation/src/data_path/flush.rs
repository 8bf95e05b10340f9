//! Writes cache lines back to the medium behind memory.

use punctual_platform::linux::flush::Flush;

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
    use punctual_platform::linux::flush::flush_instruction;

    use super::*;

    #[test]
    fn writing_back_changes_nothing() {
        let bytes: Vec<u8> = (0..200).collect();
        write_back(&bytes[3..150], flush_instruction());
        write_back(&[], flush_instruction());
        assert!(bytes.iter().copied().eq(0..200));
    }
}
