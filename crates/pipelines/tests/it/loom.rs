//! Every interleaving, and every order in which another core may see the stores, of a stage that commits steps, a
//! neighbour that reads them, and a second process that takes the stage on: under the model checker `loom`.

// Without `cfg(loom)`: this file takes `commit.rs` in with loom's atomics in place of the standard library's.
#[allow(dead_code)]
#[path = "../../src/commit.rs"]
mod commit;

mod graph {
    pub const PORTS_MAX: usize = 1;
}

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub(crate) use loom::thread::yield_now as look_again;
}

use commit::{Commit, CommitWord, Record, record_words};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Steps that the stage commits: with two, the first record is written again.
const STEPS: u64 = 2;
/// How often a thread is interrupted in one history: more find nothing new here, and take minutes.
const PREEMPTIONS: usize = 3;

/// A stage with one output, and the content of its frames.
struct Memory {
    word: AtomicU64,
    records: [Vec<AtomicU64>; 2],
    content: Vec<AtomicU64>,
}

impl Memory {
    fn new() -> Memory {
        let record = || (0..record_words(0, 1)).map(|_| AtomicU64::new(0)).collect();
        Memory {
            word: AtomicU64::new(0),
            records: [record(), record()],
            content: (0..STEPS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn stage(&self) -> CommitWord<'_> {
        CommitWord {
            word: &self.word,
            records: [&self.records[0], &self.records[1]],
            inputs: 0,
        }
    }

    /// Makes one frame a step; the frame at position p has the content p + 1.
    fn make_frames(&self, epoch: u16, order: Ordering, fenced: bool) {
        let stage = self.stage();
        let mut commit = stage.begin(epoch);
        let mut record: Record = stage.record();
        while commit.steps < STEPS {
            let position = record.made[0];
            assert_eq!(position, commit.steps, "the record is that of the steps done");
            self.content[position as usize].store(position + 1, Ordering::Relaxed);
            record.made[0] += 1;
            match stage.publish_with(commit, &record, order, fenced) {
                Ok(next) => commit = next,
                Err(_) => return,
            }
        }
    }

    /// What a neighbour relies on: the count is never ahead of the content, and never goes back.
    fn look_on(&self) {
        let mut before = 0;
        for _ in 0..2 {
            before = self.stage().commit().steps.max(before);
            let (made, _) = self.stage().made(0);
            assert!(made >= before && made <= STEPS, "{made} frames after {before}");
            for position in 0..made {
                let content = self.content[position as usize].load(Ordering::Relaxed);
                assert_eq!(content, position + 1, "a frame that was counted is there");
            }
            before = made;
        }
    }
}

fn model(order: Ordering, fenced: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let memory = Arc::new(Memory::new());
        let (maker, neighbour) = (Arc::clone(&memory), Arc::clone(&memory));
        // Both in threads of their own: loom does not search what its first thread reads before others write.
        let threads = [
            thread::spawn(move || maker.make_frames(1, order, fenced)),
            thread::spawn(move || neighbour.look_on()),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(memory.stage().made(0).0, STEPS);
    });
}

#[test]
fn a_neighbour_sees_whole_steps_only() {
    model(Ordering::Release, true);
}

#[test]
#[should_panic(expected = "frames after")]
fn planted_fault_a_commit_that_does_not_release_is_found() {
    model(Ordering::Relaxed, true);
}

#[test]
#[should_panic(expected = "a frame that was counted is there")]
fn planted_fault_a_record_that_is_written_before_the_last_commit_is_seen_is_found() {
    model(Ordering::Release, false);
}

#[test]
fn a_process_that_was_declared_dead_and_goes_on_changes_nothing() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let memory = Arc::new(Memory::new());
        let (stale, next) = (Arc::clone(&memory), Arc::clone(&memory));
        // The stale one is about to commit its step when the next one takes the stage on.
        let commit = memory.stage().begin(1);
        let stale = thread::spawn(move || {
            let mut record = stale.stage().record();
            record.made[0] += 1;
            stale.stage().publish(commit, &record).is_ok()
        });
        let taken = thread::spawn(move || next.stage().begin(2));
        let (stale, taken) = (stale.join().unwrap(), taken.join().unwrap());
        let now = memory.stage().commit();
        let steps = u64::from(stale);
        assert_eq!((now, taken), (Commit { epoch: 2, steps }, Commit { epoch: 2, steps }));
    });
}
