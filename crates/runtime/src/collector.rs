//! Turns the steps of a run into its report: the same for both machines, in memory that does not grow with the run.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use punctual_loop::{Event, JobRelease, Step, Unheld, Window, stage_of};
use punctual_platform::{KnobId, Plan, Readings};
use punctual_store::updates::{Reconciliation, UpdateCounts};
use punctual_units::{Nanos, Share, TaskId, Time};
use punctual_workload::JobOutcome;

use crate::causes::{Evidence, SkippedWhile};
use crate::figures::{TaskFigures, TaskInfo, three_digits};
use crate::full_core::FullCore;
use crate::report::{
    ControllerCosts, EnergyParts, FilledCore, FinishedJob, LateJob, PlatformChoice, Protection, RunHeader, RunMark,
    RunReport, Sample, SettingReport, StartUp, Summary, TaskReport, UpdateTotals, UserRequest,
};
use crate::samples::{LASTING_SAMPLES_MAX, LEARNING_SAMPLES_MAX, SAMPLES_MAX, Samples, WhenFull};
use crate::settings::SettingRows;
use crate::under_way::Schedule;

/// Time that the loop has after warm-up to reach its goal before figures count.
pub const SETTLING: Nanos = Nanos::from_secs(5);

/// Greatest number of jobs kept individually: more than any experiment runs. Later jobs appear only in the figures of
/// their tasks.
pub const JOBS_MAX: usize = 100_000;

/// Greatest number of late jobs kept with their causes.
pub const LATE_JOBS_MAX: usize = 10_000;

/// Greatest number of late jobs of one window that are checked against the probe. Later ones of that window count as
/// not excused.
const LATE_IN_WINDOW_MAX: usize = 4096;

/// Greatest number of notes in a report.
const NOTES_MAX: usize = 100;

/// Greatest number of marks in a report: no user sets more by hand.
pub const MARKS_MAX: usize = 1000;

/// Upper bound on entries for protections: threads of other programs come and go.
const PROTECTIONS_MAX: usize = 1000;

/// Greatest number of notes on what shedding did: each has its own figures. The log has all.
const REVIEWS_MAX: u32 = 10;

/// Share of excused jobs above which a run is inconclusive.
pub const EXCUSED_MAX: f64 = 0.01;

/// Greatest recorded tardiness, in deadlines; the resolution is a millionth of a deadline.
const TARDINESS_MAX: f64 = 1e6;

/// Longest decision that the histogram distinguishes from longer ones.
const OWN_TIME_MAX: Nanos = Nanos::from_secs(100);

/// Time that a step took, on a machine whose decisions take time, and CPU time of our threads meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimes {
    /// Time of the decision.
    pub decision: Option<Nanos>,
    /// Time of setting the knobs.
    pub actuation: Option<Nanos>,
    /// CPU time of our own real-time threads on the probe's core since they started; `None` where the kernel does not
    /// throttle them.
    pub real_time: Option<Nanos>,
}

/// Facts that are known only at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Totals of sensor updates over all sensors.
    pub counts: UpdateCounts,
    /// Balance of sensor updates, sensor by sensor.
    pub reconciliation: Reconciliation,
    /// Energy since the start-up by parts of the machine, if metered.
    pub energy_parts_j: Option<EnergyParts>,
    /// CPU time of the control thread, as a share of one core.
    pub controller_core_share: Option<f64>,
    /// Oversleep of the probe in microseconds: median, p99, maximum.
    pub probe_us: Option<[f64; 3]>,
    /// Share of host time in which the hypervisor ran something else.
    pub steal_share: Option<f64>,
    /// Cores that real-time threads of other processes filled.
    pub filled_cores: Vec<FilledCore>,
}

/// Collects the report of a run, step by step.
#[derive(Debug)]
pub struct Collector {
    header: RunHeader,
    start: Time,
    plan: Plan,
    last: Option<Readings>,
    /// Indexed by task; `None` for tasks without a deadline.
    tasks: Vec<Option<TaskFigures>>,
    stages: Vec<String>,
    samples: Samples,
    finished: Vec<FinishedJob>,
    /// Late jobs after the start-up, with the index of their task.
    late_jobs: Vec<(usize, LateJob)>,
    /// Greatest length of `finished`.
    jobs_max: usize,
    span: Span,
    /// Jobs and late ones that samples have counted.
    sampled: [u64; 2],
    /// Late jobs since the last step, not yet checked against the probe.
    late: VecDeque<JobOutcome>,
    full_core: FullCore,
    /// Number of steps, and of those that ended a second in which our threads filled their core.
    steps: u64,
    full: u64,
    /// Number of notes on what shedding did.
    reviews: u32,
    /// Notes, and how often each was made.
    notes: Vec<(String, u64)>,
    /// Reason of the fallback at the last step.
    fallback: Option<String>,
    /// Plan at the start, and the knobs that the loop has turned away from it.
    first: Plan,
    settings: SettingRows,
    /// Number of notes beyond `NOTES_MAX`.
    notes_more: u64,
    /// Marks of a simulated run. On Linux the caller of the run keeps them, so that none after the last step is lost.
    marks: Vec<RunMark>,
}

impl Collector {
    /// Begins a run of `tasks`, numbered in this order, at `start` with `plan` in force.
    pub fn new(header: RunHeader, tasks: impl IntoIterator<Item = TaskInfo>, start: Time, plan: Plan) -> Collector {
        let settle_s = header.settle_s;
        let figures = |task| TaskFigures::new(task, settle_s);
        Collector {
            header,
            start,
            plan,
            last: None,
            tasks: tasks.into_iter().map(figures).collect(),
            stages: Vec::new(),
            samples: Samples::new(SAMPLES_MAX, WhenFull::Halve),
            finished: Vec::new(),
            late_jobs: Vec::new(),
            jobs_max: JOBS_MAX,
            span: Span::default(),
            sampled: [0; 2],
            late: VecDeque::new(),
            full_core: FullCore::default(),
            steps: 0,
            reviews: 0,
            full: 0,
            notes: Vec::new(),
            fallback: None,
            first: plan,
            settings: SettingRows::default(),
            notes_more: 0,
            marks: Vec::new(),
        }
    }

    /// Keeps each sample unmerged, because a model will be learnt from them.
    pub fn learning(mut self) -> Collector {
        self.samples = Samples::new(LEARNING_SAMPLES_MAX, WhenFull::Stop);
        self
    }

    /// Keeps few samples and no individual jobs: for a run without an end, whose figures are requested while it runs.
    pub fn lasting(mut self) -> Collector {
        self.samples = Samples::new(LASTING_SAMPLES_MAX, WhenFull::Halve).with_room();
        self.jobs_max = 0;
        self
    }

    /// Sets the readings at the start, from which the first window's busy times count.
    pub fn begin(&mut self, readings: Readings) {
        self.last = Some(readings);
    }

    /// Adds a finished job, with the evidence about it.
    pub fn job(&mut self, job: &JobOutcome, evidence: &Evidence) {
        let start = self.start;
        let settled = self.settled(job.finished);
        let Some(tardiness) = job.tardiness() else {
            self.span.best_effort_jobs += u64::from(settled);
            return;
        };
        let late = self
            .figures(job.task)
            .and_then(|task| task.job(job, evidence, settled, start));
        if let Some(late) = late.filter(|_| self.late_jobs.len() < self.jobs_max.min(LATE_JOBS_MAX)) {
            self.late_jobs.push((job.task.index(), late));
        }
        if self.finished.len() < self.jobs_max {
            self.finished.push(FinishedJob {
                task: job.task.index(),
                job: job.job,
                t_s: job.finished.since(self.start).as_secs_f64(),
                tardiness,
            });
        }
        if settled {
            self.span.job(job, tardiness);
            if job.overrun().is_some() && self.late.len() < LATE_IN_WINDOW_MAX {
                self.late.push_back(*job);
            }
        }
    }

    /// Counts a job of `task` that ended at `at` with an error.
    pub fn failed(&mut self, task: TaskId, at: Time) {
        let settled = self.settled(at);
        if let Some(task) = self.figures(task) {
            task.failed(at, settled);
        }
    }

    /// Counts `releases` of `task` that were skipped by `at`. Returns how many of
    /// them the loop did not know as late.
    pub fn skipped(&mut self, task: TaskId, releases: u64, at: Time, why: SkippedWhile) -> u64 {
        let settled = self.settled(at);
        let figures = self.figures(task);
        figures.map_or(releases, |task| task.skipped(releases, at, why, settled))
    }

    /// Adds a release of a job of `task`, on a machine that reports releases. Ignores best-effort jobs, because they
    /// have no deadline.
    pub fn released(&mut self, task: TaskId, job: u64, at: Time) {
        if let Some(task) = self.figures(task) {
            task.open().released(job, at);
        }
    }

    /// Records that the first `jobs` jobs of `task` have begun, on a machine that reports releases.
    pub fn begun(&mut self, task: TaskId, jobs: u64) {
        if let Some(task) = self.figures(task) {
            task.open().begun(jobs);
        }
    }

    /// Takes the releases of `task` from `schedule`.
    pub fn schedule(&mut self, task: TaskId, schedule: Schedule) {
        if let Some(task) = self.figures(task) {
            task.open().follow(schedule);
        }
    }

    /// Records which job the thread of `task` began last, its release, and how many releases that were not reported are
    /// late behind it.
    pub fn began(&mut self, task: TaskId, (job, released): (u64, Time), behind: u64) {
        if let Some(task) = self.figures(task) {
            task.open().began(job, released);
            task.open().behind(behind);
        }
    }

    /// Records that `task` was asked to end by `at`.
    pub fn stopping(&mut self, task: TaskId, at: Time) {
        if let Some(task) = self.figures(task) {
            task.open().stop(at);
        }
    }

    /// Counts releases whose deadline has passed by `now`, by which all earlier ends of jobs were added.
    pub fn count_open(&mut self, now: Time) {
        let settled = self.settled(now);
        let tasks = self.tasks.iter_mut().flatten();
        tasks.for_each(|task| task.count_open(now, settled));
    }

    /// The next late release, or several, of which the loop does not know.
    pub fn news(&mut self) -> Option<Event> {
        let tasks = self.tasks.iter_mut().zip(0..);
        let mut news = tasks.filter_map(|(task, id)| task.as_mut()?.open().news(TaskId(id)));
        news.next()
    }

    /// The next release of which the loop does not know ([`OpenJobs::untold_release`]).
    pub(crate) fn untold_release(&mut self, pending: u64) -> Option<JobRelease> {
        let tasks = self.tasks.iter_mut().zip(0..);
        let mut untold = tasks.filter_map(|(task, id)| task.as_mut()?.open().untold_release(TaskId(id), pending));
        untold.next()
    }

    /// Records that the loop learns of a release; returns whether it did not know of it.
    pub(crate) fn tell_release(&mut self, release: &JobRelease) -> bool {
        let task = self.figures(release.task);
        task.is_none_or(|task| task.open().tell_release(release.released))
    }

    /// Counts events of `task` that were `merged` with others, or `put_off`, by `at`.
    pub fn events(&mut self, task: TaskId, merged: u64, put_off: u64, at: Time) {
        let settled = self.settled(at);
        if let Some(task) = self.figures(task).filter(|_| settled) {
            task.events(merged, put_off);
        }
    }

    /// Adds a task during the run; `figures` is `None` for a task without a deadline.
    pub fn watch(&mut self, task: TaskId, figures: Option<TaskFigures>) {
        let tasks = self.tasks.len().max(task.index() + 1);
        self.tasks.resize_with(tasks, || None);
        self.tasks[task.index()] = figures;
    }

    /// Records that `task` has ended: keeps its figures and frees the memory for gathering them.
    pub fn ended(&mut self, task: TaskId) {
        let start = self.start;
        if let Some(task) = self.figures(task) {
            task.close(start);
        }
    }

    /// Names of the stages that the loop serves, for notes on them.
    pub fn stages(mut self, names: Vec<String>) -> Collector {
        self.stages = names;
        self
    }

    /// Name of a task whose figures are reported, or of a stage that the loop serves.
    pub fn name(&self, task: TaskId) -> Option<&str> {
        if let Some(stage) = stage_of(task) {
            return self.stages.get(stage).map(String::as_str);
        }
        self.tasks.get(task.index())?.as_ref().map(TaskFigures::name)
    }

    /// Records facts that only the thread of `task` knows; see [`TaskFigures::said`].
    pub fn said(&mut self, task: TaskId, first_failure: Option<String>, ended: Option<String>) {
        if let Some(task) = self.figures(task) {
            task.said(first_failure, ended);
        }
    }

    /// Counts a change of the clock within a job; `took` is the time since the checkpoint, on a machine where that
    /// takes time.
    pub fn paced(&mut self, at: Time, took: Option<Nanos>) {
        if self.settled(at) {
            self.span.paced += 1;
            self.span.pacing.extend(took);
        }
    }

    /// Adds protections obtained after the header was written.
    pub fn protected(&mut self, obtained: Vec<Protection>) {
        let room = PROTECTIONS_MAX.saturating_sub(self.header.protection.len());
        if obtained.len() > room {
            self.note(format!("protections beyond the first {PROTECTIONS_MAX} are not listed"));
        }
        self.header.protection.extend(obtained.into_iter().take(room));
    }

    /// Adds a note about a problem that was worked around; equal ones are counted.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if let Some((_, times)) = self.notes.iter_mut().find(|(other, _)| *other == note) {
            *times += 1;
        } else if self.notes.len() < NOTES_MAX {
            self.notes.push((note, 1));
        } else {
            self.notes_more += 1;
        }
    }

    /// Carries out a user's request at `now`; returns the event for the loop if a goal changes, which the report notes.
    pub fn requested(&mut self, request: UserRequest, now: Time) -> Option<Event> {
        let (name, goal) = match request {
            UserRequest::Goal(name, goal) => (name, goal),
            UserRequest::Mark(mark) => {
                self.marks.push(mark);
                self.marks.truncate(MARKS_MAX);
                return None;
            }
        };
        let named = |task: &Option<TaskFigures>| task.as_ref().is_some_and(|task| task.name() == name);
        let index = self.tasks.iter().rposition(named)?;
        let (before, at) = (self.tasks[index].as_mut()?.change_goal(goal)?, now.since(self.start));
        let changed = format!("goal of {name} changed at {at} from {before} to {goal}");
        self.note(changed + "; the verdict is by the new one");
        let (task, goal) = (TaskId(index as u32), Some(goal));
        Some(Event::Added { task, goal })
    }

    /// Goals in force, as events for a regulator that takes over.
    pub fn goals(&self) -> impl Iterator<Item = Event> {
        let goal = |(task, figures): (u32, &Option<TaskFigures>)| {
            let (task, goal) = (TaskId(task), Some(figures.as_ref()?.goal()));
            Some(Event::Added { task, goal })
        };
        (0..).zip(&self.tasks).filter_map(goal)
    }

    /// Notes a fallback that begins, or its new reason; figures in a reason change at every step.
    fn note_fallback(&mut self, reason: Option<&str>) {
        let kind = |reason: &str| {
            reason
                .split(|c: char| c.is_ascii_digit())
                .next()
                .unwrap_or("")
                .to_owned()
        };
        let now = reason.map(kind);
        if let Some(reason) = reason.filter(|_| now != self.fallback) {
            self.note(format!("fallback: {reason}"));
        }
        self.fallback = now;
    }

    /// Notes that the safe setting did not hold the goal of `unheld`, unless the run held it in all.
    pub fn unheld(&mut self, unheld: &Unheld) {
        let start = self.start;
        let Some(figures) = self.figures(unheld.task).map(|task| task.report(start)) else {
            return;
        };
        if figures.missed_share().is_some_and(|share| share > unheld.asked.get()) {
            self.note(unheld.told(&figures.name));
        }
    }

    /// Adds one step of the loop; the step's plan is in force from now on.
    ///
    /// `explained` says whether the probe saw the machine take the core from a late job for as long as the job was
    /// late.
    pub fn step(
        &mut self,
        step: &Step,
        readings: &Readings,
        took: StepTimes,
        explained: impl Fn(&JobOutcome) -> bool,
    ) -> Sample {
        let window = &step.window;
        let [jobs, misses] = self.counted_since();
        let micros = |span: Option<Nanos>| span.map(Nanos::as_micros_f64);
        let admitted = self.plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE);
        let sample = Sample {
            k: self.steps,
            t_s: readings.at.since(self.start).as_secs_f64(),
            tardiness: window.tardiness,
            drr: window.drr,
            admitted_share: window.admitted.unwrap_or(admitted.get()),
            admitted_knob: admitted.get(),
            fresh_share: window.fresh,
            stage_pressure: step.stage_pressure,
            best_effort_share: self.plan.share(KnobId::BestEffortShare).map(Share::get),
            clock_hz: self.clock_over(window, readings),
            energy_j: self.energy_since(readings),
            celsius: readings.celsius(),
            jobs,
            misses,
            ended: window.jobs,
            decision_us: micros(took.decision),
            actuation_us: micros(took.actuation),
            busy: self.busy_since(readings),
            mode: step.mode,
            fallback: step.fallback.clone(),
        };
        self.note_fallback(step.fallback.as_deref());
        if let Some(review) = step.shedding.filter(|_| self.reviews < REVIEWS_MAX) {
            self.reviews += 1;
            let note = review.told(self.name(review.task).unwrap_or_default());
            self.note(note);
        }
        if self.settled(readings.at) {
            self.span.sample(&sample, took.decision);
        }
        let full = took
            .real_time
            .is_some_and(|used| self.full_core.observe(readings.at, used));
        self.steps += 1;
        self.full += u64::from(full);
        self.judge_late(|job| !full && explained(job));
        if step.plan != self.plan {
            self.count_settings();
            let lead = step.lead.and_then(|lead| self.tasks.get(lead.task.index())?.as_ref());
            self.settings
                .turn(sample.t_s, step, [&self.first, &self.plan], lead.map(TaskFigures::name));
        }
        self.plan = step.plan;
        self.last = Some(readings.clone());
        self.samples.push(sample.clone());
        sample
    }

    /// Figures of each task so far.
    pub fn tasks(&self) -> Vec<TaskReport> {
        let tasks = self.tasks.iter().flatten();
        tasks.map(|task| task.report(self.start)).collect()
    }

    fn count_settings(&mut self) {
        let tasks = self.tasks.iter().flatten();
        let totals = |task: &TaskFigures| <[u64; 2]>::from(task.totals());
        self.settings.count(tasks.map(|task| (task.name(), totals(task))));
    }

    /// Settings of the loop so far, and all that was refused.
    pub fn settings(&mut self) -> Vec<SettingReport> {
        self.count_settings();
        let refused = self.header.protection.iter().filter(|it| it.refused.is_some());
        let refused = refused.map(|protection| SettingReport {
            what: protection.what.clone(),
            refused: protection.refused.clone(),
            ..SettingReport::default()
        });
        // Without sensors, the loop plans a share of updates all the time, and uses no knob for it.
        let knobs = &self.header.knobs;
        let used = |row: &SettingReport| knobs.iter().any(|it| it.used && it.knob.to_string() == row.what);
        let turned = self.settings.reports(usize::MAX).into_iter().filter(used);
        turned.chain(refused).collect()
    }

    /// Jobs and late ones since the last sample. A late job may turn out to have ended in time or failed, because its
    /// end was reported later: later samples then count fewer.
    fn counted_since(&mut self) -> [u32; 2] {
        let totals = self.tasks.iter().flatten().map(TaskFigures::totals);
        let (jobs, late) = totals.fold((0, 0), |sum, task| (sum.0 + task.0, sum.1 + task.1));
        let sampled = &mut self.sampled;
        [0, 1].map(|of| {
            let total = [jobs, late][of];
            let new = total.saturating_sub(sampled[of]);
            sampled[of] = sampled[of].max(total);
            u32::try_from(new).unwrap_or(u32::MAX)
        })
    }

    /// Ends the run and returns its report.
    pub fn finish(mut self, ending: Ending) -> RunReport {
        if let (Some(note), PlatformChoice::Linux) = (self.throttled(), self.header.platform) {
            self.note(note);
        }
        if self.notes_more > 0 {
            self.notes
                .push((format!("{} more notes were not kept", self.notes_more), 1));
        }
        let counted = |(note, times): (String, u64)| match times {
            1 => note,
            times => format!("{note} ({times} times)"),
        };
        let notes = std::mem::take(&mut self.notes).into_iter().map(counted).collect();
        let (tasks, settings) = (self.tasks(), self.settings());
        // Reports leave out tasks without a deadline.
        let row = |task: usize| self.tasks[..task].iter().flatten().count();
        self.finished.iter_mut().for_each(|job| job.task = row(job.task));
        self.late_jobs.iter_mut().for_each(|(task, _)| *task = row(*task));
        RunReport {
            summary: self.span.summary(&tasks, self.header.settle_s, ending, notes),
            header: self.header,
            tasks,
            lending: Vec::new(),
            settings,
            marks: self.marks,
            stages: Vec::new(),
            steps_per_sample: self.samples.steps_each(),
            samples: self.samples.into_vec(),
            jobs: self.finished,
            late_jobs: self.late_jobs,
        }
    }

    fn figures(&mut self, task: TaskId) -> Option<&mut TaskFigures> {
        self.tasks.get_mut(task.index())?.as_mut()
    }

    /// Excuses the late jobs since the last step that are `explained`. Call this at the end of a run; every step does
    /// it, too.
    pub fn judge_late(&mut self, explained: impl Fn(&JobOutcome) -> bool) {
        while let Some(job) = self.late.pop_front() {
            if explained(&job)
                && let Some(task) = self.figures(job.task)
            {
                task.excused();
            }
        }
    }

    fn throttled(&self) -> Option<String> {
        (self.full > 0).then(|| {
            format!(
                "this run's own real-time threads filled their core for over 94 % of a second, in {} of {} windows, \
                 where the kernel throttles them (at 95 % by default): ask for less, or raise \
                 /proc/sys/kernel/sched_rt_runtime_us",
                self.full, self.steps
            )
        })
    }

    fn busy_since(&self, readings: &Readings) -> Vec<f64> {
        let Some(now) = readings.busy() else {
            return Vec::new();
        };
        let Some(last) = &self.last else {
            return vec![0.0; now.len()];
        };
        let elapsed = readings.at.since(last.at);
        let before = last.busy();
        let share = |core: usize, busy: Nanos| {
            let before = before.and_then(|before| before.get(core)).copied().unwrap_or(busy);
            if elapsed == Nanos::ZERO {
                0.0
            } else {
                busy.saturating_sub(before).ratio(elapsed).min(1.0)
            }
        };
        now.iter().enumerate().map(|(core, busy)| share(core, *busy)).collect()
    }

    /// Clock in force, in hertz; if jobs are paced from within, the mean clock of the jobs.
    fn clock_over(&self, window: &Window, readings: &Readings) -> Option<u64> {
        let read = readings.clock()?.0;
        let top = self.header.load.top_clock;
        Some(window.clock.map_or(read, |share| top.scaled(share).0))
    }

    fn energy_since(&self, readings: &Readings) -> Option<f64> {
        let before = self.last.as_ref()?.energy_j()?;
        Some(readings.energy_j()? - before)
    }

    fn settled(&self, at: Time) -> bool {
        at.since(self.start).as_secs_f64() >= self.header.settle_s
    }
}

/// Figures of all tasks together, from the end of the start-up.
#[derive(Debug)]
struct Span {
    jobs: u64,
    tardiness_sum: f64,
    /// In millionths of a deadline.
    tardiness: Histogram<u64>,
    drr: Mean,
    fresh: Mean,
    fresh_min: Option<f64>,
    admitted: Mean,
    clock: Mean,
    energy_j: Option<f64>,
    celsius_max: Option<f64>,
    best_effort_jobs: u64,
    decisions: OwnTimes,
    /// Number of clock changes within jobs, and the time from checkpoint to change.
    paced: u64,
    pacing: OwnTimes,
}

impl Default for Span {
    /// Allocates all memory that it will ever use.
    fn default() -> Self {
        Span {
            jobs: 0,
            tardiness_sum: 0.0,
            tardiness: three_digits((TARDINESS_MAX * 1e6) as u64),
            drr: Mean::default(),
            fresh: Mean::default(),
            fresh_min: None,
            admitted: Mean::default(),
            clock: Mean::default(),
            energy_j: None,
            celsius_max: None,
            best_effort_jobs: 0,
            decisions: OwnTimes::default(),
            paced: 0,
            pacing: OwnTimes::default(),
        }
    }
}

impl Span {
    fn job(&mut self, job: &JobOutcome, tardiness: f64) {
        self.jobs += 1;
        self.tardiness_sum += tardiness;
        self.tardiness.saturating_record((tardiness * 1e6) as u64);
        self.drr.add(job.drr());
    }

    fn sample(&mut self, sample: &Sample, decision: Option<Nanos>) {
        self.fresh.add(sample.fresh_share);
        self.fresh_min = Some(
            self.fresh_min
                .map_or(sample.fresh_share, |least| least.min(sample.fresh_share)),
        );
        self.admitted.add(sample.admitted_share);
        if let Some(hz) = sample.clock_hz {
            self.clock.add(hz as f64);
        }
        if let Some(joules) = sample.energy_j {
            self.energy_j = Some(self.energy_j.unwrap_or(0.0) + joules);
        }
        self.celsius_max = sample.celsius.into_iter().chain(self.celsius_max).reduce(f64::max);
        self.decisions.extend(decision);
    }

    fn summary(self, tasks: &[TaskReport], start_up_s: f64, ending: Ending, notes: Vec<String>) -> Summary {
        let sum = |of: fn(&TaskReport) -> u64| tasks.iter().map(of).sum::<u64>();
        let (jobs, excused) = (sum(|task| task.jobs), sum(|task| task.excused));
        Summary {
            start_up: StartUp {
                seconds: start_up_s,
                jobs: sum(|task| task.start_up.jobs),
                late: sum(|task| task.start_up.late),
            },
            jobs,
            misses: sum(|task| task.late),
            failed: sum(|task| task.failed),
            overdue: sum(|task| task.overdue),
            excused,
            skipped: sum(|task| task.skipped),
            inconclusive: excused as f64 > EXCUSED_MAX * jobs as f64,
            tardiness_mean: (self.jobs > 0).then(|| self.tardiness_sum / self.jobs as f64),
            tardiness_p99: (self.jobs > 0).then(|| self.tardiness.value_at_quantile(0.99) as f64 * 1e-6),
            drr_mean: self.drr.value(),
            fresh_share_mean: self.fresh.value(),
            fresh_share_min: self.fresh_min,
            admitted_share_mean: self.admitted.value(),
            clock_hz_mean: self.clock.value(),
            updates: UpdateTotals {
                offered: ending.counts.offered,
                installed: ending.counts.installed,
                shed: ending.counts.shed,
                superseded: ending.counts.superseded,
                unfinished: ending.counts.pending + ending.counts.in_flight,
                lost: ending.reconciliation.lost,
                sensors_unreconciled: ending.reconciliation.unbalanced.len() as u64,
            },
            energy_j: self.energy_j,
            celsius_max: self.celsius_max,
            energy_parts_j: ending.energy_parts_j,
            best_effort_jobs: self.best_effort_jobs,
            controller: ControllerCosts {
                decision_us_median: self.decisions.median_us(),
                clock_changes_within_jobs: self.paced,
                pacing_us_median: self.pacing.median_us(),
                core_share: ending.controller_core_share,
            },
            probe_us: ending.probe_us,
            steal_share: ending.steal_share,
            filled_cores: ending.filled_cores,
            notes,
        }
    }
}

/// Mean of the values added so far.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Durations of the loop's own work.
#[derive(Debug)]
struct OwnTimes(Histogram<u64>);

impl Default for OwnTimes {
    fn default() -> Self {
        OwnTimes(three_digits(OWN_TIME_MAX.0))
    }
}

impl OwnTimes {
    fn extend(&mut self, times: impl IntoIterator<Item = Nanos>) {
        times.into_iter().for_each(|time| self.0.saturating_record(time.0));
    }

    fn median_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| Nanos(self.0.value_at_quantile(0.5)).as_micros_f64())
    }
}

#[cfg(test)]
mod tests {
    use punctual_loop::ModeName;
    use punctual_workload::{ControllerKind, Goal, TaskGoal};

    use super::*;
    use crate::report::LoadReport;

    fn collector() -> Collector {
        let header = RunHeader {
            scenario: "test".into(),
            platform: PlatformChoice::Sim,
            machine: "none".into(),
            seed: 1,
            controller: ControllerKind::Open,
            goal: Goal {
                tasks: TaskGoal::default(),
                drr: 0.5,
                min_fresh: Share::ZERO,
            },
            prices: None,
            knobs: Vec::new(),
            protection: Vec::new(),
            load: LoadReport::default(),
            settle_s: 0.0,
        };
        let task = TaskInfo {
            name: "steer".into(),
            deadline: Some(Nanos::from_millis(10)),
            goal: TaskGoal::Late(Share::clamped(0.5)),
        };
        Collector::new(header, [task], Time::ZERO, Plan::default())
    }

    #[test]
    fn protections_of_threads_that_come_and_go_are_bounded() {
        let mut collector = collector();
        let entry = |number: usize| Protection {
            what: format!("thread {number}"),
            refused: None,
            stays: Vec::new(),
        };
        (0..3 * PROTECTIONS_MAX).for_each(|number| collector.protected(vec![entry(number)]));
        assert_eq!(collector.header.protection.len(), PROTECTIONS_MAX);
        assert!(collector.notes.iter().any(|(note, _)| note.contains("not listed")));
    }

    #[test]
    fn requests_of_the_user_are_in_the_report_and_a_changed_goal_is_for_the_loop() {
        let mut collector = collector();
        let goal = TaskGoal::Late(Share::clamped(0.1));
        let mut ask = |request| collector.requested(request, Time(2_000_000_000));
        assert_eq!(ask(UserRequest::Goal("unknown".into(), goal)), None);
        let changed = ask(UserRequest::Goal("steer".into(), goal));
        let (task, goal) = (TaskId(0), Some(goal));
        assert_eq!(changed, Some(Event::Added { task, goal }));
        assert_eq!(collector.goals().next(), changed);
        let mut ask = |request| collector.requested(request, Time(2_000_000_000));
        let mark = |number: usize| RunMark {
            t_s: number as f64,
            text: "door".into(),
        };
        (0..2 * MARKS_MAX).for_each(|number| drop(ask(UserRequest::Mark(mark(number)))));
        collector.ended(TaskId(0));
        let other = TaskGoal::Late(Share::clamped(0.2));
        assert_eq!(
            collector.requested(UserRequest::Goal("steer".into(), other), Time(3)),
            None
        );
        let report = collector.finish(Ending::default());
        assert_eq!((report.marks.len(), &report.marks[1]), (MARKS_MAX, &mark(1)));
        assert_eq!(report.tasks[0].goal_late, Some(0.1));
        let note = "goal of steer changed at 2.00 s from late 50 % to late 10 %; the verdict is by the new one";
        assert_eq!(report.summary.notes[0], note);
    }

    fn unheld() -> Unheld {
        Unheld {
            task: TaskId(0),
            asked: Share::clamped(0.5),
            jobs: 4,
            late: 3,
            p99: Nanos::from_millis(20),
            deadline: Nanos::from_millis(10),
            later: None,
        }
    }

    #[test]
    fn equal_notes_are_counted() {
        let mut collector = collector();
        for reason in ["no job for 2.1 s", "no job for 2.2 s", "clock meter: lost"] {
            collector.note_fallback(Some(reason));
        }
        collector.note_fallback(None);
        collector.note_fallback(Some("no job for 2.1 s"));
        let notes = collector.finish(Ending::default()).summary.notes;
        assert_eq!(
            notes,
            ["fallback: no job for 2.1 s (2 times)", "fallback: clock meter: lost"]
        );
    }

    /// A goal that was held in all is not said to be out of reach beside it.
    #[test]
    fn a_goal_out_of_reach_is_noted_only_if_it_was_missed() {
        for (skipped, noted) in [(0, 0), (1, 1)] {
            let mut collector = collector();
            collector.skipped(TaskId(0), skipped, Time::ZERO, SkippedWhile::NotRun);
            collector.unheld(&unheld());
            assert_eq!(collector.finish(Ending::default()).summary.notes.len(), noted);
        }
    }

    /// The sum of the samples is the count of the report, whenever a release became late.
    #[test]
    fn samples_count_each_release_once() {
        let mut collector = collector();
        let step = Step {
            window: Window::default(),
            lead: None,
            stage_pressure: None,
            plan: Plan::default(),
            mode: ModeName::Running,
            fallback: None,
            shedding: None,
        };
        let sample = |collector: &mut Collector, ms| {
            let at = Time::ZERO + Nanos::from_millis(ms);
            collector.count_open(at);
            let readings = Readings { at, meters: Vec::new() };
            let sample = collector.step(&step, &readings, StepTimes::default(), |_| false);
            (sample.jobs, sample.misses)
        };
        collector.released(TaskId(0), 0, Time::ZERO);
        assert_eq!(sample(&mut collector, 5), (0, 0));
        assert_eq!(sample(&mut collector, 15), (1, 1));
        assert_eq!(
            collector.skipped(
                TaskId(0),
                2,
                Time::ZERO + Nanos::from_millis(16),
                SkippedWhile::UnderWay
            ),
            2
        );
        assert_eq!(sample(&mut collector, 20), (2, 2));
        let report = collector.finish(Ending::default());
        assert_eq!(
            (report.summary.jobs, report.summary.misses, report.summary.overdue),
            (3, 3, 1)
        );
    }
}
