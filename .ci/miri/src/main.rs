//! Slots and places to park as they are, on threads, for Miri: it tells of each access that is undefined or not
//! ordered, and each of its seeds is another schedule. `.ci/nightly miri --short` runs it, and first a planted fault
//! that Miri must find.

use std::cell::UnsafeCell;
use std::thread;

use punctual_os::linux::sync::{Parker, Wake};
use punctual_store::temporal::{Installs, Sample, Slot};
use punctual_units::{Seq, Time};

const HANDED_ON: u64 = 8;
const INSTALLS: u64 = 6;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("planted") {
        return without_order();
    }
    places_hand_on_what_no_atomic_guards();
    slots_are_read_whole_and_in_order();
}

struct Number(UnsafeCell<u64>);
// SAFETY: the places say which thread may touch the number; Miri tells where they do not.
unsafe impl Sync for Number {}

/// Two threads hand a number to and fro, and each adds one.
fn places_hand_on_what_no_atomic_guards() {
    let (number, places) = (Number(UnsafeCell::new(0)), [Parker::new(), Parker::new()]);
    let add = |own: usize| {
        for _ in 0..HANDED_ON {
            assert_eq!(places[own].park_until(Time::MAX), Wake::Woken);
            let number = &number;
            // SAFETY: as above.
            unsafe { *number.0.get() += 1 };
            places[1 - own].unpark();
        }
    };
    places[0].unpark();
    thread::scope(|scope| {
        scope.spawn(|| add(0));
        add(1);
    });
    // SAFETY: no other thread is left.
    assert_eq!(unsafe { *number.0.get() }, 2 * HANDED_ON);
    // A permit that was given before, and a deadline that has come.
    places[1].unpark();
    assert_eq!(places[1].park_until(Time::ZERO), Wake::Woken);
    assert_eq!(places[1].park_until(Time::ZERO), Wake::TimedOut);
}

/// Planted: two threads touch a number, and nothing says which may.
fn without_order() {
    let number = Number(UnsafeCell::new(0));
    let add = || {
        let number = &number;
        // SAFETY: there is none; Miri is to tell of it.
        unsafe { *number.0.get() += 1 };
    };
    thread::scope(|scope| {
        scope.spawn(add);
        add();
    });
}

/// A pair is installed again and again, while another thread reads it at one cut.
fn slots_are_read_whole_and_in_order() {
    let (left, right, installs) = (Slot::keeping(2, 56), Slot::keeping(2, 56), Installs::default());
    // Of one word and of several, the last of which is not full.
    let value = |number: u64| vec![number as u8; 8 * number as usize - 7];
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=INSTALLS {
                let (value, sample) = (
                    value(number),
                    Sample {
                        seq: Seq(number),
                        sampled_at: Some(Time(number)),
                    },
                );
                installs.install([(&left, sample, &value[..]), (&right, sample, &value[..])]);
            }
        });
        let (mut one, mut other, mut before) = (Vec::new(), Vec::new(), 0);
        for _ in 0..INSTALLS {
            let cut = installs.cut();
            let both = (left.read_at(cut, &mut one), right.read_at(cut, &mut other));
            if let (Ok(first), Ok(second)) = both {
                assert_eq!((first, &one), (second, &other), "one new, one old");
                let found = first.map_or(0, |sample| sample.seq.0);
                assert!(found == cut && found >= before, "{found} at cut {cut}, after {before}");
                assert!(found == 0 || one == value(found), "not whole");
                before = found;
            }
        }
    });
    let mut last = Vec::new();
    assert_eq!(left.read(&mut last).map(|sample| sample.seq.0), Some(INSTALLS));
    assert_eq!(last, value(INSTALLS));
}
