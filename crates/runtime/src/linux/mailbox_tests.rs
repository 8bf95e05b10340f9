//! Tests of `mailbox.rs`, which `tests/mailbox.rs` takes in as a file.

use punctual_os::LinuxOs;
use punctual_units::{Clock, Nanos, Time};

use super::mailbox::Mailbox;

#[test]
fn letters_come_in_order_and_a_full_box_takes_no_more() {
    let mailbox = Mailbox::new(2);
    assert_eq!((mailbox.put(1), mailbox.put(2), mailbox.put(3)), (true, true, false));
    assert_eq!((mailbox.take(), mailbox.put(4)), (Some(1), true));
    assert_eq!(
        (mailbox.take(), mailbox.take(), mailbox.take()),
        (Some(2), Some(4), None)
    );
}

#[test]
fn letters_that_may_wait_wake_the_reader_once_half_of_the_box_is_full() {
    let mailbox = Mailbox::new(4);
    let until = || LinuxOs.now() + Nanos::from_millis(1);
    assert!(mailbox.leave(1));
    // No wake-up was given for the first letter, so that none ends this wait early.
    assert_eq!(mailbox.wait(until()), Some(1));
    assert_eq!(mailbox.wait(until()), None);
    const ALL: usize = 1000;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (0..ALL).all(|_| mailbox.wait(Time::MAX).is_some()));
        while !reader.is_finished() {
            if !mailbox.leave(2) {
                std::thread::yield_now();
            }
        }
        assert!(reader.join().unwrap());
    });
    while mailbox.take().is_some() {}
    assert!((4..8).all(|letter| mailbox.leave(letter)) && !mailbox.leave(8));
}

/// A reader that rests sleeps on while messages come that may wait, and not for one that may not.
#[test]
fn a_rest_ends_with_a_message_that_cannot_wait() {
    let mailbox = Mailbox::new(8);
    assert!(mailbox.leave(1));
    let until = LinuxOs.now() + Nanos::from_millis(5);
    mailbox.rest(until);
    assert!(LinuxOs.now() >= until);
    assert!(mailbox.put(2));
    mailbox.rest(Time::MAX);
    assert_eq!((mailbox.take(), mailbox.take()), (Some(1), Some(2)));
}

#[test]
fn waiting_ends_at_its_instant() {
    let mailbox = Mailbox::<u8>::new(1);
    let until = LinuxOs.now() + Nanos::from_millis(5);
    assert_eq!(mailbox.wait(until), None);
    assert!(LinuxOs.now() >= until);
}

#[test]
fn the_receiver_gets_every_letter_of_all_writers() {
    const EACH: u32 = 2000;
    let mailbox = &Mailbox::new(16);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for n in 0..EACH {
                    while !mailbox.put((writer, n)) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 4];
        while next != [EACH; 4] {
            // A wake-up that is lost would wait for ever.
            let (writer, n) = mailbox.wait(Time::MAX).unwrap();
            assert_eq!(n, next[writer], "each writer's letters are in order");
            next[writer] += 1;
        }
    });
    assert_eq!(mailbox.take(), None);
}
