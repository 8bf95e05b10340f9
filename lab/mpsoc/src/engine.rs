//! The simulation of a pipeline: advances from one event to the next.

use std::collections::VecDeque;

use punctual_allocation::mapping::{CORES_MAX, Configuration, Cores, Idle, Mapping, Move, MoveCost};
use punctual_units::{Hertz, Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use smallvec::SmallVec;

use super::cores::{CoreReport, CoreTask, PipelineCore, Thermal};
use super::graph::{PipelineModel, StepCost};

/// Bound on the freezes that a report lists one by one.
pub const FREEZES_MAX: usize = 4096;

/// How stages are moved (migrated).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MigrationModel {
    /// Cycles of a move; the old and the new core work for half each.
    pub cost: MoveCost,
    /// Time between the halves, in which no core works for the move.
    pub transfer: Nanos,
    /// Whether all cores run at their highest clock while a stage is being moved: queues then fill up again soonest.
    pub boost: bool,
}

/// Work that recurs at a steady period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Daemon {
    /// Index of the daemon's core.
    pub core: usize,
    /// Period, above 0. If a run is not done when the next period begins, that period's run is skipped.
    pub every: Nanos,
    /// Cycles of each run.
    pub cycles: f64,
}

/// A completed move, in which its stage stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The stage, with its old and new core.
    pub moved: Move,
    /// When the stage stopped.
    pub from: Time,
    /// When the stage could continue.
    pub until: Time,
}

/// Counts and energy of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineReport {
    /// Number of due instants.
    pub due: u64,
    /// Number of due instants at which a queue before the sink was empty.
    pub late: u64,
    /// Number of steps that the sink has ended.
    pub delivered: u64,
    /// Number of steps that each stage has ended.
    pub steps: Vec<u64>,
    /// The lowest level of each queue at a due instant; the initial level before the first.
    pub least: Vec<u32>,
    /// Number of completed moves.
    pub moves: u64,
    /// The first [`FREEZES_MAX`] moves.
    pub freezes: Vec<Freeze>,
    /// Energy, temperature and times of each core.
    pub cores: Vec<CoreReport>,
}

impl PipelineReport {
    /// Energy of all cores, in joules.
    pub fn joules(&self) -> f64 {
        self.cores.iter().map(|core| core.joules).sum()
    }

    /// The highest temperature of any core, in degrees Celsius.
    pub fn peak_celsius(&self) -> f64 {
        self.cores.iter().map(|core| core.peak_celsius).fold(f64::MIN, f64::max)
    }
}

/// State of the machine as a policy sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyView {
    /// Present instant of simulated time.
    pub now: Time,
    /// Frames that are due per second.
    pub fps: f64,
    /// The core of each stage, or its new core during a move.
    pub mapping: Mapping,
    /// Whether a move is in progress.
    pub moving: bool,
    /// Temperature of each core, in degrees Celsius.
    pub celsius: SmallVec<[f64; CORES_MAX]>,
}

/// Frames that arrive at a steady rate, instead of being at hand at any time.
#[derive(Clone, Debug)]
struct FrameArrivals {
    /// When the next frame arrives.
    next: Time,
    /// Number of frames that wait for the source.
    waiting: u32,
    /// Arrivals of the frames that are not delivered yet, the oldest first.
    under_way: VecDeque<Time>,
    /// Latency of each frame delivered since the last query: from its arrival to the end of the sink's step.
    latencies: Vec<Nanos>,
}

/// Bound on the frames between source and sink, and on the stored latencies: further ones are dropped.
pub const CAPTURED_MAX: usize = 1 << 16;

/// Phase of a stage: at rest, in a step, or in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Resident,
    Stepping,
    Saving,
    Travelling(Time),
    Restoring,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    core: usize,
    life: Life,
    /// Core to which the stage is to be moved.
    target: Option<usize>,
    /// Sequence number of the stage's latest step, counted over the steps of all stages.
    turn: u64,
    frozen: Time,
}

/// A pipeline that runs on a machine, in simulated time; the same calls give the same run, to the last bit.
#[derive(Clone, Debug)]
pub struct PipelineSim {
    pipeline: PipelineModel,
    machine: Cores,
    idle: Idle,
    thermal: Thermal,
    mechanism: MigrationModel,
    daemons: Vec<(Daemon, Time)>,
    captured: Option<FrameArrivals>,
    random: ChaCha8Rng,
    now: Time,
    stages: Vec<Stage>,
    levels: Vec<u32>,
    cores: Vec<PipelineCore>,
    steps: SmallVec<[u8; CORES_MAX]>,
    /// Steps of the clocks once all moves are done.
    wanted: SmallVec<[u8; CORES_MAX]>,
    fps: f64,
    /// The next due instant; `None` until the queues before the sink were full for the first time.
    due: Option<Time>,
    /// Number of steps that the sink may take.
    granted: u32,
    turns: u64,
    report: PipelineReport,
}

impl PipelineSim {
    /// Starts with empty queues and cores at ambient temperature. Frames are due once the queues before the sink are
    /// full for the first time.
    pub fn new(
        pipeline: PipelineModel,
        (machine, idle, thermal): (Cores, Idle, Thermal),
        mechanism: MigrationModel,
        start: &Configuration,
        fps: f64,
        seed: u64,
    ) -> PipelineSim {
        let stage = |core| Stage {
            core,
            life: Life::Resident,
            target: None,
            turn: 0,
            frozen: Time::ZERO,
        };
        let count = machine.count();
        PipelineSim {
            random: ChaCha8Rng::seed_from_u64(seed),
            now: Time::ZERO,
            stages: start.mapping.cores().map(stage).collect(),
            levels: vec![0; pipeline.edges().len()],
            cores: vec![PipelineCore::at(thermal.ambient_celsius); count],
            steps: start.steps.clone(),
            wanted: start.steps.clone(),
            fps,
            due: None,
            granted: 0,
            turns: 0,
            daemons: Vec::new(),
            captured: None,
            report: fresh(&pipeline, count),
            pipeline,
            machine,
            idle,
            thermal,
            mechanism,
        }
    }

    /// Adds daemons, which run from the end of their first period on.
    pub fn with_daemons(mut self, daemons: &[Daemon]) -> PipelineSim {
        self.daemons = daemons
            .iter()
            .map(|daemon| (*daemon, self.now + daemon.every))
            .collect();
        self
    }

    /// Makes frames arrive at the rate at which they are due; the sink takes each as soon as it can, and
    /// [`PipelineSim::latencies`] returns the frames' latencies. For graphs of one source, in which a frame makes one
    /// frame.
    pub fn with_captured_frames(mut self) -> PipelineSim {
        self.captured = Some(FrameArrivals {
            next: self.now + self.period(),
            waiting: 0,
            under_way: VecDeque::new(),
            latencies: Vec::new(),
        });
        self
    }

    /// Latencies, from capture to delivery, of the frames delivered since the last call.
    pub fn latencies(&mut self) -> Vec<Nanos> {
        let captured = self.captured.as_mut();
        captured.map_or_else(Vec::new, |captured| std::mem::take(&mut captured.latencies))
    }

    pub fn pipeline(&self) -> &PipelineModel {
        &self.pipeline
    }

    /// Present instant of simulated time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of frames in each queue.
    pub fn levels(&self) -> &[u32] {
        &self.levels
    }

    /// Sets the number of frames due per second from now on; above 0.
    pub fn set_fps(&mut self, fps: f64) {
        self.fps = fps;
        let next = self.now + self.period();
        self.due = self.due.map(|due| due.min(next));
        if let Some(captured) = &mut self.captured {
            captured.next = captured.next.min(next);
        }
    }

    /// Orders moves and clocks. A stage that is already being moved, or may not migrate, is left alone.
    pub fn order(&mut self, moves: &[Move], steps: &[u8]) {
        for one in moves {
            let stage = &mut self.stages[one.stage];
            let free = matches!(stage.life, Life::Resident | Life::Stepping) && stage.target.is_none();
            if free && stage.core != one.to && self.pipeline.stages()[one.stage].migratable {
                stage.target = Some(one.to);
            }
        }
        self.wanted = steps.iter().copied().collect();
        self.set_clocks();
    }

    /// Returns the present state for a policy.
    pub fn observe(&mut self) -> PolicyView {
        self.settle();
        PolicyView {
            now: self.now,
            fps: self.fps,
            mapping: Mapping::of(self.stages.iter().map(|stage| stage.target.unwrap_or(stage.core))),
            moving: self.is_moving(),
            celsius: self.cores.iter().map(|core| core.report.celsius).collect(),
        }
    }

    /// Counts and energy of the run so far.
    pub fn report(&mut self) -> PipelineReport {
        self.settle();
        PipelineReport {
            cores: self.cores.iter().map(|core| core.report).collect(),
            ..self.report.clone()
        }
    }

    /// Resets the counts, as if the run began now.
    pub fn forget(&mut self) {
        let (now, thermal) = (self.now, self.thermal);
        self.cores.iter_mut().for_each(|core| core.forget(now, &thermal));
        self.report = PipelineReport {
            least: self.levels.clone(),
            ..fresh(&self.pipeline, self.cores.len())
        };
    }

    /// Runs to the instant `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            self.schedule();
            let next = self.next_event();
            if next > until {
                self.now = self.now.max(until);
                return;
            }
            self.now = next;
            self.finish();
            self.arrive();
            self.wake_daemons();
            self.capture();
            self.frame_due();
        }
    }

    fn next_event(&self) -> Time {
        let works = self.cores.iter().filter_map(|core| Some(core.work?.ends));
        let travels = self.stages.iter().filter_map(|stage| match stage.life {
            Life::Travelling(until) => Some(until),
            _ => None,
        });
        let daemons = self.daemons.iter().map(|(_, at)| *at);
        works
            .chain(travels)
            .chain(daemons)
            .chain(self.due)
            .chain(self.captured.as_ref().map(|captured| captured.next))
            .min()
            .unwrap_or(Time::MAX)
    }

    fn finish(&mut self) {
        for core in 0..self.cores.len() {
            match self.cores[core].end(self.now) {
                Some(CoreTask::Step(stage)) => self.commit(stage),
                Some(CoreTask::Save(stage)) => {
                    self.stages[stage].life = Life::Travelling(self.now + self.mechanism.transfer)
                }
                Some(CoreTask::Restore(stage)) => self.settle_in(stage),
                Some(CoreTask::Daemon(_)) | None => {}
            }
        }
    }

    /// Ends a step: takes its input and makes its output.
    fn commit(&mut self, stage: usize) {
        for (edge, level) in self.pipeline.edges().iter().zip(&mut self.levels) {
            if edge.to == stage {
                *level -= edge.takes;
            }
            if edge.from == stage {
                *level += edge.makes;
            }
        }
        self.stages[stage].life = Life::Resident;
        self.report.steps[stage] += 1;
        if stage == self.pipeline.sink() {
            self.granted = self.granted.saturating_sub(1);
            self.report.delivered += 1;
            self.deliver();
        }
        let before_sink = self.pipeline.edges().iter().zip(&self.levels);
        let full =
            |(edge, level): (&super::Edge, &u32)| edge.to != self.pipeline.sink() || level + edge.makes > edge.slots;
        if self.due.is_none() && self.captured.is_none() && before_sink.into_iter().all(full) {
            self.due = Some(self.now);
            self.report.least.clone_from(&self.levels);
        }
    }

    fn deliver(&mut self) {
        if let Some(captured) = &mut self.captured
            && let Some(came) = captured.under_way.pop_front()
            && captured.latencies.len() < CAPTURED_MAX
        {
            captured.latencies.push(self.now.since(came));
        }
    }

    fn capture(&mut self) {
        let (now, period) = (self.now, self.period());
        let Some(captured) = self.captured.as_mut().filter(|it| it.next <= now) else {
            return;
        };
        captured.next = captured.next + period;
        if captured.under_way.len() < CAPTURED_MAX {
            captured.waiting += 1;
            captured.under_way.push_back(now);
        }
    }

    fn settle_in(&mut self, number: usize) {
        let stage = &mut self.stages[number];
        let Some(to) = stage.target.take() else { return };
        let from = std::mem::replace(&mut stage.core, to);
        stage.life = Life::Resident;
        self.report.moves += 1;
        if self.report.freezes.len() < FREEZES_MAX {
            self.report.freezes.push(Freeze {
                moved: Move {
                    stage: number,
                    from,
                    to,
                },
                from: stage.frozen,
                until: self.now,
            });
        }
        self.set_clocks();
    }

    fn arrive(&mut self) {
        for number in 0..self.stages.len() {
            let Stage { life, target, .. } = self.stages[number];
            let (Life::Travelling(until), Some(to)) = (life, target) else {
                continue;
            };
            if until <= self.now {
                self.stages[number].life = Life::Restoring;
                let half = self.half_of_move(number);
                self.cores[to].urgent.push_back((CoreTask::Restore(number), half));
            }
        }
    }

    fn half_of_move(&self, stage: usize) -> f64 {
        self.mechanism
            .cost
            .cycles(self.pipeline.stages()[stage].state_room as u64)
            / 2.0
    }

    fn wake_daemons(&mut self) {
        for (number, (daemon, at)) in self.daemons.iter_mut().enumerate() {
            if *at > self.now {
                continue;
            }
            *at = self.now + daemon.every.max(Nanos(1));
            let core = &mut self.cores[daemon.core];
            let task = CoreTask::Daemon(number);
            let busy = core.work.is_some_and(|work| work.task == task) || core.urgent.iter().any(|one| one.0 == task);
            if !busy {
                core.urgent.push_back((task, daemon.cycles));
            }
        }
    }

    fn frame_due(&mut self) {
        let Some(due) = self.due.filter(|due| *due <= self.now) else {
            return;
        };
        let sink = self.pipeline.sink();
        let granted = self.granted;
        let mut there = true;
        for (number, edge) in self.pipeline.edges().iter().enumerate() {
            // Frames granted to the sink and not yet taken do not count for this frame.
            let left = self.levels[number].saturating_sub(if edge.to == sink { granted * edge.takes } else { 0 });
            self.report.least[number] = self.report.least[number].min(left);
            there &= edge.to != sink || left >= edge.takes;
        }
        self.report.due += 1;
        match there {
            true => self.granted += 1,
            false => self.report.late += 1,
        }
        self.due = Some(due + self.period());
    }

    fn period(&self) -> Nanos {
        Nanos::from_secs_f64(1.0 / self.fps).max(Nanos(1))
    }

    /// Gives every idle core its next work, and sets the power of every core.
    fn schedule(&mut self) {
        for number in 0..self.stages.len() {
            let half = self.half_of_move(number);
            let stage = &mut self.stages[number];
            if stage.target.is_some() && stage.life == Life::Resident {
                stage.life = Life::Saving;
                stage.frozen = self.now;
                self.cores[stage.core].urgent.push_back((CoreTask::Save(number), half));
            }
        }
        for core in 0..self.cores.len() {
            if self.cores[core].work.is_none() {
                self.begin_next(core);
            }
            let watts = self.watts(core);
            self.cores[core].draw(watts, self.now, &self.thermal);
        }
    }

    fn begin_next(&mut self, core: usize) {
        let (clock, now) = (self.clock(core, &self.steps), self.now);
        if let Some((task, cycles)) = self.cores[core].urgent.pop_front() {
            self.cores[core].begin(task, cycles, clock, now);
        } else if let Some(stage) = self.next_stage(core) {
            let StepCost { cycles, spread } = self.pipeline.costs()[stage];
            let drawn = cycles * (1.0 + spread * self.random.random_range(-1.0..=1.0));
            self.turns += 1;
            if self.is_source(stage)
                && let Some(captured) = &mut self.captured
            {
                captured.waiting -= 1;
            }
            self.stages[stage].turn = self.turns;
            self.stages[stage].life = Life::Stepping;
            self.cores[core].begin(CoreTask::Step(stage), drawn, clock, now);
        }
    }

    /// The sink first, else the stage whose latest step began the longest ago.
    fn next_stage(&self, core: usize) -> Option<usize> {
        let ready = (0..self.stages.len()).filter(|stage| self.stages[*stage].core == core && self.is_ready(*stage));
        ready.min_by_key(|stage| (*stage != self.pipeline.sink(), self.stages[*stage].turn))
    }

    fn is_ready(&self, stage: usize) -> bool {
        let open = |(edge, level): (&super::Edge, &u32)| {
            (edge.to != stage || *level >= edge.takes) && (edge.from != stage || level + edge.makes <= edge.slots)
        };
        let there = match &self.captured {
            Some(captured) => !self.is_source(stage) || captured.waiting > 0,
            None => stage != self.pipeline.sink() || self.granted > 0,
        };
        self.stages[stage].life == Life::Resident && there && self.pipeline.edges().iter().zip(&self.levels).all(open)
    }

    fn is_source(&self, stage: usize) -> bool {
        self.pipeline.edges().iter().all(|edge| edge.to != stage)
    }

    fn clock(&self, core: usize, steps: &[u8]) -> Hertz {
        let domain = self.machine.domain(core);
        self.machine.domains[domain].steps[usize::from(steps[domain])].clock
    }

    fn watts(&self, core: usize) -> f64 {
        let domain = self.machine.domain(core);
        let step = &self.machine.domains[domain].steps[usize::from(self.steps[domain])];
        let used = || {
            let goes = |stage: &Stage| stage.core == core || stage.target == Some(core);
            self.stages.iter().any(goes) || self.daemons.iter().any(|(daemon, _)| daemon.core == core)
        };
        match self.idle {
            _ if self.cores[core].work.is_some() => step.busy_watts,
            Idle::AlwaysOn if used() => step.idle_watts,
            Idle::AlwaysOn | Idle::ShutdownWhenIdle => self.machine.low_power_watts,
        }
    }

    fn is_moving(&self) -> bool {
        self.stages.iter().any(|stage| stage.target.is_some())
    }

    /// Sets the clocks: they rise at once, and fall when no stage is being moved.
    fn set_clocks(&mut self) {
        let (moving, boost) = (self.is_moving(), self.mechanism.boost);
        let domains = self.machine.domains.iter().zip(self.steps.iter().zip(&self.wanted));
        let next: SmallVec<[u8; CORES_MAX]> = domains
            .map(|(domain, (now, wanted))| match moving {
                true if boost => domain.steps.len() as u8 - 1,
                true => *now.max(wanted),
                false => *wanted,
            })
            .collect();
        for core in 0..self.cores.len() {
            let (from, to) = (self.clock(core, &self.steps), self.clock(core, &next));
            if from != to {
                self.cores[core].retune(from, to, self.now);
            }
        }
        self.steps = next;
    }

    #[cfg(test)]
    pub(super) fn lose_a_frame(&mut self) {
        self.levels[0] -= 1;
    }

    fn settle(&mut self) {
        let (now, thermal) = (self.now, self.thermal);
        self.cores.iter_mut().for_each(|core| core.settle(now, &thermal));
    }
}

fn fresh(pipeline: &PipelineModel, cores: usize) -> PipelineReport {
    PipelineReport {
        steps: vec![0; pipeline.stages().len()],
        least: vec![0; pipeline.edges().len()],
        cores: vec![CoreReport::default(); cores],
        ..PipelineReport::default()
    }
}
