//! A snapshot that another thread may take away from its reader, between two of the reader's calls.
//!
//! **Problem.** The pages of a snapshot are kept from reuse for as long as the snapshot lives. A forgotten reader keeps
//! them without limit, and a store that is written to grows without end. Another thread must be able to end a snapshot;
//! and the reader must never see memory that has been reused since.
//!
//! **Method.** A [`SnapshotSlot`] holds the *pin*: the object that keeps the snapshot (a read transaction of LMDB's,
//! the maps of the engine in memory). The reader touches the pin only inside of a call, and takes copies out of it; a
//! scan that lends a record stays inside until it lends no more. So between two calls no reference into the engine's
//! memory is left, and another thread can drop the pin. One word says
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
//! by the thread that set it. Each transition into a touching state is a compare-and-swap that acquires what the
//! previous toucher released. So touches are ordered, never two at a time. A call on an ended snapshot fails at the
//! compare-and-swap, before it touches anything, because the word also counts the snapshots of the slot (its
//! *generation*), which a claim raises.
//!
//! **A nested call** of the same reader, which looks at one value and reads another, finds `INSIDE` or `ASKED`, and
//! leaves the word to the outer call. Only the owner enters, so the outer call is the owner's as well. Where calls need
//! not end in reverse order, because a scan lends a record beyond the call that has read it, the owner counts them:
//! the first one [stays](Inside::stay), and the last one [leaves](SnapshotSlot::leave).
//!
//! **Cost.** Two compare-and-swaps of a word in the reader's own cache line for each call.
//!
//! The model checker `loom` tries every order of these stores (`tests/slot.rs`), with planted faults.

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
/// Attempts to end a snapshot whose reader keeps entering and leaving, before `EndOutcome::Missed`; the next sweep
/// tries again.
const TRIES_MAX: usize = 64;

/// Four words that describe a snapshot beside its pin; their meaning is the engine's (`noted`).
pub(crate) type Note = [u64; 4];

/// Storage for one snapshot at a time. The claiming thread owns it: only that thread opens, enters, leaves and closes.
#[derive(Debug)]
pub(crate) struct SnapshotSlot<P> {
    /// The generation above the state.
    word: AtomicU64,
    pin: UnsafeCell<Option<P>>,
    note: [AtomicU64; 4],
    /// Why this slot's last ended snapshot was ended; meaningless until a snapshot of the slot was ended.
    why: [AtomicU64; 2],
}

/// A snapshot of a slot, by its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Why a call could not enter: the words of the thread that ended the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndReason(pub [u64; 2]);

/// The outcome of a request to end a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOutcome {
    /// Ended: keeps no pages any more.
    Done,
    /// The reader is inside of a call, and drops the pin as it leaves.
    Asked,
    /// The ticket's snapshot was ended or closed before, or its reader was asked before.
    Gone,
    /// The reader entered or left during each of `TRIES_MAX` attempts.
    Missed,
}

impl Ticket {
    /// The snapshot's number in its slot; each claim raises it.
    pub(crate) fn generation(self) -> u64 {
        self.0
    }

    pub(crate) fn of(generation: u64) -> Ticket {
        Ticket(generation)
    }

    fn word(self, state: u64) -> u64 {
        self.0 * GENERATION + state
    }
}

impl<P> Default for SnapshotSlot<P> {
    fn default() -> SnapshotSlot<P> {
        let zero = || AtomicU64::new(0);
        SnapshotSlot {
            word: zero(),
            pin: UnsafeCell::new(None),
            note: [zero(), zero(), zero(), zero()],
            why: [zero(), zero()],
        }
    }
}

impl<P> SnapshotSlot<P> {
    /// Claims the slot for a snapshot of the caller; `None` if it has an owner. The caller must then
    /// [open](SnapshotSlot::open) it or [give it back](SnapshotSlot::give_back).
    #[inline]
    pub(crate) fn claim(&self) -> Option<Ticket> {
        self.claim_from(FREE)
    }

    /// Claims a slot whose snapshot was ended but not closed by its owner, which may never close it.
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

    /// Returns a claimed slot without having opened a snapshot in it.
    pub(crate) fn give_back(&self, ticket: Ticket) {
        self.word.store(ticket.word(FREE), Ordering::Release);
    }

    /// Puts a snapshot into a slot that the caller has [claimed](SnapshotSlot::claim).
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

    /// Begins a call of the owner: the pin stays until the returned value is dropped. Calls may nest; the inner one is
    /// dropped first.
    ///
    /// # Errors
    /// If another thread has ended the snapshot.
    #[inline]
    pub(crate) fn enter(&self, ticket: Ticket) -> Result<Inside<'_, P>, EndReason> {
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
    fn enter_again(&self, ticket: Ticket, word: u64) -> Result<Inside<'_, P>, EndReason> {
        if word != ticket.word(INSIDE) && word != ticket.word(ASKED) {
            return Err(EndReason(self.why()));
        }
        Ok(Inside {
            slot: self,
            ticket,
            outermost: false,
        })
    }

    /// Whether another thread has asked the owner, inside of a call, to give up the snapshot.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & STATE == ASKED
    }

    /// Releases the slot; only its owner may call this. Waits for a thread that is just ending the snapshot.
    pub(crate) fn close(&self, ticket: Ticket) {
        // Fails if the snapshot was ended. Not through `INSIDE`: no thread may ask now.
        let (open, closing) = (ticket.word(OPEN), ticket.word(CLOSING));
        let closed = self
            .word
            .compare_exchange(open, closing, Ordering::Acquire, Ordering::Acquire);
        match closed {
            Ok(_) => {
                self.drop_pin();
                self.word.store(ticket.word(FREE), Ordering::Release);
            }
            // Waits, so that the snapshot's pages are free once this returns, whichever thread frees them.
            Err(_) => {
                // Sleeps instead of spinning: a spinning reader of high priority would keep the other thread off its
                // core.
                while self.word.load(Ordering::Acquire) == ticket.word(ENDING) {
                    wait_a_little();
                }
                // Fails if another thread has claimed the slot meanwhile, which then owns it.
                let (ended, free) = (ticket.word(ENDED), ticket.word(FREE));
                let _ = self
                    .word
                    .compare_exchange(ended, free, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Ends the snapshot of another thread; that thread's next call returns `why`.
    pub(crate) fn end(&self, ticket: Ticket, why: [u64; 2]) -> EndOutcome {
        for _ in 0..TRIES_MAX {
            let word = self.word.load(Ordering::Acquire);
            if word / GENERATION != ticket.0 {
                return EndOutcome::Gone;
            }
            let (next, answer) = match word & STATE {
                OPEN => (ENDING, EndOutcome::Done),
                INSIDE => (ASKED, EndOutcome::Asked),
                _ => return EndOutcome::Gone,
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
        EndOutcome::Missed
    }

    /// Ends whichever snapshot is open. Only for an owner that is gone for good, or that is the caller.
    pub(crate) fn end_any(&self) {
        if let Some((ticket, _)) = self.look() {
            self.end(ticket, self.why());
        }
    }

    /// The open snapshot and its note.
    pub(crate) fn look(&self) -> Option<(Ticket, Note)> {
        let word = self.word.load(Ordering::Acquire);
        // If the owner opens another snapshot meanwhile, the note is of that one: the ticket lets
        // [`end`](SnapshotSlot::end) detect it.
        let note = [0, 1, 2, 3].map(|at: usize| self.note[at].load(Ordering::Relaxed));
        matches!(word & STATE, OPEN | INSIDE | ASKED).then_some((Ticket(word / GENERATION), note))
    }

    fn why(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.why[at].load(Ordering::Relaxed))
    }

    /// Drops the pin, in a state in which this thread alone may touch it.
    fn drop_pin(&self) {
        // SAFETY: all callers have just entered such a state by an acquiring compare-and-swap, or are inside.
        let pin = self.pin.with_mut(|place| unsafe { (*place).take() });
        drop(pin);
    }
}

// SAFETY: the word admits one thread at a time to the pin (module header), so the pin need only be `Send`.
unsafe impl<P: Send> Sync for SnapshotSlot<P> {}

/// A call of the reader: the pin stays for as long as this lives.
#[derive(Debug)]
pub(crate) struct Inside<'s, P> {
    slot: &'s SnapshotSlot<P>,
    ticket: Ticket,
    /// False for a nested call, which leaves the word to the outer one.
    outermost: bool,
}

impl<P> Inside<'_, P> {
    /// Runs `look` on the pin.
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
        if self.outermost {
            self.slot.leave(self.ticket);
        }
    }
}

impl<'s, P> Inside<'s, P> {
    /// The call goes on when this is dropped, until [`leave`](SnapshotSlot::leave).
    #[inline]
    pub(crate) fn stay(mut self) -> Self {
        self.outermost = false;
        self
    }
}

impl<P> SnapshotSlot<P> {
    /// A call within one that [stays](Inside::stay).
    #[inline]
    pub(crate) fn again(&self, ticket: Ticket) -> Inside<'_, P> {
        Inside {
            slot: self,
            ticket,
            outermost: false,
        }
    }

    /// Ends the outermost call of the owner.
    #[inline]
    pub(crate) fn leave(&self, ticket: Ticket) {
        let (open, inside) = (ticket.word(OPEN), ticket.word(INSIDE));
        let left = self
            .word
            .compare_exchange(inside, open, Ordering::Release, Ordering::Acquire);
        if left.is_err() {
            self.end_asked(ticket);
        }
    }

    /// Finishes an end that another thread asked for while the owner was inside.
    #[cold]
    fn end_asked(&self, ticket: Ticket) {
        self.drop_pin();
        self.word.store(ticket.word(ENDED), Ordering::Release);
    }
}
