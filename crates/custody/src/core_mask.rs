//! Sets of cores, and the affinity of threads.

use std::mem;

use punctual_os::Tid;
use punctual_units::CoreId;

use super::{KernelTree, last_error, tree};

/// A set of cores as the kernel takes it (sched_setaffinity(2)), of the size of a `cpu_set_t`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoreMask([u8; libc::CPU_SETSIZE as usize / 8]);

impl Default for CoreMask {
    /// The set without any core.
    fn default() -> Self {
        CoreMask([0; libc::CPU_SETSIZE as usize / 8])
    }
}

impl FromIterator<CoreId> for CoreMask {
    fn from_iter<I: IntoIterator<Item = CoreId>>(cores: I) -> CoreMask {
        let mut mask = CoreMask::default();
        cores.into_iter().for_each(|core| mask.set(core, true));
        mask
    }
}

impl CoreMask {
    /// Adds `core` to the set, or removes it. A core beyond the set's size is ignored.
    pub fn set(&mut self, core: CoreId, within: bool) {
        if let Some(byte) = self.0.get_mut(core.index() / 8) {
            let bit = 1 << (core.index() % 8);
            *byte = if within { *byte | bit } else { *byte & !bit };
        }
    }

    /// Whether `core` is in the set.
    pub fn has(&self, core: CoreId) -> bool {
        self.0
            .get(core.index() / 8)
            .is_some_and(|byte| byte >> (core.index() % 8) & 1 == 1)
    }

    /// Whether no core is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Parses a set that the kernel prints as 32-bit words in hexadecimal, the highest first (`Cpus_allowed` in
    /// proc_pid_status(5)); `None` if `text` is none. Cores beyond the set's size are ignored.
    pub fn parse(text: &str) -> Option<CoreMask> {
        let mut mask = CoreMask::default();
        for (number, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word, 16).ok()?;
            if let Some(bytes) = mask.0.get_mut(number * 4..number * 4 + 4) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
        Some(mask)
    }

    /// The union of both sets.
    pub fn with(mut self, other: &CoreMask) -> CoreMask {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        self
    }

    /// The cores of this set that are not in `other`.
    pub fn without(mut self, other: &CoreMask) -> CoreMask {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
        self
    }

    /// The lowest core that both sets have.
    pub fn first_shared(&self, other: &CoreMask) -> Option<CoreId> {
        (0..libc::CPU_SETSIZE as u32)
            .map(CoreId)
            .find(|core| self.has(*core) && other.has(*core))
    }

    /// The cores of the set, ascending.
    pub fn cores(&self) -> Vec<CoreId> {
        let all = (0..libc::CPU_SETSIZE as u32).map(CoreId);
        all.filter(|core| self.has(*core)).collect()
    }

    /// Number of cores in the set.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }

    /// The bytes of the mask, the lowest cores first.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter()
    }
}

/// The affinity of `thread`; 0 is the calling one. For little-endian machines only: there a `cpu_set_t` consists of
/// these bytes.
pub fn affinity_of(thread: Tid) -> std::io::Result<CoreMask> {
    let mut mask = CoreMask::default();
    // SAFETY: the mask is valid for its size, which the call fills at most.
    match unsafe { libc::sched_getaffinity(thread.0, mem::size_of_val(&mask), (&raw mut mask).cast()) } {
        0 => Ok(mask),
        _ => Err(last_error()),
    }
}

/// The affinity of `thread` including inactive cores, which sched_getaffinity(2) leaves out, but restoring must keep.
pub fn allowed_to(tree: &KernelTree, thread: Tid) -> std::io::Result<CoreMask> {
    let status = tree.read(format!("/proc/{thread}/status"))?;
    let mask = tree::field(&status, "Cpus_allowed").and_then(CoreMask::parse);
    mask.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// Sets the affinity of `thread` to `mask`.
pub fn set_affinity(thread: Tid, mask: &CoreMask) -> std::io::Result<()> {
    // SAFETY: the mask is valid for its size.
    match unsafe { libc::sched_setaffinity(thread.0, mem::size_of_val(mask), (&raw const *mask).cast()) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_survives_being_printed_as_the_kernel_does(cores in prop::collection::btree_set(0u32..1024, 0..40)) {
            let mut words = [0u32; 32];
            let mut mask = CoreMask::default();
            for core in &cores {
                words[*core as usize / 32] |= 1 << (core % 32);
                mask.set(CoreId(*core), true);
            }
            let text: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
            prop_assert_eq!(CoreMask::parse(&text.join(",")), Some(mask));
            prop_assert!((0..1024).all(|core| mask.has(CoreId(core)) == cores.contains(&core)));
        }

        #[test]
        fn no_text_is_too_strange(text in "[0-9a-fx, ]{0,400}") {
            let _ = CoreMask::parse(&text);
        }
    }

    #[test]
    fn what_status_and_system_call_tell_is_the_same_where_all_cores_are_active() {
        let me = Tid::current();
        let allowed = allowed_to(&KernelTree::default(), me).unwrap();
        let active = affinity_of(me).unwrap();
        assert!((0..1024).map(CoreId).all(|core| allowed.has(core) || !active.has(core)));
    }
}
