//! A snapshot that may be taken away from its reader, between two of the reader's calls.
//!
//! **Problem.** What a snapshot shows is kept from reuse for as long as the snapshot lives. A reader that is forgotten
//! keeps it for ever, and a store that is written to grows without end. Another thread must be able to end a snapshot;
//! and the reader must never see memory that has been used again since.
//!
//! **Method.** A [`Slot`] holds the *pin*: what keeps the snapshot (a read transaction of LMDB's, the maps of the
//! engine in memory). The reader touches the pin only inside of a call, and takes copies out of it. So between two
//! calls no reference into the engine's memory is left, and the pin can be dropped by another thread. One word says
//! which thread may touch the pin:
//!
//! ```text
//!          claim, open               enter (owner)
//!   FREE ────────────────► OPEN ───────────────► INSIDE
//!     ▲                    │  ▲  leave (owner)     │ end (other)
//!     │ close (owner)      │  └──────────────────  ▼
//!     ├────────────────────┤                     ASKED
//!     │         end (other)│                       │ leave (owner): drops the pin
//!     │                    ▼                       ▼
//!     └─(close, claim)── ENDED ◄───── ENDING ──────┘
//!                               (the other drops the pin)
//! ```
//!
//! `claim` goes through `OPENING`, in which the new owner brings the pin; `close` through `CLOSING`, in which the owner
//! drops it. In neither may a thread ask.
//!
//! **Why that is safe.** The pin is touched by the owner in `OPENING`, `INSIDE`, `ASKED` and `CLOSING`, and in `ENDING`
//! by the thread that set it. Each way into a touching state is a compare-and-swap that acquires what the last toucher
//! released on its way out. So touches are ordered, and never two at a time. A call of a snapshot that was ended fails
//! at the compare-and-swap, before it touches anything, because the word also counts the snapshots of the slot (its
//! *generation*), which a claim raises.
//!
//! **A call within a call** of the same reader, which looks at one value and reads another: it finds `INSIDE` or
//! `ASKED`, and leaves the word to the outer call. Only the owner enters, so the call that is found is its own.
//!
//! **What it costs.** Two compare-and-swaps of a word in the reader's own cache line for each call.
//!
//! Every order of these stores is tried by the model checker `loom` (`tests/slot.rs`), with planted faults.

use super::atomics::{AtomicU64, Ordering, UnsafeCell, wait_a_little};

const STATE: u64 = 7;
const FREE: u64 = 0;
const OPEN: u64 = 1;
const INSIDE: u64 = 2;
const ASKED: u64 = 3;
const ENDING: u64 = 4;
const ENDED: u64 = 5;
const CLOSING: u64 = 6;
const OPENING: u64 = 7;
const GENERATION: u64 = STATE + 1;
/// How often a thread tries to end a snapshot whose reader enters and leaves all the while; the next look tries again.
const TRIES_MAX: usize = 64;

/// What is written beside a pin: whatever fits into so many words.
pub(crate) type Note = [u64; 4];

/// A place for one snapshot at a time. The thread that claims it owns it: it opens, enters, leaves and closes.
#[derive(Debug)]
pub(crate) struct Slot<P> {
    /// The generation above the state.
    word: AtomicU64,
    pin: UnsafeCell<Option<P>>,
    note: [AtomicU64; 4],
    /// Why the snapshot of this slot was ended last: of no meaning before it was.
    why: [AtomicU64; 2],
}

/// One snapshot of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Why a call could not enter: the words of the thread that ended the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended(pub [u64; 2]);

/// What became of the wish to end a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It keeps nothing any more.
    Done,
    /// Its reader is inside of a call, and drops the pin as it leaves.
    Asked,
    /// There was no such snapshot any more.
    Gone,
    /// The reader entered and left too often meanwhile.
    Missed,
}

impl Ticket {
    /// The number of the snapshot in its slot.
    pub(crate) fn generation(self) -> u64 {
        self.0
    }

    /// The snapshot with that number.
    pub(crate) fn of(generation: u64) -> Ticket {
        Ticket(generation)
    }

    fn word(self, state: u64) -> u64 {
        self.0 * GENERATION + state
    }
}

impl<P> Default for Slot<P> {
    fn default() -> Slot<P> {
        let zero = || AtomicU64::new(0);
        Slot {
            word: zero(),
            pin: UnsafeCell::new(None),
            note: [zero(), zero(), zero(), zero()],
            why: [zero(), zero()],
        }
    }
}

impl<P> Slot<P> {
    /// Takes the slot for a snapshot of the caller's, which is to be [opened](Slot::open) or
    /// [given back](Slot::give_back); none where it has an owner.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Ticket> {
        self.claim_from(FREE)
    }

    /// The same where the snapshot was ended and its owner has not closed it: the owner may never do so.
    pub(crate) fn claim_ended(&self) -> Option<Ticket> {
        self.claim_from(ENDED)
    }

    #[inline]
    fn claim_from(&self, state: u64) -> Option<Ticket> {
        let word = self.word.load(Ordering::Relaxed);
        if word & STATE != state {
            return None;
        }
        let ticket = Ticket(word / GENERATION + 1);
        let claimed = self
            .word
            .compare_exchange(word, ticket.word(OPENING), Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then_some(ticket)
    }

    /// Gives a claimed slot back without a snapshot.
    pub(crate) fn give_back(&self, ticket: Ticket) {
        self.word.store(ticket.word(FREE), Ordering::Release);
    }

    /// Puts a snapshot into a slot that the caller has [claimed](Slot::claim).
    #[inline]
    pub(crate) fn open(&self, ticket: Ticket, pin: P, note: Note) {
        // SAFETY: the slot is being opened, and only the thread that has claimed it, which calls this, leaves that
        // state.
        self.pin.with_mut(|place| unsafe { *place = Some(pin) });
        for (place, word) in self.note.iter().zip(note) {
            place.store(word, Ordering::Relaxed);
        }
        self.word.store(ticket.word(OPEN), Ordering::Release);
    }

    /// Begins a call of the owner's: until the answer is dropped, the pin stays. It may be within another call, and is
    /// then dropped before that one.
    ///
    /// # Errors
    /// If another thread has ended the snapshot.
    #[inline]
    pub(crate) fn enter(&self, ticket: Ticket) -> Result<Inside<'_, P>, Ended> {
        let (open, inside) = (ticket.word(OPEN), ticket.word(INSIDE));
        match self
            .word
            .compare_exchange(open, inside, Ordering::Acquire, Ordering::Acquire)
        {
            Ok(_) => Ok(Inside {
                slot: self,
                ticket,
                outermost: true,
            }),
            Err(word) => self.enter_again(ticket, word),
        }
    }

    #[cold]
    fn enter_again(&self, ticket: Ticket, word: u64) -> Result<Inside<'_, P>, Ended> {
        if word != ticket.word(INSIDE) && word != ticket.word(ASKED) {
            return Err(Ended(self.why()));
        }
        Ok(Inside {
            slot: self,
            ticket,
            outermost: false,
        })
    }

    /// Gives the slot up; by its owner only. Waits for a thread that is about to end the snapshot.
    pub(crate) fn close(&self, ticket: Ticket) {
        // Not `INSIDE`: no thread may ask now.
        let (open, closing) = (ticket.word(OPEN), ticket.word(CLOSING));
        let closed = self
            .word
            .compare_exchange(open, closing, Ordering::Acquire, Ordering::Acquire);
        match closed {
            Ok(_) => {
                self.drop_pin();
                self.word.store(ticket.word(FREE), Ordering::Release);
            }
            // What it kept is free once this returns, whichever thread frees it.
            Err(_) => {
                // By sleeping: a reader of high priority that spins would keep the other thread from its core.
                while self.word.load(Ordering::Acquire) == ticket.word(ENDING) {
                    wait_a_little();
                }
                // Where it was claimed again meanwhile, it is another thread's.
                let (ended, free) = (ticket.word(ENDED), ticket.word(FREE));
                let _ = self
                    .word
                    .compare_exchange(ended, free, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Ends the snapshot of another thread: `why` is what that thread's next call is told.
    pub(crate) fn end(&self, ticket: Ticket, why: [u64; 2]) -> Wish {
        for _ in 0..TRIES_MAX {
            let word = self.word.load(Ordering::Acquire);
            if word / GENERATION != ticket.0 {
                return Wish::Gone;
            }
            let (next, answer) = match word & STATE {
                OPEN => (ENDING, Wish::Done),
                INSIDE => (ASKED, Wish::Asked),
                ASKED => return Wish::Asked,
                _ => return Wish::Gone,
            };
            for (place, word) in self.why.iter().zip(why) {
                place.store(word, Ordering::Relaxed);
            }
            let set = self
                .word
                .compare_exchange(word, ticket.word(next), Ordering::AcqRel, Ordering::Acquire);
            if set.is_err() {
                continue; // the owner has entered or left meanwhile
            }
            if next == ENDING {
                self.drop_pin();
                self.word.store(ticket.word(ENDED), Ordering::Release);
            }
            return answer;
        }
        Wish::Missed
    }

    /// Ends the snapshot that is open, whichever that is: its owner is gone for good, or is the caller.
    pub(crate) fn end_any(&self) {
        if let Some((ticket, _)) = self.look() {
            self.end(ticket, self.why());
        }
    }

    /// The snapshot that is open, and what is noted of it.
    pub(crate) fn look(&self) -> Option<(Ticket, Note)> {
        let word = self.word.load(Ordering::Acquire);
        // Should the owner open another one meanwhile, the note is that one's: [`end`](Slot::end) knows by the ticket.
        let note = [0, 1, 2, 3].map(|at: usize| self.note[at].load(Ordering::Relaxed));
        matches!(word & STATE, OPEN | INSIDE | ASKED).then_some((Ticket(word / GENERATION), note))
    }

    fn why(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.why[at].load(Ordering::Relaxed))
    }

    /// In a state in which this thread alone may touch the pin.
    fn drop_pin(&self) {
        // SAFETY: all callers have just entered such a state by an acquiring compare-and-swap, or are inside.
        let pin = self.pin.with_mut(|place| unsafe { (*place).take() });
        drop(pin);
    }
}

// SAFETY: the word admits one thread at a time to the pin (module header), hence `Send` is all that the pin needs.
unsafe impl<P: Send> Sync for Slot<P> {}

/// A call of a reader's: the pin stays for as long as this lives.
#[derive(Debug)]
pub(crate) struct Inside<'s, P> {
    slot: &'s Slot<P>,
    ticket: Ticket,
    /// Not within another call.
    outermost: bool,
}

impl<P> Inside<'_, P> {
    /// Does something with the pin.
    #[inline]
    pub(crate) fn with<T>(&self, look: impl FnOnce(&P) -> T) -> T {
        self.slot.pin.with(|place| {
            // SAFETY: this thread is inside of a call, so no other one touches the pin; and it is there, because the
            // slot was open.
            let pin = unsafe { (*place).as_ref() };
            look(pin.unwrap_or_else(|| unreachable!("an open slot has its pin")))
        })
    }
}

impl<P> Drop for Inside<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let (open, inside) = (self.ticket.word(OPEN), self.ticket.word(INSIDE));
        let left = self
            .slot
            .word
            .compare_exchange(inside, open, Ordering::Release, Ordering::Acquire);
        if left.is_err() {
            self.slot.end_asked(self.ticket);
        }
    }
}

impl<P> Slot<P> {
    /// Another thread has asked for the end while the owner was inside.
    #[cold]
    fn end_asked(&self, ticket: Ticket) {
        self.drop_pin();
        self.word.store(ticket.word(ENDED), Ordering::Release);
    }
}
