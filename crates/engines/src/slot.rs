//! A snapshot that another thread may take away from its reader, between two of the reader's calls.
//!
//! **Problem.** The pages of a snapshot are kept from reuse for as long as the snapshot lives. A forgotten reader keeps
//! them without limit, and a store that is written to grows without end. Another thread must be able to end a snapshot;
//! and the reader must never see memory that has been reused since.
//!
//! **Method.** A [`SnapshotSlot`] holds the *pin*: the object that keeps the snapshot (a read transaction of LMDB's,
//! the maps of the engine in memory). The reader touches the pin only inside of a call, and takes copies out of it; a
//! scan that lends a record stays inside until it lends no more. So between two calls no reference into the engine's
//! memory is left, and another thread can drop the pin. One word says which thread may touch the pin:
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
//! **Calls nest**, for example where a reader looks at one value and reads another. They need not end in reverse order,
//! because a scan lends a record beyond the call that has read it. So [`SlotReader`] counts them: the first one enters
//! the slot, and the last one leaves it.
//!
//! **Cost.** Two compare-and-swaps of a word in the reader's own cache line for each call.
//!
//! The model checker `loom` tries every order of these stores (`tests/it/slot`), with planted faults.

use std::cell::Cell;
use std::ops::Deref;

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
    /// [open](SlotReader::open) it or [give it back](SnapshotSlot::give_back).
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

    #[inline]
    fn open(&self, ticket: Ticket, pin: P, note: Note) {
        // SAFETY: the slot is being opened, and only the thread that has claimed it, which calls this, leaves that
        // state.
        self.pin.with_mut(|place| unsafe { *place = Some(pin) });
        for (place, word) in self.note.iter().zip(note) {
            place.store(word, Ordering::Relaxed);
        }
        self.word.store(ticket.word(OPEN), Ordering::Release);
    }

    /// Begins the first call of the owner.
    #[inline]
    fn enter(&self, ticket: Ticket) -> Result<(), EndReason> {
        let (open, inside) = (ticket.word(OPEN), ticket.word(INSIDE));
        let entered = self
            .word
            .compare_exchange(open, inside, Ordering::Acquire, Ordering::Acquire);
        entered.map(|_| ()).map_err(|_| EndReason(self.why()))
    }

    /// Releases the slot. Waits for a thread that is just ending the snapshot.
    fn close(&self, ticket: Ticket) {
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

/// The owner of a slot, while its snapshot is open. `S` refers to the slot.
#[derive(Debug)]
pub(crate) struct SlotReader<S> {
    slot: S,
    ticket: Ticket,
    /// Number of calls and of scans that lend a record: while it is above 0, the reader is inside of the slot. The cell
    /// makes the type `!Sync`: one thread at a time makes calls.
    depth: Cell<usize>,
}

/// A call of the reader: the pin stays for as long as this lives.
#[derive(Debug)]
pub(crate) struct Call<'s, P> {
    slot: &'s SnapshotSlot<P>,
    ticket: Ticket,
    depth: &'s Cell<usize>,
}

impl<P, S: Deref<Target = SnapshotSlot<P>>> SlotReader<S> {
    /// Puts a snapshot into a slot that the caller has [claimed](SnapshotSlot::claim), and will [close](Self::close).
    #[inline]
    pub(crate) fn open(slot: S, ticket: Ticket, pin: P, note: Note) -> SlotReader<S> {
        slot.open(ticket, pin, note);
        SlotReader {
            slot,
            ticket,
            depth: Cell::new(0),
        }
    }

    /// Begins a call, perhaps within another.
    ///
    /// # Errors
    /// If another thread has ended the snapshot.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<Call<'_, P>, EndReason> {
        if self.depth.get() == 0 {
            self.slot.enter(self.ticket)?;
        }
        self.depth.set(self.depth.get() + 1);
        Ok(self.call())
    }

    /// Ends a call that [stays](Call::stay).
    #[inline(always)]
    pub(crate) fn leave(&self) {
        drop(self.call());
    }

    /// Handle of a call that is counted already; dropping it ends the call.
    #[inline(always)]
    fn call(&self) -> Call<'_, P> {
        Call {
            slot: &self.slot,
            ticket: self.ticket,
            depth: &self.depth,
        }
    }

    /// Whether another thread has asked the reader, inside of a call, to give up the snapshot.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.slot.word.load(Ordering::Relaxed) & STATE == ASKED
    }

    /// Releases the slot; the reader is not used after.
    #[inline]
    pub(crate) fn close(&self) {
        if self.depth.get() > 0 {
            self.slot.leave(self.ticket); // a scan was forgotten, and cannot be used any more
        }
        self.slot.close(self.ticket);
    }
}

impl<P> Call<'_, P> {
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

    /// The call goes on until the reader [leaves](SlotReader::leave).
    #[inline]
    pub(crate) fn stay(self) {
        std::mem::forget(self);
    }
}

impl<P> Drop for Call<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() == 0 {
            self.slot.leave(self.ticket);
        }
    }
}

impl<P> SnapshotSlot<P> {
    /// Ends the last call of the owner.
    #[inline]
    fn leave(&self, ticket: Ticket) {
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
