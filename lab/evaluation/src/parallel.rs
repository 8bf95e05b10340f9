//! Runs many independent jobs on all cores; results are in the order of the list.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads that can run in parallel.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` on each item, on `workers` threads; results are in the order of `items`, whatever the scheduling. Calls
/// `done` after each item with the number of finished items.
pub fn in_order<I: Sync, T: Send>(
    items: &[I],
    workers: usize,
    work: impl Fn(&I) -> T + Sync,
    done: &(dyn Fn(usize) + Sync),
) -> Vec<T> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        while let Some((index, item)) = take(&next, items) {
            let result = work(item);
            // A poisoned lock means that another worker panicked; the scope propagates that panic.
            if let Ok(mut results) = results.lock() {
                results.push((index, result));
            }
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.clamp(1, items.len().max(1)) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'i, I>(next: &AtomicUsize, items: &'i [I]) -> Option<(usize, &'i I)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn results_come_in_the_order_of_the_items(
            items in prop::collection::vec(0u32..1000, 0..50),
            workers in 0usize..9,
        ) {
            let seen = AtomicUsize::new(0);
            let squares = in_order(&items, workers, |item| item * item, &|_| { seen.fetch_add(1, Ordering::Relaxed); });
            prop_assert_eq!(squares, items.iter().map(|item| item * item).collect::<Vec<_>>());
            prop_assert_eq!(seen.into_inner(), items.len());
        }
    }
}
