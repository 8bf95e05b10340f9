//! The software FM radio of the paper (section 6.3, Figs. 8 and 9), with parameters that were chosen where it is
//! silent.
//!
//! The paper states the loads: 45 % for the demodulator, 5 % for the low-pass filter and the consumer, 13 % for each
//! band-pass filter. It does not state the number of band-pass filters: three give 94 %, four 107 %. The default is
//! three; four are evaluated as well.
//!
//! The cycles of a frame are not stated either: 6 frames/s for each megahertz fit the paper's 450 and 3000 frames/s on
//! one core and its 900 on two.

use punctual_allocation::mapping::{Configuration, Cores, Idle, Mapping, Problem};
use punctual_mpsoc::{Mpsoc, PipelineModel, StepCost};
use punctual_pipelines::{EdgeSpec, Graph, GraphError, StageSpec, WhenFull};

/// Cycles of a frame, all tasks together.
pub const FRAME_CYCLES: f64 = 1e6 / 6.0;
/// Default number of band-pass filters.
pub const WORKERS: usize = 3;
/// Loads of a band-pass filter, of the low-pass filter or the consumer, and of the demodulator, in percent.
const WORKER: f64 = 13.0;
const END: f64 = 5.0;
const DEMODULATOR: f64 = 45.0;
/// State of every task, in bytes: the paper's least size, because its text names no others.
pub const TASK_BYTES: u64 = 65_536;
/// Size of a frame, in bytes; without effect, because the bus is not simulated.
const FRAME_BYTES: usize = 64;
/// Deviation of the cycles of a step from the average, as a share: by hand; a filter's loops do not depend on the data.
const SPREAD: f64 = 0.02;
/// Stages by number: the low-pass filter is the first, workers begin with [`FIRST_WORKER`], the consumer is the last.
pub const DEMODULATION: usize = 1;
pub const FIRST_WORKER: usize = 2;

/// The radio's pipeline, all queues of `slots` frames, with `demodulator` bytes of state in the demodulator.
pub fn radio(workers: usize, slots: u32, demodulator: u64) -> Result<PipelineModel, String> {
    radio_of(workers, slots, demodulator, SPREAD, 0.0)
}

/// The radio's pipeline with given variation of the steps (`spread`) and `more` cycles for each step.
pub fn radio_of(workers: usize, slots: u32, demodulator: u64, spread: f64, more: f64) -> Result<PipelineModel, String> {
    let graph = graph(workers, slots, demodulator).map_err(|error| error.to_string())?;
    let whole = 2.0 * END + DEMODULATOR + WORKER * workers as f64;
    let cost = |stage: usize| StepCost {
        cycles: FRAME_CYCLES * percent(workers, stage) / whole + more,
        spread,
    };
    let costs = (0..FIRST_WORKER + workers + 1).map(cost).collect();
    PipelineModel::new(&graph, costs).map_err(|error| error.to_string())
}

fn percent(workers: usize, stage: usize) -> f64 {
    match stage {
        DEMODULATION => DEMODULATOR,
        _ if (FIRST_WORKER..FIRST_WORKER + workers).contains(&stage) => WORKER,
        _ => END,
    }
}

fn graph(workers: usize, slots: u32, demodulator: u64) -> Result<Graph, GraphError> {
    let edge = EdgeSpec {
        slots,
        frame_bytes: FRAME_BYTES,
        full: WhenFull::Wait,
    };
    let task = |name: &str| StageSpec::new(name).state(TASK_BYTES as usize);
    let through = |name: &str| task(name).takes(&[1]).makes(&[1]);
    let mut builder = Graph::builder("FM radio")
        .stage(task("low-pass").makes(&[1]))
        .stage(through("demodulator").state(demodulator as usize))
        .edge(("low-pass", 0), ("demodulator", 0), edge);
    let names: Vec<String> = (1..=workers).map(|worker| format!("band-pass {worker}")).collect();
    for name in &names {
        builder = builder.stage(through(name));
    }
    builder = builder.stage(task("consumer").takes(&vec![1; workers]));
    for (port, name) in names.iter().enumerate() {
        builder = builder
            .edge(("demodulator", 0), (name, 0), edge)
            .edge((name, 0), ("consumer", port), edge);
    }
    builder.build()
}

/// The paper's mapping on `cores` cores, 1 to 3 (Fig. 9): the demodulator leaves the first core, then two workers.
pub fn mapping(workers: usize, cores: usize) -> Mapping {
    let of = |stage: usize| match stage {
        DEMODULATION if cores >= 2 => 1,
        _ if cores >= 3 && (FIRST_WORKER..FIRST_WORKER + 2).contains(&stage) => 2,
        _ => 0,
    };
    Mapping::of((0..FIRST_WORKER + workers + 1).map(of))
}

/// Text of a transition in labels, from and to a number of cores.
pub fn transition((from, to): (usize, usize)) -> String {
    let name = |cores: usize| ["none", "one", "two", "three"][cores.min(3)];
    format!("{}-{}", name(from), name(to))
}

/// The mapping problem of the radio on these cores; every step has its average cost, as in the paper's sums.
pub fn problem(workers: usize, cores: Cores, idle: Idle) -> Result<Problem, String> {
    let stages = radio_of(workers, 1, TASK_BYTES, 0.0, 0.0)?.to_map();
    Problem::new(stages, cores, idle).map_err(|error| error.to_string())
}

/// The paper's mapping at the clocks that are best for a frame rate.
pub fn clocked(problem: &Problem, mapping: &Mapping, fps: f64) -> Result<Configuration, String> {
    let served = problem.clocked(mapping, fps);
    served.ok_or_else(|| format!("{} cores do not serve {fps} frames/s", mapping.used()))
}

/// Checks that the machine has enough cores for the paper's mappings.
pub fn check(machine: &Mpsoc) -> Result<(), String> {
    match machine.cores {
        3.. => Ok(()),
        few => Err(format!(
            "cores: {few}; the radio is mapped to up to 3 cores, so that it needs 3 or more"
        )),
    }
}

/// The setting as (name, value) pairs, for the report above the claims.
pub fn setting(machine: &Mpsoc) -> Vec<(String, String)> {
    let row = |name: &str, value: String| (name.to_string(), value);
    let [fewest, most] = machine.grid_steps;
    vec![
        row(
            "machine",
            format!(
                "{} cores of {} to {} MHz, {:.0} mW to {:.0} mW each, a clock for each core",
                machine.cores,
                machine.least_mhz,
                machine.top_mhz,
                machine.watts(machine.least_mhz) * 1e3,
                machine.top_watts * 1e3
            ),
        ),
        row(
            "clock steps",
            format!("not stated: random grids of {fewest} to {most} steps, and even ones"),
        ),
        row(
            "radio",
            format!("{WORKERS} band-pass filters, {FRAME_CYCLES:.0} cycles for a frame, tasks of {TASK_BYTES} bytes"),
        ),
    ]
}
