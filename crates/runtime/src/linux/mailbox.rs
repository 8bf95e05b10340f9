//! What tasks tell the control thread, without a real-time job ever waiting for an ordinary thread.
//!
//! **Problem.** A general channel guards the list of its waiting threads by a lock without priority inheritance, held
//! while the receiver is woken. An ordinary thread that loses its core there keeps it from real-time ones for as long
//! as others run, and the next job begins late by that (decision 10 has figures). **Method.** A bounded queue under a
//! lock with priority inheritance, held for one push or pop; the receiver is woken after it is released.

use std::collections::VecDeque;

use punctual_os::linux::sync::{Parker, PiMutex, Wake};
use punctual_units::Time;

/// A bounded queue that many fill and one thread empties.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    letters: PiMutex<VecDeque<T>>,
    max: usize,
    reader: Parker,
}

impl<T> Mailbox<T> {
    /// For so many; room for them is taken now.
    pub(super) fn new(max: usize) -> Mailbox<T> {
        Mailbox {
            letters: PiMutex::new(VecDeque::with_capacity(max)),
            max,
            reader: Parker::new(),
        }
    }

    /// Puts `letter` in and wakes the reader; false where the box is full.
    pub(super) fn put(&self, letter: T) -> bool {
        {
            let mut letters = self.letters.lock();
            if letters.len() == self.max {
                return false;
            }
            letters.push_back(letter);
        }
        self.reader.unpark();
        true
    }

    /// The oldest one, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        self.letters.lock().pop_front()
    }

    /// The oldest one, waited for until `until`. For one thread.
    pub(super) fn wait(&self, until: Time) -> Option<T> {
        loop {
            if let Some(letter) = self.take() {
                return Some(letter);
            }
            // A wake-up may be of a letter that was taken before it was waited for.
            if self.reader.park_until(until) == Wake::TimedOut {
                return self.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_os::LinuxOs;
    use punctual_units::{Clock, Nanos};

    use super::*;

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
}
