//! Messages from tasks to the control thread, in a queue that never makes a real-time job wait for an ordinary thread.
//!
//! **Problem.** A general channel guards the list of its waiting threads by a lock without priority inheritance, held
//! while the receiver is woken. An ordinary thread that loses its core there blocks real-time ones for as long as
//! others run, and the next job begins late by that time (decision 10 has figures). **Method.** A bounded queue under a
//! lock with priority inheritance, held for one push or pop; the receiver is woken after the lock is released, and only
//! for messages that cannot wait: a wake-up for each of 10,000 jobs a second costs 7 % of a core.
//!
//! The model checker `loom` tries every order of its stores (`tests/mailbox.rs`), also with a planted fault.

use std::collections::VecDeque;

use punctual_units::Time;

use super::sync::{Parker, PiMutex, Wake};

/// Bounded queue with many writers and one reader.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    letters: PiMutex<VecDeque<T>>,
    max: usize,
    reader: Parker,
}

impl<T> Mailbox<T> {
    /// A queue for `max` messages; allocates their memory now.
    pub(crate) fn new(max: usize) -> Mailbox<T> {
        Mailbox {
            letters: PiMutex::new(VecDeque::with_capacity(max)),
            max,
            reader: Parker::new(),
        }
    }

    /// Appends `letter` and wakes the reader; returns false if the queue is full.
    pub(crate) fn put(&self, letter: T) -> bool {
        let waiting = self.push(letter);
        if waiting.is_some() {
            self.reader.unpark();
        }
        waiting.is_some()
    }

    /// Appends `letter`, which the reader takes when it wakes for another reason, or now if half of the queue is in
    /// use; returns false if the queue is full.
    pub(crate) fn leave(&self, letter: T) -> bool {
        let waiting = self.push(letter);
        if waiting.is_some_and(|waiting| waiting * 2 >= self.max) {
            self.reader.unpark();
        }
        waiting.is_some()
    }

    /// Returns the number of messages with this one; `None` if the queue is full.
    fn push(&self, letter: T) -> Option<usize> {
        let mut letters = self.letters.lock();
        if letters.len() == self.max {
            return None;
        }
        letters.push_back(letter);
        Some(letters.len())
    }

    /// Removes the oldest message, if any.
    pub(crate) fn take(&self) -> Option<T> {
        self.letters.lock().pop_front()
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.letters.lock().is_empty()
    }

    /// Waits until `until`, or until a message comes that wakes the reader; takes none. Only the reader may call this.
    pub(crate) fn rest(&self, until: Time) {
        self.reader.park_until(until);
    }

    /// Removes the oldest message, waiting for one until `until`. Only one thread may call this.
    pub(crate) fn wait(&self, until: Time) -> Option<T> {
        loop {
            if let Some(letter) = self.take() {
                return Some(letter);
            }
            // The wake-up may belong to a message that was taken before this wait.
            if self.reader.park_until(until) == Wake::TimedOut {
                return self.take();
            }
        }
    }
}
