//! Tests of `commit.rs`, which `tests/loom.rs` takes in as a file.

use crate::atomics::AtomicU64;
use crate::commit::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_word_says_what_was_put_in(epoch: u16, steps in 0u64..1 << 48) {
        let commit = Commit { epoch, steps };
        prop_assert_eq!(Commit::of(commit.word()), commit);
    }
}

#[test]
fn a_step_is_valid_at_once_and_another_epoch_shuts_its_process_out() {
    let words = record_words(1, 1);
    let memory: Vec<AtomicU64> = (0..1 + 2 * words).map(|_| AtomicU64::new(0)).collect();
    let stage = CommitWord {
        word: &memory[0],
        records: [&memory[1..=words], &memory[1 + words..]],
        inputs: 1,
    };
    let first = stage.begin(7);
    assert_eq!(first, Commit { epoch: 7, steps: 0 });
    let mut record = stage.record();
    (record.made[0], record.taken[0], record.released[0]) = (3, 2, 1);
    let second = stage.publish(first, &record).unwrap();
    assert_eq!((stage.made(0), stage.released(0)), ((3, false), (1, false)));
    assert_eq!(stage.record(), record);

    // A record that was not committed is not read.
    record.made[0] = 9;
    assert_eq!(stage.publish(Commit { epoch: 6, ..second }, &record), Err(ShutOut));
    assert_eq!(stage.made(0).0, 3);
    assert_eq!(stage.begin(8).steps, 1);
    assert_eq!(stage.publish(second, &record), Err(ShutOut));
    assert_eq!(stage.made(0).0, 3);
}
