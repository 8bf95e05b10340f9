//! Transport of sensor data to every node, and the bound of its age there.
//!
//! **Problem.** Each node has sensors, and transactions on every node read them. Sensor data is not worth an entry in
//! the log: the newest reading replaces all before it. And a reading is worth nothing without its age, but instants of
//! two machines do not compare.
//!
//! **Terms.** The *source* of an object is the node whose sensor it is; a *peer* is a node that wants its readings. A
//! [`Stamp`] is an instant of the peer's own clock, which the peer sends and the source sends back.
//!
//! **Method.** The source keeps a [`Feed`] for each peer: a conflating queue, the newest reading per object. Each
//! reading is delivered, superseded, waiting or under way. A reading stays under way until the peer acknowledges it; if
//! that takes too long, the feed sends it again, or a newer one in its place. The peer keeps an [`Inbox`] for each
//! source and takes newer readings only.
//!
//! **Age.** The age that a reading has when the feed takes it travels along. The peer adds the *way*: the whole time
//! that has passed on its own clock since the stamp that the source had received last *before* it took the reading.
//!
//! ```text
//!     peer    ──── stamp ─────────────────────────── reading comes: now ───►  way <= now - stamp
//!                      ╲                            ╱
//!     source  ──────────heard ── reading taken ── sent ──────────────────►
//! ```
//!
//! This is an upper bound, because the stamp was received, hence made, before the reading was taken: an order, no
//! difference of clocks. Rejected: half of the round trip, which is too short where the way back is the longer half.
//! The round trip less the time for which the source says it held the stamp: tighter by the time between two stamps,
//! but wrong whenever the source's clock jumps. So the bound is loose by a round trip and by the time between two
//! stamps, which come with each acknowledgement and each sign of life.
//!
//! **Drift.** A clock whose rate is off by at most `drift_ppm` shows at least 1 - drift of the time that has truly
//! passed. Ages and ways are divided by that.
//!
//! **Assumptions.** The peer's clock does not run backwards and does not stand still: it counts from boot, suspended or
//! not. The source's clock may be wrong and jump in any way once the feed has the reading; before that, an age is the
//! one that the source's store reports. If a stamp is lost, late, doubled or overtaken, the bound only becomes looser.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use punctual_store::updates::UpdateCounts;
use punctual_units::{Nanos, ObjectName, Seq, Time};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

/// An instant of a peer's clock, in one of its boots. Only that peer can interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// Number of the peer's boot: its clock begins anew with each.
    pub boot: u64,
    /// The instant at which the peer made it.
    pub at: Time,
}

/// A reading on its way from its source to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingReport {
    pub object: ObjectName,
    /// Number of the reading within the object.
    pub seq: Seq,
    /// Age when the feed took it, on the source's clock; [`Nanos::MAX`] if unknown.
    pub age: Nanos,
    /// The newest stamp of the peer that the source had received by then.
    pub stamp: Stamp,
    #[serde(with = "punctual_store::batch::bytes")]
    pub value: Vec<u8>,
}

/// A [`ReadingReport`] that borrows its value, to be encoded without a copy; the fields are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadingReportRef<'f> {
    pub object: ObjectName,
    pub seq: Seq,
    pub age: Nanos,
    pub stamp: Stamp,
    #[serde(serialize_with = "punctual_store::batch::bytes::serialize")]
    pub value: &'f [u8],
}

impl ReadingReportRef<'_> {
    /// An owned report, with a copy of the value.
    pub fn report(&self) -> ReadingReport {
        ReadingReport {
            object: self.object,
            seq: self.seq,
            age: self.age,
            stamp: self.stamp,
            value: self.value.to_vec(),
        }
    }
}

/// Bounds of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedBounds {
    /// Most objects, 1,024 by default.
    pub objects: u32,
    /// The longest value in bytes, 64 by default. Memory for `objects` of them is kept from the start.
    pub value_bytes: u32,
    /// Most readings under way at a time, 64 by default: a link of 10,000 readings per second carries them in 6 ms.
    pub under_way: usize,
    /// Time after which an unacknowledged reading is sent again: 200 ms by default, several round trips.
    pub resend_after: Nanos,
}

impl Default for FeedBounds {
    fn default() -> Self {
        FeedBounds {
            objects: 1_024,
            value_bytes: 64,
            under_way: 64,
            resend_after: Nanos::from_millis(200),
        }
    }
}

/// Reason for which a feed refused a reading. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The feed has its maximum of objects.
    #[error("object {object}: this feed has its {max} objects already: raise the bound of objects")]
    TooManyObjects {
        object: ObjectName,
        /// Most objects of the feed.
        max: u32,
    },
    /// The reading is not newer than the last one.
    #[error("object {object}: reading {seq} comes after {last}: offer each once, in increasing order from 1")]
    NotNewer {
        object: ObjectName,
        seq: Seq,
        /// The last number offered, 0 if none was.
        last: Seq,
    },
    /// The value exceeds the feed's bound on values.
    #[error("object {object}: a value of {len} bytes, at most {max} are taken: raise the bound of values")]
    TooLong {
        object: ObjectName,
        /// Length of the value in bytes.
        len: usize,
        /// The longest allowed value, in bytes.
        max: u32,
    },
}

/// The meaning of a stamp for the feed that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampOutcome {
    /// The stamp is the newest so far.
    Noted,
    /// The stamp was overtaken on its way: nothing changed.
    Older,
    /// The peer has restarted and knows nothing: begin another feed with this stamp.
    Restarted,
}

/// The newest reading of one object, which waits, is under way, or has ended.
#[derive(Clone, Debug)]
struct Slot {
    object: ObjectName,
    seq: Seq,
    age: Nanos,
    stamp: Stamp,
    value: Vec<u8>,
    /// Whether the newest reading must still be sent.
    waits: bool,
    /// A reading under way, this one or an older one, and the instant at which it was sent.
    under_way: Option<(Seq, Time)>,
}

impl Slot {
    fn reported(&self) -> ReadingReportRef<'_> {
        ReadingReportRef {
            object: self.object,
            seq: self.seq,
            age: self.age,
            stamp: self.stamp,
            value: &self.value,
        }
    }
}

/// Hashes the numbers of a name. The source itself chose the names in a feed, so no attacker does.
#[derive(Clone, Copy, Debug, Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    /// The multiplier is that of rustc's own hasher.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// The readings of one source for one peer, from one boot of the peer to the next.
///
/// ```
/// use punctual_federation::temporal::{Feed, FeedBounds, Inbox, InboxBounds, ReportOutcome, Stamp};
/// use punctual_units::{Nanos, ObjectName, Seq, Time};
/// let mut inbox = Inbox::new(InboxBounds::default());
/// let stamp = Stamp { boot: 1, at: Time(1_000) }; // of the peer's clock
/// let mut feed = Feed::new(FeedBounds::default(), stamp);
/// let object = ObjectName { source: 7, boot: 1, sequence: 1 };
/// feed.offer(object, Seq(1), Nanos(50), b"20.5").unwrap();
/// feed.offer(object, Seq(2), Nanos(50), b"21.5").unwrap(); // supersedes the first
/// let report = feed.next(Time(900_000)).unwrap().report(); // the source's clock shows what it likes
/// let ReportOutcome::Newer { age_at_most: Some(age) } = inbox.receive(&report, 1, Time(4_000)).unwrap() else {
///     panic!()
/// };
/// assert!(age >= Nanos(3_050) && age < Nanos(3_060));
/// feed.acknowledged(object, Seq(2));
/// assert_eq!((feed.counts().installed, feed.counts().superseded), (1, 1));
/// ```
#[derive(Clone, Debug)]
pub struct Feed {
    bounds: FeedBounds,
    stamp: Stamp,
    /// Only looked up, never iterated over, so its order has no effect.
    numbers: HashMap<ObjectName, u32, BuildHasherDefault<NameHasher>>,
    slots: Vec<Slot>,
    /// Objects whose newest reading waits, in the order in which they began to.
    queue: VecDeque<u32>,
    counts: UpdateCounts,
    /// Sent readings, in order of time; some of these have ended since.
    sent: VecDeque<(Time, u32, Seq)>,
}

impl Feed {
    /// An empty feed for the peer and boot that have made `stamp`. The caller must offer the readings that the source
    /// has.
    pub fn new(bounds: FeedBounds, stamp: Stamp) -> Feed {
        Feed {
            bounds,
            stamp,
            numbers: HashMap::default(),
            slots: Vec::new(),
            queue: VecDeque::new(),
            counts: UpdateCounts::default(),
            sent: VecDeque::new(),
        }
    }

    /// A feed without objects for the same peer, after some objects have left the source. The caller must offer the
    /// source's readings again.
    pub fn emptied(&self) -> Feed {
        Feed::new(self.bounds, self.stamp)
    }

    /// Takes a stamp of the peer.
    pub fn heard(&mut self, stamp: Stamp) -> StampOutcome {
        if stamp.boot > self.stamp.boot {
            return StampOutcome::Restarted;
        }
        if stamp <= self.stamp {
            return StampOutcome::Older;
        }
        self.stamp = stamp;
        StampOutcome::Noted
    }

    /// Takes reading `seq` of `object`, which is `age` old now. A reading of the same object that still waits is
    /// superseded.
    ///
    /// # Errors
    /// [`FeedError`]; nothing has changed.
    pub fn offer(&mut self, object: ObjectName, seq: Seq, age: Nanos, value: &[u8]) -> Result<(), FeedError> {
        let (len, max) = (value.len(), self.bounds.value_bytes);
        if len > max as usize {
            return Err(FeedError::TooLong { object, len, max });
        }
        let known = self.numbers.get(&object).copied();
        let last = known.map_or(Seq(0), |number| self.slots[number as usize].seq);
        if seq <= last {
            return Err(FeedError::NotNewer { object, seq, last });
        }
        let number = match known {
            Some(number) => number,
            None => self.begin(object)?,
        };
        let slot = &mut self.slots[number as usize];
        (slot.seq, slot.age, slot.stamp) = (seq, age, self.stamp);
        slot.value.clear();
        slot.value.extend_from_slice(value);
        self.counts.offered += 1;
        self.counts.admitted += 1;
        match std::mem::replace(&mut slot.waits, true) {
            true => self.counts.superseded += 1,
            false => {
                self.counts.pending += 1;
                self.queue.push_back(number);
            }
        }
        Ok(())
    }

    /// Adds an object; returns its index.
    fn begin(&mut self, object: ObjectName) -> Result<u32, FeedError> {
        let (number, max) = (self.slots.len() as u32, self.bounds.objects);
        if number >= max {
            return Err(FeedError::TooManyObjects { object, max });
        }
        self.numbers.insert(object, number);
        self.slots.push(Slot {
            object,
            seq: Seq(0),
            age: Nanos::ZERO,
            stamp: self.stamp,
            value: Vec::new(),
            waits: false,
            under_way: None,
        });
        Ok(number)
    }

    /// The reading to send next, at `now` on the source's clock: one that has not been acknowledged for too long,
    /// otherwise that of the object that has waited longest. `None` if nothing waits, or if the maximum is under way.
    pub fn next(&mut self, now: Time) -> Option<ReadingReportRef<'_>> {
        let number = self.take(now)?;
        Some(self.slots[number as usize].reported())
    }

    /// As `next`, but up to `max` readings at once, to be encoded as a sequence of [`ReadingReport`]s; `None` if
    /// there is none. `scratch` is memory for their indices.
    pub fn together<'f>(&'f mut self, now: Time, max: usize, scratch: &'f mut Vec<u32>) -> Option<Together<'f>> {
        scratch.clear();
        scratch.extend(std::iter::from_fn(|| self.take(now)).take(max));
        let (slots, numbers) = (&self.slots[..], &scratch[..]);
        (!numbers.is_empty()).then_some(Together { slots, numbers })
    }

    /// Index of the object whose newest reading is sent now.
    fn take(&mut self, now: Time) -> Option<u32> {
        if let Some(number) = self.resend(now) {
            return Some(number);
        }
        if self.counts.in_flight as usize >= self.bounds.under_way {
            return None;
        }
        let number = self.queue.pop_front()?;
        let slot = &mut self.slots[number as usize];
        slot.waits = false;
        self.counts.pending -= 1;
        let seq = slot.seq;
        match slot.under_way.replace((seq, now)) {
            Some(_) => self.counts.superseded += 1,
            None => self.counts.in_flight += 1,
        }
        self.note_sent(number, seq, now);
        Some(number)
    }

    /// Notes that the peer has reading `seq` of `object`, or a newer one.
    pub fn acknowledged(&mut self, object: ObjectName, seq: Seq) {
        let Some(number) = self.numbers.get(&object) else {
            return;
        };
        let under_way = &mut self.slots[*number as usize].under_way;
        // The acknowledgement of a reading that was sent again, or abandoned for a newer one, changes nothing.
        if under_way.take_if(|(sent, _)| *sent == seq).is_some() {
            self.counts.in_flight -= 1;
            self.counts.installed += 1;
        }
    }

    /// Readings by state: installed are those that the peer has acknowledged, in flight those under way.
    pub fn counts(&self) -> UpdateCounts {
        self.counts
    }

    /// Notes when a reading was sent, and forgets ended ones at the front, or all ended ones if there are many. So it
    /// keeps at most twice as many as may be under way.
    fn note_sent(&mut self, number: u32, seq: Seq, now: Time) {
        let slots = &self.slots;
        let waits = |(at, number, seq): &(Time, u32, Seq)| slots[*number as usize].under_way == Some((*seq, *at));
        self.sent.push_back((now, number, seq));
        while self.sent.front().is_some_and(|front| !waits(front)) {
            self.sent.pop_front();
        }
        if self.sent.len() > 2 * self.bounds.under_way {
            self.sent.retain(waits);
        }
    }

    /// Index of the object whose reading has been under way longest, if that is too long. A reading behind which a
    /// newer one waits is abandoned for that.
    fn resend(&mut self, now: Time) -> Option<u32> {
        loop {
            let (at, number, seq) = *self.sent.front()?;
            // After its clock was set back, too, a reading must not stay under way without limit.
            let is_due = now.since(at).max(at.since(now)) >= self.bounds.resend_after;
            let slot = &mut self.slots[number as usize];
            if slot.under_way != Some((seq, at)) {
                self.sent.pop_front();
                continue;
            }
            if !is_due {
                return None;
            }
            self.sent.pop_front();
            if slot.seq == seq {
                slot.under_way = Some((seq, now));
                self.note_sent(number, seq, now);
                return Some(number);
            }
            slot.under_way = None;
            self.counts.in_flight -= 1;
            self.counts.superseded += 1;
        }
    }
}

/// Readings that are sent together, encoded from the memory of their feed.
#[derive(Clone, Copy, Debug)]
pub struct Together<'f> {
    slots: &'f [Slot],
    numbers: &'f [u32],
}

impl Together<'_> {
    /// The readings, in the order of sending.
    pub fn iter(&self) -> impl Iterator<Item = ReadingReportRef<'_>> {
        self.numbers
            .iter()
            .map(|number| self.slots[*number as usize].reported())
    }
}

impl Serialize for Together<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.numbers.len()))?;
        self.iter()
            .try_for_each(|reported| sequence.serialize_element(&reported))?;
        sequence.end()
    }
}

/// Greatest error of the rate of any node's clock, in parts per million, that ages allow for: quartz is within 100, and
/// the kernel slews by up to 500 only while a program has it do so.
pub const DRIFT_PPM_MAX: u32 = 200;

/// Assumptions and bounds of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InboxBounds {
    /// Most objects of one source, 1,024 by default.
    pub objects: usize,
    /// Greatest error of the rate of any node's clock, in parts per million, below 1,000,000; [`DRIFT_PPM_MAX`] by
    /// default.
    pub drift_ppm: u32,
}

impl Default for InboxBounds {
    fn default() -> Self {
        InboxBounds {
            objects: 1_024,
            drift_ppm: DRIFT_PPM_MAX,
        }
    }
}

/// The result of a report. The peer acknowledges it in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// The reading is the newest of its object.
    Newer {
        /// Greatest possible age of the reading; `None` if it has no bound: then the reading is stale.
        age_at_most: Option<Nanos>,
    },
    /// The report came twice, or after a newer one, or from an earlier boot of the source.
    Older,
}

/// The source has more objects than the inbox may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("object {object}: {max} objects of this source are known already: raise the bound of objects")]
pub struct InboxFull {
    pub object: ObjectName,
    /// Most objects of one source.
    pub max: usize,
}

/// The numbers of the readings that a peer has received from one source.
#[derive(Clone, Debug)]
pub struct Inbox {
    bounds: InboxBounds,
    /// The latest boot of the source: with a new one, all of its objects begin anew.
    source_boot: u64,
    newest: BTreeMap<ObjectName, Seq>,
    counts: InboxCounts,
}

/// Reports received since the inbox was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounts {
    /// Reports that were the newest of their objects.
    pub newer: u64,
    /// All other reports, which changed nothing.
    pub older: u64,
    /// Numbers left out between two newer reports of an object: superseded at the source, or lost and superseded then.
    pub skipped: u64,
}

impl Inbox {
    /// An inbox that has received nothing yet.
    pub fn new(bounds: InboxBounds) -> Inbox {
        Inbox {
            bounds,
            source_boot: 0,
            newest: BTreeMap::new(),
            counts: InboxCounts::default(),
        }
    }

    /// Takes a report that arrives at `now`, in boot `boot` of the peer that owns the inbox.
    ///
    /// # Errors
    /// [`InboxFull`]: the report is dropped, and must not be acknowledged.
    pub fn receive(&mut self, report: &ReadingReport, boot: u64, now: Time) -> Result<ReportOutcome, InboxFull> {
        let object = report.object;
        if object.boot > self.source_boot {
            self.source_boot = object.boot;
            self.newest.clear();
        }
        let newest = self.newest.get(&object).copied().unwrap_or_default();
        if object.boot < self.source_boot || report.seq <= newest {
            self.counts.older += 1;
            return Ok(ReportOutcome::Older);
        }
        let max = self.bounds.objects;
        if newest == Seq(0) && self.newest.len() >= max {
            return Err(InboxFull { object, max });
        }
        self.newest.insert(object, report.seq);
        self.counts.newer += 1;
        // There is no gap before the first report: the peer has come later.
        let skipped = report.seq.0 - newest.0 - 1;
        self.counts.skipped += if newest == Seq(0) { 0 } else { skipped };
        let age_at_most = age_at_most(report, boot, now, self.bounds.drift_ppm);
        Ok(ReportOutcome::Newer { age_at_most })
    }

    pub fn counts(&self) -> InboxCounts {
        self.counts
    }

    /// Forgets objects that no longer belong to this source.
    pub fn keep(&mut self, mut is_there: impl FnMut(ObjectName) -> bool) {
        self.newest.retain(|made, _| is_there(*made));
    }
}

/// Greatest possible age of a report's reading that arrives at `now` in boot `boot` of its peer. `None` if it has no
/// bound: the source did not know the age, or the stamp is of another boot, or lies in the future.
pub fn age_at_most(report: &ReadingReport, boot: u64, now: Time, drift_ppm: u32) -> Option<Nanos> {
    let comparable = report.age < Nanos::MAX && report.stamp.boot == boot && report.stamp.at <= now;
    let way = now.since(report.stamp.at);
    comparable.then(|| true_at_most(report.age, drift_ppm) + true_at_most(way, drift_ppm))
}

/// The earliest possible sampling instant, on the clock of the node that judges freshness, such that this clock may be
/// off by `drift_ppm` for another `horizon`. `None` if it lies before the clock's origin, or is unknown: the value is
/// stale then.
pub fn sampled_at(age_at_most: Option<Nanos>, now: Time, horizon: Nanos, drift_ppm: u32) -> Option<Time> {
    let later = true_at_most(horizon, drift_ppm) - horizon;
    let before = age_at_most? + later;
    now.0.checked_sub(before.0).map(Time)
}

/// The longest true time that has passed while a clock that is off by at most `drift_ppm` showed `shown`. Also the
/// greatest age of a reading that a store shows as `shown` old, even if it was installed by [`sampled_at`] longer ago
/// than its horizon.
pub fn true_at_most(shown: Nanos, drift_ppm: u32) -> Nanos {
    const PPM: u128 = 1_000_000;
    let slowest = PPM - u128::from(drift_ppm).min(PPM - 1);
    let most = (u128::from(shown.0) * PPM).div_ceil(slowest);
    Nanos(u64::try_from(most).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
