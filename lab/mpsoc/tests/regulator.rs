//! A `Regulator` beneath a mapping: it holds the tardiness of frames (latency over due-by) by the clock, while a
//! coordinator moves stages. Simulated. They do not fight, because loads are told in cycles, which no clock changes,
//! and because the clock has one hand: the regulator's, or that of `Clocks`, in which the table's row is the lowest
//! clock and the regulator trims it. Where both turn the clock for themselves (the planted fault), it goes back and
//! forth.

use punctual_allocation::mapping::{
    ClockStep, Configuration, Coordinator, Cores, Domain, Ground, Idle, Mapping, MappingPolicy, Move, MoveCost,
    PeriodMeasurements, StageInfo,
};
use punctual_loop::{
    Answer, CLOCKS_EVERY, ClockDomain, ClockGround, Clocks, ClocksSeen, Event, MadeFor, ModelDocument, Regulator,
    RegulatorOptions, Vitals,
};
use punctual_mpsoc::{MigrationModel, PipelineModel, PipelineSim, StepCost, Thermal};
use punctual_pipelines::{EdgeSpec, Graph, StageSpec, WhenFull};
use punctual_platform::{
    Applied, ClockOffer, KnobId, KnobOffer, Measure, MeterId, Offers, Provenance, Range, Readings,
};
use punctual_units::{CoreId, Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{ControllerKind, Goal, JobOutcome, Pace, Split, TaskGoal, UpdateMode};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// When the regulator decides, and how often within that the coordinator.
const STEP: Nanos = CLOCKS_EVERY;
const ASKED: u32 = 2;
/// How long each rate stays, in steps of the regulator.
const STAYS: usize = 60;
/// Of a rate: the steps until clock and mapping are to be at rest.
const SETTLES: usize = 35;
/// Frames are due so long after they were captured.
const DUE: Nanos = Nanos::from_micros(1500);
const GOAL: f64 = 0.7;
const TOP: Hertz = Hertz::from_mhz(2000);
/// Cycles of the stages' steps: 700,000 a frame.
const CYCLES: [f64; 6] = [40e3, 260e3, 120e3, 120e3, 120e3, 40e3];
/// Frames per second, one rate after the other.
const RATES: [f64; 5] = [700.0, 2200.0, 1200.0, 2600.0, 800.0];

fn clocks() -> Vec<Hertz> {
    (4..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect()
}

fn cores() -> Cores {
    let step = |clock: Hertz| {
        let busy_watts = 0.1 + clock.ratio(TOP).powi(3);
        ClockStep {
            clock,
            busy_watts,
            idle_watts: 0.3 * busy_watts,
        }
    };
    Cores {
        domains: vec![Domain {
            cores: 3,
            steps: clocks().into_iter().map(step).collect(),
        }],
        low_power_watts: 0.0,
    }
}

fn pipeline() -> PipelineModel {
    let edge = EdgeSpec {
        slots: 14,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let last = CYCLES.len() - 1;
    let mut graph = Graph::builder("chain");
    for number in 0..CYCLES.len() {
        let mut stage = StageSpec::new(format!("stage {number}")).state(4096);
        stage = if number > 0 { stage.takes(&[1]) } else { stage };
        stage = if number < last { stage.makes(&[1]) } else { stage };
        graph = graph.stage(stage);
    }
    for number in 0..last {
        graph = graph.edge(
            (&format!("stage {number}"), 0),
            (&format!("stage {}", number + 1), 0),
            edge,
        );
    }
    let costs = CYCLES.map(|cycles| StepCost { cycles, spread: 0.05 });
    PipelineModel::new(&graph.build().unwrap(), costs.to_vec()).unwrap()
}

const COST: MoveCost = MoveCost {
    constant_cycles: 100_000.0,
    cycles_per_byte: 2.0,
    bytes_min: 0,
};

fn simulated(fps: f64, seed: u64) -> PipelineSim {
    let mechanism = MigrationModel {
        cost: COST,
        transfer: Nanos::from_micros(10),
        boost: false,
    };
    let thermal = Thermal {
        ambient_celsius: 30.0,
        kelvin_per_watt: 20.0,
        tau_seconds: 1.0,
    };
    let start = Configuration {
        mapping: Mapping::of([0, 1, 2, 2, 2, 0]),
        steps: [clocks().len() as u8 - 1].into_iter().collect(),
    };
    let machine = (cores(), Idle::ShutdownWhenIdle, thermal);
    PipelineSim::new(pipeline(), machine, mechanism, &start, fps, seed).with_captured_frames()
}

/// A model of the pipeline by its own responses to clocks that change; drr and the admitted share, which a pipeline has
/// not, are made up.
fn model(seed: u64) -> ModelDocument {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut simulated = simulated(1200.0, seed);
    let (mut y, mut u) = (Vec::new(), Vec::new());
    let mut before = [0.7, 0.5];
    for k in 0..150u64 {
        let knobs = [rng.random_range(0.6..1.0), rng.random_range(0.3..1.0)];
        let step = nearest(TOP.scaled(knobs[0]));
        let knobs = [clocks()[step].ratio(TOP), knobs[1]];
        simulated.order(&[], &[step as u8]);
        simulated.run_until(Time::ZERO + STEP * (k + 1));
        y.push(before);
        u.push(knobs);
        before = [
            mean_tardiness(&simulated.latencies()),
            0.5 - 0.05 * knobs[0] + 0.3 * knobs[1],
        ];
    }
    let made_for = MadeFor {
        scenario: "test".into(),
        platform: "test".into(),
        pace: Pace::Period(STEP),
        update_mode: UpdateMode::Transaction,
        machine: None,
        shipped: false,
    };
    ModelDocument::identify(made_for, &y, &u).unwrap()
}

fn nearest(wanted: Hertz) -> usize {
    let offer = ClockOffer::new(clocks(), Provenance::Simulated);
    let step = offer.nearest(wanted);
    clocks().iter().position(|clock| *clock == step).unwrap()
}

fn mean_tardiness(latencies: &[Nanos]) -> f64 {
    latencies.iter().map(|latency| latency.ratio(DUE)).sum::<f64>() / latencies.len().max(1) as f64
}

fn regulator(seed: u64) -> Regulator {
    let options = RegulatorOptions {
        kind: ControllerKind::Clock,
        goal: Goal {
            tasks: TaskGoal::Tardiness(GOAL),
            drr: 0.5,
            min_fresh: Share::clamped(0.5),
        },
        goals: Vec::new(),
        stages: Vec::new(),
        offers: Offers {
            machine: "test".into(),
            cores: (0..3).map(CoreId).collect(),
            knobs: vec![KnobOffer {
                knob: KnobId::CLOCK,
                range: Range::Clock(ClockOffer::new(clocks(), Provenance::Simulated)),
            }],
            meters: Vec::new(),
            domains: Vec::new(),
        },
        start: Time::ZERO,
        warm_up: Nanos::ZERO,
        silence: STEP * 20,
        impatient: false,
        within: false,
        design: Some(model(seed).design().unwrap()),
        best_effort: None,
        split: None,
        prices: None,
        idle_clock: false,
        excite: None,
    };
    Regulator::new(options).unwrap()
}

/// What turns the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hands {
    /// The regulator alone.
    Regulator,
    /// The table's row, trimmed by a regulator.
    Trimmed,
    /// The regulator, and the table as well: planted.
    Both,
}

/// One rate: what came of it once all was to be at rest.
#[derive(Clone, Debug)]
struct Phase {
    tardiness: f64,
    late: f64,
    /// Moves in all, and at rest.
    moves: [usize; 2],
    /// The lowest and the highest step of the clock at rest.
    clock: [usize; 2],
}

/// What turns the one clock by rows, with a regulator above them.
fn trimmed() -> Clocks {
    Clocks::new(ClockGround {
        domains: vec![ClockDomain {
            knob: KnobId::CLOCK,
            steps: clocks(),
        }],
        goal: Some(GOAL),
        start: Time::ZERO,
    })
    .unwrap()
}

struct Run {
    simulated: PipelineSim,
    regulator: Regulator,
    coordinator: Coordinator,
    rng: ChaCha8Rng,
    hands: Hands,
    clocks: Clocks,
    /// The latest row, and whether stages are on their way to it.
    row: (Option<Vec<u8>>, bool),
    clock: usize,
    /// The lowest and the highest step since the clock was to be at rest.
    turned: [usize; 2],
    jobs: u64,
}

impl Run {
    fn new(hands: Hands, seed: u64) -> Run {
        let regulator = regulator(seed);
        let pipeline = pipeline();
        let ground = Ground {
            stages: { pipeline.stages().iter() }
                .map(|stage| StageInfo {
                    name: stage.name.clone(),
                    state_bytes: stage.state_room as u64,
                })
                .collect(),
            cores: cores(),
            cost: COST,
        };
        Run {
            simulated: simulated(RATES[0], seed),
            coordinator: Coordinator::new(ground, MappingPolicy::TableOff),
            clock: clocks().len() - 1,
            turned: [0; 2],
            rng: ChaCha8Rng::seed_from_u64(seed),
            regulator,
            hands,
            clocks: trimmed(),
            row: (None, false),
            jobs: 0,
        }
    }

    /// A step of the regulator, within it some of the coordinator; moves, and tardiness of each frame.
    fn step(&mut self, fps: f64) -> (usize, Vec<f64>) {
        let begin = self.simulated.now();
        let (mut moves, mut tardy) = (0, Vec::new());
        for part in 1..=ASKED {
            self.simulated
                .run_until(begin + STEP.scaled(f64::from(part) / f64::from(ASKED)));
            moves += self.ask(fps);
        }
        for latency in self.simulated.latencies() {
            tardy.push(latency.ratio(DUE));
            self.tell(latency);
        }
        match self.hands {
            Hands::Trimmed => self.trim(&tardy),
            Hands::Regulator | Hands::Both => self.regulate(),
        }
        (moves, tardy)
    }

    fn trim(&mut self, tardy: &[f64]) {
        let mean = tardy.iter().sum::<f64>() / tardy.len().max(1) as f64;
        let seen = ClocksSeen {
            row: self.row.0.clone(),
            moves: self.row.1,
            tardiness: (!tardy.is_empty()).then_some(mean),
            refused: None,
        };
        let plan = self.clocks.step(&seen, self.simulated.now());
        if let Some(clock) = plan.clock() {
            self.turn(nearest(clock));
        }
        self.simulated.order(&[], &[self.clock as u8]);
    }

    fn ask(&mut self, fps: f64) -> usize {
        let observed = self.simulated.observe();
        let measured = |cycles: &f64| (cycles * self.rng.random_range(0.98..1.02)) as u64;
        let seen = PeriodMeasurements {
            core: 0,
            fps,
            cycles: CYCLES.iter().map(measured).collect(),
            mapping: observed.mapping,
            celsius: Vec::new(),
            moving: observed.moving,
            held: false,
        };
        let answer = self.coordinator.step(&seen, observed.now);
        if let (Hands::Both, Some([step])) = (self.hands, answer.steps.as_deref()) {
            self.turn(usize::from(*step));
        }
        if answer.steps.is_some() {
            self.row = (answer.steps.clone(), !answer.moves.is_empty());
        }
        self.simulated.order(&answer.moves, &[self.clock as u8]);
        answer.moves.len()
    }

    fn turn(&mut self, step: usize) {
        self.clock = step;
        self.turned = [self.turned[0].min(step), self.turned[1].max(step)];
    }

    fn tell(&mut self, latency: Nanos) {
        let now = self.simulated.now();
        let job = JobOutcome {
            task: TaskId(0),
            job: self.jobs,
            released: Time(now.0 - latency.0),
            deadline: Some(DUE),
            finished: now,
            split: Split {
                computation: latency,
                ..Split::default()
            },
        };
        self.jobs += 1;
        self.regulator.step(&Event::Completed(job), now);
    }

    fn regulate(&mut self) {
        let now = self.simulated.now();
        let vitals = Vitals {
            machine: Readings {
                at: now,
                meters: vec![(MeterId::Clock, Ok(Measure::Clock(clocks()[self.clock])))],
            },
            fresh: Share::ONE,
            updates_offered: 0,
            updates_admitted: 0,
            updates_for_minimum: 0,
            updates_least: Share::ZERO,
        };
        let step = self
            .regulator
            .step(&Event::Period(vitals), now)
            .and_then(Answer::step)
            .unwrap();
        self.turn(nearest(step.plan.clock().unwrap()));
        self.simulated.order(&[], &[self.clock as u8]);
        let applied = Applied {
            obtained: step.plan,
            ..Applied::default()
        };
        self.regulator.step(&Event::Applied(applied), now);
    }

    /// Another hand puts every stage anywhere, so that the coordinator has something to mend.
    fn scatter(&mut self) {
        let mapping = self.simulated.observe().mapping;
        let anywhere = Mapping::of((0..CYCLES.len()).map(|_| self.rng.random_range(0..3)));
        let moves: Vec<Move> = mapping.moves(&anywhere).collect();
        self.simulated.order(&moves, &[self.clock as u8]);
    }

    fn phase(&mut self, fps: f64) -> Phase {
        self.simulated.set_fps(fps);
        self.scatter();
        let (mut moves, mut tardy) = ([0; 2], Vec::new());
        for step in 0..STAYS {
            if step == SETTLES {
                self.turned = [self.clock; 2];
            }
            let (moved, told) = self.step(fps);
            moves[0] += moved;
            if step >= SETTLES {
                moves[1] += moved;
                tardy.extend(told);
            }
        }
        let frames = tardy.len().max(1) as f64;
        Phase {
            tardiness: tardy.iter().sum::<f64>() / frames,
            late: tardy.iter().filter(|tardiness| **tardiness > 1.0).count() as f64 / frames,
            moves,
            clock: self.turned,
        }
    }
}

/// Whether a phase is one in which clock and mapping have come to rest, and frames are as late as they may be.
fn good(phase: &Phase) -> bool {
    let held = phase.tardiness < GOAL * 1.1 && phase.late < 0.01;
    held && phase.moves[0] <= CYCLES.len() && phase.moves[1] == 0 && phase.clock[1] - phase.clock[0] <= 2
}

#[test]
fn regulator_and_mapping_do_not_fight() {
    for (hands, seed) in [Hands::Regulator, Hands::Trimmed]
        .into_iter()
        .flat_map(|hands| (0..4).map(move |it| (hands, it)))
    {
        let mut run = Run::new(hands, seed);
        let phases: Vec<Phase> = RATES.iter().map(|fps| run.phase(*fps)).collect();
        println!("{hands:?}, seed {seed}: {phases:#?}");
        assert!(phases.iter().all(good), "{hands:?}, seed {seed}: {phases:#?}");
        let moves: usize = phases.iter().map(|phase| phase.moves[0]).sum();
        assert!(
            moves >= RATES.len(),
            "{hands:?}, seed {seed}: the mapping changed {moves} times"
        );
    }
}

#[test]
fn a_clock_of_two_hands_is_found() {
    let mut run = Run::new(Hands::Both, 1);
    let phases: Vec<Phase> = RATES.iter().map(|fps| run.phase(*fps)).collect();
    println!("{phases:#?}");
    assert!(!phases.iter().all(good), "{phases:#?}");
}
