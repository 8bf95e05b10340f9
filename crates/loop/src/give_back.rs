//! Whether shedding updates helps: gives back the share whose shedding leaves as many jobs late.
//!
//! **Problem.** A law sheds updates while jobs are late. Where something else delays them (a program of higher
//! priority, a throttled core), the knob ends at its floor, data grow stale, and as many jobs are late as before.
//!
//! **Method.** An experiment on the running system, of few phases and bounded frequency:
//!
//! ```text
//!             late at the floor                    no later
//!   Watching ───────────────────► Trying (up to twice) ───────────► Given ◄──────────┐ no later than while shedding:
//!      ▲                            │                                 │               │ pause twice as long
//!      │ fewer late while shedding  │ later                           │ pause over    │
//!      ├────────────────────────────┘               or, once, later  ▼               │
//!      └───────────────────────────────────────────────────────── Retrying (shed) ────┘
//! ```
//!
//! What is compared is the *lateness* of jobs, from 0 (a fifth of the deadline is left) to 1 (a fifth beyond it), on
//! average over *spans* of [`SPAN`] at least, so that late jobs that come together count once, and updates at the share
//! that is tried have reached the store. A trial that only brings jobs near their deadlines shows before many are late.
//! Two means differ beyond chance where they lie more than [`BEYOND`] standard errors apart, by the pooled variance of
//! both; before many spans have shown it, the largest that numbers from 0 to 1 with this mean p can have, p (1 - p),
//! has its weight ([`PRIOR`]). A trial that makes jobs later ends as soon as that shows; one that does not ends after
//! [`ENOUGH`] spans. So what is missed is an effect too small to be seen in that time; the next retry looks again.
//!
//! Each task is compared with itself: a mean or a maximum over tasks hides a task that shedding helps behind one that
//! it does not help. Shedding helps if it helps one of them. The distance beyond chance grows with the number of tasks,
//! as more of them differ by chance; no trial ends before each task was measured in [`FEW`] spans.
//!
//! **Bounds.** The share doubles with each trial, until the data are fresh: n = 1/q readings from one admitted to the
//! next become half as many. It rises there in [`STEPS`] of [`STEP_SPANS`]: near the core's limit, twice the updates at
//! once make every job late before a trial can end. Pauses double from [`PAUSE_MIN`] to [`PAUSE_MAX`] spans. Jobs that
//! become later end one early: a load that comes to need shedding does not wait for minutes. If that retry finds
//! nothing, the pause after it is held, so that a disturbance that comes and goes costs two retries for each pause at
//! most. Where more than half of a task's jobs are late nothing is given back: lateness near its end tells no settings
//! apart. The constants are chosen by hand.

use punctual_units::{Nanos, Share, TaskId, Time};
use serde::{Deserialize, Serialize};

use crate::goals::{Lateness, TASKS_MAX};

/// Least length of a span.
const SPAN: Nanos = Nanos::from_millis(200);
/// Standard errors between two means that differ beyond chance: a trial looks at each of its spans.
const BEYOND: f64 = 2.2;
/// Spans that the largest possible variance counts for.
const PRIOR: f64 = 5.0;
/// Spans of a trial that shows no difference.
const ENOUGH: f64 = 25.0;
/// Spans in which each task is measured before two settings are compared: fewer show no difference, however large.
const FEW: f64 = 5.0;
/// Steps in which a trial doubles the share, and spans of each but the last.
const STEPS: f64 = 4.0;
const STEP_SPANS: u32 = 5;
/// Spans of shedding before what it does is in question.
const SHED_MIN: f64 = 15.0;
/// Sum of the lateness of spans before anything is in question, or beyond chance.
const LATE_MIN: f64 = 1.5;
/// Late jobs, in spans of nothing else, and their share, from which what shedding does is in question: a trial makes
/// some late, so it does not begin where shedding holds about what is asked for.
const MISSED_MIN: f64 = 2.0;
const MISSED_SHARE: f64 = 0.03;
/// Largest lateness that tells settings apart.
const LATE_MAX: f64 = 0.5;
/// Spans over which lateness is averaged.
const MEMORY: f64 = 100.0;
/// Spans after a change of the share that count for neither side: their jobs began before it.
const SETTLE: u32 = 2;
/// Fresh share from which nothing is left to give back.
const FRESH: f64 = 0.95;
/// Shares up to this factor above the floor count as at the floor.
const AT_FLOOR: f64 = 1.15;
/// Least share that is tried: twice nothing is nothing.
const TRIED_MIN: f64 = 0.1;
/// Spans away from the floor after which what was seen there is out of date.
const STALE: u32 = 10;
/// Spans after which a retry has found that the law does not shed.
const RETRY_MAX: u32 = 75;
/// Spans of the first pause, and of the longest.
const PAUSE_MIN: u32 = 150;
const PAUSE_MAX: u32 = 2400;

/// Result of one experiment with the admitted share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SheddingReview {
    /// Whether fewer jobs were late while updates were shed; else the share `tried` was given back.
    pub helped: bool,
    /// The share that was tried.
    pub tried: Share,
    /// The task, or stage ([`stage_of`](crate::stage_of)), that shedding helps most, or else the latest.
    pub task: TaskId,
    /// Lateness of its jobs while updates were shed.
    pub late_shed: f64,
    /// Lateness of its jobs with the share that was tried.
    pub late_tried: f64,
}

impl SheddingReview {
    /// Message to the user about the task or stage of this name.
    pub fn told(&self, name: &str) -> String {
        let what = match self.helped {
            true => "shedding updates helps",
            false => "shedding updates did not help: given back",
        };
        // Lateness 0 is 80 % of the deadline, 1 is 120 %.
        let [tried, shed] = [self.late_tried, self.late_shed].map(|lateness| 80.0 + 40.0 * lateness);
        format!(
            "{what}; \"{name}\" took about {tried:.0} % of its deadline with an admitted share of {}, {shed:.0} % with \
             the least (each job counted as 80 % to 120 %)",
            self.tried
        )
    }
}

/// Lateness of spans: their number, sum and sum of squares, with [`MEMORY`].
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    spans: f64,
    sum: f64,
    squares: f64,
    /// Sum of the shares of late jobs.
    missed: f64,
}

impl Evidence {
    fn add(&mut self, Lateness { mean, late }: Lateness) {
        let kept = (MEMORY - 1.0) / self.spans.max(MEMORY - 1.0);
        (self.spans, self.sum) = (self.spans * kept + 1.0, self.sum * kept + mean);
        self.squares = self.squares * kept + mean * mean;
        self.missed = self.missed * kept + late;
    }

    /// Whether enough jobs were late for a trial, which makes more of them late.
    fn is_late(&self) -> bool {
        self.sum >= LATE_MIN && self.missed >= MISSED_MIN && self.missed >= MISSED_SHARE * self.spans
    }

    fn mean(&self) -> f64 {
        self.sum / self.spans.max(1.0)
    }

    /// Whether jobs were later here than in `other`, beyond chance for the latest of `tasks`: that many times less
    /// likely, by the tail exp(-z^2 / 2) of the normal distribution.
    fn is_later_than(&self, other: &Evidence, tasks: usize) -> bool {
        let spans = (self.spans + other.spans).max(1.0);
        let pooled = (self.sum + other.sum) / spans;
        let scatter = |side: &Evidence| (side.squares - side.sum * side.mean()).max(0.0);
        let most = (pooled * (1.0 - pooled)).max(0.0);
        let of_one = (scatter(self) + scatter(other) + PRIOR * most) / (spans + PRIOR);
        let variance = of_one * (1.0 / self.spans.max(1.0) + 1.0 / other.spans.max(1.0));
        let beyond = (BEYOND * BEYOND + 2.0 * (tasks.max(1) as f64).ln()).sqrt();
        self.sum >= LATE_MIN && self.mean() - other.mean() > beyond * variance.sqrt()
    }
}

/// Evidence about one task.
#[derive(Clone, Copy, Debug, Default)]
struct TaskEvidence {
    /// While the knob stood at its floor.
    shed: Evidence,
    /// At the share on trial, or given back.
    back: Evidence,
    /// Lateness in the span that ends; `None` without a job.
    late: Option<Lateness>,
    /// Whether it has had jobs of late.
    live: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The law has the knob.
    Watching,
    /// The share `tried` is the floor, on trial.
    Trying,
    /// The share `given` is the floor.
    Given,
    /// Nothing but the minimum is the floor, on trial.
    Retrying,
}

/// The experiment with its state.
#[derive(Clone, Debug)]
pub(crate) struct GiveBack {
    phase: Phase,
    /// Share that was given back; 0 for none.
    given: Share,
    /// Share on trial.
    tried: Share,
    /// Share at which a trial ends that makes nothing late.
    target: Share,
    /// By [`TaskId`]; nothing is known of tasks without jobs of late.
    tasks: Vec<TaskEvidence>,
    /// Spans in a row in which the knob did not stand at its floor.
    elsewhere: u32,
    /// Spans until the evidence of this phase counts.
    settling: u32,
    /// Spans left of the pause, or of the step of a trial.
    left: u32,
    pause: u32,
    /// Whether the last retry followed lateness: the next one waits until the pause is over.
    alarmed: bool,
    /// When the present span began.
    since: Time,
    /// Largest share in force during the span.
    most: Share,
}

impl GiveBack {
    /// `stages`: number of stages beside the tasks.
    pub(crate) fn new(start: Time, stages: usize) -> GiveBack {
        GiveBack {
            phase: Phase::Watching,
            given: Share::ZERO,
            tried: Share::ZERO,
            target: Share::ZERO,
            // Room for all that a step ever needs, so that it allocates nothing.
            tasks: Vec::with_capacity(TASKS_MAX + stages),
            elsewhere: 0,
            settling: 0,
            left: 0,
            pause: PAUSE_MIN,
            alarmed: false,
            since: start,
            most: Share::ZERO,
        }
    }

    /// The share below which the knob is not to go for now; 0 where the law has it.
    pub(crate) fn floor(&self) -> Share {
        match self.phase {
            Phase::Watching | Phase::Retrying => Share::ZERO,
            Phase::Trying => self.tried,
            Phase::Given => self.given,
        }
    }

    /// Notes the share that was in force in a window that ends `now`. Returns whether a span ends with it.
    pub(crate) fn ends_span(&mut self, in_force: Share, now: Time) -> bool {
        self.most = Share::clamped(self.most.get().max(in_force.get()));
        now.since(self.since) >= SPAN
    }

    /// Begins the next span without counting this one: no law ran in it.
    pub(crate) fn skip(&mut self, now: Time) {
        (self.since, self.most) = (now, Share::ZERO);
        self.settling = SETTLE;
    }

    /// Takes a span in which the jobs of each task were `late` on average, and `fresh` of the data was fresh at its
    /// end; `least` is the share that the minimum needs. Without a job the span goes on. Returns the result of an
    /// experiment that ends here.
    pub(crate) fn step(
        &mut self,
        late: impl Iterator<Item = (TaskId, Option<Lateness>)>,
        fresh: f64,
        least: Share,
        now: Time,
    ) -> Option<SheddingReview> {
        if !self.take(late) {
            return None;
        }
        let at_floor = self.most.get() <= least.get() * AT_FLOOR + f64::EPSILON;
        (self.since, self.most) = (now, Share::ZERO);
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        match self.phase {
            Phase::Watching => {
                self.left = self.left.saturating_sub(1);
                if at_floor {
                    self.elsewhere = 0;
                    self.add(|task| &mut task.shed);
                    self.question(fresh, least);
                } else {
                    self.elsewhere += 1;
                    if self.elsewhere > STALE {
                        self.forget(|task| &mut task.shed);
                    }
                }
                None
            }
            Phase::Trying => {
                self.add(|task| &mut task.back);
                let later = self.helps(0.0);
                if !later && self.tried < self.target {
                    self.raise();
                    return None;
                }
                (later || self.shows(|task| &task.back, ENOUGH)).then(|| self.judge(later, fresh))
            }
            Phase::Given => {
                self.add(|task| &mut task.back);
                self.left = self.left.saturating_sub(1);
                let later = !self.alarmed && self.helps(SHED_MIN);
                if self.left == 0 || later {
                    self.alarmed = self.left > 0;
                    self.retry();
                }
                None
            }
            Phase::Retrying => {
                self.left = self.left.saturating_sub(1);
                if at_floor {
                    self.add(|task| &mut task.shed);
                } else if self.left == 0 {
                    // The law sheds nothing any more: jobs are in time.
                    (self.phase, self.given, self.pause) = (Phase::Watching, Share::ZERO, PAUSE_MIN);
                    self.forget(|task| &mut task.shed);
                    return None;
                }
                let helps = self.helps(0.0);
                self.shows(|task| &task.shed, ENOUGH)
                    .then(|| self.judge_retry(helps))
                    .flatten()
            }
        }
    }

    /// Takes the lateness of each task that has had jobs of late. Returns whether one has had a job in this span.
    fn take(&mut self, late: impl Iterator<Item = (TaskId, Option<Lateness>)>) -> bool {
        self.tasks.iter_mut().for_each(|task| task.live = false);
        let mut any = false;
        for (task, late) in late {
            let index = task.index();
            self.tasks
                .resize(self.tasks.len().max(index + 1), TaskEvidence::default());
            (self.tasks[index].late, self.tasks[index].live) = (late, true);
            any |= late.is_some();
        }
        let gone = self.tasks.iter_mut().filter(|task| !task.live);
        gone.for_each(|task| *task = TaskEvidence::default());
        any
    }

    /// Adds this span to the evidence of a setting.
    fn add(&mut self, of: fn(&mut TaskEvidence) -> &mut Evidence) {
        for task in &mut self.tasks {
            if let Some(late) = task.late {
                of(task).add(late);
            }
        }
    }

    fn forget(&mut self, of: fn(&mut TaskEvidence) -> &mut Evidence) {
        self.tasks.iter_mut().for_each(|task| *of(task) = Evidence::default());
    }

    fn live(&self) -> impl Iterator<Item = &TaskEvidence> {
        self.tasks.iter().filter(|task| task.live)
    }

    /// Whether the evidence about a setting comes from `spans` spans, and from [`FEW`] of each task.
    fn shows(&self, of: fn(&TaskEvidence) -> &Evidence, spans: f64) -> bool {
        let most = self.live().map(|task| of(task).spans).fold(0.0, f64::max);
        most >= spans && self.live().all(|task| of(task).spans >= FEW)
    }

    /// Whether a task that was measured in `spans` spans at least was later at the other share than while shedding.
    fn helps(&self, spans: f64) -> bool {
        let tasks = self.live().count();
        self.live()
            .any(|task| task.back.spans >= spans && task.back.is_later_than(&task.shed, tasks))
    }

    /// Whether a task is so late while shedding that nothing tells settings apart. A stage may hang, and be late under
    /// every setting for good: it prevents no trial.
    fn overload(&self) -> bool {
        let mut tasks = self.tasks.iter().take(TASKS_MAX).filter(|task| task.live);
        tasks.any(|task| task.shed.mean() > LATE_MAX)
    }

    /// Begins a trial where enough jobs are late in spite of shedding.
    fn question(&mut self, fresh: f64, least: Share) {
        let late = self.live().any(|task| task.shed.is_late());
        let known = late && self.shows(|task| &task.shed, SHED_MIN) && !self.overload();
        let sheds = least.get() * AT_FLOOR < 1.0;
        if known && sheds && self.left == 0 && fresh < FRESH {
            self.attempt(least);
        }
    }

    /// Begins to try twice the share `from`, and [`TRIED_MIN`] at least.
    fn attempt(&mut self, from: Share) {
        self.target = Share::clamped((from.get() * 2.0).max(TRIED_MIN));
        self.tried = Share::clamped(from.get().max(TRIED_MIN / 2.0));
        (self.phase, self.settling, self.left) = (Phase::Trying, SETTLE, 0);
        self.raise();
    }

    /// Ends a span of a trial below its target: the share rises after the last one of a step, whose evidence would
    /// hide what the next does.
    fn raise(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            let next = self.tried.get() * (1.0 / STEPS).exp2();
            let at_target = next * AT_FLOOR > self.target.get();
            self.tried = if at_target { self.target } else { Share::clamped(next) };
            self.left = STEP_SPANS;
            self.forget(|task| &mut task.back);
        }
    }

    /// Ends a trial; `later`: jobs were later in it.
    fn judge(&mut self, later: bool, fresh: f64) -> SheddingReview {
        let review = self.review(later);
        self.forget(|task| &mut task.back);
        if later {
            self.pause_longer();
            self.settling = SETTLE;
            self.phase = if self.given > Share::ZERO {
                Phase::Given
            } else {
                Phase::Watching
            };
        } else {
            (self.phase, self.given, self.left) = (Phase::Given, self.tried, self.pause);
            self.alarmed = false;
            if fresh < FRESH && self.given < Share::ONE {
                self.attempt(self.given);
            }
        }
        review
    }

    /// Sheds again, to see whether it helps now.
    fn retry(&mut self) {
        (self.phase, self.left, self.settling) = (Phase::Retrying, RETRY_MAX, SETTLE);
        self.forget(|task| &mut task.shed);
    }

    /// Ends a retry; `helps`: fewer jobs were late in it. `None` in overload, where nothing tells settings apart: then
    /// updates are shed, and the law has the knob.
    fn judge_retry(&mut self, helps: bool) -> Option<SheddingReview> {
        self.tried = self.given;
        let review = self.review(helps);
        self.pause_longer();
        let overload = self.overload();
        if helps || overload {
            (self.phase, self.given) = (Phase::Watching, Share::ZERO);
        } else {
            (self.phase, self.settling) = (Phase::Given, SETTLE);
            self.forget(|task| &mut task.back);
        }
        (helps || !overload).then_some(review)
    }

    fn pause_longer(&mut self) {
        self.left = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn review(&self, helped: bool) -> SheddingReview {
        let weight = |task: &TaskEvidence| match helped {
            true => task.back.mean() - task.shed.mean(),
            false => task.shed.mean(),
        };
        let live = self.tasks.iter().zip(0..).filter(|(task, _)| task.live);
        let decisive = live.max_by(|(a, _), (b, _)| weight(a).total_cmp(&weight(b)));
        let (task, id) = decisive.map_or((TaskEvidence::default(), 0), |(task, id)| (*task, id));
        SheddingReview {
            helped,
            tried: self.tried,
            task: TaskId(id),
            late_shed: task.shed.mean(),
            late_tried: task.back.mean(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::stage_id;

    #[test]
    fn a_review_says_how_long_jobs_took_in_per_cent_of_the_deadline() {
        let review = SheddingReview {
            helped: true,
            tried: Share::clamped(0.2),
            task: TaskId(0),
            late_shed: 0.45,
            late_tried: 0.91,
        };
        let told = review.told("analysis");
        assert!(
            told.contains("took about 116 % of its deadline") && told.contains("98 % with the least"),
            "{told}"
        );
    }

    /// A disturbance that shedding does not cure, and that grows with each retry: each time it looks as if the load had
    /// come to need shedding.
    #[test]
    fn the_pause_after_a_retry_that_found_nothing_is_held() {
        [0, 1].into_iter().for_each(pauses_are_held);
    }

    /// With `hung` stages that hang beside the task: they prevent no trial.
    fn pauses_are_held(hung: usize) {
        let least = Share::clamped(0.27);
        let mut experiment = GiveBack::new(Time::ZERO, hung);
        let mut ended: Vec<u32> = Vec::new();
        let mut late = 0.1;
        for span in 1..4000 {
            let now = Time::ZERO + SPAN * u64::from(span);
            let in_force = Share::clamped(experiment.floor().get().max(least.get()));
            assert!(experiment.ends_span(in_force, now));
            let retrying = experiment.phase == Phase::Retrying;
            let lateness = Lateness { mean: late, late };
            let all = Lateness { mean: 1.0, late: 1.0 };
            let late_ones = [(TaskId(0), Some(lateness)), (stage_id(0), Some(all))];
            let late_ones = late_ones.into_iter().take(1 + hung);
            if let Some(review) = experiment.step(late_ones, 2.0 * in_force.get(), least, now) {
                assert!(!review.helped, "{review:?}");
                if retrying {
                    ended.push(span);
                    late = (late + 0.1f64).min(0.45);
                }
            }
        }
        assert!(ended.len() > 3, "{ended:?}");
        // A retry that follows lateness may come at once, the one after it may not.
        for (pause, three) in (0..).map(|k| (PAUSE_MIN << k).min(PAUSE_MAX)).zip(ended.windows(3)) {
            assert!(three[2] - three[0] >= pause, "{ended:?}");
        }
    }
}
