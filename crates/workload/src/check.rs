//! Problems of a scenario, in the words of its keys.

use std::collections::HashSet;

use punctual_units::{Nanos, Share};

use crate::scenario::{
    Arrival, Class, ControllerKind, Demand, Excitation, Pace, Prices, Scenario, SensorLoad, SensorSource, StoreNeeds,
    TaskSpec, Volume,
};
use crate::{Active, TaskGoal};

/// A wrong key of a scenario, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct Problem {
    /// The key as written in a scenario file, e.g. `task[0].period`.
    pub key: String,
    /// The fault, and what to write instead.
    pub what: String,
}

impl Problem {
    /// The fault `what` of `key`.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem {
            key: key.into(),
            what: what.into(),
        }
    }
}

/// Longest time that a scenario may contain: a run of a day.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);
/// Shortest time between two events at which a thread has to act each time: below it, looking costs more than is left.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// The trace has readings 18 us apart at this speed; faster replay would bunch them under the feeder's resolution.
const SPEEDUP_MAX: f64 = 20.0;
/// The largest map: half of what x86-64 and 64-bit Arm give a process (2^47 bytes).
const MAP_BYTES_MAX: u64 = 1 << 46;
/// Replicas of 1024 sensors beyond which the sensors no longer fit the id space that tests cover.
const REPLICAS_MAX: u64 = 1000;

/// Longest name of a scenario, a task or a stage, in bytes: as for a file, whose name is a scenario's usual one.
const NAME_MAX: usize = 255;

/// Why a name is too long; `None` if it is not.
pub fn too_long(name: &str) -> Option<String> {
    (name.len() > NAME_MAX).then(|| format!("{} bytes long: at most {NAME_MAX}", name.len()))
}

/// Problems, as they are found.
#[derive(Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds the problem `what` of `key` unless `holds`.
    pub fn require(&mut self, holds: bool, key: impl Into<String>, what: impl Into<String>) {
        if !holds {
            self.0.push(Problem::new(key, what));
        }
    }

    /// Checks how long something takes; `example` is a sound value.
    pub fn span(&mut self, span: Nanos, key: impl Into<String>, example: &str) {
        let what = format!("{span} is out of range: write a time above 0 and at most 24 h, such as \"{example}\"");
        self.require(span > Nanos::ZERO && span <= LONGEST, key, what);
    }

    /// Checks a goal for the lateness of `whose`, "jobs" or "frames", in the table whose fields have these keys.
    pub fn goal(&mut self, goal: TaskGoal, whose: &str, key: impl FnOnce(&str) -> String) {
        let key = key(goal.key());
        match goal {
            TaskGoal::Late(late) => self.require(
                late > Share::ZERO && late < Share::ONE,
                key,
                format!("{late} of {whose} late is no goal: write a share above 0 and below 100 %, such as \"1 %\""),
            ),
            TaskGoal::Tardiness(mean) => self.positive(mean, TaskGoal::TARDINESS_MAX, key),
        }
    }

    /// Checks a whole number against the least and the largest allowed one.
    pub fn between(&mut self, value: impl Into<u64>, (least, most): (u64, u64), key: impl Into<String>) {
        let value = value.into();
        let what = format!("{value} is out of range: {least} to {most}");
        self.require((least..=most).contains(&value), key, what);
    }

    /// Checks a time between recurring events.
    fn interval(&mut self, span: Nanos, key: impl Into<String>) {
        let what =
            format!("{span} is out of range: write a time of at least {SHORTEST} and at most 24 h, such as \"100ms\"");
        self.require(span >= SHORTEST && span <= LONGEST, key, what);
    }

    fn positive(&mut self, value: f64, most: f64, key: impl Into<String>) {
        let what = format!("{value} is out of range: above 0, at most {most}");
        self.require(value > 0.0 && value <= most, key, what);
    }

    /// Checks a text that people read: a terminal must not obey it.
    fn printable(&mut self, text: &str, key: impl Into<String>) {
        let plain = !text.chars().any(char::is_control);
        self.require(
            plain,
            key,
            "has control characters in it: use letters, digits, signs and spaces",
        );
    }

    fn named(&mut self, name: &str, key: impl Into<String> + Clone) {
        self.printable(name, key.clone());
        let long = too_long(name);
        self.require(long.is_none(), key, long.unwrap_or_default());
    }

    fn ordered(&mut self, low: Nanos, high: Nanos, key: impl Into<String>) {
        self.require(
            low <= high,
            key,
            format!("the shorter bound {low} comes first, then the longer one, not {high}"),
        );
    }
}

impl Scenario {
    /// Everything that is wrong with this scenario; empty means that it can be compiled.
    pub fn problems(&self) -> Vec<Problem> {
        let mut check = Problems::default();
        check.span(self.duration, "duration", "100ms");
        check.named(&self.name, "name");
        check_goal(&mut check, self);
        check_control(&mut check, self);
        let store = &self.store;
        check.interval(store.group_commit, "store.group_commit");
        check.require(store.objects > 0, "store.objects", "a store needs at least 1 object");
        check.between(store.object_bytes, (1, 65_536), "store.object_bytes");
        let least = StoreNeeds::MAP_BYTES_MIN;
        check.require(
            (least..=MAP_BYTES_MAX).contains(&store.map_bytes),
            "store.map_bytes",
            format!(
                "{} is out of range: {least} (1 MiB) to {MAP_BYTES_MAX} (64 TiB)",
                store.map_bytes
            ),
        );
        if let Some(life) = store.reader_life_max {
            check.interval(life, "store.reader_life_max");
        }
        check.0.extend(self.room(0));
        check_sensors(&mut check, &self.sensors);
        check_excitation(&mut check, &self.excitation);
        check_tasks(&mut check, &self.tasks);
        // A task that is wrong by itself gets no further complaint.
        if !check.0.iter().any(|problem| problem.key.starts_with("task")) {
            check_reach(&mut check, self);
        }
        check.0
    }
}

impl Scenario {
    /// Problem if the objects of the store, with those of `sensors` sensors, may not fit into it.
    pub fn room(&self, sensors: u64) -> Option<Problem> {
        let store = &self.store;
        let needed = store.bytes_max(sensors, self.sensors.value_bytes);
        let what = format!(
            "{} objects of {} bytes and {sensors} sensors may take {needed} bytes, the store holds {}: set \
             `map_bytes` to at least {needed} (address space, not memory), or take fewer objects",
            store.objects, store.object_bytes, store.map_bytes
        );
        (needed > store.map_bytes).then(|| Problem::new("store.map_bytes", what))
    }
}

fn check_goal(check: &mut Problems, scenario: &Scenario) {
    let goal = &scenario.goal;
    check.goal(goal.tasks, "jobs", |field| format!("goal.{field}"));
    let drr = goal.drr > 0.0 && goal.drr < 1.0;
    check.require(
        drr,
        "goal.drr",
        format!("{} is out of range: above 0 and below 1", goal.drr),
    );
}

fn check_control(check: &mut Problems, scenario: &Scenario) {
    if let Pace::Period(period) = scenario.control.pace {
        check.interval(period, "control.period");
        let what = "jobs are paced from within on top of a loop that steps at every job: set `pace` to \"job\", or \
            leave it out";
        check.require(!scenario.control.within, "control.within", what);
    }
    let share = scenario.control.best_effort_share.get();
    let what = format!("{share} leaves best-effort tasks nothing: above 0, at most 1 (not bounded)");
    check.require(share > 0.0, "control.best_effort_share", what);
    if let Some(least) = scenario.control.best_effort_min {
        let what = format!(
            "{least} is no minimum of a share of {}: above 0, and at most that",
            scenario.control.best_effort_share
        );
        let fits = least.get() > 0.0 && least <= scenario.control.best_effort_share;
        check.require(fits, "control.best_effort_min", what);
    }
    if let Some(Prices { energy, freshness }) = scenario.control.prices {
        for (key, price) in [("energy", energy), ("freshness", freshness)] {
            let what = format!("{price} is no price: a number of watts from 0");
            check.require(price >= 0.0 && price.is_finite(), format!("control.prices.{key}"), what);
        }
        let what = format!(
            "`{}` does not shed updates by their worth: leave it out, or take `mimo`",
            scenario.control.kind.name()
        );
        let sheds = freshness == 0.0 || scenario.control.kind == ControllerKind::Mimo;
        check.require(sheds, "control.prices.freshness", what);
    }
    let (warm_up, duration) = (scenario.control.warm_up, scenario.duration);
    let what = format!(
        "a warm-up of {warm_up} leaves nothing of the run's {duration}: make `control.warm_up` shorter than `duration`"
    );
    // A duration of 0 is a problem by itself.
    check.require(warm_up < duration || duration == Nanos::ZERO, "control.warm_up", what);
}

fn check_sensors(check: &mut Problems, sensors: &SensorLoad) {
    check.positive(sensors.speedup, SPEEDUP_MAX, "trace.speedup");
    match sensors.volume {
        Volume::Replicas(n) => check.between(n, (1, REPLICAS_MAX), "trace.replicas"),
        // Of one whole core.
        Volume::Utilisation(u) => check.positive(u, 1.0, "trace.utilisation"),
    }
    check.between(sensors.value_bytes, (8, 1024), "trace.value_bytes");
    if let SensorSource::Synthetic {
        count,
        period_min,
        period_max,
    } = &sensors.source
    {
        check.between(*count, (1, 1_000_000), "trace.sensors");
        check.span(*period_min, "trace.period", "100ms");
        check.span(*period_max, "trace.period", "100ms");
        check.ordered(*period_min, *period_max, "trace.period");
    }
}

fn check_excitation(check: &mut Problems, excitation: &Excitation) {
    for (levels, key) in [
        (&excitation.clock, "identify.clock"),
        (&excitation.admitted, "identify.admitted"),
    ] {
        let distinct = levels.iter().any(|level| Some(level) != levels.first());
        check.require(
            distinct,
            key,
            "one level alone identifies nothing: give at least 2 different levels",
        );
        let in_range = levels.iter().all(|level| *level > 0.0 && *level <= 1.0);
        check.require(
            in_range,
            key,
            "levels are shares of the knob's range: above 0, at most 1",
        );
    }
    check.require(
        excitation.hold > 0,
        "identify.hold",
        "a level is held for at least 1 sample",
    );
}

/// Refuses goals that no controller can reach: a job that alone at full clock is later than its goal.
fn check_reach(check: &mut Problems, scenario: &Scenario) {
    for (i, (task, goal)) in scenario.tasks.iter().zip(scenario.goals()).enumerate() {
        if let (Some(deadline), Some(goal)) = (task.deadline(), goal) {
            let needs = task.demand.compute + task.demand.data;
            check_alone(check, task, needs.ratio(deadline), goal, i);
        }
    }
}

/// Requires that a job of `task`, which alone on the machine ends at `alone` of its deadline, meets its goal.
fn check_alone(check: &mut Problems, task: &TaskSpec, alone: f64, goal: TaskGoal, index: usize) {
    match goal {
        TaskGoal::Late(_) => {
            let what = format!(
                "a goal out of reach: alone at full clock a job ends at {alone:.2} of its deadline, so every one is \
                 late; ask for less of the jobs, or for a later deadline"
            );
            check.require(alone < 1.0, format!("task[{index}].deadline"), what);
        }
        TaskGoal::Tardiness(mean) => {
            let key = match task.goal {
                Some(_) => format!("task[{index}].tardiness"),
                None => "goal.tardiness".into(),
            };
            let what = format!(
                "a goal out of reach: alone at full clock the tardiness of \"{}\" is {alone:.2}, but {mean} is asked \
                 for; ask for more, or for less of the jobs",
                task.name
            );
            check.require(alone < mean || mean.is_nan() || mean <= 0.0, key, what);
        }
    }
}

fn check_tasks(check: &mut Problems, tasks: &[TaskSpec]) {
    let real_time = tasks.iter().filter(|task| task.deadline().is_some()).count();
    check.require(
        real_time > 0,
        "task",
        "no task has a deadline, so there is nothing to keep on time: add a [[task]] with class = \"real-time\"",
    );
    let mut names = HashSet::new();
    for (i, task) in tasks.iter().enumerate() {
        let key = |field: &str| format!("task[{i}].{field}");
        check.require(!task.name.is_empty(), key("name"), "a task needs a name");
        check.named(&task.name, key("name"));
        check.require(
            names.insert(&task.name),
            key("name"),
            format!("\"{}\" is taken by an earlier task", task.name),
        );
        check.between(task.per_core, (1, 64), key("per_core"));
        if let Some(goal) = task.goal {
            check.goal(goal, "jobs", key);
            let what =
                "a best-effort task has no deadline to be late for; remove this key, or write class = \"real-time\"";
            check.require(task.deadline().is_some(), key(goal.key()), what);
        }
        match task.class {
            Class::RealTime { deadline } | Class::Exclusive { deadline } => {
                check.span(deadline, key("deadline"), "100ms");
                let once = "a real-time task runs once; give it a task of its own instead";
                check.require(task.per_core == 1, key("per_core"), once);
                let there = "a real-time task runs on one core; remove this key, or name the core by `core`";
                check.require(task.cores.is_none(), key("cores"), there);
                let always = "a real-time task runs from start to end; only best-effort tasks are switched on and off";
                check.require(task.active == Active::ALWAYS, key("from"), always);
            }
            Class::BestEffort => {
                check.require(task.cores != Some(0), key("cores"), "a task runs on at least 1 core");
                let one = "`core` names the one core that the task runs on; remove one of the two keys";
                check.require(task.cores.is_none() || task.core.is_none(), key("cores"), one);
                let Active { from, until } = task.active;
                let what =
                    format!("the task would be switched off after {until}, before it is switched on after {from}");
                check.require(from < until, key("until"), what);
            }
        }
        match task.arrival {
            Arrival::Periodic { period } => check.interval(period, key("period")),
            Arrival::Sporadic { gap_min, gap_max } => {
                check.interval(gap_min, key("gap"));
                check.interval(gap_max, key("gap"));
                check.ordered(gap_min, gap_max, key("gap"));
            }
            Arrival::AfterCompletion { pause_min, pause_max } => {
                check.require(pause_max <= LONGEST, key("pause"), "a pause is at most 24 h");
                check.ordered(pause_min, pause_max, key("pause"));
            }
        }
        check_demand(check, task, &task.demand, &key);
        if let Some(file) = &task.profile {
            let what = "names no file: write one that `punctual profile` made, such as \"fft.csv\", or remove this key";
            check.require(!file.is_empty(), key("profile"), what);
            check.printable(file, key("profile"));
        }
    }
}

fn check_demand(check: &mut Problems, task: &TaskSpec, demand: &Demand, key: &dyn Fn(&str) -> String) {
    check.between(demand.rounds, (1, 10_000), key("rounds"));
    let needs = demand.compute + demand.data;
    check.require(needs > Nanos::ZERO, key("compute"), "a job must compute or access data");
    check.require(needs <= LONGEST, key("compute"), "a job takes at most 24 h");
    let Some(window) = task.window() else { return };
    let what = format!(
        "a goal out of reach: one job needs {needs} alone at full clock, but the next one is released after {window}"
    );
    check.require(needs < window, key("compute"), what);
}

#[cfg(test)]
mod tests {
    use punctual_units::CoreId;

    use super::*;
    use crate::scenario::tests::example;

    fn keys(change: impl FnOnce(&mut Scenario)) -> Vec<String> {
        let mut scenario = example();
        change(&mut scenario);
        scenario.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn a_sound_scenario_has_no_problems() {
        assert_eq!(example().problems(), vec![]);
    }

    #[test]
    fn each_problem_names_its_key() {
        assert_eq!(keys(|s| s.duration = Nanos::ZERO), ["duration"]);
        assert_eq!(keys(|s| s.goal.tasks = TaskGoal::Tardiness(-0.5)), ["goal.tardiness"]);
        assert_eq!(
            keys(|s| s.goal.tasks = TaskGoal::Tardiness(f64::NAN)),
            ["goal.tardiness"]
        );
        assert_eq!(keys(|s| s.goal.drr = 1.0), ["goal.drr"]);
        assert_eq!(keys(|s| s.control.warm_up = s.duration), ["control.warm_up"]);
        assert_eq!(keys(|s| s.control.within = true), ["control.within"]);
        assert_eq!(
            keys(|s| s.control.best_effort_min = Some(Share::ZERO)),
            ["control.best_effort_min"]
        );
        assert_eq!(keys(|s| s.sensors.speedup = 21.0), ["trace.speedup"]);
        assert_eq!(keys(|s| s.sensors.volume = Volume::Replicas(0)), ["trace.replicas"]);
        assert_eq!(
            keys(|s| s.sensors.volume = Volume::Utilisation(1.2)),
            ["trace.utilisation"]
        );
        assert_eq!(keys(|s| s.excitation.clock = vec![1.0, 1.0]), ["identify.clock"]);
        assert_eq!(keys(|s| s.tasks.clear()), ["task"]);
        assert_eq!(keys(|s| s.tasks[1].name = s.tasks[0].name.clone()), ["task[1].name"]);
        assert_eq!(keys(|s| s.tasks[1].name = "x".repeat(NAME_MAX + 1)), ["task[1].name"]);
        assert_eq!(keys(|s| s.tasks[1].name = "x".repeat(NAME_MAX)), Vec::<String>::new());
        assert_eq!(keys(|s| s.tasks[0].demand.rounds = 0), ["task[0].rounds"]);
        assert_eq!(keys(|s| s.tasks[1].active.until = Nanos::ZERO), ["task[1].until"]);
        assert_eq!(keys(|s| s.tasks[0].active.from = Nanos(1)), ["task[0].from"]);
        assert_eq!(keys(|s| s.tasks[1].cores = Some(0)), ["task[1].cores"]);
        assert_eq!(keys(|s| s.tasks[0].cores = Some(1)), ["task[0].cores"]);
        let both = |s: &mut Scenario| (s.tasks[1].cores, s.tasks[1].core) = (Some(1), Some(CoreId(0)));
        assert_eq!(keys(both), ["task[1].cores"]);
        assert_eq!(keys(|s| s.tasks[1].profile = Some(String::new())), ["task[1].profile"]);
        assert_eq!(
            keys(|s| s.tasks[1].profile = Some("fft.csv".into())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn goals_that_no_controller_can_reach_are_named() {
        // 20 ms alone against a deadline of 50 ms.
        assert_eq!(keys(|s| s.goal.tasks = TaskGoal::Tardiness(0.3)), ["goal.tardiness"]);
        assert_eq!(keys(|s| s.goal.tasks = TaskGoal::Tardiness(0.41)), Vec::<String>::new());
        let own = |goal| move |s: &mut Scenario| s.tasks[0].goal = Some(goal);
        assert_eq!(keys(own(TaskGoal::Tardiness(0.3))), ["task[0].tardiness"]);
        assert_eq!(keys(own(TaskGoal::default())), Vec::<String>::new());
        assert_eq!(keys(|s| s.goal.tasks = TaskGoal::Late(Share::ZERO)), ["goal.late"]);
        assert_eq!(keys(|s| s.tasks[1].goal = Some(TaskGoal::default())), ["task[1].late"]);
        let short = |s: &mut Scenario| {
            s.tasks[0].class = Class::RealTime {
                deadline: Nanos::from_millis(15),
            };
            s.tasks[0].goal = Some(TaskGoal::default());
        };
        assert_eq!(keys(short), ["task[0].deadline"]);
    }

    #[test]
    fn a_job_longer_than_its_period_is_out_of_reach() {
        let problems = {
            let mut scenario = example();
            scenario.tasks[0].demand.compute = Nanos::from_millis(200);
            scenario.problems()
        };
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("out of reach"), "{problems:?}");
    }
}
