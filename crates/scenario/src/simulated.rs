//! A scenario on the simulated machine: the same loop, the same policies, time that emerges from a model.

mod leases;
mod stages;

use std::ops::ControlFlow;

use punctual_cores::Placement;
use punctual_loop::{Answer, DeciderSetup, Event, EventLog, JobRelease, Regulator, RegulatorOptions, Vitals};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_runtime::causes::{Evidence, SkippedWhile};
use punctual_runtime::collector::{Collector, Ending, StepTimes};
use punctual_runtime::frames::FrameEvents;
use punctual_runtime::report::{Activity, Culprit, EnergyParts, FinishedRun, Progress, Protection, Watch, refused};
use punctual_sim::{self as sim, Blocker, MachineModel, Other, Simulation, SimulationLoad, Wait, Waits, costs};
use punctual_units::{Clock, CoreId, Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{JobMeasurements, JobOutcome, JobProgress, Pace, Scenario};

use self::leases::Leases;
use self::stages::SimulatedStages;
use crate::allocation::splitting;
use crate::environment::Environment;
use crate::run::{RunError, RunSetup};
use crate::stages::simulated_cores;

/// How much simulated time passes, at most about, before the watcher is asked whether to go on.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// How many events pass before it is asked, too: much may happen in little simulated time.
const EVENTS: u32 = 1 << 16;

/// Least simulated time between two reports of the figures of each task.
const FIGURES_EVERY: Nanos = Nanos::from_secs(5);

/// Runs the scenario in simulated time.
pub(crate) fn run_scenario(setup: &RunSetup, watch: Watch) -> Result<FinishedRun, RunError> {
    let scenario = setup.scenario();
    let request = setup.request;
    let model = request.machine.clone().unwrap_or_else(MachineModel::exynos5422_a15);
    let costs = costs(&model, scenario.store.update_mode)?;
    let compiled = setup.compile(&costs, &costs)?;
    let cores: Vec<CoreId> = (0..model.cores).map(CoreId).collect();
    let (open, limits) = simulated_cores(&request.pipeline, &setup.requests(), &cores)?;
    let placement = setup.place(&cores, &limits)?;
    let lends = request.neighbours.lend;
    let told = placed(scenario, &placement, lends);
    let asked = request.allocation.as_ref();
    let split = asked.map(|asked| splitting(asked, &scenario.tasks, &model, &placement));
    let (mut decided, split) = split.transpose()?.unzip();
    if let (Some(decided), false) = (&mut decided, open.is_empty()) {
        // Stages have no profile.
        decided.of.push(None);
    }
    let stream = setup.stream(compiled.replicas);
    setup.check_freshness(&stream)?;
    let is_recorded = setup.request.record;
    let load = SimulationLoad {
        tasks: scenario.tasks.iter().cloned().zip(compiled.programs).collect(),
        placement: Some(placement.clone()),
        stream,
        admission: setup.admission(),
        update_mode: scenario.store.update_mode,
        group_commit: scenario.store.group_commit,
        value_bytes: scenario.sensors.value_bytes,
        split,
        seed: scenario.seed,
    };
    let mut machine = Simulation::new(model, load)?;
    let stages = SimulatedStages::new(request, &open, &mut machine, costs.top)?;
    if let Some(surge) = request.surge {
        machine.surge(surge);
    }
    if scenario.control.within {
        machine.tell_progress();
    }
    let start = machine.now();
    let goals = stages.as_ref().map_or_else(Vec::new, SimulatedStages::goals);
    let options = RegulatorOptions {
        split: decided,
        stages: goals.iter().map(|stage| stage.goal).collect(),
        ..setup.regulator(machine.offers(), start)
    };
    let regulator = Regulator::new(options.clone())?;
    let mut header = setup.header(machine.offers(), &costs, compiled.replicas);
    header.protection.extend(told);
    let stop = watch(Progress::Started(&header)).is_break();
    let mut collector = Collector::new(header, setup.watched(), start, regulator.plan())
        .stages(goals.iter().map(|stage| stage.name.clone()).collect());
    if options.excite.is_some() {
        collector = collector.learning();
    }
    let mut environment = request.environment.clone();
    let notes = stages.iter().map(SimulatedStages::note);
    compiled
        .notes
        .into_iter()
        .chain(notes)
        .for_each(|note| collector.note(note));
    for note in environment.begin(&mut machine, regulator.plan().clock().is_some()) {
        collector.note(note);
    }
    let setup_of_log = || DeciderSetup::Tasks(Box::new(options.clone()));
    let log = is_recorded.then(|| EventLog::of(setup_of_log(), usize::MAX));
    let lent = if lends { &placement.exclusive[..] } else { &[] };
    let mut run = Run {
        leases: Leases::of(lent, &machine, log.is_some()),
        machine,
        environment,
        regulator,
        splits: options.split.is_some().then(Splits::default),
        stages,
        frames: FrameEvents::of(goals),
        collector,
        log,
        pace: scenario.control.pace,
        patience: setup.patience(),
        names: scenario.tasks.iter().map(|task| task.name.clone()).collect(),
        deadlines: scenario
            .tasks
            .iter()
            .map(|task| task.deadline().filter(|_| options.rests()))
            .collect(),
        best_effort_share: scenario.control.best_effort_share,
        figures_due: start,
        settled: start + setup.settle(),
        energy: [EnergyParts::default(); 2],
    };
    if !stop {
        run.until(start + scenario.duration, watch);
        run.obey(watch);
    }
    Ok(run.finish())
}

/// Protection of exclusive tasks, for the report; empty without such tasks.
fn placed(scenario: &Scenario, placement: &Placement, lends: bool) -> Vec<Protection> {
    let names: Vec<&str> = scenario.tasks.iter().map(|task| task.name.as_str()).collect();
    let lent = if lends { "lent" } else { "not lent" };
    let kept = |core: &CoreId| Protection {
        what: format!("core {core} kept for exclusive tasks, and {lent} while idle (simulated)"),
        refused: None,
        stays: Vec::new(),
    };
    let mut told: Vec<Protection> = placement.exclusive.iter().map(kept).collect();
    told.extend(refused(&names, placement));
    told
}

/// State of the machine for which the split was last decided.
#[derive(Default)]
struct Splits {
    /// Number of changes on the machine by then, and its clock.
    seen: Option<(u64, Hertz)>,
    /// Number of changes of shares.
    changes: u64,
}

/// Causes that delayed a job of a task with a deadline; all waits that its split has are named.
fn evidence(waits: &Waits, names: &[String]) -> Evidence {
    let took = |by: Other, keeps: Blocker| {
        let same = waits.by.iter().filter(|wait| (wait.by, wait.keeps) == (by, keeps));
        same.map(|wait| wait.took).sum::<Nanos>()
    };
    let culprit = |by: Other, doing: Option<Activity>, took: Nanos| Culprit {
        doing,
        us: took.as_micros_f64(),
        ..Culprit::named(match by {
            Other::Task(task) => names[task.index()].as_str(),
            Other::Update => "updater",
            Other::GroupCommit => "group commit",
            Other::TakeBack => "taking the core back",
        })
    };
    // Whatever a holder of the lock did meanwhile, it is one culprit.
    let holder = |wait: &Wait| {
        let [working, committing] = [Blocker::Lock, Blocker::Commit].map(|keeps| took(wait.by, keeps));
        let doing = if committing > working {
            Activity::Committing
        } else {
            Activity::Working
        };
        culprit(wait.by, Some(doing), working + committing)
    };
    let longest_first = |lock: bool| {
        let of_kind = waits.by.iter().filter(|wait| (wait.keeps != Blocker::Core) == lock);
        let mut culprits: Vec<Culprit> = of_kind
            .map(|wait| {
                if lock {
                    holder(wait)
                } else {
                    culprit(wait.by, None, wait.took)
                }
            })
            .collect();
        culprits.sort_by(|one, other| other.us.total_cmp(&one.us));
        culprits.into_iter()
    };
    Evidence {
        known: JobMeasurements {
            behind: waits.behind,
            ..JobMeasurements::default()
        },
        holder: longest_first(true).next(),
        preemptors: longest_first(false).collect(),
        ..Evidence::default()
    }
}

struct Run {
    machine: Simulation,
    environment: Box<dyn Environment>,
    regulator: Regulator,
    /// Where cores split cache and memory.
    splits: Option<Splits>,
    leases: Leases,
    stages: Option<SimulatedStages>,
    frames: FrameEvents,
    collector: Collector,
    log: Option<EventLog>,
    pace: Pace,
    /// Watchdog: the loop decides anyway if no job has ended for this long.
    patience: Option<Nanos>,
    /// Names of the tasks, by their ids.
    names: Vec<String>,
    /// Deadlines of the tasks, by their ids; `None`: the loop needs no report of their releases.
    deadlines: Vec<Option<Nanos>>,
    best_effort_share: Share,
    /// When the figures of each task are reported next.
    figures_due: Time,
    /// When the start-up is over.
    settled: Time,
    /// The meter at the last step of the start-up, and at the last step.
    energy: [EnergyParts; 2],
}

impl Run {
    /// Carries out the requests of the user.
    fn obey(&mut self, watch: Watch) {
        let (mut requests, now) = (Vec::new(), self.machine.now());
        let _ = watch(Progress::Requests(&mut requests));
        for request in requests {
            self.collector.requested(request, now).map(|changed| self.step(changed));
        }
    }

    fn until(&mut self, end: Time, watch: Watch) {
        self.collector.begin(self.environment.read(&mut self.machine));
        self.bound_best_effort();
        self.act(self.regulator.plan());
        self.note_forecast();
        let mut due = self.next_due();
        let (mut asked, mut events) = (self.machine.now(), 0);
        while self.machine.now() < end {
            let now = self.machine.now();
            events += 1;
            if now.since(asked) >= PATIENCE || events >= EVENTS {
                (asked, events) = (now, 0);
                self.obey(watch);
                if watch(Progress::Waiting).is_break() {
                    return;
                }
            }
            self.leases.step(&mut self.machine);
            let until = due.min(end).min(now + PATIENCE).min(self.next_split());
            let until = until.min(self.leases.next(now));
            let until = until.min(self.stages.as_mut().map_or(Time::MAX, |it| it.step(&mut self.machine)));
            let ticked = match self.machine.run_until(until) {
                sim::SimulationEvent::Completed(outcome) if outcome.task.index() >= self.names.len() => {
                    self.stages
                        .iter_mut()
                        .for_each(|it| it.completed(outcome.task, self.machine.now()));
                    false
                }
                sim::SimulationEvent::Completed(outcome) => {
                    self.completed(outcome);
                    self.pace == Pace::Job && outcome.deadline.is_some()
                }
                sim::SimulationEvent::Skipped { task, at } => {
                    self.collector.skipped(task, 1, at, SkippedWhile::UnderWay);
                    self.step(Event::Skipped { task, jobs: 1 });
                    false
                }
                sim::SimulationEvent::Progressed(job) => {
                    self.progressed(job);
                    false
                }
                sim::SimulationEvent::Released { task, job, at } => {
                    self.collector.released(task, job, at);
                    self.begun(task, job, at);
                    false
                }
                sim::SimulationEvent::Reached => self.machine.now() >= due,
            };
            if ticked {
                due = self.next_due();
                if self.tick(watch).is_break() {
                    return;
                }
            }
            // After the loop, which may have turned the clock.
            self.split();
        }
    }

    /// Time at which the split may be due, or a look ahead for it; `Time::MAX` where nothing is split.
    fn next_split(&mut self) -> Time {
        if self.splits.is_none() {
            return Time::MAX;
        }
        let due = self.regulator.split_due().unwrap_or(Time::MAX);
        self.machine.next_change().min(due)
    }

    /// Reports to the loop which jobs run, where these or the clock have changed, or the loop asks for a report. Else
    /// it looks ahead.
    fn split(&mut self) {
        let machine = &mut self.machine;
        let seen = Some((machine.work_changes(), machine.clock()));
        let due = self.regulator.look(machine.now());
        let changed = |splits: &&mut Splits| due.is_some() || splits.seen != seen;
        let Some(splits) = self.splits.as_mut().filter(changed) else {
            return;
        };
        splits.seen = seen;
        let jobs = Event::Jobs {
            clock: machine.clock(),
            cores: machine.instant().jobs,
            foreseen: due == Some(true),
        };
        let answer = self.step(jobs);
        self.note_forecast();
        if let Some(Answer::Turn(plan)) = answer {
            if let Some(splits) = &mut self.splits {
                splits.changes += 1;
            }
            self.act(plan);
        }
    }

    /// Notes the split that looking ahead has chosen, where it is another one than before.
    fn note_forecast(&mut self) {
        if let Some(forecast) = self.regulator.split_forecast() {
            self.collector.note(format!("{forecast} (simulated)"));
        }
    }

    /// The report counts the job as it was; the loop gets what the response meter says of it.
    fn completed(&mut self, outcome: JobOutcome) {
        let evidence = evidence(self.machine.last_waits(), &self.names);
        self.collector.job(&outcome, &evidence);
        let told = match outcome.deadline {
            Some(_) => self.environment.observe(outcome, self.machine.now()),
            None => Some(outcome),
        };
        if let Some(outcome) = told {
            self.step(Event::Completed(outcome));
        }
    }

    /// Reports the progress of a job under way, which may need another clock.
    fn progressed(&mut self, job: JobProgress) {
        if let Some(Answer::Turn(plan)) = self.step(Event::Progressed(job)) {
            let applied = self.environment.apply(&mut self.machine, &plan);
            self.step(Event::Applied(applied));
            self.collector.paced(self.machine.now(), None);
        }
    }

    /// Reports the release of a real-time job, which may need the law's clock again.
    fn begun(&mut self, task: TaskId, job: u64, released: Time) {
        let Some(deadline) = self.deadlines[task.index()] else {
            return;
        };
        let pending = self.machine.updates().pending() as u64;
        let begun = JobRelease {
            task,
            job,
            released,
            deadline,
            pending,
        };
        if let Some(Answer::Turn(plan)) = self.step(Event::Begun(begun)) {
            self.act(plan);
        }
    }

    fn bound_best_effort(&mut self) {
        if self.best_effort_share < Share::ONE {
            // The simulated machine always offers this knob.
            self.environment.apply(
                &mut self.machine,
                &Plan::of(KnobId::BestEffortShare, Value::Share(self.best_effort_share)),
            );
        }
    }

    fn next_due(&self) -> Time {
        match self.pace {
            Pace::Job => self
                .patience
                .map_or(Time::MAX, |patience| self.machine.now() + patience),
            Pace::Period(period) => self.machine.now() + period,
        }
    }

    /// Sense, decide, act: the loop.
    fn tick(&mut self, watch: Watch) -> ControlFlow<()> {
        for late in self.environment.overdue(self.machine.now()) {
            self.step(Event::Completed(late));
        }
        self.count_open();
        while let Some(late) = self.collector.news() {
            self.step(late);
        }
        let now = self.machine.now();
        let mut frames = std::mem::take(&mut self.frames);
        frames.report(now, &mut |event| {
            self.step(event);
        });
        self.frames = frames;
        let readings = self.environment.read(&mut self.machine);
        self.energy[1] = self.machine.energy();
        if readings.at < self.settled {
            self.energy[0] = self.energy[1];
            self.stages.iter_mut().for_each(|it| it.settle(now));
        }
        let fresh = self.machine.fresh_share();
        let counts = self.machine.updates().counts();
        let vitals = Vitals {
            fresh,
            updates_offered: counts.offered,
            updates_admitted: counts.admitted,
            updates_for_minimum: counts.for_minimum,
            updates_least: self.machine.updates().least_share(),
            machine: readings.clone(),
        };
        self.machine.rebalance();
        let Some(step) = self.step(Event::Period(vitals)).and_then(Answer::step) else {
            return ControlFlow::Continue(());
        };
        self.act(step.plan);
        // No probe here: nothing takes a core from the simulated machine but what it simulates.
        let sample = self.collector.step(&step, &readings, StepTimes::default(), |_| false);
        if watch(Progress::Sample(&sample)).is_break() {
            return ControlFlow::Break(());
        }
        if readings.at < self.figures_due {
            return ControlFlow::Continue(());
        }
        self.figures_due = readings.at + FIGURES_EVERY;
        watch(Progress::Tasks(&self.collector.tasks()))?;
        watch(Progress::Settings(&self.collector.settings()))
    }

    fn act(&mut self, plan: Plan) {
        let applied = self.environment.apply(&mut self.machine, &plan);
        self.step(Event::Applied(applied));
    }

    fn step(&mut self, event: Event) -> Option<Answer> {
        let now = self.machine.now();
        let answer = self.regulator.step(&event, now);
        if let Some(log) = &mut self.log {
            log.note(now, event, answer.clone());
        }
        answer
    }

    /// Counts the releases that are late although their jobs have not ended.
    fn count_open(&mut self) {
        for task in (0..self.names.len() as u32).map(TaskId) {
            if let Some(jobs) = self.machine.jobs_begun(task) {
                self.collector.begun(task, jobs);
            }
        }
        self.collector.count_open(self.machine.now());
    }

    fn finish(mut self) -> FinishedRun {
        self.count_open();
        if let Some(Splits { changes, .. }) = self.splits {
            self.collector
                .note(format!("ways and bandwidth were split {changes} times (simulated)"));
        }
        self.regulator
            .unheld()
            .for_each(|unheld| self.collector.unheld(&unheld));
        let [start_up, last] = self.energy;
        let updates = self.machine.updates();
        let ending = Ending {
            counts: updates.counts(),
            reconciliation: updates.reconcile(),
            energy_parts_j: Some(last + start_up * -1.0),
            ..Ending::default()
        };
        let (lending, logs) = self.leases.finish(&self.machine);
        let log = self.log.map(|mut log| {
            logs.into_iter().for_each(|lending| log.join(lending));
            log
        });
        let mut report = self.collector.finish(ending);
        report.lending = lending;
        report.stages = { self.stages }.map_or_else(Vec::new, |it| it.finish(&mut self.machine));
        FinishedRun { report, log }
    }
}
