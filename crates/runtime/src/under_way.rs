//! Open jobs of a real-time task: released, and not known to have ended. Counts which of them are late, at any moment.
//!
//! **Problem.** A count of jobs that end late misses the job that hangs, the releases behind it, and the thread that
//! never runs. **Method.** Count releases. Each release is in exactly one state:
//!
//! | state of the release | counts as |
//! |---|---|
//! | its job ended in time | a job |
//! | its job ended after the deadline | a late job |
//! | its job failed | a failed job, and no other |
//! | skipped: it came while [`BACKLOG_MAX`] jobs waited behind another, or the task stood still | a late job |
//! | open, before its deadline | nothing yet |
//! | open, past its deadline: *overdue* | a late job |
//!
//! The first four states are counted when they are reported, and last. Overdue is no counter but a property of what is
//! open at the moment of the count, so a job that is overdue and ends late is one late job throughout. Where the thread
//! learns only later which releases to skip, a release without a place counts as skipped from its instant on.
//!
//! The simulated machine reports releases. On Linux they follow from the task's schedule, without its thread. Events
//! are known once the thread has seen them.

use std::collections::VecDeque;

use punctual_loop::{Event, JobRelease};
use punctual_units::{Nanos, TaskId, Time};
use rand::rngs::Xoshiro256PlusPlus;

use crate::schedule::NextRelease;

/// Greatest number of jobs that wait behind the running one. Further releases are skipped: a task that cannot keep up
/// loses jobs, but not ever more time. The simulated machine has the same bound.
pub const BACKLOG_MAX: usize = 8;

/// Places of open jobs on Linux: one under way, the others waiting.
const PLACES: usize = BACKLOG_MAX + 1;

/// All releases of a task on Linux.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The next release that is not known to have come.
    pub next: NextRelease,
    /// Source of the draws, in the state after those of `next`.
    pub rng: Xoshiro256PlusPlus,
}

/// Open jobs of one task, oldest first.
#[derive(Clone, Debug, Default)]
pub struct OpenJobs {
    deadline: Nanos,
    /// `None`: releases are reported.
    schedule: Option<Schedule>,
    /// Number and release of each.
    open: VecDeque<(u64, Time)>,
    /// Releases without a place that the thread has not reported as skipped.
    dropped: u64,
    /// Number of the first job that is not known to have ended, and when the one before it ended.
    next_job: u64,
    last_end: Time,
    /// Number of jobs that have begun, where the machine tells, and the release of the last.
    begun: Option<u64>,
    begun_release: Time,
    /// Instant of the count.
    now: Time,
    /// When the task was asked to end.
    stopped: Option<Time>,
    /// Release of the latest overdue job, and number of dropped releases, that the loop knows.
    told: (Option<Time>, u64),
    /// The latest release that the loop knows. Not by the job's number: a job that waits and is then skipped leaves its
    /// number to a later release.
    told_release: Option<Time>,
}

/// The late releases among the open ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Open jobs past their deadline.
    pub jobs: u64,
    /// Releases without a place.
    pub dropped: u64,
    /// The oldest open job: its release, and whether it has begun (`None`: unknown).
    pub oldest: Option<(Time, Option<bool>)>,
}

impl OpenJobs {
    /// None, of a task with this relative deadline.
    pub fn new(deadline: Nanos) -> OpenJobs {
        OpenJobs {
            deadline,
            open: VecDeque::with_capacity(PLACES),
            ..OpenJobs::default()
        }
    }

    /// Takes releases from `schedule`.
    pub fn follow(&mut self, schedule: Schedule) {
        self.schedule = Some(schedule);
        self.begun = Some(0);
    }

    /// Adds a reported release.
    pub fn released(&mut self, job: u64, at: Time) {
        self.open.push_back((job, at));
    }

    /// Records which job the thread began last, and its release. The job of a program that reports may vanish in a gap:
    /// the next has its number; until then its release is [`Time::MAX`].
    pub fn began(&mut self, job: u64, released: Time) {
        if self.begun.is_none_or(|begun| begun <= job + 1) {
            (self.begun, self.begun_release) = (Some(job + 1), released);
        }
        let is_new = job >= self.next_job && self.open.back().is_none_or(|(last, _)| *last <= job);
        if self.schedule.is_none() && is_new {
            // The job before has ended or vanished.
            self.open.clear();
            self.open.extend((released < Time::MAX).then_some((job, released)));
        }
    }

    /// Records that the first `jobs` jobs have begun, on a machine that reports releases.
    pub fn begun(&mut self, jobs: u64) {
        self.begun = Some(jobs);
    }

    /// Sets how many releases behind those that were reported are late now, of a task without a schedule.
    pub fn behind(&mut self, releases: u64) {
        if self.schedule.is_none() {
            self.dropped = releases;
        }
    }

    /// Counts at `now`, by which all earlier ends are known.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        let until = self.stopped.unwrap_or(self.now);
        let Some(Schedule { next, rng }) = &mut self.schedule else {
            return;
        };
        if next.follows_a_job() {
            if self.open.is_empty() && next.at <= until && next.is_active() {
                self.open.push_back((self.next_job, next.at));
            }
            return;
        }
        while self.open.len() < PLACES
            && let Some(release) = next.take(until, rng)
        {
            self.open.push_back((self.next_job + self.open.len() as u64, release));
        }
        self.dropped += next.skip_past(until, rng);
    }

    /// Releases no further jobs from `at` on; those that wait are abandoned.
    pub fn stop(&mut self, at: Time) {
        if self.stopped.is_none() {
            self.advance(at);
            self.stopped = Some(at);
        }
    }

    /// Removes the job released at `released`, because it has ended.
    pub fn ended(&mut self, job: u64, released: Time, finished: Time) {
        let had_come = self.schedule.as_ref().is_some_and(|it| released < it.next.at);
        self.advance(finished);
        let place = self.open.iter().position(|(_, at)| *at == released);
        match (place, &self.schedule) {
            // The ends of jobs before it were not reported, because the mailbox was full.
            (Some(place), Some(_)) => drop(self.open.drain(..=place)),
            // It came between the end of a job, which left it a place, and the report of that end.
            (None, Some(_)) if self.dropped > 0 => self.take_dropped(1),
            // The same, and the thread has skipped a later release since, whose place remains in its stead.
            (None, Some(_)) if had_come => {
                let gone = self.open.partition_point(|(_, at)| *at < released).max(1);
                self.open.drain(..gone.min(self.open.len()));
            }
            // The thread gave up drawing releases one by one: from now on they are known once it begins their jobs.
            (None, Some(_)) => {
                self.schedule = None;
                self.open.clear();
            }
            // The job may have set the instant of its event.
            (_, None) => self.open.retain(|(other, at)| *other != job && *at != released),
        }
        self.gone(job + 1, finished);
    }

    /// Removes the oldest job, because it has failed.
    pub fn failed(&mut self, at: Time) {
        self.advance(at);
        self.open.pop_front();
        self.gone(self.next_job + 1, at);
    }

    fn gone(&mut self, next_job: u64, finished: Time) {
        (self.next_job, self.last_end) = (next_job, finished);
        self.number();
        if let Some(Schedule { next, rng }) = &mut self.schedule
            && next.follows_a_job()
        {
            next.follow(finished, rng);
        }
    }

    /// Numbers the open jobs of a schedule from the next one on, as the thread will.
    fn number(&mut self) {
        if self.schedule.is_some() {
            let numbered = self.open.iter_mut().zip(self.next_job..);
            numbered.for_each(|(open, job)| open.0 = job);
        }
    }

    /// Removes releases that were reported as skipped by `at`; returns how many the loop did not know as late.
    pub fn skipped(&mut self, releases: u64, at: Time) -> u64 {
        if self.schedule.is_none() {
            return releases;
        }
        self.advance(at);
        let of_dropped = releases.min(self.dropped);
        let mut known = of_dropped.min(self.told.1);
        self.take_dropped(of_dropped);
        // After a standstill, those that had a place are skipped as well.
        for _ in of_dropped..releases {
            let Some((_, release)) = self.open.pop_front() else {
                break;
            };
            known += u64::from(self.told.0 >= Some(release));
        }
        self.number();
        releases - known
    }

    fn take_dropped(&mut self, releases: u64) {
        self.dropped = self.dropped.saturating_sub(releases);
        self.told.1 = self.told.1.saturating_sub(releases);
    }

    fn has_begun(&self, job: u64) -> Option<bool> {
        self.begun.map(|begun| job < begun)
    }

    fn is_overdue(&self, (job, released): (u64, Time)) -> bool {
        // What waits when the task is stopped never begins, by the caller's wish.
        let at = match self.has_begun(job) {
            Some(false) => self.stopped.unwrap_or(self.now),
            Some(true) | None => self.now,
        };
        at > released + self.deadline
    }

    /// The late releases among the open ones.
    pub fn overdue(&self) -> Overdue {
        let oldest = self.open.front();
        Overdue {
            jobs: self.open.iter().filter(|open| self.is_overdue(**open)).count() as u64,
            dropped: self.dropped,
            oldest: oldest.map(|(job, released)| (*released, self.has_begun(*job))),
        }
    }

    /// Whether the oldest open job waited for the end of the one before it.
    pub fn waits_behind(&self) -> bool {
        self.open.front().is_some_and(|(_, released)| *released < self.last_end)
    }

    /// Instant of the count.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Records that the loop learns of a release; returns whether it did not know of it.
    pub fn tell_release(&mut self, release: Time) -> bool {
        let is_new = self.told_release < Some(release);
        self.told_release = self.told_release.max(Some(release));
        is_new
    }

    /// The release, of which the loop does not know, of the job under way or of the oldest one that waits, where the
    /// machine tells; `pending` updates wait for their installation. The message by which a job reports its begin may
    /// lie behind others.
    pub fn untold_release(&self, task: TaskId, pending: u64) -> Option<JobRelease> {
        let under_way = (self.begun?.checked_sub(1)).map(|job| (job, self.begun_release));
        let under_way = under_way.filter(|(job, released)| *job >= self.next_job && *released < Time::MAX);
        let waits = |open: &(u64, Time)| self.has_begun(open.0) == Some(false);
        let waiting = self.open.iter().copied().find(waits);
        let is_new = |(_, release): &(u64, Time)| self.told_release < Some(*release);
        let (job, released) = under_way.into_iter().chain(waiting).find(is_new)?;
        Some(JobRelease {
            task,
            job,
            released,
            deadline: self.deadline,
            pending,
        })
    }

    /// The next late release, or several, of which the loop does not know.
    pub fn news(&mut self, task: TaskId) -> Option<Event> {
        let (told, dropped) = self.told;
        let unknown = |open: &&(u64, Time)| told < Some(open.1) && self.is_overdue(**open);
        if let Some((job, released)) = self.open.iter().find(unknown).copied() {
            self.told.0 = Some(released);
            return Some(Event::Overdue {
                task,
                job,
                released,
                deadline: self.deadline,
            });
        }
        // Without a schedule they are reported as skipped once a job comes.
        self.schedule.as_ref()?;
        self.told.1 = self.dropped;
        let jobs = u32::try_from(self.dropped - dropped).unwrap_or(u32::MAX);
        (jobs > 0).then_some(Event::Skipped { task, jobs })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_workload::{Active, Arrival};
    use rand::SeedableRng;

    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(10);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Nanos::from_millis(ms)
    }

    fn schedule(arrival: Arrival) -> Schedule {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let next = NextRelease::new(arrival, Active::ALWAYS, Time::ZERO, &mut rng);
        Schedule { next, rng }
    }

    fn every_period() -> OpenJobs {
        let mut open = OpenJobs::new(PERIOD);
        open.follow(schedule(Arrival::Periodic { period: PERIOD }));
        open
    }

    fn late(open: &OpenJobs) -> (u64, u64) {
        (open.overdue().jobs, open.overdue().dropped)
    }

    #[test]
    fn each_release_behind_a_job_that_hangs_is_late_once() {
        let mut open = every_period();
        open.advance(ms(5));
        assert_eq!(late(&open), (0, 0));
        open.began(0, ms(0));
        open.advance(ms(15));
        assert_eq!(late(&open), (1, 0), "10 ms is not overdue yet");
        assert_eq!(open.overdue().oldest, Some((ms(0), Some(true))));
        // Released by then: at 0, 10, .. 500 ms; those until 80 ms have places.
        open.advance(ms(505));
        assert_eq!(late(&open), (9, 42));
        // It ends: the job, and the releases that it left no place, are counted elsewhere now.
        open.ended(0, ms(0), ms(505));
        assert_eq!(late(&open), (8, 42));
        assert_eq!(open.skipped(42, ms(505)), 42);
        assert_eq!(late(&open), (8, 0));
        (1..=8).for_each(|job| open.ended(job, ms(10 * job), ms(506)));
        assert_eq!(late(&open), (0, 0));
    }

    #[test]
    fn a_thread_that_never_ran_leaves_its_releases_late() {
        let mut open = every_period();
        open.advance(ms(405));
        assert_eq!(late(&open), (9, 32));
        assert_eq!(open.overdue().oldest, Some((ms(0), Some(false))));
        // It runs at last, after a standstill: all are skipped.
        open.skipped(41, ms(405));
        assert_eq!(late(&open), (0, 0));
    }

    #[test]
    fn what_waits_when_a_task_is_stopped_becomes_no_later() {
        let mut open = every_period();
        open.began(0, ms(0));
        open.stop(ms(25));
        open.advance(ms(1_000));
        // The job under way, and the one released at 10 ms.
        assert_eq!(late(&open), (2, 0));
    }

    #[test]
    fn a_job_after_a_pause_is_released_by_the_end_of_the_one_before() {
        let pause = Nanos::from_millis(1);
        let mut open = OpenJobs::new(PERIOD);
        open.follow(schedule(Arrival::AfterCompletion {
            pause_min: pause,
            pause_max: pause,
        }));
        open.advance(ms(400));
        assert_eq!(late(&open), (1, 0));
        open.ended(0, ms(1), ms(400));
        open.advance(ms(405));
        assert_eq!(late(&open), (0, 0));
        open.advance(ms(412));
        assert_eq!(late(&open), (1, 0));
    }

    /// A job of another release than the schedule says: no release is made up from then on.
    #[test]
    fn a_schedule_that_the_thread_has_left_counts_nothing() {
        let mut open = every_period();
        open.ended(0, ms(3), ms(4));
        open.advance(ms(1_000));
        assert_eq!(late(&open), (0, 0));
        open.began(1, ms(990));
        open.advance(ms(1_001));
        assert_eq!(late(&open), (1, 0));
    }

    /// The release at 90 ms comes after the end of the first job and before the report of that end: the thread has a
    /// place for it and skips later ones.
    #[test]
    fn a_job_whose_release_had_no_place_keeps_the_schedule() {
        let mut open = every_period();
        open.advance(ms(95));
        open.ended(0, ms(0), ms(85));
        assert_eq!(late(&open), (8, 1));
        open.ended(1, ms(10), ms(115));
        assert_eq!(open.skipped(2, ms(115)), 2);
        (2..=8).for_each(|job| open.ended(job, ms(10 * job), ms(116)));
        open.ended(9, ms(90), ms(117));
        assert_eq!(late(&open), (0, 0));
        // Released behind a job that hangs: at 120, 130, .. 1,000 ms.
        open.advance(ms(1_005));
        assert_eq!(late(&open), (9, 80));
    }

    #[test]
    fn a_job_that_an_event_released_is_late_while_it_runs() {
        let mut open = OpenJobs::new(PERIOD);
        open.began(3, ms(100));
        open.advance(ms(111));
        assert_eq!(late(&open), (1, 0));
        open.ended(3, ms(99), ms(112));
        open.began(3, ms(100));
        assert_eq!(late(&open), (0, 0));
    }

    #[test]
    fn a_job_that_vanishes_in_a_gap_leaves_its_number_to_the_next() {
        let mut open = OpenJobs::new(PERIOD);
        open.began(3, ms(100));
        open.advance(ms(115));
        assert_eq!(late(&open), (1, 0));
        open.began(3, ms(106));
        assert_eq!(late(&open), (0, 0));
        open.advance(ms(117));
        assert_eq!(late(&open), (1, 0));
        open.began(3, Time::MAX);
        assert_eq!((late(&open), open.untold_release(TaskId(0), 0)), ((0, 0), None));
        open.began(3, ms(110));
        assert_eq!(open.untold_release(TaskId(0), 0).map(|it| it.released), Some(ms(110)));
        open.ended(3, ms(110), ms(118));
        open.began(4, Time::MAX);
        open.advance(ms(200));
        assert_eq!(late(&open), (0, 0));
    }

    /// The clock between jobs is not to fall before a job that waits.
    #[test]
    fn a_job_that_waits_is_reported_once() {
        let mut open = every_period();
        let waiting = |open: &mut OpenJobs| {
            let release = open.untold_release(TaskId(0), 0)?;
            assert!(open.tell_release(release.released));
            Some((release.job, release.released))
        };
        open.advance(ms(5));
        assert_eq!(waiting(&mut open), Some((0, ms(0))));
        open.began(0, ms(0));
        open.advance(ms(25));
        assert_eq!((waiting(&mut open), waiting(&mut open)), (Some((1, ms(10))), None));
        open.ended(0, ms(0), ms(25));
        open.began(1, ms(10));
        assert_eq!(waiting(&mut open), Some((2, ms(20))));
        open.ended(1, ms(10), ms(26));
        open.began(2, ms(20));
        open.ended(2, ms(20), ms(27));
        assert_eq!(waiting(&mut open), None);
    }

    /// Another task's job ends between a job's begin and the moment at which the loop takes the message about it.
    #[test]
    fn a_job_whose_begin_is_still_in_the_mailbox_is_reported_in_its_stead() {
        let mut open = every_period();
        open.advance(ms(5));
        assert!(open.tell_release(ms(0)));
        open.began(0, ms(0));
        assert_eq!(open.untold_release(TaskId(0), 0), None);
        // All until 5 ms is known: neither the end of the first job nor the release of the second.
        open.began(1, ms(10));
        let untold = open.untold_release(TaskId(0), 7).expect("it is under way");
        assert_eq!((untold.job, untold.released, untold.pending), (1, ms(10), 7));
        assert!(open.tell_release(ms(10)) && !open.tell_release(ms(10)));
        open.ended(0, ms(0), ms(9));
        assert_eq!(open.untold_release(TaskId(0), 0), None);
        open.ended(1, ms(10), ms(12));
        assert_eq!(open.untold_release(TaskId(0), 0), None);
    }

    /// A thread that ran late skips releases that had places: its next job has the number of the first of them.
    #[test]
    fn a_job_that_begins_after_skipped_releases_is_new_to_the_loop() {
        let mut open = every_period();
        open.advance(ms(25));
        assert!(open.tell_release(ms(0)));
        open.skipped(3, ms(25));
        open.advance(ms(35));
        let untold = open.untold_release(TaskId(0), 0).expect("it waits");
        assert_eq!((untold.job, untold.released), (0, ms(30)));
        open.began(0, ms(30));
        let untold = open.untold_release(TaskId(0), 0).expect("it is under way");
        assert_eq!((untold.job, untold.released), (0, ms(30)));
        assert!(open.tell_release(ms(30)));
        assert_eq!(open.untold_release(TaskId(0), 0), None);
    }

    /// The loop counts each late release once, however it becomes known.
    #[test]
    fn the_loop_hears_of_each_late_release_once() {
        let mut open = every_period();
        let told = |open: &mut OpenJobs| {
            let mut late = 0;
            while let Some(event) = open.news(TaskId(0)) {
                late += match event {
                    Event::Skipped { jobs, .. } => jobs,
                    _ => 1,
                };
            }
            late
        };
        open.advance(ms(305));
        assert_eq!((told(&mut open), told(&mut open)), (31, 0));
        open.ended(0, ms(0), ms(405));
        assert_eq!(open.skipped(32, ms(405)), 10);
        assert_eq!(told(&mut open), 0);
    }

    proptest! {
        /// Whenever it is counted, and however long jobs take, releases are ended, skipped, or open, and the open ones
        /// are late exactly if their deadline has passed.
        #[test]
        fn every_release_is_counted_once(
            deadline in 1u64..100,
            jobs in prop::collection::vec((0u64..300, 0u64..40), 1..60),
        ) {
            let period = Nanos(10);
            let arrival = Arrival::Periodic { period };
            let mut open = OpenJobs::new(Nanos(deadline));
            open.follow(schedule(arrival));
            let (mut now, mut release, mut waiting, mut skipped) = (Time(0), Time(0), 0, 0);
            for (number, (took, counted)) in (0..).zip(jobs) {
                let finished = now.max(release) + Nanos(took);
                // Counts come before the end is reported, if at all.
                open.advance(now + Nanos(counted.min(finished.since(now).0)));
                open.ended(number, release, finished);
                now = finished;
                // The thread: releases that have come wait, as far as there is room.
                let come = now.0 / 10 - release.0 / 10;
                waiting = come.min(BACKLOG_MAX as u64);
                let more = come - waiting;
                if more > 0 {
                    open.skipped(more, now);
                    skipped += more;
                }
                let due = (1..=waiting).filter(|n| now > release + period * *n + Nanos(deadline)).count() as u64;
                prop_assert_eq!(late(&open), (due, 0), "after job {} at {:?}", number, now);
                // Skipped releases lie behind those that wait.
                if more > 0 {
                    break;
                }
                release = release + period;
            }
            prop_assert!(skipped == 0 || waiting == BACKLOG_MAX as u64);
        }
    }
}
