//! Readings from a library's threads, neither from a client nor from a peer. The threads leave them here, and the event
//! loop sets their objects as if by `TSET` on this node.
//!
//! **Problem.** Those threads belong to the library: they know no deadlines, and their readings have no bound. The
//! event loop must not wait for them, and they must not wait for it.
//!
//! **Method.** One map, with each object's newest reading that the loop has not taken. A newer reading replaces it, so
//! the map is as large as there are objects, however many readings come. The lock is held for the move of one reading,
//! or for a swap of the whole map.
//!
//! **Account.** Each reading that came has one outcome: came = set + superseded + older + too long + refused +
//! elsewhere + deletes + waiting ([`LetterCounts::is_closed`]).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_federation::message::Key;
use punctual_units::{Nanos, Time};

/// Age of a reading by its own timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dated {
    /// The reading was this old on arrival, by the clocks of two machines.
    Old(Nanos),
    /// The reading has no timestamp; it counts as sampled on arrival.
    Undated,
    /// The timestamp lies this far in the future of this machine, so the clocks differ by at least that. The reading
    /// counts as sampled on arrival.
    Ahead(Nanos),
}

/// A reading on its way to the event loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The value, as the library delivered it.
    pub value: Vec<u8>,
    /// Age of the reading on arrival.
    age: Nanos,
    /// When the reading arrived, on the node's clock.
    came: Time,
}

impl Letter {
    /// Age of the reading at `now`.
    pub fn age_at(&self, now: Time) -> Nanos {
        Nanos(self.age.0.saturating_add(now.since(self.came).0))
    }

    /// Whether this reading was sampled later than the other one, or at the same instant.
    fn is_newer(&self, other: &Letter) -> bool {
        let sampled = |letter: &Letter| i128::from(letter.came.0) - i128::from(letter.age.0);
        sampled(self) >= sampled(other)
    }
}

/// Outcomes of readings since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    /// All readings that came, deletes among them.
    pub came: u64,
    /// Readings with which their objects were set.
    pub set: u64,
    /// Readings replaced by a newer one of the same object before the event loop took them.
    pub superseded: u64,
    /// Readings older than the value of their object.
    pub older: u64,
    /// Readings whose value is longer than an object's may be.
    pub too_long: u64,
    /// Readings without an object: too many objects, an invalid name, or refused by the federation.
    pub refused: u64,
    /// Readings of objects whose source is another node, with a fresh value.
    pub elsewhere: u64,
    /// Deletes: the object stays, and its reading grows old.
    pub deletes: u64,
    /// Readings that the event loop has not taken, or whose objects are being made.
    pub waiting: u64,
    /// Readings that came without a timestamp; counted under their outcome too.
    pub undated: u64,
    /// Readings that came with a timestamp in the future; counted under their outcome too.
    pub ahead: u64,
    /// Present number of connections to other Zenoh processes.
    pub links: u64,
}

impl LetterCounts {
    /// Whether each reading has exactly one outcome.
    pub fn is_closed(&self) -> bool {
        let places = [
            self.set,
            self.superseded,
            self.older,
            self.too_long,
            self.refused,
            self.elsewhere,
            self.deletes,
            self.waiting,
        ];
        self.came == places.iter().sum::<u64>()
    }

    /// Counts with their names, except [`LetterCounts::came`] and [`LetterCounts::links`].
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("set", self.set),
            ("superseded", self.superseded),
            ("older", self.older),
            ("too_long", self.too_long),
            ("refused", self.refused),
            ("elsewhere", self.elsewhere),
            ("deletes", self.deletes),
            ("waiting", self.waiting),
            ("undated", self.undated),
            ("ahead", self.ahead),
        ]
    }
}

/// Outcome of a letter that the event loop took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object has the reading now.
    Set,
    /// The object has a younger reading.
    Older,
    /// The store or the federation refused the reading.
    Refused,
    /// Another node is the object's source, and its reading is fresh.
    Elsewhere,
}

/// Kinds of trouble. The node reports each once; counts show the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Trouble {
    TooLong,
    Crowded,
    Unnamed,
    Ahead,
    Store,
}

#[derive(Default)]
struct State {
    /// The newest reading of each object that the loop has not taken.
    waiting: HashMap<Key, Letter>,
    /// Objects that count towards `objects_max`; `true`: the federation refuses to make the object.
    places: HashMap<Key, bool>,
    counts: LetterCounts,
    /// Whether the loop was woken and has not looked since.
    is_woken: bool,
    said: HashSet<Trouble>,
    notes: Vec<String>,
}

impl State {
    fn say(&mut self, trouble: Trouble, text: impl FnOnce() -> String) {
        if self.said.insert(trouble) {
            self.notes.push(text());
        }
    }
}

/// Holds readings until the event loop takes them.
pub struct Letterbox {
    /// Length of the longest value, in bytes.
    len_max: usize,
    /// The most objects, including the node's own.
    objects_max: usize,
    /// Has the event loop look into the letterbox.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

impl fmt::Debug for Letterbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letterbox")
            .field("objects_max", &self.objects_max)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Letterbox {
    /// Takes values of at most `len_max` bytes, for the objects of `own` and for others, up to `objects_max` objects in
    /// all.
    pub fn new(
        len_max: usize,
        objects_max: usize,
        own: impl IntoIterator<Item = Key>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Letterbox {
        let state = State {
            places: own.into_iter().map(|key| (key, false)).collect(),
            ..State::default()
        };
        Letterbox {
            len_max,
            objects_max,
            wake: Box::new(wake),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a reading that came at `came` on the node's clock. Waits at most while another reading is moved.
    pub fn leave(&self, key: &[u8], value: &[u8], dated: Dated, came: Time) {
        let mut state = self.state();
        state.counts.came += 1;
        let age = match dated {
            Dated::Old(age) => age,
            Dated::Undated => {
                state.counts.undated += 1;
                Nanos::ZERO
            }
            Dated::Ahead(by) => {
                state.counts.ahead += 1;
                state.say(Trouble::Ahead, || {
                    format!(
                        "{} is of an instant that comes in {by} on this machine: clocks differ, and so ages are wrong \
                         by as much; keep the clocks of all machines near the time of day (NTP or PTP)",
                        key.escape_ascii()
                    )
                });
                Nanos::ZERO
            }
        };
        if value.len() > self.len_max {
            state.counts.too_long += 1;
            let (len, most) = (value.len(), self.len_max);
            state.say(Trouble::TooLong, || {
                let key = key.escape_ascii();
                format!(
                    "{key}: a value of {len} bytes, and a reading has at most {most}: it is not taken, nor is the next"
                )
            });
            return;
        }
        match state.places.get(key) {
            Some(true) => {
                state.counts.refused += 1;
                return;
            }
            Some(false) => {}
            None if state.places.len() < self.objects_max => _ = state.places.insert(key.to_vec(), false),
            None => {
                state.counts.refused += 1;
                let most = self.objects_max;
                state.say(Trouble::Crowded, || {
                    let key = key.escape_ascii();
                    format!(
                        "{key} would be one object more than {most}: raise zenoh_session.objects_max, or narrow a key"
                    )
                });
                return;
            }
        }
        let letter = Letter {
            value: value.to_vec(),
            age,
            came,
        };
        match state.waiting.get_mut(key) {
            None => _ = state.waiting.insert(key.to_vec(), letter),
            Some(before) => {
                let is_newer = letter.is_newer(before);
                if is_newer {
                    *before = letter;
                }
                let counts = &mut state.counts;
                *(if is_newer {
                    &mut counts.superseded
                } else {
                    &mut counts.older
                }) += 1;
            }
        }
        let wakes = !std::mem::replace(&mut state.is_woken, true);
        drop(state);
        if wakes {
            (self.wake)();
        }
    }

    /// Counts a delete, which changes no object.
    pub fn delete(&self) {
        let mut state = self.state();
        state.counts.came += 1;
        state.counts.deletes += 1;
    }

    /// Counts a reading that names no object; `why` is reported once.
    pub fn unnamed(&self, why: impl FnOnce() -> String) {
        let mut state = self.state();
        state.counts.came += 1;
        state.counts.refused += 1;
        state.say(Trouble::Unnamed, why);
    }

    /// Stores the present number of connections.
    pub fn links(&self, count: usize) {
        self.state().counts.links = count as u64;
    }

    /// Moves all readings into `into`, for the event loop, which then reports the outcome of each ([`Letterbox::told`],
    /// [`Letterbox::put_back`]).
    pub fn take(&self, into: &mut Vec<(Key, Letter)>) {
        let mut state = self.state();
        state.is_woken = false;
        into.extend(state.waiting.drain());
    }

    /// Counts the outcome of a reading that was taken.
    pub fn told(&self, outcome: Outcome) {
        let counts = &mut self.state().counts;
        *match outcome {
            Outcome::Set => &mut counts.set,
            Outcome::Older => &mut counts.older,
            Outcome::Refused => &mut counts.refused,
            Outcome::Elsewhere => &mut counts.elsewhere,
        } += 1;
    }

    /// Counts a reading that was taken and that the store refused; `why` is reported once.
    pub fn failed(&self, key: &[u8], why: &str) {
        self.told(Outcome::Refused);
        self.state()
            .say(Trouble::Store, || format!("{} was not set: {why}", key.escape_ascii()));
    }

    /// Returns a reading whose object is being made, unless a newer one was left meanwhile.
    pub fn put_back(&self, key: Key, letter: Letter) {
        let mut state = self.state();
        let newer = state.waiting.get(&key).map(|newer| newer.is_newer(&letter));
        match newer {
            Some(true) => state.counts.superseded += 1,
            Some(false) => {
                state.waiting.insert(key, letter);
                state.counts.older += 1;
            }
            None => _ = state.waiting.insert(key, letter),
        }
    }

    /// Refuses an object until the node starts again, because the federation does not make it. Returns false if the
    /// object is unknown here, or was refused before.
    pub fn refuse(&self, key: &[u8]) -> bool {
        let mut state = self.state();
        if state.waiting.remove(key).is_some() {
            state.counts.refused += 1;
        }
        state
            .places
            .get_mut(key)
            .is_some_and(|refused| !std::mem::replace(refused, true))
    }

    /// Takes the messages for the operator since the last call; at most one for each kind of trouble in total.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }

    /// Returns the outcomes of readings so far.
    pub fn counts(&self) -> LetterCounts {
        let state = self.state();
        LetterCounts {
            waiting: state.waiting.len() as u64,
            ..state.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    fn letterbox(objects_max: usize) -> Letterbox {
        Letterbox::new(8, objects_max, [b"own".to_vec()], || ())
    }

    fn taken(letterbox: &Letterbox) -> Vec<(Key, Letter)> {
        let mut all = Vec::new();
        letterbox.take(&mut all);
        all
    }

    #[test]
    fn the_newest_reading_waits_with_its_age() {
        let letterbox = letterbox(2);
        letterbox.leave(b"a", b"1", Dated::Old(Nanos(10)), Time(100));
        letterbox.leave(b"a", b"2", Dated::Old(Nanos(5)), Time(110));
        // It came later, and is of an earlier instant.
        letterbox.leave(b"a", b"0", Dated::Old(Nanos(90)), Time(120));
        let all = taken(&letterbox);
        assert_eq!((all.len(), all[0].1.value.as_slice()), (1, &b"2"[..]));
        assert_eq!(all[0].1.age_at(Time(130)), Nanos(25));
        assert_eq!(
            all[0].1.age_at(Time(1)),
            Nanos(5),
            "no clock makes it younger than it was"
        );
        letterbox.told(Outcome::Set);
        let counts = letterbox.counts();
        assert_eq!((counts.came, counts.set, counts.superseded, counts.older), (3, 1, 1, 1));
        assert!(counts.is_closed());
    }

    #[test]
    fn what_is_not_taken_is_counted_and_said_once() {
        let letterbox = letterbox(2);
        for _ in 0..2 {
            letterbox.leave(b"own", b"123456789", Dated::Undated, Time(1));
            letterbox.leave(b"b", b"1", Dated::Ahead(Nanos(7)), Time(1));
            letterbox.leave(b"c", b"1", Dated::Undated, Time(1));
            letterbox.unnamed(|| "no name".into());
            letterbox.delete();
        }
        let notes = letterbox.notes();
        assert_eq!(notes.len(), 4, "{notes:#?}");
        for part in [
            "own: a value of 9 bytes",
            "clocks differ",
            "c would be one object more than 2",
            "no name",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
        }
        assert!(letterbox.notes().is_empty());
        let counts = letterbox.counts();
        let told = (
            counts.too_long,
            counts.refused,
            counts.deletes,
            counts.undated,
            counts.ahead,
        );
        assert_eq!(told, (2, 4, 2, 4, 2));
        assert!(counts.is_closed() && counts.waiting == 1 && counts.superseded == 1);
        // One that the federation does not make is refused from then on.
        assert!(letterbox.refuse(b"b") && !letterbox.refuse(b"b") && !letterbox.refuse(b"never"));
        letterbox.leave(b"b", b"2", Dated::Undated, Time(2));
        assert!(taken(&letterbox).is_empty() && letterbox.counts().is_closed());
    }

    #[test]
    fn the_loop_is_woken_once_until_it_looks() {
        let count = Arc::new(AtomicU64::new(0));
        let wakes = Arc::clone(&count);
        let letterbox = Letterbox::new(8, 8, [], move || _ = wakes.fetch_add(1, Ordering::Relaxed));
        for key in [b"a", b"b", b"a"] {
            letterbox.leave(key, b"1", Dated::Undated, Time(1));
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let mut all = taken(&letterbox);
        assert_eq!(all.len(), 2);
        // One whose object is being made keeps no other one from waking it.
        let (key, letter) = all.remove(0);
        letterbox.put_back(key, letter);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        letterbox.leave(b"c", b"1", Dated::Undated, Time(1));
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    proptest! {
        /// Any readings, taken and put back at any time, against a model that keeps all of them.
        #[test]
        fn each_reading_is_in_one_place_and_the_newest_is_set(
            moves in prop::collection::vec((0..6_u8, 0..4_u8, 0..50_u64, 0..12_usize), 1..200)
        ) {
            let letterbox = letterbox(4);
            let mut held: Vec<(Key, Letter)> = Vec::new();
            // Of each object, the latest instant that was left and not taken since.
            let mut newest = BTreeMap::<Key, i128>::new();
            for (at, (what, object, age, len)) in (100_u64..).zip(moves) {
                let key = vec![b'a' + object];
                match what {
                    0..=2 => {
                        let places = letterbox.state().places.clone();
                        let has_place = places.get(&key).map_or(places.len() < 4, |refused| !refused);
                        letterbox.leave(&key, &vec![0; len], Dated::Old(Nanos(age)), Time(at));
                        if len <= 8 && has_place {
                            let sampled = i128::from(at) - i128::from(age);
                            newest.entry(key).and_modify(|newest| *newest = (*newest).max(sampled)).or_insert(sampled);
                        }
                    }
                    3 => {
                        letterbox.take(&mut held);
                        for (key, letter) in &held {
                            let sampled = i128::from(letter.came.0) - i128::from(letter.age.0);
                            prop_assert_eq!(newest.get(key), Some(&sampled));
                        }
                        // Some are set, some stay.
                        for (at, (key, letter)) in held.drain(..).enumerate() {
                            if at % 2 == 0 {
                                newest.remove(&key);
                                letterbox.told(Outcome::Set);
                            } else {
                                letterbox.put_back(key, letter);
                            }
                        }
                    }
                    4 if age == 7 => {
                        letterbox.refuse(&key);
                        newest.remove(&key);
                    }
                    _ => letterbox.delete(),
                }
                prop_assert!(letterbox.counts().is_closed(), "{:?}", letterbox.counts());
            }
            prop_assert_eq!(letterbox.counts().waiting, newest.len() as u64);
        }
    }
}
