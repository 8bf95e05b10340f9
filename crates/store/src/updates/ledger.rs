//! The outcome of every update, sensor by sensor, reconciled by number: an update that was lost shows.
//!
//! Each sensor numbers its updates 1, 2, 3... An update that was offered is in exactly one of these states:
//!
//! ```text
//!     offered ─┬─► shed
//!              └─► pending ─┬─► superseded          (a newer one took its place in the queue)
//!                           └─► in flight ─┬─► installed
//!                                          └─► superseded   (overtaken: a newer one was installed first)
//! ```
//!
//! so that, for each sensor, `offered = installed + shed + superseded + pending + in flight`. Neither side is
//! taken on trust from the other. The number offered is not counted but follows from the sequence numbers: the last one
//! less the gaps, which are updates `missing at source`. The queue reports the pending updates. And because counts
//! balance when one update is lost and another counted twice, each state also keeps the sum of a hash of its updates'
//! numbers; the two sums agree by chance once in 2^64.

use punctual_units::{SensorId, Seq, Share, mix};

/// Updates by state, over all sensors since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Updates that arrived and were not refused with an error.
    pub offered: u64,
    /// Offered updates that were not shed.
    pub admitted: u64,
    /// Admitted updates that only the freshness minimum asked for: above the share that the knob admits.
    pub for_minimum: u64,
    /// Updates whose values reached the store.
    pub installed: u64,
    /// Updates that admission dropped.
    pub shed: u64,
    /// Admitted updates that were not installed because a newer one of their sensor was there first.
    pub superseded: u64,
    /// Admitted updates that wait in the queue now.
    pub pending: u64,
    /// Updates taken from the queue whose installation has not been reported yet.
    pub in_flight: u64,
    /// Updates that never arrived, by the gaps in the numbers; not counted in `offered`.
    pub missing_at_source: u64,
}

impl UpdateCounts {
    /// Adds the counts of other sensors or of another time.
    pub(crate) fn add(&mut self, other: &UpdateCounts) {
        self.offered += other.offered;
        self.admitted += other.admitted;
        self.for_minimum += other.for_minimum;
        self.installed += other.installed;
        self.shed += other.shed;
        self.superseded += other.superseded;
        self.pending += other.pending;
        self.in_flight += other.in_flight;
        self.missing_at_source = self.missing_at_source.saturating_add(other.missing_at_source);
    }

    /// The share of updates really admitted since `earlier`: the knob's setting plus the additions of the minimum. 1 if
    /// none was offered.
    pub fn admitted_share_since(&self, earlier: &UpdateCounts) -> Share {
        let since = |now: u64, then: u64| now.saturating_sub(then) as usize;
        Share::of(
            since(self.admitted, earlier.admitted),
            since(self.offered, earlier.offered),
        )
    }
}

/// The account of one sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorBalance {
    /// The sensor of this account.
    pub sensor: SensorId,
    /// Updates offered, by their numbers: the last number less those missing at source.
    pub offered: u64,
    /// Updates whose values reached the store.
    pub installed: u64,
    /// Updates that admission dropped.
    pub shed: u64,
    /// Updates not installed because a newer one was first.
    pub superseded: u64,
    /// Updates in the queue, 0 or 1.
    pub pending: u64,
    /// Updates taken from the queue whose outcome was not reported yet.
    pub in_flight: u64,
    /// Whether the hashes agree: the same updates were offered and accounted for, not just equally many.
    pub numbers_agree: bool,
}

impl SensorBalance {
    /// Whether every update is in exactly one state.
    pub fn balances(&self) -> bool {
        self.offered == self.accounted() && self.numbers_agree
    }

    /// A lower bound of the number of updates that are in no state.
    pub fn lost(&self) -> u64 {
        let swapped = self.offered == self.accounted() && !self.numbers_agree;
        self.offered.saturating_sub(self.accounted()) + u64::from(swapped)
    }

    fn accounted(&self) -> u64 {
        self.installed + self.shed + self.superseded + self.pending + self.in_flight
    }
}

/// The result of checking the accounts of all sensors.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Reconciliation {
    /// The sensors whose account does not balance, in order of their numbers.
    pub unbalanced: Vec<SensorBalance>,
    /// A lower bound of the number of lost updates: the sum of [`SensorBalance::lost`].
    pub lost: u64,
}

impl Reconciliation {
    /// Whether every account balances: nothing lost, nothing counted twice.
    pub fn balances(&self) -> bool {
        self.unbalanced.is_empty()
    }
}

/// A set of updates of one sensor: its size and a hash, enough to compare it with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    count: u64,
    /// Sum of the hashes of the updates' numbers, modulo 2^64.
    numbers: u64,
}

impl Tally {
    fn add(&mut self, seq: Seq) {
        self.count += 1;
        self.numbers = self.numbers.wrapping_add(mix(seq.0));
    }

    /// Takes `seq` out; `false` if the set is empty.
    fn remove(&mut self, seq: Seq) -> bool {
        let any = self.count > 0;
        if any {
            self.count -= 1;
            self.numbers = self.numbers.wrapping_sub(mix(seq.0));
        }
        any
    }

    fn plus(self, other: Tally) -> Tally {
        Tally {
            count: self.count + other.count,
            numbers: self.numbers.wrapping_add(other.numbers),
        }
    }
}

/// The account of one sensor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SensorAccount {
    pub last: Seq,
    missing_at_source: u64,
    /// Sum of the hashes of the numbers offered, modulo 2^64.
    offered_numbers: u64,
    shed: Tally,
    superseded: Tally,
    in_flight: Tally,
    installed: Tally,
}

/// The accounts of all sensors, and their sums.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    accounts: Vec<SensorAccount>,
    counts: UpdateCounts,
}

impl Ledger {
    /// Empty accounts for sensors `0..sensors`.
    pub fn new(sensors: usize) -> Self {
        Ledger {
            accounts: vec![SensorAccount::default(); sensors],
            counts: UpdateCounts::default(),
        }
    }

    /// Adds an empty account for one more sensor.
    pub fn add_sensor(&mut self) {
        self.accounts.push(SensorAccount::default());
    }

    /// The last number that the sensor offered, 0 before the first.
    pub fn last(&self, sensor: SensorId) -> Seq {
        self.accounts[sensor.index()].last
    }

    /// Enters the arrival of an update, whose number must be above the sensor's last.
    pub fn offered(&mut self, sensor: SensorId, seq: Seq) {
        self.accounts[sensor.index()].offered(seq, &mut self.counts);
    }

    /// Enters what a sensor has offered and installed since `since` was last entered, in an account and counts of its
    /// own; empties that account, but for the last number.
    pub fn enter(&mut self, sensor: SensorId, since: &mut SensorAccount) {
        let SensorAccount { last, .. } = *since;
        let account = &mut self.accounts[sensor.index()];
        account.last = last;
        account.missing_at_source += since.missing_at_source;
        account.offered_numbers = account.offered_numbers.wrapping_add(since.offered_numbers);
        account.superseded = account.superseded.plus(since.superseded);
        account.installed = account.installed.plus(since.installed);
        *since = SensorAccount {
            last,
            ..SensorAccount::default()
        };
    }

    /// Adds to the sums over all sensors.
    pub fn add(&mut self, counts: &UpdateCounts) {
        self.counts.add(counts);
    }

    /// Enters that an update was admitted, out of turn if `for_minimum`.
    pub fn admitted(&mut self, for_minimum: bool) {
        self.counts.admitted += 1;
        self.counts.for_minimum += u64::from(for_minimum);
    }

    /// Enters that admission dropped an update.
    pub fn shed(&mut self, sensor: SensorId, seq: Seq) {
        self.accounts[sensor.index()].shed.add(seq);
        self.counts.shed += 1;
    }

    /// Enters that a newer update replaced this one in the queue.
    pub fn superseded(&mut self, sensor: SensorId, seq: Seq) {
        self.accounts[sensor.index()].superseded.add(seq);
        self.counts.superseded += 1;
    }

    /// Enters that an update left the queue to be installed.
    pub fn taken(&mut self, sensor: SensorId, seq: Seq) {
        self.accounts[sensor.index()].in_flight.add(seq);
        self.counts.in_flight += 1;
    }

    /// Enters that an update is in the store.
    pub fn installed(&mut self, sensor: SensorId, seq: Seq) {
        self.landed(sensor, seq);
        self.accounts[sensor.index()].installed.add(seq);
        self.counts.installed += 1;
    }

    /// Enters that an update left the queue, but a newer one was in the store first.
    pub fn overtaken(&mut self, sensor: SensorId, seq: Seq) {
        self.landed(sensor, seq);
        self.superseded(sensor, seq);
    }

    fn landed(&mut self, sensor: SensorId, seq: Seq) {
        // An update that is not in flight is being reported for a second time. Its outcome is entered anyway: the
        // account then holds more than was offered, which reconciling finds.
        if self.accounts[sensor.index()].in_flight.remove(seq) {
            self.counts.in_flight -= 1;
        }
    }

    /// The sums over all sensors; `pending` is the length of the queue. O(1).
    pub fn counts(&self, pending: usize) -> UpdateCounts {
        UpdateCounts {
            pending: pending as u64,
            ..self.counts
        }
    }

    /// Checks all accounts; `waiting` returns the number of a sensor's update in the queue. O(N).
    pub fn reconcile(&self, waiting: impl Fn(usize) -> Option<Seq>) -> Reconciliation {
        let balances = self.accounts.iter().enumerate();
        let unbalanced: Vec<SensorBalance> = balances
            .map(|(sensor, account)| account.balance(SensorId(sensor as u32), waiting(sensor)))
            .filter(|balance| !balance.balances())
            .collect();
        let lost = unbalanced.iter().map(SensorBalance::lost).sum();
        Reconciliation { unbalanced, lost }
    }
}

impl SensorAccount {
    /// Enters the arrival of an update, here and in `counts`.
    pub fn offered(&mut self, seq: Seq, counts: &mut UpdateCounts) {
        let gap = seq.0 - self.last.0 - 1;
        self.last = seq;
        self.missing_at_source += gap;
        self.offered_numbers = self.offered_numbers.wrapping_add(mix(seq.0));
        // The gaps of one sensor sum to less than its last number; those of all sensors could overflow if numbers are
        // senseless.
        counts.missing_at_source = counts.missing_at_source.saturating_add(gap);
        counts.offered += 1;
    }

    /// Enters that an update was admitted, and whether it is in the store or a newer one was there first; here and in
    /// `counts`.
    pub fn landed(&mut self, seq: Seq, installed: bool, counts: &mut UpdateCounts) {
        counts.admitted += 1;
        if installed {
            self.installed.add(seq);
            counts.installed += 1;
        } else {
            self.superseded.add(seq);
            counts.superseded += 1;
        }
    }

    fn balance(&self, sensor: SensorId, waiting: Option<Seq>) -> SensorBalance {
        let mut pending = Tally::default();
        waiting.into_iter().for_each(|seq| pending.add(seq));
        let states = [self.installed, self.shed, self.superseded, pending, self.in_flight];
        let accounted = states.into_iter().fold(Tally::default(), Tally::plus);
        // If nothing is in flight, the hashes of the updates taken and landed must cancel out.
        let landed_as_taken = self.in_flight.count > 0 || self.in_flight.numbers == 0;
        SensorBalance {
            sensor,
            offered: self.last.0 - self.missing_at_source,
            installed: self.installed.count,
            shed: self.shed.count,
            superseded: self.superseded.count,
            pending: pending.count,
            in_flight: self.in_flight.count,
            numbers_agree: accounted.numbers == self.offered_numbers && landed_as_taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENSOR: SensorId = SensorId(1);

    /// Two sensors; the second has offered 1, 2, 4 and 5: 1 installed, 2 shed, 4 superseded, 5 in flight.
    fn sound() -> Ledger {
        let mut ledger = Ledger::new(2);
        for seq in [1, 2, 4, 5].map(Seq) {
            ledger.offered(SENSOR, seq);
        }
        ledger.taken(SENSOR, Seq(1));
        ledger.installed(SENSOR, Seq(1));
        ledger.shed(SENSOR, Seq(2));
        ledger.superseded(SENSOR, Seq(4));
        ledger.taken(SENSOR, Seq(5));
        ledger
    }

    fn reconcile(ledger: &Ledger) -> Reconciliation {
        ledger.reconcile(|_| None)
    }

    #[test]
    fn a_gap_is_missing_at_source_and_not_lost() {
        let ledger = sound();
        assert!(reconcile(&ledger).balances());
        assert_eq!(ledger.counts(0).missing_at_source, 1);
        assert_eq!(ledger.counts(0).offered, 4);
    }

    #[test]
    fn a_planted_loss_is_found() {
        let mut ledger = sound();
        ledger.offered(SENSOR, Seq(6)); // goes nowhere
        let result = reconcile(&ledger);
        assert_eq!((result.lost, result.unbalanced[0].sensor), (1, SENSOR));
    }

    #[test]
    fn a_planted_double_count_is_found_and_is_no_loss() {
        for report in [Ledger::installed, Ledger::overtaken] {
            let mut ledger = sound();
            report(&mut ledger, SENSOR, Seq(5));
            assert!(reconcile(&ledger).balances());
            report(&mut ledger, SENSOR, Seq(5));
            let result = reconcile(&ledger);
            assert_eq!((result.lost, result.unbalanced.len()), (0, 1));
        }
    }

    #[test]
    fn a_loss_and_a_double_count_do_not_cancel() {
        let mut ledger = sound();
        ledger.offered(SENSOR, Seq(6)); // goes nowhere
        ledger.shed(SENSOR, Seq(2)); // for the second time
        let result = reconcile(&ledger);
        assert!(!result.unbalanced[0].numbers_agree);
        assert_eq!(result.lost, 1);
    }

    #[test]
    fn landing_another_update_than_the_one_in_flight_is_found() {
        let mut ledger = sound();
        ledger.installed(SENSOR, Seq(4)); // 5 was in flight
        assert!(!reconcile(&ledger).balances());
    }

    #[test]
    fn the_share_really_admitted_is_the_difference_of_counts() {
        let counts = |offered, admitted| UpdateCounts {
            offered,
            admitted,
            ..UpdateCounts::default()
        };
        let share = counts(30, 20).admitted_share_since(&counts(10, 5));
        assert_eq!(share, Share::of(15, 20));
        assert_eq!(
            UpdateCounts::default().admitted_share_since(&UpdateCounts::default()),
            Share::ONE
        );
    }
}
