//! What tasks tell the control thread, without a real-time job ever waiting for an ordinary thread.
//!
//! **Problem.** A general channel guards the list of its waiting threads by a lock without priority inheritance, held
//! while the receiver is woken. An ordinary thread that loses its core there keeps it from real-time ones for as long
//! as others run, and the next job begins late by that (decision 10 has figures). **Method.** A bounded queue under a
//! lock with priority inheritance, held for one push or pop; the receiver is woken after it is released.
//!
//! Every order of its stores is tried by the model checker `loom` (`tests/mailbox.rs`), with a planted fault.

use std::collections::VecDeque;

use punctual_units::Time;

use super::sync::{Parker, PiMutex, Wake};

/// A bounded queue that many fill and one thread empties.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    letters: PiMutex<VecDeque<T>>,
    max: usize,
    reader: Parker,
}

impl<T> Mailbox<T> {
    /// For so many; room for them is taken now.
    pub(crate) fn new(max: usize) -> Mailbox<T> {
        Mailbox {
            letters: PiMutex::new(VecDeque::with_capacity(max)),
            max,
            reader: Parker::new(),
        }
    }

    /// Puts `letter` in and wakes the reader; false where the box is full.
    pub(crate) fn put(&self, letter: T) -> bool {
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
    pub(crate) fn take(&self) -> Option<T> {
        self.letters.lock().pop_front()
    }

    /// The oldest one, waited for until `until`. For one thread.
    pub(crate) fn wait(&self, until: Time) -> Option<T> {
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
