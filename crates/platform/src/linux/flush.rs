//! How this CPU writes cache lines back to the medium behind memory.
//!
//! On persistent memory a store is durable once its cache line has been written back and a fence has passed (Intel SDM
//! vol. 1, 10.6.3 and vol. 2, CLWB, CLFLUSHOPT). CLWB keeps the line in the cache; CLFLUSHOPT, its predecessor, drops
//! it. Other architectures go through `msync`, which is right everywhere and slower.

use serde::{Deserialize, Serialize};

/// How lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flush {
    /// CLWB and a fence.
    Clwb,
    /// CLFLUSHOPT and a fence.
    Clflushopt,
    /// The `msync` system call.
    Msync,
}

/// The best instruction that this CPU has.
pub fn flush_instruction() -> Flush {
    #[cfg(target_arch = "x86_64")]
    {
        /// CPUID leaf 7, subleaf 0, register EBX.
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
