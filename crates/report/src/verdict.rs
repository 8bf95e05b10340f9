//! Verdict on a finished run against its goals: computed once, used by the summary, the page and the exit code.

use punctual_runtime::report::{CauseReport, RunReport, TaskReport};
use punctual_workload::{Cause, TaskGoal};

use crate::protection::no_real_time;
use crate::summary::{count, percent};
use crate::{causes, stages};

/// Distance from a set point of mean tardiness (response time / deadline) within which the goal counts as met.
pub const TOLERANCE: f64 = 0.05;

/// Probability from which few late jobs may be chance. With a goal of 1 %, 2 of 60 may be, and 3 are not.
const CHANCE: f64 = 0.1;

/// Standing of a task against its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No job ended after the start-up.
    NoJob,
    /// Too few jobs to estimate the share: one late job would miss the goal, and as many as were late are by chance
    /// where it is kept.
    TooFew {
        /// Number of jobs of which one may be late.
        needed: u64,
    },
    /// The task meets its goal.
    Held,
    /// The task misses its goal.
    Missed,
}

impl Standing {
    /// Standing of `task`: by its own share of late and failed jobs, or by its own mean tardiness.
    pub fn of(task: &TaskReport) -> Standing {
        match (task.goal(), task.missed_share(), task.tardiness_at_least()) {
            (_, None, _) => Standing::NoJob,
            (TaskGoal::Late(goal), Some(_), _) => {
                Standing::of_late(task.late + task.failed, task.jobs + task.failed, goal.get())
            }
            (TaskGoal::Tardiness(goal), Some(_), Some(mean)) if mean <= goal + TOLERANCE => Standing::Held,
            (TaskGoal::Tardiness(_), Some(_), _) => Standing::Missed,
        }
    }

    /// Standing of `late` of `all` jobs or frames, of which the share `goal` may be late.
    pub(crate) fn of_late(late: u64, all: u64, goal: f64) -> Standing {
        let needed = (1.0 / goal).ceil() as u64;
        if all < needed && by_chance(late, all, goal) {
            Standing::TooFew { needed }
        } else if late as f64 / all as f64 > goal {
            Standing::Missed
        } else {
            Standing::Held
        }
    }
}

/// Whether `late` of `jobs` jobs or more are late with a probability of at least [`CHANCE`] where each is late with the
/// probability `share`, independently of the others: the tail of the binomial distribution.
fn by_chance(late: u64, jobs: u64, share: f64) -> bool {
    let mut term = (1.0 - share).powf(jobs as f64);
    let mut fewer = 0.0;
    for k in 0..late {
        fewer += term;
        term *= (jobs - k) as f64 / (k + 1) as f64 * share / (1.0 - share);
    }
    1.0 - fewer >= CHANCE
}

/// Verdict on a finished run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Standing of each task, in the order of the report.
    pub tasks: Vec<Standing>,
    /// Standing of the stages with a goal, the worst of each; `None` without any.
    pub stages: Option<Standing>,
    /// Whether the fresh share never fell below the user's minimum after the start-up.
    pub fresh_kept: bool,
    /// Whether every update is accounted for, sensor by sensor.
    pub accounted: bool,
    /// Whether the machine was too disturbed for a conclusion.
    pub inconclusive: bool,
}

impl Verdict {
    /// Judges `report` by its own goals.
    pub fn of(report: &RunReport) -> Verdict {
        let (goal, summary) = (&report.header.goal, &report.summary);
        let fresh = summary.fresh_share_min;
        Verdict {
            tasks: report.tasks.iter().map(Standing::of).collect(),
            stages: stages::standing_of_all(&report.stages),
            fresh_kept: fresh.is_some_and(|least| least >= goal.min_fresh.get()),
            accounted: summary.updates.lost == 0 && summary.updates.sensors_unreconciled == 0,
            inconclusive: summary.inconclusive,
        }
    }

    /// Whether every task and stage meets its goal, and everything else that was asked for was achieved.
    pub fn is_good(&self) -> bool {
        self.tasks
            .iter()
            .chain(&self.stages)
            .all(|standing| *standing == Standing::Held)
            && self.fresh_kept
            && self.accounted
            && !self.inconclusive
    }

    /// Number of tasks that meet their goals.
    pub fn held(&self) -> usize {
        self.tasks
            .iter()
            .filter(|standing| **standing == Standing::Held)
            .count()
    }

    /// Whether nothing is missed, but not everything is known either.
    pub fn is_open(&self) -> bool {
        let goals = self.tasks.iter().chain(&self.stages);
        let missed = goals.copied().any(|it| it == Standing::Missed) || !self.fresh_kept || !self.accounted;
        !self.is_good() && (!missed || self.inconclusive)
    }

    /// Verdict in words, for `report`.
    pub fn sentence(&self, report: &RunReport) -> String {
        self.sentences(report).join(" ")
    }

    /// Verdict sentence by sentence: which task misses its goal and by how much; then the reason, the remedy, and what
    /// else was missed.
    pub fn sentences(&self, report: &RunReport) -> Vec<String> {
        if report.summary.fresh_share_min.is_none() {
            let start_up = report.header.settle_s;
            return vec![format!("Too short to judge: figures count from {start_up:.0} s on.")];
        }
        if self.inconclusive {
            let why = "Inconclusive: something else kept interrupting the real-time core; repeat on a quieter machine.";
            return named(why.into(), unprotected(report));
        }
        let mut sentences = self.goals(report);
        if let Some(standing) = self.stages {
            // What keeps the verdict from being good is the headline.
            let missed = standing == Standing::Missed && !self.tasks.contains(&Standing::Missed);
            let first = missed || standing != Standing::Held && self.tasks.iter().all(|task| *task == Standing::Held);
            let at = if first { 0 } else { sentences.len() };
            sentences.insert(at, stages::sentence(&report.stages));
        }
        let (goal, summary) = (&report.header.goal, &report.summary);
        if let (false, Some(least)) = (self.fresh_kept, summary.fresh_share_min) {
            if !self.tasks.contains(&Standing::Missed) {
                sentences.extend(named(String::new(), filled_core(report)).into_iter().skip(1));
            }
            let (least, minimum) = (percent(least), goal.min_fresh);
            sentences.push(format!(
                "Only {least} of the data was fresh at worst, under the minimum of {minimum}."
            ));
        }
        if !self.accounted {
            sentences.push(format!("{} updates were lost.", count(summary.updates.lost)));
        }
        sentences
    }

    fn goals(&self, report: &RunReport) -> Vec<String> {
        let with = |wanted: fn(&Standing) -> bool| {
            let pairs = report.tasks.iter().zip(&self.tasks);
            pairs
                .filter(move |(_, standing)| wanted(standing))
                .map(|(task, _)| task)
        };
        let missed = with(|standing| *standing == Standing::Missed);
        if let Some(worst) = missed.clone().max_by(|a, b| excess(a).total_cmp(&excess(b))) {
            let others = missed.count() - 1;
            return missed_by(worst, others, report);
        }
        if let Some(task) = with(|standing| *standing == Standing::NoJob).next() {
            let name = &task.name;
            // Nothing was late, so nothing has a cause.
            return vec![format!(
                "Too short to judge: no job of \"{name}\" ended after the start-up."
            )];
        }
        if let Some((task, needed)) = report.tasks.iter().zip(&self.tasks).find_map(too_few) {
            return vec![format!(
                "Too few jobs to judge \"{}\": {} of {} jobs late; {} takes at least {}, in a run of about {} s.",
                task.name,
                count(task.late),
                count(task.jobs),
                task.goal(),
                count(needed),
                duration_for(report, task, needed)
            )];
        }
        vec![held(&report.tasks)]
    }
}

/// Whole seconds that a run needs for `needed` jobs of `task`, at the job rate of `report`.
fn duration_for(report: &RunReport, task: &TaskReport, needed: u64) -> u64 {
    let start_up = report.header.settle_s;
    let counted = report.samples.last().map_or(0.0, |last| last.t_s - start_up);
    let given = start_up + counted;
    let takes = start_up + counted * needed as f64 / task.jobs.max(1) as f64;
    // The last sample may lie before the end of the run: by less than a second.
    (takes.ceil() as u64).max(given.ceil() as u64 + 1)
}

fn too_few<'r>((task, standing): (&'r TaskReport, &Standing)) -> Option<(&'r TaskReport, u64)> {
    match standing {
        Standing::TooFew { needed } => Some((task, *needed)),
        _ => None,
    }
}

fn held(tasks: &[TaskReport]) -> String {
    match tasks {
        [] => "No task has a deadline: nothing to judge.".into(),
        [task] => format!("Goal held: {}.", stands(task)),
        [_, ..] => {
            let nearest = tasks
                .iter()
                .max_by(|a, b| excess(a).total_cmp(&excess(b)))
                .unwrap_or(&tasks[0]);
            let (all, name, stands) = (tasks.len(), &nearest.name, stands(nearest));
            format!("All {all} tasks hold their goals; nearest to its own is \"{name}\": {stands}.")
        }
    }
}

/// Ratio of a task's figure to its goal; above 1, the goal is missed.
fn excess(task: &TaskReport) -> f64 {
    match task.goal() {
        TaskGoal::Late(goal) => task.missed_share().unwrap_or(0.0) / goal.get(),
        TaskGoal::Tardiness(goal) => task.tardiness_at_least().unwrap_or(f64::INFINITY) / goal,
    }
}

/// Figure by which a task is judged, and its goal.
fn stands(task: &TaskReport) -> String {
    let failed = match task.failed {
        0 => String::new(),
        failed => format!(" and {} failed", count(failed)),
    };
    match task.goal() {
        goal @ TaskGoal::Late(most) => format!(
            "{} of {} jobs late{failed} ({}), goal {goal}",
            count(task.late),
            count(task.jobs + task.failed),
            beside(task.missed_share().unwrap_or(0.0), most.get()),
        ),
        goal @ TaskGoal::Tardiness(_) => format!(
            "tardiness {:.2} on average{failed}, goal {goal}",
            task.tardiness_at_least().unwrap_or(0.0)
        ),
    }
}

/// `share` in percent, with as many decimals as tell it from a smaller `goal`.
fn beside(share: f64, goal: f64) -> String {
    let text = |decimals: usize| format!("{:.decimals$}", share * 100.0);
    let is_more = |text: &String| share <= goal || text.parse().is_ok_and(|it: f64| it / 100.0 > goal + 1e-9);
    let shown = (1..=4).map(text).find(is_more).unwrap_or_else(|| text(5));
    format!("{shown} %")
}

/// The right without which any program takes the core of real-time tasks, where it is missing.
fn unprotected(report: &RunReport) -> Option<String> {
    let refused = no_real_time(&report.header.protection)?;
    Some(format!(
        "no real-time scheduling, so any program may take the core: {}; {}.",
        refused.why, refused.remedy
    ))
}

/// A core that another program filled, so that real-time threads of this run did not run there: they have lower
/// priorities, or the kernel throttled all.
fn filled_core(report: &RunReport) -> Option<String> {
    let filled = report.summary.filled_cores.first()?;
    Some(format!(
        "{} filled core {} for {:.0} s, so that real-time threads of this run did not run there; stop it, or give \
         it another core (taskset).",
        causes::thread(&filled.by),
        filled.core,
        filled.seconds
    ))
}

fn missed_by(worst: &TaskReport, others: usize, report: &RunReport) -> Vec<String> {
    let (name, stands) = (&worst.name, stands(worst));
    let missed = match others {
        0 => format!("Goal missed by \"{name}\": {stands}."),
        more => format!(
            "{} tasks missed their goals; furthest from its own is \"{name}\": {stands}.",
            more + 1
        ),
    };
    let top = worst.causes.first();
    let told = top.map(|top| {
        let told = causes::told(worst).next().unwrap_or_default();
        format!("{told}; {}.", causes::remedy(top, worst, &report.header))
    });
    let (right, filled) = (unprotected(report), filled_core(report));
    // Any program keeps a task without the right from its core: no other cause comes before this one, unless most jobs
    // were late by what they did themselves.
    let causes = match top {
        Some(top) if may_be_of_others(top) => [right, told, filled],
        Some(top) if is_of_the_job(top.cause) => [told, right, filled],
        _ => [right, filled, told],
    };
    named(missed, causes.into_iter().flatten())
}

/// Whether threads of this run that lost their cores may be behind the cause: they hold the lock, and reads that take
/// far longer than usual install what those threads have left.
fn may_be_of_others(it: &CauseReport) -> bool {
    let is_slow = || it.usual_us.is_some_and(|usual| it.us_mean >= 2.0 * usual);
    it.cause == Cause::Lock || it.cause == Cause::Data && is_slow()
}

/// Whether jobs are late from this cause on a core of their own, too.
const fn is_of_the_job(cause: Cause) -> bool {
    match cause {
        Cause::Unfinished
        | Cause::Lock
        | Cause::PageFault
        | Cause::Sync
        | Cause::Commit
        | Cause::Asleep
        | Cause::Data
        | Cause::Computation => true,
        Cause::Skipped
        | Cause::NotRun
        | Cause::Queue
        | Cause::Preempted
        | Cause::Throttled
        | Cause::Stopped
        | Cause::Stolen => false,
    }
}

/// The sentence `first`, and the causes after it, of which the first is the most important one.
fn named(first: String, causes: impl IntoIterator<Item = String>) -> Vec<String> {
    let names = ["Top cause"].into_iter().chain(std::iter::repeat("Next"));
    let causes = names.zip(causes).map(|(name, cause)| format!("{name}: {cause}"));
    [first].into_iter().chain(causes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_runtime::report::{Culprit, FilledCore, StageReport};
    use punctual_units::{CoreId, Share};
    use punctual_workload::Cause;

    use crate::fixture;

    fn judged(change: impl FnOnce(&mut RunReport)) -> (Verdict, String) {
        let mut report = fixture::report();
        change(&mut report);
        let verdict = Verdict::of(&report);
        let sentence = verdict.sentence(&report);
        assert!(!(verdict.is_good() && verdict.is_open()));
        (verdict, sentence)
    }

    /// A run in which `steer` was late in most of its jobs.
    fn steer_late(report: &mut RunReport) {
        report.tasks[1].late = 4_000;
        report.tasks[1].late_share = Some(4_000.0 / 5_300.0);
        report.tasks[1].causes = vec![CauseReport {
            cause: Cause::Preempted,
            jobs: 4_000,
            behind: 0,
            share: 1.0,
            us_mean: 12_300.0,
            usual_us: Some(40.0),
            by: Vec::new(),
        }];
        report.summary.tardiness_mean = Some(0.3);
    }

    /// A run of one task with a goal for its mean tardiness.
    fn asks_for_a_mean(report: &mut RunReport, mean: f64) {
        report.tasks.truncate(1);
        report.tasks[0].goal_late = None;
        report.tasks[0].goal_tardiness = Some(0.85);
        report.tasks[0].tardiness_mean = Some(mean);
    }

    /// A stage beside the tasks, with so many of 200 frames late.
    fn stage(report: &mut RunReport, late: u64) {
        report.stages = vec![StageReport {
            name: "filter".into(),
            goal_late: Some(0.01),
            timed: 200,
            late,
            ..StageReport::default()
        }];
    }

    #[test]
    fn a_share_beside_its_goal_is_told_from_it() {
        let missed = [beside(12.0 / 1_150.0, 0.01), beside(0.010_001, 0.01), beside(0.2, 0.01)];
        assert_eq!(missed, ["1.04 %", "1.0001 %", "20.0 %"]);
        assert_eq!(beside(0.01, 0.01), "1.0 %");
        assert_eq!(beside(0.290_004, 0.29), "29.0004 %");
    }

    #[test]
    fn a_stage_counts_like_a_task() {
        let (missed, _) = judged(|report| stage(report, 40));
        assert!(!missed.is_good() && !missed.is_open(), "{missed:?}");
        assert!(judged(|report| stage(report, 1)).0.is_good());
        let (both, sentence) = judged(|report| {
            steer_late(report);
            stage(report, 40);
        });
        assert!(
            !both.is_good() && sentence.starts_with("Goal missed by \"steer\""),
            "{sentence}"
        );
        assert!(sentence.contains("stage \"filter\""), "{sentence}");
    }

    fn few_jobs(report: &mut RunReport) {
        report.tasks[1].jobs = 100;
        report.tasks[1].goal_late = Some(0.001);
    }

    #[test]
    fn the_sentence_says_which_goal_is_missed_and_why() {
        type Change = fn(&mut RunReport);
        let cases: [(&str, Change); 15] = [
            ("two tasks hold", |_| {}),
            ("one task holds", |report| report.tasks.truncate(1)),
            ("no task", |report| report.tasks.clear()),
            ("one task misses", steer_late),
            ("two tasks miss", |report| {
                steer_late(report);
                report.tasks[0].late_share = Some(0.5);
                report.tasks[0].late = 265;
            }),
            ("failed jobs", |report| report.tasks[1].failed = 100),
            ("few jobs", few_jobs),
            ("no job", |report| report.tasks[0].jobs = 0),
            ("a mean", |report| asks_for_a_mean(report, 1.3)),
            ("stale data", |report| report.summary.fresh_share_min = Some(0.42)),
            ("lost updates", |report| report.summary.updates.lost = 3),
            ("a disturbed run", |report| report.summary.inconclusive = true),
            ("no figure", |report| report.summary.fresh_share_min = None),
            ("a stage misses", |report| stage(report, 40)),
            ("a stage holds", |report| stage(report, 1)),
        ];
        let texts = cases.map(|(name, change)| format!("{name}\n  => {}\n", judged(change).1));
        insta::assert_snapshot!("verdicts", texts.concat());
    }

    #[test]
    fn every_task_has_to_hold_its_own_goal() {
        assert!(judged(|_| {}).0.is_good());
        assert!(judged(|report| report.tasks.truncate(1)).0.is_good());
    }

    /// The two-task case of the mean: one task late in most of its jobs, the mean over all far below its set point.
    #[test]
    fn a_mean_over_tasks_holds_nothing() {
        let (verdict, sentence) = judged(steer_late);
        assert_eq!(verdict.tasks, [Standing::Held, Standing::Missed]);
        assert!(!verdict.is_good());
        assert!(sentence.contains("\"steer\""), "{sentence}");
    }

    #[test]
    fn a_missing_right_is_the_first_cause_unless_jobs_are_late_by_themselves() {
        let (_, sentence) = judged(|report| {
            steer_late(report);
            report.header.protection[0].refused = report.header.protection[1].refused.clone();
        });
        let at = |sentence: &str, parts: [&str; 2]| parts.map(|part| sentence.find(part).expect(part));
        let [right, preempted] = at(&sentence, ["no real-time scheduling", "were preempted"]);
        assert!(right < preempted, "{sentence}");
        // By the cause, and how long its span usually is; 12.3 ms in late jobs.
        let first = |cause: Cause, usual_us: Option<f64>| {
            let (_, sentence) = judged(|report| {
                steer_late(report);
                let top = &mut report.tasks[1].causes[0];
                (top.cause, top.usual_us) = (cause, usual_us);
                report.header.protection[0].refused = report.header.protection[1].refused.clone();
            });
            assert!(
                sentence.contains("Top cause: ") && sentence.contains("Next: "),
                "{sentence}"
            );
            sentence.contains("Top cause: no real-time scheduling")
        };
        assert!(!first(Cause::Computation, Some(40.0)));
        assert!(first(Cause::Lock, Some(12_000.0)), "its holder may have lost its core");
        assert!(first(Cause::Data, Some(6_000.0)), "what others have left is installed");
        assert!(!first(Cause::Data, Some(7_000.0)) && !first(Cause::Data, None));
        assert!(!first(Cause::Commit, Some(40.0)), "the job itself commits");
        let (_, sentence) = judged(|report| {
            report.summary.inconclusive = true;
            report.header.protection[0].refused = report.header.protection[1].refused.clone();
        });
        assert!(sentence.contains("no real-time scheduling"), "{sentence}");
        let (_, sentence) = judged(|report| {
            report.tasks[0].jobs = 0;
            report.header.protection[0].refused = report.header.protection[1].refused.clone();
        });
        assert!(
            sentence.contains("Too short") && !sentence.contains("cause"),
            "nothing was late: {sentence}"
        );
    }

    /// Also where only the freshness of data suffered, because the other core has the updates.
    #[test]
    fn a_program_that_fills_a_core_is_named() {
        let fills = |report: &mut RunReport| {
            let by = Culprit {
                thread: Some(77),
                process: Some(70),
                program: Some("sh".into()),
                ..Culprit::named("spinner")
            };
            let (core, seconds) = (CoreId(0), 28.0);
            report.summary.filled_cores = vec![FilledCore { core, by, seconds }];
        };
        let late = |report: &mut RunReport| {
            steer_late(report);
            fills(report);
        };
        let locked = |report: &mut RunReport| {
            late(report);
            report.tasks[1].causes[0].cause = Cause::Lock;
        };
        let stale = |report: &mut RunReport| {
            report.summary.fresh_share_min = Some(0.42);
            fills(report);
        };
        for sentence in [judged(late).1, judged(locked).1, judged(stale).1] {
            assert_eq!(
                sentence.matches("thread spinner (77 of process 70 sh)").count(),
                1,
                "{sentence}"
            );
        }
        // The core may be that of another task.
        let is_first = |change: &dyn Fn(&mut RunReport)| judged(change).1.contains("Top cause: thread spinner");
        assert!(is_first(&late) && !is_first(&locked));
    }

    #[test]
    fn a_failed_job_is_not_on_time() {
        let (verdict, _) = judged(|report| report.tasks[1].failed = 100);
        assert_eq!(verdict.tasks[1], Standing::Missed);
    }

    #[test]
    fn few_jobs_judge_no_small_share() {
        let (verdict, sentence) = judged(few_jobs);
        assert_eq!(verdict.tasks[1], Standing::TooFew { needed: 1000 });
        assert!(verdict.is_open());
        assert!(
            sentence.contains("in a run of about 537 s") && !sentence.contains("--"),
            "{sentence}"
        );
        let (verdict, _) = judged(|report| {
            report.tasks[1].jobs = 10;
            report.tasks[1].late = 1;
        });
        assert_eq!(verdict.tasks[1], Standing::Missed, "10 % late, goal 1 %");
        let of_sixty = |late: u64| {
            let (verdict, sentence) = judged(|report| {
                (report.tasks[1].jobs, report.tasks[1].late) = (60, late);
                report.tasks[1].late_share = Some(late as f64 / 60.0);
            });
            (verdict.tasks[1], sentence)
        };
        for late in 0..3 {
            let (standing, sentence) = of_sixty(late);
            assert_eq!(standing, Standing::TooFew { needed: 100 }, "{late} of 60");
            assert!(sentence.contains(&format!("{late} of 60 jobs late")), "{sentence}");
        }
        assert_eq!(of_sixty(3).0, Standing::Missed);
    }

    #[test]
    fn a_mean_is_judged_where_a_mean_is_asked_for() {
        let standings = |mean| judged(|report| asks_for_a_mean(report, mean)).0.tasks;
        assert_eq!(standings(0.89), [Standing::Held]);
        assert_eq!(standings(0.2), [Standing::Held], "no task had to yield");
        assert_eq!(standings(1.3), [Standing::Missed]);
    }

    /// A job that hangs has no response time, and no mean of the others says that all is well.
    #[test]
    fn a_mean_counts_releases_that_have_not_ended() {
        let (verdict, _) = judged(|report| {
            asks_for_a_mean(report, 0.3);
            let task = &mut report.tasks[0];
            (task.late, task.overdue, task.skipped) = (task.late + 530, 9, 521);
            task.jobs += 530;
            task.unfinished = Some(punctual_runtime::report::OpenJob {
                released_s: 20.0,
                for_us: 40e6,
                has_begun: Some(true),
            });
        });
        assert_eq!(verdict.tasks, [Standing::Missed]);
    }

    #[test]
    fn everything_else_that_was_asked_for_counts_as_well() {
        let (stale, _) = judged(|report| report.summary.fresh_share_min = Some(0.42));
        assert!(!stale.is_good() && !stale.fresh_kept);
        let (lossy, _) = judged(|report| report.summary.updates.lost = 3);
        assert!(!lossy.is_good() && !lossy.accounted);
        let (disturbed, _) = judged(|report| report.summary.inconclusive = true);
        assert!(!disturbed.is_good() && disturbed.is_open());
        let (short, _) = judged(|report| report.summary.fresh_share_min = None);
        assert!(!short.is_good());
    }

    #[test]
    fn a_goal_is_told_as_it_was_written() {
        let mut task = fixture::report().tasks.remove(0);
        assert_eq!(task.goal(), TaskGoal::Late(Share::clamped(0.01)));
        (task.goal_late, task.goal_tardiness) = (None, Some(0.85));
        assert_eq!(task.goal(), TaskGoal::Tardiness(0.85));
    }
}
