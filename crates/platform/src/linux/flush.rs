//! How this CPU writes cache lines back to the persistent medium behind memory.
//!
//! On persistent memory a store is durable once its cache line has been written back and a fence has passed (Intel SDM
//! vol. 1, 10.6.3 and vol. 2, CLWB, CLFLUSHOPT). CLWB keeps the line in the cache; CLFLUSHOPT, its predecessor, drops
//! it. Other architectures go through `msync`, which is right everywhere and slower.

use serde::{Deserialize, Serialize};

/// Method of writing cache lines back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flush {
    /// The instruction CLWB and a fence.
    Clwb,
    /// The instruction CLFLUSHOPT and a fence.
    Clflushopt,
    /// The `msync` system call; right everywhere, and slower.
    Msync,
}

/// The best method that this CPU supports.
pub fn flush_instruction() -> Flush {
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
