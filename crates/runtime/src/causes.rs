//! Counts why the jobs of a task were late, in memory that does not grow with the run: every late job by its cause,
//! each cause by the threads to blame, and the worst jobs individually with the evidence.
//!
//! A job that waited behind the one before has the cause of that one, and so has a release that was skipped behind it:
//! of a row of dominoes, the report names the first and not the last.

use punctual_units::{Nanos, Time};
use punctual_workload::{Cause, CauseSpans, JobMeasurements, JobOutcome, Usual};

use crate::report::{CauseReport, Culprit, LateJob};

/// Greatest number of late jobs of a task that are kept individually: those that exceeded their deadline most.
pub const LATE_JOBS_MAX: usize = 8;

/// Greatest number of threads counted by name for each cause of a task. Beyond that, the one with the fewest jobs gives
/// its entry and its count to the newcomer (Space-Saving: Metwally et al., "Efficient Computation of Frequent and Top-k
/// Elements in Data Streams", ICDT 2005). So a thread with more than an eighth of the jobs is named, and no count is
/// too low; a count may be too high by at most the least count.
pub const NAMES_MAX: usize = 8;

/// Greatest number of threads named for one late job.
pub const CULPRITS_MAX: usize = 3;

/// Facts about a job beside its outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Numeric evidence, for example page faults.
    pub known: JobMeasurements,
    /// The thread that held the lock longest at a stretch during the wait.
    pub holder: Option<Culprit>,
    /// The threads that had the core while the job was ready, the longest first; none that ran because the kernel
    /// throttled real-time threads.
    pub preemptors: Vec<Culprit>,
    /// Real-time threads of other processes that filled the core during the run, so that the kernel throttled it.
    pub fillers: Vec<Culprit>,
    /// Time that the hypervisor took from the core since the previous check, in ticks of 10 ms; `None` if unknown.
    pub stolen: Option<Nanos>,
    /// Time that interrupts took from the core since then, likewise.
    pub interrupts: Option<Nanos>,
}

/// Why releases were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedWhile {
    /// They waited behind the job that ended last.
    Behind,
    /// They found no room behind the job that is under way.
    UnderWay,
    /// The thread had no core.
    NotRun,
    /// The process stood still.
    Stopped,
}

impl From<JobMeasurements> for Evidence {
    fn from(known: JobMeasurements) -> Evidence {
        Evidence {
            known,
            ..Evidence::default()
        }
    }
}

impl Evidence {
    /// The threads to blame for a job, if this is its cause.
    fn culprits(&self, cause: Cause) -> Vec<Culprit> {
        match cause {
            Cause::Lock => self.holder.iter().cloned().collect(),
            Cause::Throttled if !self.fillers.is_empty() => self.fillers.clone(),
            Cause::Preempted | Cause::Throttled => self.preemptors.iter().take(CULPRITS_MAX).cloned().collect(),
            _ => Vec::new(),
        }
    }
}

/// Counts the late jobs of one task by cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    usual: Usual,
    counts: [Count; Cause::COUNT],
    /// Why the job that ended last took longer than usual, or the one behind which it waited.
    last: Option<Blame>,
    /// Releases skipped behind the job under way, whose cause will be theirs.
    behind: u64,
    /// In ascending order of lateness.
    worst: Vec<LateJob>,
}

/// Why a job took longer than usual.
#[derive(Clone, Debug)]
struct Blame {
    cause: Cause,
    by: Option<Culprit>,
    /// Time beyond the usual, at least; without bound for a late job.
    excess: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Count {
    jobs: u64,
    /// Of these, jobs with a time of their own: not skipped releases.
    timed: u64,
    /// Of these, jobs and releases behind a job with the cause.
    behind: u64,
    us: f64,
    by: Vec<Culprit>,
}

impl Causes {
    /// Adds a job of a run that began at `start`; a late one counts only if `settled`, and is returned.
    pub(crate) fn job(&mut self, job: &JobOutcome, evidence: &Evidence, settled: bool, start: Time) -> Option<LateJob> {
        let spans = evidence.known.spans(&job.split);
        let deadline = job.deadline?;
        let cause = spans.cause(&self.usual, deadline);
        let over = job.overrun();
        let excess = spans.of(cause).saturating_sub(self.usual.of(cause).unwrap_or_default());
        // Behind a job that explains less than half of the wait, the queue is a cause of its own.
        let explains = |last: &Blame| last.excess >= Nanos(excess.0 / 2);
        let behind = cause == Cause::Queue && self.last.as_ref().is_some_and(explains);
        let culprit = |cause| evidence.culprits(cause).into_iter().next();
        match &mut self.last {
            // Of the first of the chain, no thread was known; the same cause may go on, if it takes a notable time.
            Some(last) if behind => {
                let is_notable = |by: &Culprit| by.us * 10.0 >= deadline.as_micros_f64();
                last.by = last.by.take().or_else(|| culprit(last.cause).filter(is_notable));
            }
            last => {
                *last = Some(Blame {
                    cause,
                    by: culprit(cause),
                    excess: over.map_or(excess, |_| Nanos::MAX),
                });
            }
        }
        self.settle_behind();
        let Some(over) = over else {
            self.usual.add(&spans);
            return None;
        };
        if !settled {
            return None;
        }
        let mut late = late_job(job, over, cause, &spans, evidence, start);
        late.usual_us = self.usual.of(cause).map(Nanos::as_micros_f64);
        if let Some(last) = self.last.as_ref().filter(|last| behind && last.cause != Cause::Queue) {
            (late.cause, late.behind) = (last.cause, true);
            let us = late.us;
            late.by = last.by.iter().map(|by| Culprit { us, ..by.clone() }).collect();
        }
        self.counts[late.cause as usize].take(&late);
        let at = self.worst.partition_point(|other| other.late_us <= late.late_us);
        self.worst.insert(at, late.clone());
        if self.worst.len() > LATE_JOBS_MAX {
            self.worst.remove(0);
        }
        Some(late)
    }

    /// Adds releases that were skipped.
    pub(crate) fn skipped(&mut self, releases: u64, why: SkippedWhile) {
        let own = match why {
            SkippedWhile::UnderWay => {
                self.behind += releases;
                return;
            }
            SkippedWhile::Behind => {
                self.behind += releases;
                return self.settle_behind();
            }
            SkippedWhile::NotRun => Cause::NotRun,
            SkippedWhile::Stopped => Cause::Stopped,
        };
        self.counts[own as usize].jobs += releases;
    }

    /// Gives the releases that were skipped behind the job that ended last the cause of that job.
    fn settle_behind(&mut self) {
        let releases = std::mem::take(&mut self.behind);
        if releases == 0 {
            return;
        }
        let late = self.last.clone().filter(|last| last.excess == Nanos::MAX);
        let (cause, by) = late.map_or((Cause::Skipped, None), |last| (last.cause, last.by));
        let count = &mut self.counts[cause as usize];
        count.jobs += releases;
        if cause != Cause::Skipped {
            count.behind += releases;
        }
        if let Some(by) = by {
            let (jobs, us) = (releases, 0.0);
            count.blame(&Culprit { jobs, us, ..by });
        }
    }

    /// The causes found, the most frequent first. `open` are the late releases whose jobs have not ended: their cause,
    /// their number, and the time since the oldest in microseconds.
    pub(crate) fn report(&self, open: Option<(Cause, u64, f64)>) -> Vec<CauseReport> {
        let mut counts = self.counts.clone();
        counts[Cause::Skipped as usize].jobs += self.behind;
        if let Some((cause, jobs, us)) = open {
            let count = &mut counts[cause as usize];
            count.jobs += jobs;
            count.timed += jobs;
            count.us += us * jobs as f64;
        }
        let late: u64 = counts.iter().map(|count| count.jobs).sum();
        let pairs = Cause::ALL.iter().zip(&counts);
        let of = |(cause, count): (&Cause, &Count)| CauseReport {
            cause: *cause,
            jobs: count.jobs,
            share: count.jobs as f64 / late.max(1) as f64,
            behind: count.behind,
            us_mean: count.us / count.timed.max(1) as f64,
            usual_us: self.usual.of(*cause).map(Nanos::as_micros_f64),
            by: count.by.clone(),
        };
        let mut causes: Vec<CauseReport> = pairs.map(of).filter(|it| it.jobs > 0).collect();
        causes.sort_by_key(|it| std::cmp::Reverse(it.jobs));
        causes
    }

    /// The jobs that exceeded their deadline most, the worst first.
    pub(crate) fn worst(&self) -> Vec<LateJob> {
        self.worst.iter().rev().cloned().collect()
    }
}

impl Count {
    fn take(&mut self, late: &LateJob) {
        self.jobs += 1;
        self.timed += 1;
        self.behind += u64::from(late.behind);
        self.us += late.us;
        if let Some(first) = late.by.first() {
            self.blame(&Culprit {
                jobs: 1,
                ..first.clone()
            });
        }
    }

    fn blame(&mut self, first: &Culprit) {
        // Short processes with the same name share one entry: each alone would seldom appear twice.
        let same = |other: &&mut Culprit| (&other.name, other.doing) == (&first.name, first.doing);
        if let Some(counted) = self.by.iter_mut().find(same) {
            *counted = Culprit {
                several: counted.several || counted.process != first.process,
                jobs: counted.jobs + first.jobs,
                others: counted.others,
                us: counted.us + first.us,
                ..first.clone()
            };
        } else {
            let gone = if self.by.len() == NAMES_MAX {
                self.by.pop()
            } else {
                None
            };
            let others = gone.map_or(0, |gone| gone.jobs);
            self.by.push(Culprit {
                jobs: others + first.jobs,
                others,
                ..first.clone()
            });
        }
        self.by.sort_by_key(|culprit| std::cmp::Reverse(culprit.jobs));
    }
}

fn late_job(
    job: &JobOutcome,
    over: Nanos,
    cause: Cause,
    spans: &CauseSpans,
    evidence: &Evidence,
    start: Time,
) -> LateJob {
    let known = &evidence.known;
    let told = |cause: &Cause| Some((*cause, spans.of(*cause).as_micros_f64())).filter(|(_, us)| *us > 0.0);
    LateJob {
        job: job.job,
        released_s: job.released.since(start).as_secs_f64(),
        late_us: over.as_micros_f64(),
        cause,
        behind: false,
        us: spans.of(cause).as_micros_f64(),
        usual_us: None,
        by: evidence.culprits(cause),
        spans_us: Cause::ALL.iter().filter_map(told).collect(),
        major_faults: known.major_faults,
        minor_faults: known.minor_faults,
        stolen_us: evidence.stolen.map(Nanos::as_micros_f64),
        interrupts_us: evidence.interrupts.map(Nanos::as_micros_f64),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_units::TaskId;
    use punctual_workload::Split;

    use super::*;

    fn job(number: u64, lock: u64) -> JobOutcome {
        let split = Split {
            lock: Nanos::from_micros(lock),
            computation: Nanos::from_micros(10),
            ..Split::default()
        };
        JobOutcome {
            task: TaskId(0),
            job: number,
            released: Time::ZERO + Nanos::from_millis(number),
            deadline: Some(Nanos::from_micros(20)),
            finished: Time::ZERO + Nanos::from_millis(number) + split.response(),
            split,
        }
    }

    fn held_by(name: &str, us: f64) -> Evidence {
        Evidence {
            holder: Some(Culprit {
                us,
                ..Culprit::named(name)
            }),
            ..Evidence::default()
        }
    }

    #[test]
    fn late_jobs_are_counted_by_cause_and_holder() {
        let mut causes = Causes::default();
        causes.job(&job(0, 0), &Evidence::default(), true, Time::ZERO);
        for number in 1..=3 {
            causes.job(&job(number, 20 + number), &held_by("logger", 15.0), true, Time::ZERO);
        }
        causes.job(&job(4, 100), &held_by("other", 90.0), true, Time::ZERO);
        causes.job(&job(5, 100), &held_by("other", 90.0), false, Time::ZERO);
        causes.skipped(6, SkippedWhile::NotRun);
        let report = causes.report(None);
        let counts: Vec<_> = report.iter().map(|it| (it.cause, it.jobs, it.share)).collect();
        assert_eq!(counts, [(Cause::NotRun, 6, 0.6), (Cause::Lock, 4, 0.4)]);
        assert_eq!(report[1].us_mean, (21.0 + 22.0 + 23.0 + 100.0) / 4.0);
        let by: Vec<_> = report[1].by.iter().map(|it| (&*it.name, it.jobs, it.us)).collect();
        assert_eq!(by, [("logger", 3, 45.0), ("other", 1, 90.0)]);
        let worst = causes.worst();
        assert_eq!(worst.iter().map(|it| it.job).collect::<Vec<_>>(), [4, 3, 2, 1]);
        assert_eq!((worst[0].late_us, worst[0].usual_us), (90.0, Some(0.0)));
        assert_eq!(worst[0].by[0].name, "other");
    }

    #[test]
    fn for_throttling_only_the_threads_that_filled_the_core_are_blamed() {
        let evidence = Evidence {
            preemptors: vec![Culprit::named("shell")],
            fillers: vec![Culprit::named("spinner")],
            ..Evidence::default()
        };
        assert_eq!(evidence.culprits(Cause::Throttled), evidence.fillers);
        assert_eq!(evidence.culprits(Cause::Preempted), evidence.preemptors);
        let unknown = Evidence {
            fillers: Vec::new(),
            ..evidence
        };
        assert_eq!(unknown.culprits(Cause::Throttled), unknown.preemptors);
    }

    /// A job that waited `behind` the one before, for microseconds.
    fn queued(number: u64, behind: u64) -> (JobOutcome, Evidence) {
        let split = Split {
            released_late: Nanos::from_micros(behind),
            computation: Nanos::from_micros(10),
            ..Split::default()
        };
        let known = JobMeasurements {
            behind: Nanos::from_micros(behind),
            ..JobMeasurements::default()
        };
        let finished = Time::ZERO + Nanos::from_millis(number) + split.response();
        let job = JobOutcome {
            finished,
            split,
            ..job(number, 0)
        };
        (job, known.into())
    }

    #[test]
    fn what_waits_behind_a_late_job_has_its_cause_and_culprit_along_the_chain() {
        let mut causes = Causes::default();
        causes.job(&job(0, 0), &Evidence::default(), true, Time::ZERO);
        // On a machine that reports skipped releases at once, and on one that does at the end of the job.
        causes.skipped(2, SkippedWhile::UnderWay);
        causes.job(&job(1, 90), &held_by("logger", 85.0), true, Time::ZERO);
        causes.skipped(3, SkippedWhile::Behind);
        for (number, behind) in [(2, 60), (3, 30)] {
            let (job, evidence) = queued(number, behind);
            causes.job(&job, &evidence, true, Time::ZERO);
        }
        let report = causes.report(None);
        let [lock] = &report[..] else { panic!("{report:#?}") };
        assert_eq!((lock.cause, lock.jobs, lock.behind), (Cause::Lock, 8, 7));
        assert_eq!((lock.by[0].name.as_str(), lock.by[0].jobs), ("logger", 8));
        assert_eq!(lock.us_mean, (90.0 + 60.0 + 30.0) / 3.0);
        assert!(causes.worst().iter().all(|late| late.cause == Cause::Lock));
    }

    #[test]
    fn a_thread_that_becomes_known_later_is_blamed_for_the_chain() {
        let mut causes = Causes::default();
        causes.job(&job(0, 0), &Evidence::default(), true, Time::ZERO);
        causes.job(&job(1, 90), &Evidence::default(), true, Time::ZERO);
        let (job, evidence) = queued(2, 60);
        for (name, us) in [("brief", 1.0), ("logger", 5.0)] {
            let (holder, evidence) = (held_by(name, us).holder, evidence.clone());
            causes.job(&job, &Evidence { holder, ..evidence }, true, Time::ZERO);
        }
        let report = causes.report(None);
        assert_eq!(
            (report[0].cause, report[0].jobs, &*report[0].by[0].name),
            (Cause::Lock, 3, "logger")
        );
    }

    #[test]
    fn behind_a_job_that_was_as_usual_the_queue_is_the_cause() {
        let mut causes = Causes::default();
        (0..2).for_each(|number| drop(causes.job(&job(number, 0), &Evidence::default(), true, Time::ZERO)));
        let (late, evidence) = queued(2, 60);
        causes.job(&late, &evidence, true, Time::ZERO);
        causes.skipped(4, SkippedWhile::Stopped);
        // In time, and a little longer than usual.
        causes.job(&job(4, 2), &Evidence::default(), true, Time::ZERO);
        causes.skipped(3, SkippedWhile::Behind);
        let report = causes.report(None);
        let counts: Vec<_> = report.iter().map(|it| (it.cause, it.jobs, it.behind)).collect();
        assert_eq!(
            counts,
            [(Cause::Stopped, 4, 0), (Cause::Skipped, 3, 0), (Cause::Queue, 1, 0)]
        );
    }

    #[test]
    fn short_processes_of_one_name_are_counted_together() {
        let mut causes = Causes::default();
        for number in 1..=400 {
            let mut evidence = held_by("cc1", 10.0);
            if let Some(holder) = &mut evidence.holder {
                (holder.thread, holder.process) = (Some(number), Some(number));
            }
            causes.job(&job(number as u64, 30), &evidence, true, Time::ZERO);
        }
        let report = causes.report(None);
        let [cc1] = &report[0].by[..] else { panic!("{report:?}") };
        assert_eq!((cc1.jobs, cc1.others, cc1.us, cc1.several), (400, 0, 4_000.0, true));
        assert_eq!(cc1.process, Some(400));
    }

    proptest! {
        /// However many jobs are late and by however many threads: each is counted, and no more is kept.
        #[test]
        fn what_is_kept_has_bounds(jobs in prop::collection::vec((1u64..1000, 0u8..40), 1..300)) {
            let mut causes = Causes::default();
            for (number, (lock, thread)) in jobs.iter().enumerate() {
                let holder = held_by(&format!("thread {thread}"), *lock as f64);
                causes.job(&job(number as u64, 20 + lock), &holder, true, Time::ZERO);
            }
            let report = causes.report(None);
            prop_assert_eq!(report.iter().map(|it| it.jobs).sum::<u64>(), jobs.len() as u64);
            prop_assert!(report.iter().all(|it| it.by.len() <= NAMES_MAX));
            let named: Vec<&Culprit> = report.iter().flat_map(|it| &it.by).collect();
            prop_assert_eq!(named.iter().map(|it| it.jobs).sum::<u64>(), jobs.len() as u64);
            for thread in 0..40 {
                let has = jobs.iter().filter(|(_, by)| *by == thread).count() as u64;
                let told = named.iter().find(|it| it.name == format!("thread {thread}")).map(|it| it.jobs);
                let surely = named.iter().find(|it| it.name == format!("thread {thread}")).map(|it| it.jobs - it.others);
                prop_assert!(surely.is_none_or(|surely| surely <= has), "{thread}");
                prop_assert!(told.map_or(has * NAMES_MAX as u64 <= jobs.len() as u64, |told| told >= has), "{thread}");
            }
            let mut worst: Vec<u64> = jobs.iter().map(|(lock, _)| lock + 10).collect();
            worst.sort_unstable_by(|a, b| b.cmp(a));
            worst.truncate(LATE_JOBS_MAX);
            let kept: Vec<u64> = causes.worst().iter().map(|it| it.late_us.round() as u64).collect();
            prop_assert_eq!(kept, worst);
        }
    }
}
