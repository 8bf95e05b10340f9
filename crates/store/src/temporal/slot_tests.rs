//! A thread that panics while it installs a value; reads of several slots beside installs.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use punctual_units::Seq;

use super::{Installation, Installs, ReadingBuffer, Sample, Slot};

#[test]
fn a_panic_within_an_install_leaves_the_value_before_and_lets_the_next_install_in() {
    let slot = Slot::new(16);
    let sample = |seq| Sample {
        seq: Seq(seq),
        sampled_at: None,
    };
    let value = |seq: u64| (sample(seq), [seq.to_ne_bytes(), seq.to_ne_bytes()].concat());
    let found = || {
        let mut bytes = Vec::new();
        slot.read(&mut bytes).map(|sample| (sample, bytes))
    };
    for seq in [1, 3, 5] {
        assert_eq!(slot.install(sample(seq), &value(seq).1), Installation::Installed);
        let words = (0..2u64).map(|at| match at {
            0 => 7,
            _ => panic!("planted: after the first word"),
        });
        let dies = || slot.install_words(Some(1), sample(seq + 1), 16, words);
        assert!(catch_unwind(AssertUnwindSafe(dies)).is_err());
        assert_eq!(found(), Some(value(seq)), "half of a value is read");
    }
}

/// Each pass over three slots finds one of them changed, five times: only that one is read again.
#[test]
fn a_read_of_several_slots_goes_on_where_it_was() {
    for (passes, is_read) in [(6, false), (7, true)] {
        let (installs, slots) = (Installs::default(), [(); 3].map(|()| Slot::new(8)));
        let passed = Cell::new(0_u64);
        let busy = || {
            let pass = passed.replace(passed.get() + 1);
            let sample = Sample {
                seq: Seq(pass + 1),
                sampled_at: None,
            };
            // The first call only counts the slots.
            if (1..=5).contains(&pass) {
                installs.install_one(&slots[pass as usize % 3], sample, &pass.to_le_bytes());
            }
            slots.iter()
        };
        let mut readings = ReadingBuffer::default();
        assert_eq!(installs.read_latest(busy, &mut readings, passes - 1), is_read);
        if is_read {
            let found = [0, 1, 2].map(|at| readings.get(at).map(|(_, value)| value.to_vec()));
            assert_eq!(found, [3_u64, 4, 5].map(|pass| Some(pass.to_le_bytes().to_vec())));
            assert_eq!(readings.bytes.len(), 3 * 8, "what is read again takes no more room");
        }
    }
}
