//! Planted: a word that is looked at, and then set.

pub use loom::sync::atomic::Ordering;

#[derive(Debug)]
pub struct AtomicU32(loom::sync::atomic::AtomicU32);

impl AtomicU32 {
    pub fn new(value: u32) -> AtomicU32 {
        AtomicU32(loom::sync::atomic::AtomicU32::new(value))
    }

    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    pub fn compare_exchange(&self, old: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        let now = self.0.load(Ordering::Acquire);
        if now != old {
            return Err(now);
        }
        self.0.store(new, Ordering::Release);
        Ok(now)
    }
}

impl std::ops::Deref for AtomicU32 {
    type Target = loom::sync::atomic::AtomicU32;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Default for AtomicU32 {
    fn default() -> AtomicU32 {
        AtomicU32::new(0)
    }
}
