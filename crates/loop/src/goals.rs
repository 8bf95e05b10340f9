//! A goal per task: the tardiness of each task's jobs in the window, and the task that is furthest from its goal.
//!
//! A law holds one number at one set point. The loop gives it the largest *pressure* over all tasks:
//!
//! ```text
//! pressure = mean tardiness of the task's jobs in the window * (nominal set point / the task's own set point)
//! ```
//!
//! A task at its own set point has the nominal pressure, one beyond it more. The law brings the largest pressure to the
//! nominal set point, so that no other task is over its own. With one task under a goal of mean tardiness the two set
//! points are the same number, the factor is exactly 1, and the loop is the paper's to the last bit.
//!
//! The task with the largest pressure *leads*. Tasks seldom finish jobs in the same window, so a task's last pressure
//! is kept until its next job, but the law is stepped only in windows in which the leading task has been measured anew:
//! otherwise a frequent task would multiply the error of a rare one. A task that was silent for long is forgotten.
//!
//! The own set point of a goal of mean tardiness is that mean; for a goal of late jobs, [`Tail`] estimates it from the
//! jobs so far.

use punctual_control::Tail;
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, TaskGoal};
use serde::{Deserialize, Serialize};

use crate::reach::{Reach, Unheld};

/// Tasks with a goal of their own at most; jobs of further ones count in the window, and lead nothing.
pub const TASKS_MAX: usize = 64;

/// Missing frames that one report counts at most: the estimate of a tail is at its bound long before.
const MISSING_MAX: u64 = 4096;

/// The id by which a stage is named beside tasks: they have lower ones.
pub(crate) fn stage_id(stage: usize) -> TaskId {
    TaskId((TASKS_MAX + stage) as u32)
}

/// Index of the stage that `id` names; `None` where it names a task.
pub fn stage_of(id: TaskId) -> Option<usize> {
    id.index().checked_sub(TASKS_MAX)
}

/// The jobs of one task in one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskWindow {
    pub task: TaskId,
    /// Jobs that finished in the window.
    pub jobs: u32,
    /// Jobs that were late: those that finished late, those whose deadline passed before they are complete (once each),
    /// and releases that were skipped because too many jobs waited.
    pub late: u32,
    /// Mean tardiness of the jobs that finished; `None` where none did.
    pub tardiness: Option<f64>,
    /// The largest tardiness among them, 0 for none.
    pub tardiness_max: f64,
    /// Mean data response ratio of the same jobs.
    pub drr: Option<f64>,
    /// The set point of mean tardiness in force for the task.
    pub set_point: f64,
}

/// The task that is furthest from its goal, measured in this window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    pub task: TaskId,
    /// Mean tardiness of its jobs, scaled so that its own set point is the nominal one: the law reads this as
    /// tardiness.
    pub pressure: f64,
    /// Mean data response ratio of its jobs, where some finished: the law reads this as such.
    pub drr: Option<f64>,
}

/// Least time until a stage's last pressure is forgotten: frames may be rarer than any job.
const STAGE_FORGOTTEN: Nanos = Nanos::from_secs(10);

/// All tasks with a goal.
#[derive(Clone, Debug)]
pub(crate) struct Goals {
    /// The set point that the law is given.
    nominal: f64,
    /// Goal of a task that `asked` does not name.
    default: TaskGoal,
    /// Goals by [`TaskId`]; `None`: best effort.
    asked: Vec<Option<TaskGoal>>,
    /// By [`TaskId`]; `None` for tasks without a deadline, and before their first job.
    tasks: Vec<Option<TaskState>>,
    /// By [`TaskId`], as many as `tasks`. No decision reads them: kept apart so that none drags them through the
    /// caches.
    reaches: Vec<Reach>,
    /// The last window, without tasks that had nothing in it.
    windows: Vec<TaskWindow>,
    /// Stages, in the order of the options. They lead no law, because no model knows their response to its knobs.
    stages: Vec<StageState>,
    /// The largest pressure of a stage that is late in the last window, or else of one that was measured not long ago;
    /// and whether it was measured in that window.
    stage_pressure: Option<(f64, bool)>,
    /// Pressure of the leading task, also if it was measured in an earlier window.
    task_pressure: Option<f64>,
    /// Number of tasks that have had a job.
    seen: usize,
    /// After how long a task's last pressure is forgotten.
    forget_after: Nanos,
}

/// State of a task that decisions read.
#[derive(Clone, Copy, Debug)]
struct TaskState {
    set_point: SetPoint,
    window: Sums,
    /// Jobs since [`Goals::take_lateness`] was last asked, and the sums of their lateness.
    recent: (u32, Lateness),
    /// Release of the latest job that was counted as late before its end; all earlier ones were counted as well.
    overdue: Option<Time>,
    last: Option<TaskMeasurement>,
}

/// State of a stage: its frames count as jobs do.
#[derive(Clone, Copy, Debug)]
struct StageState {
    frames: TaskState,
    /// Late frames that the stage had not taken by the last report; `None` before the first one.
    missing: Option<u64>,
    /// Frames that counted as late before the stage took them, and whose end was not reported yet.
    known: u64,
}

/// Last measurement of a task's jobs.
#[derive(Clone, Copy, Debug)]
struct TaskMeasurement {
    pressure: f64,
    drr: Option<f64>,
    at: Time,
}

/// Set point of a task's mean tardiness, and its source.
#[derive(Clone, Copy, Debug)]
enum SetPoint {
    Mean(f64),
    Late { asked: f64, tail: Tail },
}

/// Running sums over the jobs of the current window.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    tardiness: f64,
    tardiness_max: f64,
    drr: f64,
    jobs: u32,
    late: u32,
    /// Frames that a stage with a goal of late ones has not taken, each once: at their due time at least.
    missing: u32,
    /// Largest tardiness so far of a job that has not finished.
    running: Option<f64>,
}

impl SetPoint {
    fn of(goal: TaskGoal) -> SetPoint {
        let tail = |asked: f64| Tail::new(asked).map(|tail| SetPoint::Late { asked, tail });
        match goal {
            TaskGoal::Tardiness(mean) => SetPoint::Mean(mean),
            // A share outside of its range is refused before the loop begins; it is then served as the nominal mean.
            TaskGoal::Late(share) => tail(share.get()).unwrap_or(SetPoint::Mean(TaskGoal::NOMINAL)),
        }
    }

    fn get(&self) -> f64 {
        match self {
            SetPoint::Mean(mean) => *mean,
            SetPoint::Late { tail, .. } => tail.set_point(),
        }
    }

    fn lateness(&self, tardiness: f64) -> Lateness {
        let (in_time, late) = match self {
            SetPoint::Mean(mean) => (*mean, 1.4 * mean),
            SetPoint::Late { .. } => (0.8, 1.2),
        };
        let mean = ((tardiness - in_time) / (late - in_time)).clamp(0.0, 1.0);
        let late = match self {
            SetPoint::Mean(_) => mean,
            SetPoint::Late { .. } => f64::from(u8::from(tardiness > 1.0)),
        };
        Lateness { mean, late }
    }
}

/// How late jobs are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lateness {
    /// From 0 to 1: tells settings apart by far fewer jobs than the share of late ones, because a shift of all jobs
    /// towards their deadline shows as well. A mean allows jobs up to itself, so there counts what is beyond it.
    pub mean: f64,
    /// Share of late jobs; `mean` where the goal is one of a mean.
    pub late: f64,
}

impl Lateness {
    /// This sum and `weight` times another one.
    fn and(self, other: Lateness, weight: f64) -> Lateness {
        Lateness {
            mean: self.mean + weight * other.mean,
            late: self.late + weight * other.late,
        }
    }
}

impl TaskState {
    fn new(goal: TaskGoal) -> TaskState {
        TaskState {
            set_point: SetPoint::of(goal),
            window: Sums::default(),
            recent: (0, Lateness::default()),
            overdue: None,
            last: None,
        }
    }

    /// Counts a complete job; `counted`: as late, before its end.
    fn completed(&mut self, tardiness: f64, drr: f64, counted: bool, safe: bool) {
        let window = &mut self.window;
        window.jobs += 1;
        window.tardiness += tardiness;
        window.tardiness_max = window.tardiness_max.max(tardiness);
        window.drr += drr;
        window.late += u32::from(tardiness > 1.0 && !counted);
        if !counted || matches!(self.set_point, SetPoint::Mean(_)) {
            let (jobs, sums) = &mut self.recent;
            *jobs = jobs.saturating_add(1);
            *sums = sums.and(self.set_point.lateness(tardiness), 1.0);
        }
        if let SetPoint::Late { tail, .. } = &mut self.set_point {
            match counted {
                true => tail.measure(tardiness),
                false => tail.observe(tardiness, safe),
            }
        }
    }

    /// Takes note that a job which has not ended is at least so tardy.
    fn runs(&mut self, tardiness: f64) {
        self.window.running = self.window.running.into_iter().chain([tardiness]).reduce(f64::max);
    }

    /// Counts `jobs` late jobs that are not complete.
    fn missed(&mut self, jobs: u32, safe: bool) {
        self.window.late = self.window.late.saturating_add(jobs);
        // A mean of complete jobs is what the paper's law reads, and nothing else.
        if let SetPoint::Late { tail, .. } = &mut self.set_point {
            let all = Lateness { mean: 1.0, late: 1.0 };
            self.recent = (
                self.recent.0.saturating_add(jobs),
                self.recent.1.and(all, f64::from(jobs)),
            );
            (0..jobs).for_each(|_| tail.missed(safe));
        }
    }

    /// Closes the window; `None` where nothing was in it.
    fn close(&mut self, task: TaskId, nominal: f64, now: Time) -> Option<TaskWindow> {
        let Sums {
            jobs, late, running, ..
        } = self.window;
        if jobs == 0 && late == 0 && running.is_none() {
            return None;
        }
        let sums = std::mem::take(&mut self.window);
        let mean = |sum: f64| (jobs > 0).then(|| sum / f64::from(jobs));
        let set_point = self.set_point.get();
        let window = TaskWindow {
            task,
            jobs,
            late,
            tardiness: mean(sums.tardiness),
            tardiness_max: sums.tardiness_max,
            drr: mean(sums.drr),
            set_point,
        };
        // A job that has not finished says only how tardy it is at least.
        let all = jobs.saturating_add(sums.missing);
        let so_far = (all > 0).then(|| (sums.tardiness + f64::from(sums.missing)) / f64::from(all));
        let measured = match (so_far, running) {
            (Some(mean), Some(running)) => Some(mean.max(running)),
            (mean, running) => mean.or(running),
        };
        if let Some(tardiness) = measured {
            self.last = Some(TaskMeasurement {
                pressure: tardiness * (nominal / set_point),
                drr: window.drr,
                at: now,
            });
        }
        Some(window)
    }
}

impl Goals {
    /// Creates the goals of tasks that ask for `asked`, by [`TaskId`]; further tasks ask for `default`.
    pub(crate) fn new(
        asked: &[Option<TaskGoal>],
        default: TaskGoal,
        stages: &[TaskGoal],
        forget_after: Nanos,
    ) -> Goals {
        let first = asked.iter().flatten().next().copied().unwrap_or(default);
        // Room for all that a step ever needs, so that it allocates nothing.
        let mut by_task = Vec::with_capacity(TASKS_MAX.max(asked.len()));
        by_task.extend_from_slice(asked);
        Goals {
            nominal: first.nominal(),
            default,
            asked: by_task,
            tasks: Vec::with_capacity(TASKS_MAX),
            reaches: Vec::with_capacity(TASKS_MAX),
            windows: Vec::with_capacity(TASKS_MAX),
            stages: { stages.iter() }
                .map(|goal| StageState {
                    frames: TaskState::new(*goal),
                    missing: None,
                    known: 0,
                })
                .collect(),
            stage_pressure: None,
            task_pressure: None,
            seen: 0,
            forget_after,
        }
    }

    /// Adds a task with this goal; `None` if it has no deadline. A task that has had jobs begins anew with it. Tasks
    /// from [`TASKS_MAX`] on are ignored.
    pub(crate) fn added(&mut self, task: TaskId, goal: Option<TaskGoal>) {
        let index = task.index();
        if index >= TASKS_MAX {
            return;
        }
        let default = Some(self.default);
        self.asked.resize(self.asked.len().max(index + 1), default);
        self.asked[index] = goal;
        if let (Some(Some(state)), Some(goal)) = (self.tasks.get_mut(index), goal) {
            state.set_point = SetPoint::of(goal);
            self.reaches[index] = Reach::default();
        }
    }

    /// The set point that the law is given.
    pub(crate) fn nominal(&self) -> f64 {
        self.nominal
    }

    /// Whether a task asks for a share of late jobs: such a loop starts from the safe side.
    pub(crate) fn any_late(&self) -> bool {
        let late = |goal: &TaskGoal| goal.late().is_some();
        match self.asked.iter().flatten().next() {
            Some(_) => self.asked.iter().flatten().any(late),
            None => late(&self.default),
        }
    }

    /// The set point of mean tardiness in force for `task`.
    pub(crate) fn set_point(&self, task: TaskId) -> f64 {
        let known = self.tasks.get(task.index()).and_then(Option::as_ref);
        known.map_or_else(|| SetPoint::of(self.goal(task)).get(), |state| state.set_point.get())
    }

    /// Counts a complete job; `safe`: the safe setting was in force from its release to its end.
    pub(crate) fn completed(&mut self, job: &JobOutcome, safe: bool) {
        let Some(tardiness) = job.tardiness() else { return };
        let Some((state, reach)) = self.state(job.task) else {
            return;
        };
        state.completed(tardiness, job.drr(), state.overdue >= Some(job.released), safe);
        if let SetPoint::Late { asked, .. } = state.set_point {
            reach.observe(job, tardiness, safe, asked);
        }
    }

    /// Counts a frame that a stage has taken; `safe`: nothing is left to be done for it.
    pub(crate) fn frame(&mut self, stage: usize, tardiness: f64, safe: bool) {
        let Some(state) = self.stages.get_mut(stage) else {
            return;
        };
        // Frames are taken in their order: the first late ones are those that counted before.
        let counted = tardiness > 1.0 && state.known > 0;
        state.known -= u64::from(counted);
        state.frames.completed(tardiness, 0.0, counted, safe);
    }

    /// Counts the late frames that a stage has not taken, of which there are `frames` now, each once. The oldest of
    /// them under way is at `tardiness` so far.
    pub(crate) fn missing(&mut self, stage: usize, frames: u64, tardiness: f64, safe: bool) {
        let Some(state) = self.stages.get_mut(stage) else {
            return;
        };
        // The first report tells how many there were before: another loop has counted them.
        let before = state.missing.replace(frames).unwrap_or(frames);
        state.known = before.saturating_sub(frames);
        let new = frames.saturating_sub(before).min(MISSING_MAX) as u32;
        let state = &mut state.frames;
        state.missed(new, safe);
        if let SetPoint::Late { .. } = state.set_point {
            state.window.missing = state.window.missing.saturating_add(new);
        }
        if tardiness > 1.0 {
            state.runs(tardiness);
            // A stage that hangs is late all the time, also when no more frames can come.
            let lateness = state.set_point.lateness(tardiness);
            state.recent = (state.recent.0.saturating_add(1), state.recent.1.and(lateness, 1.0));
        }
    }

    /// Whether missing frames are reported: logs before version 10 had none.
    pub(crate) fn reports_missing(&self) -> bool {
        self.stages.iter().any(|stage| stage.missing.is_some())
    }

    /// The pressure of the stage that the knobs are turned for, in units of the nominal set point, and whether it was
    /// measured in the last window.
    pub(crate) fn stage_pressure(&self) -> Option<(f64, bool)> {
        self.stage_pressure
            .map(|(pressure, new)| (pressure / self.nominal, new))
    }

    /// Pressure of the leading task, in units of the nominal set point, also if it was measured in an earlier window.
    pub(crate) fn task_pressure(&self) -> Option<f64> {
        self.task_pressure.map(|pressure| pressure / self.nominal)
    }

    /// Counts a job that has not ended by its deadline, once for each job; they come in the order of their releases.
    pub(crate) fn overdue(&mut self, task: TaskId, released: Time, tardiness: f64, safe: bool) {
        let Some((state, _)) = self.state(task) else { return };
        if state.overdue >= Some(released) {
            return;
        }
        state.overdue = Some(released);
        state.missed(1, safe);
        if let SetPoint::Late { .. } = state.set_point {
            state.runs(tardiness);
        }
    }

    /// Counts releases of a task that were skipped because too many of its jobs waited.
    pub(crate) fn skipped(&mut self, task: TaskId, jobs: u32, safe: bool) {
        if let Some((state, _)) = self.state(task) {
            state.missed(jobs, safe);
        }
    }

    /// Closes the window of every task, and begins the next one. Returns the leading task, if it was measured in this
    /// window.
    pub(crate) fn close(&mut self, now: Time) -> Option<Lead> {
        self.windows.clear();
        let pressure = |stage: &mut StageState| {
            let StageState { frames: state, .. } = stage;
            stage.known = 0;
            state.close(TaskId(0), self.nominal, now);
            let known = state
                .last
                .filter(|last| now.since(last.at) < self.forget_after.max(STAGE_FORGOTTEN) || last.at == now)?;
            // A stage that is late now comes before one that was later: that one only keeps knobs from being eased.
            let late_now = stage.missing.is_some() && known.at == now && known.pressure > self.nominal;
            Some((late_now, known.pressure, known.at == now))
        };
        let pressures = self.stages.iter_mut().filter_map(pressure);
        let most = pressures.max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        self.stage_pressure = most.map(|(_, pressure, new)| (pressure, new));
        let mut lead: Option<(TaskId, TaskMeasurement)> = None;
        for (index, state) in self.tasks.iter_mut().enumerate() {
            let Some(state) = state else { continue };
            let task = TaskId(index as u32);
            self.windows.extend(state.close(task, self.nominal, now));
            let known = state
                .last
                .filter(|last| now.since(last.at) < self.forget_after || last.at == now);
            if let Some(last) = known
                && lead.is_none_or(|(_, most)| last.pressure.total_cmp(&most.pressure).is_gt())
            {
                lead = Some((task, last));
            }
        }
        self.task_pressure = lead.map(|(_, last)| last.pressure);
        let (task, TaskMeasurement { pressure, drr, at }) = lead?;
        (at == now).then_some(Lead { task, pressure, drr })
    }

    /// Mean lateness of each task's jobs since the last call, and of each stage's frames by its [`stage_id`]; `None`
    /// where one that had some not long ago has had none since.
    pub(crate) fn take_lateness(&mut self, now: Time) -> impl Iterator<Item = (TaskId, Option<Lateness>)> {
        let forget_after = self.forget_after;
        let tasks = self.tasks.iter_mut().zip(0..);
        let tasks = tasks.filter_map(move |(state, id)| Some((TaskId(id), state.as_mut()?, forget_after)));
        let stages = self.stages.iter_mut().enumerate();
        let stages = stages.filter(|(_, stage)| stage.missing.is_some());
        let stages = stages.map(move |(number, stage)| {
            let forget_after = forget_after.max(STAGE_FORGOTTEN);
            (stage_id(number), &mut stage.frames, forget_after)
        });
        tasks.chain(stages).filter_map(move |(task, state, forget_after)| {
            let (jobs, sums) = std::mem::take(&mut state.recent);
            let known = state.last.is_some_and(|last| now.since(last.at) < forget_after);
            let mean = (jobs > 0).then(|| Lateness::default().and(sums, 1.0 / f64::from(jobs)));
            (known || jobs > 0).then_some((task, mean))
        })
    }

    /// Whether at most one task has had a job so far.
    pub(crate) fn one_task(&self) -> bool {
        self.seen <= 1
    }

    /// The last window by task, without tasks that had nothing in it.
    pub(crate) fn windows(&self) -> &[TaskWindow] {
        &self.windows
    }

    /// The goals of late jobs that the safe setting did not hold.
    pub(crate) fn unheld(&self) -> impl Iterator<Item = Unheld> {
        let tasks = self.tasks.iter().zip(&self.reaches).enumerate();
        tasks.filter_map(|(index, (state, reach))| match state.as_ref()?.set_point {
            SetPoint::Late { asked, .. } => reach.unheld(TaskId(index as u32), asked),
            SetPoint::Mean(_) => None,
        })
    }

    fn goal(&self, task: TaskId) -> TaskGoal {
        self.asked.get(task.index()).copied().flatten().unwrap_or(self.default)
    }

    /// The state of a task, created at its first job; `None` for tasks from [`TASKS_MAX`] on, and for those without a
    /// deadline.
    fn state(&mut self, task: TaskId) -> Option<(&mut TaskState, &mut Reach)> {
        let index = task.index();
        let best_effort = matches!(self.asked.get(index), Some(None));
        if index >= TASKS_MAX || best_effort {
            return None;
        }
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
            self.reaches.resize_with(index + 1, Reach::default);
        }
        let goal = self.goal(task);
        let (state, reach) = (&mut self.tasks[index], &mut self.reaches[index]);
        self.seen += usize::from(state.is_none());
        Some((state.get_or_insert_with(|| TaskState::new(goal)), reach))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Frames that hang, come late or are dropped: whenever they are reported, each is late once.
        #[test]
        fn a_late_frame_counts_once(
            reports in prop::collection::vec((0u64..5, 0u64..5, 0u64..3), 1..40),
        ) {
            let goal = TaskGoal::Late(punctual_units::Share::clamped(0.01));
            let mut goals = Goals::new(&[], goal, &[goal], Nanos::from_secs(1));
            let (mut open, mut dropped, mut taken) = (0u64, 0, 0);
            goals.missing(0, 0, 0.0, false);
            for (overdue, come, lost) in reports {
                // Those that come, or are dropped, were under way.
                open += overdue;
                let (come, lost) = (come.min(open), lost.min(open - come.min(open)));
                (open, dropped, taken) = (open - come - lost, dropped + lost, taken + come);
                goals.missing(0, open + dropped, 1.5, false);
                (0..come).for_each(|_| goals.frame(0, 2.0, false));
                let counted = u64::from(goals.stages[0].frames.window.late);
                prop_assert_eq!(counted, open + dropped + taken);
            }
        }
    }

    fn two_stages() -> Goals {
        let goal = TaskGoal::Late(punctual_units::Share::clamped(0.01));
        Goals::new(&[], goal, &[goal, goal], Nanos::from_secs(1))
    }

    #[test]
    fn frames_that_came_by_a_report_excuse_no_later_ones() {
        let mut goals = two_stages();
        for frames in [0, 2, 0] {
            goals.missing(0, frames, 0.0, false);
        }
        goals.close(Time(1));
        goals.frame(0, 2.0, false);
        assert_eq!(goals.stages[0].frames.window.late, 1);
    }

    #[test]
    fn a_stage_that_is_late_now_comes_before_one_that_was_later() {
        let mut goals = two_stages();
        for stage in [0, 1] {
            goals.missing(stage, 0, 0.0, false);
        }
        for (at, frames, expected) in [
            (1, &[(0, 5.0)][..], (5.0, true)),
            (2, &[(1, 1.5)], (1.5, true)),
            (3, &[(1, 0.1)], (5.0, false)),
        ] {
            frames
                .iter()
                .for_each(|(stage, tardiness)| goals.frame(*stage, *tardiness, false));
            goals.close(Time(at));
            let (pressure, new) = goals.stage_pressure().unwrap();
            assert!(pressure >= expected.0 && new == expected.1, "{at}: {pressure} {new}");
        }
    }
}
