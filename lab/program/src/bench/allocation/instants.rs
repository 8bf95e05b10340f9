//! Instants to decide: the running and the waiting jobs on each core, at a moment of a task set's run.
//!
//! Task sets are drawn as in the fifth paper (section VIII-A): utilisations uniform in 0.1..0.4 of the reference WCET,
//! a program for each task, worst-fit packing. A moment is drawn, not run: each core runs one of its tasks with a
//! probability of its utilisation under an even split, and rests otherwise. A job's progress is uniform in time. The
//! core's other tasks wait with the probability of theirs. This visits phases as often as a run does, but not the
//! coincidences of a schedule.

use punctual_allocation::policy::equal;
use punctual_allocation::{Loads, PeriodicTask, Pool, Programs, RunningJob, Share, WaitingJob};
use punctual_evaluation::packing::worst_fit;
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The running job of each core, if any.
pub type Cores<'a> = Vec<Option<RunningJob<'a>>>;

/// Number of task sets from which instants are drawn.
const TASK_SETS: usize = 64;
/// Number of instants per task set.
const INSTANTS: usize = 64;
/// Upper bound on the tasks drawn for a set: bounds the search for a set that fits.
const TASKS_MAX: usize = 256;
/// Range of a task's utilisation, as in the paper.
const UTILISATIONS: [f64; 2] = [0.1, 0.4];
/// Time of all instants: late enough that deadlines may have passed.
const NOW: Time = Time(1_000_000_000_000);

/// Instants of many task sets.
pub struct Instants {
    sets: Vec<Loads>,
    instants: Vec<Vec<Core>>,
}

/// The jobs of a core at an instant.
#[derive(Default)]
struct Core {
    runs: Option<WaitingJob>,
    waits: Vec<WaitingJob>,
}

impl Instants {
    /// Draws task sets of `utilisation` on `cores` cores and instants of each.
    pub fn draw(programs: &Programs, pool: Pool, cores: usize, utilisation: f64, seed: u64) -> Instants {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let even = equal(pool, cores);
        let (mut sets, mut instants) = (Vec::new(), Vec::new());
        for _ in 0..TASK_SETS {
            let tasks = task_set(programs, cores, utilisation, &mut rng);
            sets.push(Loads::new(programs, &tasks, cores));
            for _ in 0..INSTANTS {
                let core = |core: usize| {
                    let tasks: Vec<&PeriodicTask> = tasks.iter().filter(|task| task.core == core).collect();
                    draw_core(programs, &tasks, even[core], &mut rng)
                };
                instants.push((0..cores).map(core).collect());
            }
        }
        Instants { sets, instants }
    }

    /// The time of all instants.
    pub fn now(&self) -> Time {
        NOW
    }

    /// The number of instants.
    pub fn len(&self) -> usize {
        self.instants.len()
    }

    /// The number of task sets.
    pub fn task_sets(&self) -> usize {
        self.sets.len()
    }

    /// The loads of each task set.
    pub fn loads(&self) -> &[Loads] {
        &self.sets
    }

    /// The number of the task set of an instant.
    pub fn set_of(number: usize) -> usize {
        number / INSTANTS
    }

    /// Iterates over all instants.
    pub fn iter(&self) -> impl Iterator<Item = Cores<'_>> {
        let running = |core: &Core| {
            core.runs.map(|job| RunningJob {
                program: job.program,
                progress: job.progress,
                deadline: job.deadline,
                waiting: &[],
            })
        };
        self.instants.iter().map(move |cores| {
            let with_waiting = |core| {
                running(core).map(|job| RunningJob {
                    waiting: &core.waits,
                    ..job
                })
            };
            cores.iter().map(with_waiting).collect()
        })
    }
}

/// Draws tasks until `utilisation` is reached; the last one is cut to fit, so that sets compare.
fn task_set(programs: &Programs, cores: usize, utilisation: f64, rng: &mut ChaCha8Rng) -> Vec<PeriodicTask> {
    let mut each = Vec::new();
    let mut left = utilisation;
    while left > 0.0 && each.len() < TASKS_MAX {
        let drawn = rng.random_range(UTILISATIONS[0]..UTILISATIONS[1]).min(left);
        each.push(drawn);
        left -= drawn;
    }
    // The drawn utilisations are above 0 and at most 0.4, and there is at least one core: packing cannot refuse.
    let Ok(packing) = worst_fit(&each, cores) else {
        return Vec::new();
    };
    let all = programs.grid().all();
    each.iter()
        .zip(packing.cores)
        .map(|(utilisation, core)| {
            let program = rng.random_range(0..programs.len());
            let period = Nanos::from_secs_f64(programs.duration(program, all) / utilisation);
            PeriodicTask::new(program, period, core)
        })
        .collect()
}

fn draw_core(programs: &Programs, tasks: &[&PeriodicTask], share: Share, rng: &mut ChaCha8Rng) -> Core {
    let utilisation = |task: &PeriodicTask| programs.duration(task.program, share) / task.period.as_secs_f64();
    let whole: f64 = tasks.iter().map(|task| utilisation(task)).sum();
    // An overloaded core never rests.
    let mut point = rng.random_range(0.0..whole.max(1.0));
    let mut core = Core::default();
    for task in tasks {
        let part = utilisation(task);
        let job = draw_job(programs, task, share, rng);
        if (0.0..part).contains(&point) {
            core.runs = Some(job);
        } else if rng.random_bool(part.min(1.0)) {
            core.waits.push(WaitingJob { progress: 0.0, ..job });
        }
        point -= part;
    }
    core
}

/// Draws a job of `task`, at a uniform point of its execution; its deadline is a period after a release before it
/// began.
fn draw_job(programs: &Programs, task: &PeriodicTask, share: Share, rng: &mut ChaCha8Rng) -> WaitingJob {
    let (takes, period) = (programs.duration(task.program, share), task.period.as_secs_f64());
    let since = rng.random_range(0.0..takes);
    let waited = rng.random_range(0.0..1.0) * (period - takes).max(0.0);
    let deadline = NOW.as_secs_f64() + period - since - waited;
    WaitingJob {
        program: task.program,
        progress: progress_after(programs, task.program, since, share),
        deadline: Time(Nanos::from_secs_f64(deadline).0),
    }
}

/// Progress of a run after `seconds` with `share`.
fn progress_after(programs: &Programs, program: usize, mut seconds: f64, share: Share) -> f64 {
    let mut progress = 0.0;
    loop {
        let left = programs.phase_left(program, progress, share);
        let end = programs.phase_end(program, progress);
        if seconds < left || end >= 1.0 {
            let at = progress + seconds * programs.progress_rate(program, progress, share);
            return at.min(end);
        }
        (seconds, progress) = (seconds - left, end);
    }
}
