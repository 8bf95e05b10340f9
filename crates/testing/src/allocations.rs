//! Counts what a thread allocates, for tests of what must not.
//!
//! A program of tests names the allocator: `#[global_allocator] static ALLOCATOR: CountingAllocator =
//! CountingAllocator;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts the allocations of each thread.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local without a destructor,
// which itself allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer comes from `alloc` above, that is from the system, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Number of allocations of this thread while it does `work`. Panics where the program has another allocator, which
/// counts nothing.
pub fn allocations_of(work: impl FnOnce()) -> usize {
    let counted = |work: &mut dyn FnMut()| {
        let before = ALLOCATIONS.with(Cell::get);
        work();
        ALLOCATIONS.with(Cell::get) - before
    };
    let one = counted(&mut || drop(std::hint::black_box(Box::new(1_u8))));
    assert_eq!(one, 1, "the program's allocator is no CountingAllocator");
    let mut work = Some(work);
    counted(&mut || work.take().into_iter().for_each(|work| work()))
}
