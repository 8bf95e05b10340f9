//! Loops over samples, with the widest vectors that the processor has.

/// Runs `work`, compiled for vectors of eight where the processor has them: more samples an instruction, and the same
/// operations in the same order. It and the functions that it calls have to be `#[inline(always)]`.
#[inline]
pub(super) fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has these instructions.
        return unsafe { eight_wide(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn eight_wide<R>(work: impl FnOnce() -> R) -> R {
    work()
}
