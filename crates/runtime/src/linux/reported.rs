//! Tasks whose jobs other programs report: takes the reports, and tells the control thread what became late.
//!
//! **Problem.** The program decides when its jobs begin and end; a report says so later, in a batch, and of a thread
//! that may end at any instant. **Method.** A thread looks into the rings of all reporters every [`LOOK_EVERY`]. A job
//! counts from its release: as its program states it; else, where the task has a period, a period after the release
//! before ([`StatedReleases`]); else from its begin. Releases that no job took are late, as is a job under way past its
//! deadline. A program that ends within a job leaves a failed one.
//!
//! **Causes.** The kernel's account of the thread says how long it was ready without a core since the last look. A late
//! job is given all of it, and each job on time an equal part; what is left of a job is its own computation, the waits
//! within it included.

use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use punctual_cores::PlacementRequest;
use punctual_jobs::{Arrival as News, Listener, ReportedJob, Reporter};
use punctual_os::LinuxOs;
use punctual_platform::Observation;
use punctual_platform::linux::run_queue::RunQueue;
use punctual_platform::linux::thread::{Tid, is_running, start_of};
use punctual_units::{Clock, CoreId, Nanos, TaskId, Time};
use punctual_workload::{Arrival, Class, JobMeasurements, JobOutcome, Split, TaskGoal};

use super::control::ControlMessage;
use super::known::JobFacts;
use super::observed::Observer;
use super::shared::{JobEvent, RunState, StopOnPanic, ThreadStart};
use super::tasks::TaskState;
use crate::causes::SkippedWhile;
use crate::figures::TaskInfo;

/// Interval between two looks into the rings.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// Interval between two checks whether the reporting threads still run.
const CHECK_EVERY: Nanos = Nanos::from_millis(250);

/// Threads whose reports are taken at a time: each has two descriptors and a page, an observed one
/// three and a ring of 33 pages.
pub const REPORTERS_MAX: usize = 256;

/// A task whose jobs other programs report.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedTask {
    /// Name by which its programs report it.
    pub name: String,
    /// Time from a job's release to its deadline, above 0.
    pub deadline: Nanos,
    /// Time between two releases; `None`: each job is released as its program states, or when it begins.
    pub period: Option<Nanos>,
    /// Goal of the task; `None`: the run's default.
    pub goal: Option<TaskGoal>,
    /// Class as which its threads are to run; `None`: they run as they are.
    pub class: Option<Class>,
    /// Core to run on; `None`: placement chooses one. Ignored without a class.
    pub core: Option<CoreId>,
    /// Longest time for which a job keeps its core, if the caller knows it.
    pub execution: Option<Nanos>,
    /// How the jobs are observed of programs that report none; `None`: its programs report it.
    pub observation: Option<Observation>,
}

impl ReportedTask {
    /// Placement of a thread that reports it, if it has a class.
    fn request(&self) -> Option<PlacementRequest> {
        let period = self.period.unwrap_or(self.deadline);
        Some(PlacementRequest {
            class: self.class?,
            arrival: Arrival::Periodic { period },
            execution: self.execution,
            core: self.core,
            cores: Some(1),
        })
    }

    /// Properties of the task that the report needs.
    pub(super) fn watched(&self, goal: TaskGoal) -> TaskInfo {
        TaskInfo {
            name: self.name.clone(),
            deadline: Some(self.deadline),
            goal: self.goal.unwrap_or(goal),
        }
    }
}

/// The releases of one reporter's jobs.
#[derive(Clone, Copy, Debug, Default)]
struct StatedReleases {
    period: Option<Nanos>,
    last: Option<Time>,
}

impl StatedReleases {
    /// Release of the next job, which begins at `begun`, and the number of releases before it that no job took.
    fn of(&self, stated: Option<Time>, begun: Time) -> (Time, u64) {
        let (Some(period), Some(last)) = (self.period.filter(|period| *period > Nanos::ZERO), self.last) else {
            return (stated.unwrap_or(begun), 0);
        };
        match stated {
            // To the nearest whole number of periods: a timer is not set to the nanosecond.
            Some(at) => (at, ((at.since(last).0 + period.0 / 2) / period.0).saturating_sub(1)),
            // The program's period began earlier than was known.
            None if begun < last + period => (begun, 0),
            None => {
                let skipped = begun.since(last + period).0 / period.0;
                (last + period * (skipped + 1), skipped)
            }
        }
    }

    /// Number of the `skipped` releases after the last one that came before `ended`.
    fn before(&self, ended: Time, skipped: u64) -> u64 {
        let (Some(first), Some(period)) = (self.next(), self.period) else {
            return 0;
        };
        ended.since(first).0.div_ceil(period.0.max(1)).min(skipped)
    }

    /// The next release, if it is known before its job begins.
    fn next(&self) -> Option<Time> {
        Some(self.last? + self.period?)
    }
}

/// A reporting thread of a task that has a class comes or, without a request, leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuestNotice {
    pub(super) task: TaskId,
    pub(super) thread: Tid,
    /// Process of the thread.
    pub(super) process: i32,
    /// Start time of the thread that has come, in ticks since boot: a later one may have its number.
    pub(super) started: Option<u64>,
    /// Placement of the thread.
    pub(super) request: Option<PlacementRequest>,
}

/// A thread that reports a task's jobs, and the kernel's account of it.
struct Tracker {
    reporter: Reporter,
    releases: StatedReleases,
    /// `None` if the kernel keeps no such statistics, or the thread is in another PID namespace.
    queue: Option<RunQueue>,
    /// Total time for which the thread had waited for its core at the last look.
    waited: Nanos,
    /// End of the previous job.
    ended: Time,
    /// Jobs, or records of them, that had found no room by the last look.
    dropped: u64,
}

/// A task, and the threads that report it.
struct TrackedTask {
    id: TaskId,
    task: ReportedTask,
    state: Arc<TaskState>,
    trackers: Vec<Tracker>,
    /// Begin of the job under way that a script has reported.
    script: Option<Time>,
    /// Number of jobs that have ended.
    jobs: u64,
    dropped: u64,
    misused: u64,
    /// Threads that ended or closed their reporter.
    gone: u64,
}

/// Takes the reports of all tasks.
pub(super) struct ReportReader {
    listener: Listener,
    observer: Observer,
    guests: Sender<GuestNotice>,
    /// Takes notes for the user while the run goes on.
    notes: SyncSender<ControlMessage>,
    tasks: Vec<TrackedTask>,
    /// Threads that were one too many.
    refused: u64,
    checked: Time,
}

impl ReportReader {
    /// `guests` takes threads that are to be seated, `notes` those that come again or have ended.
    pub(super) fn new(
        listener: Listener,
        guests: Sender<GuestNotice>,
        notes: SyncSender<ControlMessage>,
    ) -> ReportReader {
        ReportReader {
            listener,
            observer: Observer::default(),
            guests,
            notes,
            tasks: Vec::new(),
            refused: 0,
            checked: Time::ZERO,
        }
    }

    /// Adds a task with its number in the run, and its state.
    pub(super) fn add(&mut self, id: TaskId, task: ReportedTask, state: Arc<TaskState>) {
        self.tasks.push(TrackedTask {
            id,
            task,
            state,
            trackers: Vec::new(),
            script: None,
            jobs: 0,
            dropped: 0,
            misused: 0,
            gone: 0,
        });
    }

    /// Takes reports until the run ends; returns notes for the report.
    pub(super) fn run(mut self, shared: &RunState, thread: ThreadStart) -> Vec<String> {
        let _guard = StopOnPanic(shared);
        if thread.start().is_none() {
            return Vec::new();
        }
        while !shared.stopping() {
            self.look(shared);
            LinuxOs.sleep_until(LinuxOs.now() + LOOK_EVERY);
        }
        self.look(shared);
        self.notes()
    }

    fn look(&mut self, shared: &RunState) {
        let tasks = &self.tasks;
        let reports = |name: &str| {
            tasks
                .iter()
                .any(|it| it.task.name == name && it.task.observation.is_none())
        };
        let mut arrived = self.listener.arrivals(&reports);
        let now = LinuxOs.now();
        let observed = tasks.iter().filter_map(|it| {
            Some((
                it.task.name.as_str(),
                it.task.observation.as_ref()?,
                it.task.period.is_some(),
            ))
        });
        let taken: usize = tasks.iter().map(|it| it.trackers.len()).sum();
        let free = REPORTERS_MAX.saturating_sub(taken + arrived.len());
        let known = |name: &str, thread| tasks.iter().any(|it| it.task.name == name && it.has(thread));
        arrived.extend(
            self.observer
                .look(now, observed, &known, free)
                .into_iter()
                .map(News::Reporter),
        );
        arrived.into_iter().for_each(|arrival| self.arrived(shared, arrival));
        let checks = now.since(self.checked) >= CHECK_EVERY;
        self.checked = if checks { now } else { self.checked };
        for task in &mut self.tasks {
            let gone = task.gone;
            let left = task.look(shared, now, checks);
            if task.gone > gone {
                note(&self.notes, task.ended());
            }
            left.into_iter().for_each(|notice| tell(&self.guests, notice));
        }
    }

    fn arrived(&mut self, shared: &RunState, arrival: News) {
        let notes = self.notes.clone();
        let reporters: usize = self.tasks.iter().map(|task| task.trackers.len()).sum();
        match arrival {
            News::Reporter(reporter) => match self.task(&reporter.name) {
                Some(task) if reporters < REPORTERS_MAX => {
                    if task.gone > 0 && task.trackers.is_empty() {
                        note(
                            &notes,
                            format!("{}: process {} reports it now", reporter.name, reporter.process),
                        );
                    }
                    let notice = task.notice(&reporter, task.task.request());
                    task.trackers.push(Tracker::new(reporter, task.task.period));
                    notice.into_iter().for_each(|notice| tell(&self.guests, notice));
                }
                _ => self.refused += 1,
            },
            News::Note { name, begins, at, .. } => {
                if let Some(task) = self.task(&name) {
                    task.noted(shared, begins, at);
                }
            }
        }
    }

    fn task(&mut self, name: &str) -> Option<&mut TrackedTask> {
        self.tasks.iter_mut().find(|it| it.task.name == name)
    }

    /// Facts for the report that no job has.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.tasks.iter().flat_map(|it| it.notes(&self.observer)).collect();
        notes.extend(self.observer.notes());
        if self.refused > 0 {
            notes.push(format!(
                "{} threads more reported jobs than the {REPORTERS_MAX} whose reports are taken at a time",
                self.refused
            ));
        }
        if self.listener.refused() > 0 {
            notes.push(format!(
                "{} messages were no reports, of another version, or of another user's programs, and were refused",
                self.listener.refused()
            ));
        }
        if let Some(refusal) = self.listener.unrecorded() {
            notes.push(format!("a kill would have left programs reporting: {refusal}"));
        }
        notes
    }
}

impl TrackedTask {
    /// Whether a thread of a process does the task's jobs.
    fn has(&self, thread: (i32, Tid)) -> bool {
        let is_it = |it: &Tracker| it.reporter.thread.map(|tid| (it.reporter.process, tid)) == Some(thread);
        self.trackers.iter().any(is_it)
    }

    /// Notice about a thread, if the task has a class.
    fn notice(&self, reporter: &Reporter, request: Option<PlacementRequest>) -> Option<GuestNotice> {
        let thread = reporter.thread.filter(|_| self.task.class.is_some())?;
        Some(GuestNotice {
            task: self.id,
            thread,
            process: reporter.process,
            started: request.and_then(|_| start_of(reporter.process, thread)),
            request,
        })
    }

    /// Takes what the task's threads have reported since the last look; returns threads that have left.
    fn look(&mut self, shared: &RunState, now: Time, checks: bool) -> Vec<GuestNotice> {
        let (id, deadline) = (self.id, self.task.deadline);
        for tracker in &mut self.trackers {
            self.jobs += tracker.take(shared, (id, self.jobs), deadline);
        }
        let left = if checks { self.check(shared, now) } else { Vec::new() };
        let open: Vec<Time> = self.trackers.iter().filter_map(|it| it.open(now, deadline)).collect();
        let oldest = open.into_iter().chain(self.script).min();
        // Without one, a job that was open at the last look has vanished in a gap, or with its thread.
        self.state.begin(self.jobs, oldest.unwrap_or(Time::MAX));
        // A single job is known as open; all else that is late by now is behind it.
        let late = |tracker: &Tracker| tracker.late(now, deadline);
        let late = self.trackers.iter().map(late).sum::<u64>();
        self.state.late_behind(late.saturating_sub(1));
        left
    }

    /// Forgets threads that have ended; a job within which one ended has failed.
    fn check(&mut self, shared: &RunState, now: Time) -> Vec<GuestNotice> {
        let mut gone: Vec<Tracker> = self.trackers.extract_if(.., |it| it.has_left()).collect();
        for tracker in &mut gone {
            // Jobs that ended since the last look.
            self.jobs += tracker.take(shared, (self.id, self.jobs), self.task.deadline);
            let reporter = &tracker.reporter;
            // A program may close its reporter within a job, and an observed thread be renamed.
            if !reporter.source.is_closed() && reporter.source.open_job().is_some() {
                let (task, at) = (self.id, now);
                let behind = tracker.late(now, self.task.deadline).saturating_sub(1);
                skip(shared, task, behind, at, true);
                self.state
                    .fail(|| format!("process {} ended within the job", reporter.process));
                shared.report(JobEvent::Failed { task, at });
                self.jobs += 1;
            }
            self.gone += 1;
            self.dropped += reporter.source.dropped();
            self.misused += reporter.source.misused();
        }
        let left = gone.iter().filter_map(|tracker| self.notice(&tracker.reporter, None));
        left.collect()
    }

    /// Takes a script's word that a job begins or ends.
    fn noted(&mut self, shared: &RunState, begins: bool, at: Time) {
        match (begins, self.script.take()) {
            (true, None) => self.script = Some(at),
            (false, Some(begun)) => {
                let job = ReportedJob {
                    released: None,
                    begun,
                    ended: at.max(begun),
                };
                let outcome = outcome((self.id, self.jobs), (begun, job), self.task.deadline, Nanos::ZERO);
                shared.report(JobEvent::Outcome(outcome, JobFacts::default()));
                self.jobs += 1;
            }
            (true, open @ Some(_)) => {
                self.script = open;
                self.misused += 1;
            }
            (false, None) => self.misused += 1,
        }
    }

    fn notes(&self, observer: &Observer) -> Vec<String> {
        let name = &self.task.name;
        let sources = || self.trackers.iter().map(|it| &it.reporter.source);
        let dropped = self.dropped + sources().map(|it| it.dropped()).sum::<u64>();
        let misused = self.misused + sources().map(|it| it.misused()).sum::<u64>();
        let mut notes = Vec::new();
        let threads = self.trackers.len() as u64 + self.gone;
        if threads == 0 && self.jobs == 0 && self.script.is_none() {
            notes.push(match self.task.observation {
                Some(_) if !observer.may_observe() => format!("{name}: not observable"),
                Some(Observation { call: None, .. }) if observer.watches(name) => {
                    format!(
                        "{name}: threads match, but the call in which they wait was not found yet: name it by `observe`"
                    )
                }
                Some(_) => format!("{name}: not observable: no thread that matches has waited in the call"),
                None => format!("{name}: no program of this user has reported it"),
            });
        }
        if dropped > 0 {
            notes.push(format!(
                "{name}: {dropped} jobs, or the kernel's records of them, found no room in a ring, because they came faster than they were read; they are not counted"
            ));
        }
        if misused > 0 {
            notes.push(format!(
                "{name}: {misused} begins within a job, or ends without one, were ignored"
            ));
        }
        if self.gone > 0 {
            notes.push(self.ended());
        }
        notes
    }

    fn ended(&self) -> String {
        let threads = self.trackers.len() as u64 + self.gone;
        format!("{}: {} of {threads} reporting threads ended", self.task.name, self.gone)
    }
}

impl Tracker {
    fn new(reporter: Reporter, period: Option<Nanos>) -> Tracker {
        let queue = reporter
            .thread
            .and_then(|thread| RunQueue::of(reporter.process, thread));
        Tracker {
            releases: StatedReleases {
                period: period.or(reporter.period),
                last: None,
            },
            waited: queue.as_ref().and_then(RunQueue::waited).unwrap_or_default(),
            queue,
            reporter,
            ended: Time::ZERO,
            dropped: 0,
        }
    }

    /// Takes the jobs that have ended, the first of which is number `next` of task `id`; returns how many.
    fn take(&mut self, shared: &RunState, (id, next): (TaskId, u64), deadline: Nanos) -> u64 {
        let ended = self.reporter.source.jobs();
        // Jobs within a gap are not known, and not late.
        let dropped = self.reporter.source.dropped();
        let gap = std::mem::replace(&mut self.dropped, dropped) < dropped;
        self.releases.last = self.releases.last.filter(|_| !gap);
        let waited = if ended.is_empty() { None } else { self.waited() };
        for (number, job) in (next..).zip(&ended) {
            let at = job.begun;
            let (mut released, skipped) = self.releases.of(job.released, at);
            let stated = released;
            if self.ended == Time::ZERO {
                released = at; // what kept the thread from its first job is not known
            }
            let behind = self.releases.before(self.ended, skipped);
            skip(shared, id, behind, at, true);
            skip(shared, id, skipped - behind, at, false);
            let ready = waited.map(|waited| match job.ended.since(released) > deadline {
                true => waited,
                false => Nanos(waited.0 / ended.len() as u64),
            });
            let (outcome, facts) = self.outcome((id, number), (released, *job), deadline, ready);
            self.releases.last = Some(stated);
            shared.report(JobEvent::Outcome(outcome, facts));
        }
        self.releases.last = self.releases.last.filter(|_| !gap);
        ended.len() as u64
    }

    /// Whether the thread has closed its reporter or ended, as far as its process is visible from here.
    fn has_left(&self) -> bool {
        let reporter = &self.reporter;
        let ended = || reporter.thread_is_missing || !is_running(reporter.process, reporter.thread);
        let source = &reporter.source;
        source.is_closed() || source.has_ended() || reporter.process > 0 && ended()
    }

    /// Time for which the thread was ready without a core since the last call.
    fn waited(&mut self) -> Option<Nanos> {
        let waited = self.queue.as_ref()?.waited()?;
        Some(waited.saturating_sub(std::mem::replace(&mut self.waited, waited)))
    }

    /// Outcome of a job, and the facts about it; `ready` is the time without a core that is put down to it.
    fn outcome(
        &mut self,
        number: (TaskId, u64),
        (released, job): (Time, ReportedJob),
        deadline: Nanos,
        ready: Option<Nanos>,
    ) -> (JobOutcome, JobFacts) {
        let behind = std::mem::replace(&mut self.ended, job.ended).since(released);
        let late = job.begun.since(released);
        let before = late.saturating_sub(behind.min(late));
        let preempted = ready.unwrap_or_default().saturating_sub(before);
        let known = JobMeasurements {
            behind,
            ready,
            ..JobMeasurements::default()
        };
        let facts = JobFacts {
            known,
            thread: self.reporter.thread,
            ..JobFacts::default()
        };
        (outcome(number, (released, job), deadline, preempted), facts)
    }

    /// Number of releases that are late by now: of the job under way or the one that should be, and of those behind it.
    fn late(&self, now: Time, deadline: Nanos) -> u64 {
        let late_since = self.open(now, deadline).map(|released| released + deadline);
        late_since.filter(|due| now > *due).map_or(0, |due| {
            let period = self.releases.period.filter(|period| *period > Nanos::ZERO);
            1 + period.map_or(0, |period| now.since(due).0 / period.0)
        })
    }

    /// Release of the job under way, or of one that should be.
    fn open(&self, now: Time, deadline: Nanos) -> Option<Time> {
        match self.reporter.source.open_job() {
            Some((stated, begun)) => Some(self.releases.of(stated, begun).0),
            None => {
                let next = self.releases.next().filter(|next| now > *next + deadline);
                next.filter(|_| !self.has_left())
            }
        }
    }
}

/// A view that is too slow for it has the note at the end.
fn note(notes: &SyncSender<ControlMessage>, note: String) {
    let _ = notes.try_send(ControlMessage::Note(note));
}

fn tell(guests: &Sender<GuestNotice>, notice: GuestNotice) {
    // The keeper takes them until the run ends, and restores all threads then.
    let _ = guests.send(notice);
}

/// Outcome of a job that was `preempted` for some of its time.
fn outcome(
    (task, number): (TaskId, u64),
    (released, job): (Time, ReportedJob),
    deadline: Nanos,
    preempted: Nanos,
) -> JobOutcome {
    let took = job.ended.since(job.begun);
    let preempted = preempted.min(took);
    JobOutcome {
        task,
        job: number,
        released,
        deadline: Some(deadline),
        finished: job.ended,
        split: Split {
            released_late: job.begun.since(released),
            preempted,
            computation: took - preempted,
            ..Split::default()
        },
    }
}

/// Reports releases that no job took, because the thread was busy with an earlier one (`behind`) or did not run.
fn skip(shared: &RunState, task: TaskId, releases: u64, at: Time, behind: bool) {
    if releases > 0 {
        let why = if behind {
            SkippedWhile::Behind
        } else {
            SkippedWhile::NotRun
        };
        shared.report(JobEvent::Skipped {
            task,
            why,
            releases,
            at,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Nanos = Nanos(10);

    fn releases(last: u64) -> StatedReleases {
        StatedReleases {
            period: Some(PERIOD),
            last: Some(Time(last)),
        }
    }

    #[test]
    fn a_job_counts_from_its_period_and_skipped_releases_are_counted() {
        assert_eq!(StatedReleases::default().of(None, Time(7)), (Time(7), 0));
        assert_eq!(releases(100).of(None, Time(113)), (Time(110), 0));
        assert_eq!(
            releases(100).of(None, Time(108)),
            (Time(108), 0),
            "its phase was not known"
        );
        assert_eq!(releases(100).of(None, Time(135)), (Time(130), 2));
        assert_eq!(releases(100).of(Some(Time(111)), Time(135)), (Time(111), 0));
        assert_eq!(releases(100).of(Some(Time(129)), Time(135)), (Time(129), 2));
    }

    /// A job that ends between two releases skips the ones before its end, also when its thread then sleeps until the
    /// next.
    #[test]
    fn releases_during_a_job_are_behind_it_and_later_ones_are_not() {
        let ended = [100, 110, 111, 125, 1000].map(|ended| releases(100).before(Time(ended), 4));
        assert_eq!(ended, [0, 0, 1, 2, 4]);
    }

    proptest! {
        /// A program that keeps its period, however late its jobs begin, has each release counted once: begun or
        /// skipped.
        #[test]
        fn each_release_is_begun_or_skipped(late in prop::collection::vec(0u64..60, 1..50)) {
            let mut known = StatedReleases { period: Some(PERIOD), last: Some(Time(0)) };
            let (mut counted, mut next) = (0, 10);
            for late in late {
                let begun = next + late;
                let (released, skipped) = known.of(None, Time(begun));
                prop_assert!(released.0 <= begun && begun - released.0 < 10);
                counted += skipped + 1;
                known.last = Some(released);
                prop_assert_eq!(released.0, counted * 10);
                next = released.0 + 10;
            }
        }

        /// The parts of a job add up to its response time, whatever the kernel says about its thread.
        #[test]
        fn parts_add_up(times in prop::array::uniform3(0u64..1 << 40), preempted in 0u64..1 << 41) {
            let [released, late, took] = times;
            let begun = Time(released) + Nanos(late);
            let job = ReportedJob { released: None, begun, ended: begun + Nanos(took) };
            let outcome = outcome((TaskId(0), 0), (Time(released), job), Nanos(1), Nanos(preempted));
            prop_assert_eq!(outcome.split.response(), outcome.response());
        }
    }
}
