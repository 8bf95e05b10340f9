//! A source and a peer with clocks of their own, and a network between them that loses, doubles and reorders. The world
//! knows the true time, so it knows how old a reading truly is.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const WORLDS: u64 = 400;
const STEPS: usize = 600;
const OBJECTS: u64 = 3;
const DRIFT_PPM: u32 = 500;
const HORIZON: Nanos = Nanos::from_secs(2);
const PEER_BOOT: u64 = 4;

/// How the peer takes a report: rightly, or with a planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// The age is taken without the way.
    NoWay,
    /// Half of the way is taken for it.
    HalfWay,
}

/// A clock that shows `offset` more than `rate` times the true time.
struct Clock {
    rate: f64,
    offset: i64,
}

impl Clock {
    fn random(choices: &mut ChaCha8Rng) -> Clock {
        let drift = f64::from(DRIFT_PPM) * 1e-6;
        Clock {
            rate: 1.0 + choices.random_range(-drift..=drift),
            offset: choices.random_range(1_000_000_000_000..9_000_000_000_000),
        }
    }

    fn shows(&self, truth: u64) -> Time {
        Time((truth as f64 * self.rate) as u64)
            .0
            .checked_add_signed(self.offset)
            .map_or(Time::ZERO, Time)
    }
}

/// Messages and when they arrive.
struct Link<M> {
    under_way: Vec<(u64, M)>,
}

impl<M: Clone> Link<M> {
    fn send(&mut self, truth: u64, message: M, choices: &mut ChaCha8Rng) {
        for _ in 0..[1, 1, 1, 0, 2][choices.random_range(0..5)] {
            let delay = choices.random_range(10_000..50_000_000);
            self.under_way.push((truth + delay, message.clone()));
        }
    }

    /// What has arrived by now, in an order of its own.
    fn arrived(&mut self, truth: u64) -> Vec<M> {
        let (arrived, rest) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(at, _)| *at <= truth);
        self.under_way = rest;
        let arrived: Vec<(u64, M)> = arrived;
        arrived.into_iter().map(|(_, message)| message).collect()
    }
}

struct World {
    choices: ChaCha8Rng,
    plant: Plant,
    truth: u64,
    source: Clock,
    peer: Clock,
    feed: Feed,
    inbox: Inbox,
    reports: Link<ReadingReport>,
    answers: Link<(Option<(ObjectName, Seq)>, Stamp)>,
    /// When each reading was truly sampled.
    sampled: BTreeMap<(ObjectName, Seq), u64>,
    last: [u64; OBJECTS as usize],
    /// The newest reading of each object at the peer: when sampled in truth, and by the peer's clock at the earliest.
    kept: BTreeMap<ObjectName, (u64, Option<Time>)>,
    judged: u64,
}

fn object(sequence: u64) -> ObjectName {
    ObjectName {
        source: 1,
        boot: 1,
        sequence,
    }
}

impl World {
    fn new(seed: u64, plant: Plant) -> World {
        let mut choices = ChaCha8Rng::seed_from_u64(seed);
        let (source, peer) = (Clock::random(&mut choices), Clock::random(&mut choices));
        let stamp = Stamp {
            boot: PEER_BOOT,
            at: peer.shows(0),
        };
        let bounds = FeedBounds {
            objects: OBJECTS as u32,
            value_bytes: 8,
            under_way: 2,
            resend_after: Nanos::from_millis(60),
        };
        World {
            choices,
            plant,
            truth: 1_000_000,
            source,
            peer,
            feed: Feed::new(bounds, stamp),
            inbox: Inbox::new(InboxBounds {
                objects: OBJECTS as usize,
                drift_ppm: DRIFT_PPM,
            }),
            reports: Link { under_way: Vec::new() },
            answers: Link { under_way: Vec::new() },
            sampled: BTreeMap::new(),
            last: [0; OBJECTS as usize],
            kept: BTreeMap::new(),
            judged: 0,
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            boot: PEER_BOOT,
            at: self.peer.shows(self.truth),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.truth += self.choices.random_range(1_000..10_000_000);
        match self.choices.random_range(0..12) {
            0..4 => self.offer(),
            4..6 => {
                let (truth, stamp) = (self.truth, self.stamp());
                self.answers.send(truth, (None, stamp), &mut self.choices);
            }
            6..11 => {
                if let Some(report) = self.feed.next(self.source.shows(self.truth)) {
                    let report = report.report();
                    self.reports.send(self.truth, report, &mut self.choices);
                }
            }
            _ => self.jump(),
        }
        for report in self.reports.arrived(self.truth) {
            self.receive(report)?;
        }
        for (acknowledged, stamp) in self.answers.arrived(self.truth) {
            self.feed.heard(stamp);
            if let Some((object, seq)) = acknowledged {
                self.feed.acknowledged(object, seq);
            }
        }
        self.ages_hold()?;
        self.nothing_vanishes()
    }

    /// A reading that was sampled a little while ago; its age is told by the source's clock, which drifts.
    fn offer(&mut self) {
        let sequence = self.choices.random_range(0..OBJECTS);
        let age = self.choices.random_range(0..1_000_000);
        let last = &mut self.last[sequence as usize];
        *last += self.choices.random_range(1..3); // some readings were shed before
        let (object, seq) = (object(sequence), Seq(*last));
        let shown = Nanos((age as f64 * self.source.rate) as u64);
        self.feed
            .offer(object, seq, shown, &seq.0.to_le_bytes())
            .expect("within all bounds");
        self.sampled.insert((object, seq), self.truth - age);
    }

    /// The source's clock jumps to and fro, the peer's only forward.
    fn jump(&mut self) {
        let by = self.choices.random_range(-500_000_000_000..500_000_000_000i64);
        self.source.offset = (self.source.offset + by).max(0);
        if self.choices.random_range(0..4) == 0 {
            self.peer.offset += self.choices.random_range(0..50_000_000);
        }
    }

    fn receive(&mut self, mut report: ReadingReport) -> Result<(), String> {
        let now = self.peer.shows(self.truth);
        let way = now.since(report.stamp.at);
        match self.plant {
            Plant::NoWay => report.stamp.at = now,
            Plant::HalfWay => report.stamp.at = Time(now.0 - way.0 / 2),
            Plant::None => {}
        }
        let received = self
            .inbox
            .receive(&report, PEER_BOOT, now)
            .map_err(|full| full.to_string())?;
        if let ReportOutcome::Newer { .. } = received {
            let age = age_at_most(&report, PEER_BOOT, now, DRIFT_PPM);
            let sampled = self.sampled[&(report.object, report.seq)];
            let earliest = sampled_at(age, now, HORIZON, DRIFT_PPM);
            self.kept.insert(report.object, (sampled, earliest));
        }
        let (truth, stamp) = (self.truth, self.stamp());
        self.answers
            .send(truth, (Some((report.object, report.seq)), stamp), &mut self.choices);
        Ok(())
    }

    /// No value at the peer is older than the peer's store takes it for, within the horizon.
    fn ages_hold(&mut self) -> Result<(), String> {
        let now = self.peer.shows(self.truth);
        for (object, (sampled, earliest)) in &self.kept {
            let Some(earliest) = earliest else { continue };
            let (truly, judged) = (self.truth - sampled, now.since(*earliest));
            if judged <= HORIZON && judged.0 < truly {
                return Err(format!("object {object} is {truly} ns old and judged as {judged}"));
            }
            self.judged += 1;
        }
        Ok(())
    }

    fn nothing_vanishes(&self) -> Result<(), String> {
        let counts = self.feed.counts();
        let offered = counts.installed + counts.superseded + counts.pending + counts.in_flight;
        if counts.offered != offered || counts.shed > 0 {
            return Err(format!("{counts:?}"));
        }
        if counts.in_flight > 2 {
            return Err(format!("{} are under way", counts.in_flight));
        }
        Ok(())
    }

    /// Lets a good network deliver what is left: then the peer has the newest reading of every object.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..50 {
            self.truth += 70_000_000;
            let arrived = self.reports.arrived(self.truth);
            for report in arrived {
                self.receive(report)?;
            }
            for (acknowledged, _) in self.answers.arrived(self.truth) {
                acknowledged
                    .into_iter()
                    .for_each(|(object, seq)| self.feed.acknowledged(object, seq));
            }
            while let Some(report) = self.feed.next(self.source.shows(self.truth)).map(|sent| sent.report()) {
                self.feed.acknowledged(report.object, report.seq);
                self.receive(report)?;
            }
        }
        let counts = self.feed.counts();
        if counts.pending + counts.in_flight > 0 {
            return Err(format!("left behind: {counts:?}"));
        }
        for (sequence, last) in (0..).zip(self.last) {
            let newest = self.inbox.newest.get(&object(sequence)).copied().unwrap_or_default();
            if newest != Seq(last) {
                return Err(format!("object {sequence}: the peer has {newest}, the source {last}"));
            }
        }
        self.nothing_vanishes()
    }
}

/// Runs the world of `seed`; how many ages were judged.
fn run(seed: u64, plant: Plant) -> Result<u64, String> {
    let mut world = World::new(seed, plant);
    for step in 0..STEPS {
        world
            .step()
            .map_err(|what| format!("seed {seed}, step {step}: {what}"))?;
    }
    world
        .settle()
        .map_err(|what| format!("seed {seed}, at the end: {what}"))?;
    Ok(world.judged)
}

#[test]
fn no_reading_is_older_than_it_is_taken_for_and_none_vanishes() {
    let judged: u64 = (0..WORLDS).map(|seed| run(seed, Plant::None).unwrap()).sum();
    assert!(judged > WORLDS * STEPS as u64 / 2, "only {judged} ages were judged");
}

#[test]
fn planted_faults_of_the_age_are_found() {
    for plant in [Plant::NoWay, Plant::HalfWay] {
        let found = (0..WORLDS).find(|seed| run(*seed, plant).is_err());
        assert!(found.is_some(), "{plant:?} was not found in {WORLDS} worlds");
    }
}

/// Drift alone is far below the looseness of the way: a world with a fast network shows it.
#[test]
fn drift_is_part_of_the_bound() {
    let report = ReadingReport {
        object: object(1),
        seq: Seq(1),
        age: Nanos::from_secs(100),
        stamp: Stamp { boot: 1, at: Time(5) },
        value: Vec::new(),
    };
    // The source's clock showed 100 s while 100.05 s passed.
    let age = |drift| age_at_most(&report, 1, Time(5), drift).unwrap();
    assert!(age(DRIFT_PPM) >= Nanos::from_millis(100_050));
    assert_eq!(age(0), Nanos::from_secs(100));
}

#[test]
fn what_cannot_be_told_is_unknown() {
    let report = |age, boot, at| ReadingReport {
        object: object(1),
        seq: Seq(1),
        age: Nanos(age),
        stamp: Stamp { boot, at: Time(at) },
        value: Vec::new(),
    };
    let age = |report: ReadingReport| age_at_most(&report, 2, Time(100), 0);
    assert_eq!(age(report(5, 2, 40)), Some(Nanos(65)));
    assert_eq!(age(report(5, 1, 40)), None, "a stamp of an earlier boot");
    assert_eq!(age(report(5, 2, 101)), None, "a stamp of a time that has not come");
    assert_eq!(age(report(u64::MAX, 2, 40)), None, "the source did not know");
    assert_eq!(
        age_at_most(&report(5, 2, 40), 2, Time(100), u32::MAX).map(|age| age >= Nanos(65)),
        Some(true)
    );
    assert_eq!(sampled_at(None, Time(100), HORIZON, 0), None);
    assert_eq!(
        sampled_at(Some(Nanos(101)), Time(100), HORIZON, 0),
        None,
        "before the clock's origin"
    );
    assert_eq!(sampled_at(Some(Nanos(60)), Time(100), HORIZON, 0), Some(Time(40)));
}

#[test]
fn a_source_that_restarts_begins_anew_and_bounds_hold() {
    let mut inbox = Inbox::new(InboxBounds {
        objects: 1,
        ..InboxBounds::default()
    });
    let report = |boot, sequence, seq| ReadingReport {
        object: ObjectName {
            source: 1,
            boot,
            sequence,
        },
        seq: Seq(seq),
        age: Nanos::ZERO,
        stamp: Stamp {
            boot: 1,
            at: Time::ZERO,
        },
        value: Vec::new(),
    };
    let mut receive = |report: ReadingReport| inbox.receive(&report, 1, Time(1));
    assert!(matches!(receive(report(1, 1, 9)), Ok(ReportOutcome::Newer { .. })));
    assert_eq!(receive(report(1, 1, 9)), Ok(ReportOutcome::Older));
    assert_eq!(receive(report(1, 2, 1)).unwrap_err().max, 1);
    assert!(
        matches!(receive(report(2, 1, 1)), Ok(ReportOutcome::Newer { .. })),
        "another boot has room"
    );
    assert_eq!(receive(report(1, 1, 10)), Ok(ReportOutcome::Older));

    let bounds = FeedBounds {
        objects: 1,
        value_bytes: 2,
        ..FeedBounds::default()
    };
    let stamp = Stamp { boot: 3, at: Time(7) };
    let mut feed = Feed::new(bounds, stamp);
    let made = report(1, 1, 1).object;
    assert!(matches!(
        feed.offer(made, Seq(1), Nanos::ZERO, b"abc"),
        Err(FeedError::TooLong { len: 3, max: 2, .. })
    ));
    feed.offer(made, Seq(1), Nanos::ZERO, b"ab").unwrap();
    assert!(matches!(
        feed.offer(made, Seq(1), Nanos::ZERO, b"ab"),
        Err(FeedError::NotNewer { last: Seq(1), .. })
    ));
    let other = report(1, 2, 1).object;
    assert!(matches!(
        feed.offer(other, Seq(1), Nanos::ZERO, b""),
        Err(FeedError::TooManyObjects { .. })
    ));
    assert_eq!(feed.heard(Stamp { boot: 3, at: Time(6) }), StampOutcome::Older);
    assert_eq!(feed.heard(Stamp { boot: 3, at: Time(8) }), StampOutcome::Noted);
    assert_eq!(feed.heard(Stamp { boot: 4, at: Time(0) }), StampOutcome::Restarted);
}

/// What each reading has come to, one by one: the feed as slowly as it is described.
#[derive(Default)]
struct ReferenceFeed {
    /// By object: number, and what it is.
    readings: BTreeMap<(u64, u64), State>,
    /// Objects whose newest reading waits, longest first.
    waiting: Vec<u64>,
    /// So many were sent.
    sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// Since then, as the so-manieth that was sent.
    UnderWay(Time, u64),
    Delivered,
    Superseded,
}

impl ReferenceFeed {
    fn newest(&self, object: u64) -> u64 {
        let of_object = self.readings.range((object, 0)..=(object, u64::MAX));
        of_object.last().map_or(0, |((_, seq), _)| *seq)
    }

    fn count(&self, wanted: impl Fn(State) -> bool) -> u64 {
        self.readings.values().filter(|state| wanted(**state)).count() as u64
    }

    fn offer(&mut self, object: u64, seq: u64) {
        let last = self.newest(object);
        match self.readings.get_mut(&(object, last)) {
            Some(state) if *state == State::Waits => *state = State::Superseded,
            _ => self.waiting.push(object),
        }
        self.readings.insert((object, seq), State::Waits);
    }

    /// The object and the number of what is to be sent.
    fn next(&mut self, now: Time, bounds: &FeedBounds) -> Option<(u64, u64)> {
        loop {
            let sent = |(name, state): (&(u64, u64), &State)| match state {
                State::UnderWay(at, order) if now.since(*at) >= bounds.resend_after => Some((*order, *name)),
                _ => None,
            };
            let Some((_, (object, seq))) = self.readings.iter().filter_map(sent).min() else {
                break;
            };
            let is_newest = self.newest(object) == seq;
            self.sent += 1;
            let state = if is_newest {
                State::UnderWay(now, self.sent)
            } else {
                State::Superseded
            };
            self.readings.insert((object, seq), state);
            if is_newest {
                return Some((object, seq));
            }
        }
        if self.count(|state| matches!(state, State::UnderWay(..))) >= bounds.under_way as u64
            || self.waiting.is_empty()
        {
            return None;
        }
        let object = self.waiting.remove(0);
        let seq = self.newest(object);
        for ((other, _), state) in &mut self.readings {
            if *other == object && matches!(state, State::UnderWay(..)) {
                *state = State::Superseded;
            }
        }
        self.sent += 1;
        self.readings.insert((object, seq), State::UnderWay(now, self.sent));
        Some((object, seq))
    }

    fn acknowledged(&mut self, object: u64, seq: u64) {
        if let Some(state @ State::UnderWay(..)) = self.readings.get_mut(&(object, seq)) {
            *state = State::Delivered;
        }
    }
}

/// Offers, sending and acknowledgements in any order, with numbers that may be of another reading.
#[test]
fn a_feed_sends_and_counts_as_it_is_described() {
    let bounds = FeedBounds {
        objects: 4,
        value_bytes: 8,
        under_way: 2,
        resend_after: Nanos(50),
    };
    for seed in 0..300 {
        let mut choices = ChaCha8Rng::seed_from_u64(seed);
        let stamp = Stamp { boot: 1, at: Time(1) };
        let (mut feed, mut described) = (Feed::new(bounds, stamp), ReferenceFeed::default());
        let (mut now, mut room) = (1000, Vec::new());
        for step in 0..200 {
            now += choices.random_range(1..20);
            let sequence = choices.random_range(0..4);
            let last = described.newest(sequence);
            match choices.random_range(0..4) {
                0 => {
                    let seq = last + choices.random_range(1..3);
                    feed.offer(object(sequence), Seq(seq), Nanos(seq), &seq.to_le_bytes())
                        .unwrap();
                    described.offer(sequence, seq);
                }
                1 => {
                    let seq = last.saturating_sub(choices.random_range(0..2));
                    feed.acknowledged(object(sequence), Seq(seq));
                    described.acknowledged(sequence, seq);
                }
                which => {
                    let max = if which == 2 { 1 } else { 3 };
                    let sent = feed.together(Time(now), max, &mut room);
                    let sent: Vec<_> = sent.iter().flat_map(Together::iter).map(|sent| sent.report()).collect();
                    let expected: Vec<_> = std::iter::from_fn(|| described.next(Time(now), &bounds))
                        .take(max)
                        .collect();
                    let found: Vec<_> = sent.iter().map(|sent| (sent.object.sequence, sent.seq.0)).collect();
                    assert_eq!(found, expected, "seed {seed}, step {step}");
                    let are_whole =
                        |sent: &ReadingReport| sent.value == sent.seq.0.to_le_bytes() && sent.age.0 == sent.seq.0;
                    assert!(sent.iter().all(are_whole), "seed {seed}, step {step}");
                }
            }
            let counts = feed.counts();
            let told = [
                counts.offered,
                counts.pending,
                counts.in_flight,
                counts.installed,
                counts.superseded,
            ];
            let is = |wanted| described.count(|state| state == wanted);
            let under_way = described.count(|state| matches!(state, State::UnderWay(..)));
            let (waits, delivered) = (is(State::Waits), is(State::Delivered));
            let expected = [
                described.count(|_| true),
                waits,
                under_way,
                delivered,
                is(State::Superseded),
            ];
            assert_eq!(told, expected, "seed {seed}, step {step}");
        }
    }
}
