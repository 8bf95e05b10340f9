//! A scenario on Linux: calibrate, compile, open the stores, place the tasks, run.

pub mod beside;
mod calibrate;
mod emulated;
mod interpret;
pub(crate) mod split;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_cores::{Limits, Placement, Seat};
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_loop::RegulatorOptions;
use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::exclusive::{GroupUse, check_groups, check_interrupts};
use punctual_platform::linux::starvation::{STARVES_AFTER, StarvationGuard};
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions, thread};
use punctual_platform::{CoreChoice, KnobId, Machine, Neighbours, Plan, Refusal, Value};
use punctual_runtime::RuntimeError;
use punctual_runtime::linux::{Job, RunOptions, RuntimeBuilder, TASK_PRIORITY, TaskSetup, limits_beside, place_beside};
use punctual_runtime::report::{FinishedRun, Progress, Watch};
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::updates::SensorSpec;
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_units::{Clock, CoreId, Nanos, ObjectId, Share, Time};
use punctual_workload::{self as workload, Class, Problem, Program, Scenario, TaskGoal, TaskSpec, Volume};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use self::beside::{OpenedStore, Reads, Sets};
use self::calibrate::MeasuredCosts;
pub use self::emulated::Emulated;
use self::interpret::{Interpreter, object_key, sensor_key};
use crate::run::{RunError, RunSetup};

/// The engine of every scenario: LMDB at the speed of the emulated clock.
type ScenarioEngine = Emulated<Lmdb>;
type ScenarioStore = Store<ScenarioEngine, LinuxOs>;

/// Sensors of the scratch store on which costs are measured: the depth of its tree is that of any store between a
/// thousand and a hundred thousand objects.
const CALIBRATION_SENSORS: u32 = 10_000;

/// How often the user is asked, while costs are measured, whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn unfit_cores(refusal: &Refusal) -> Problem {
    Problem::new("exclusive.cores", refusal.to_string())
}

/// Refuses exclusive tasks that name a core which may not become exclusive.
fn check_named(scenario: &Scenario, open: &[CoreId]) -> Result<(), Problem> {
    let closed = |task: &TaskSpec| match task.class {
        Class::Exclusive { .. } => task.core.filter(|core| !open.contains(core)),
        _ => None,
    };
    let mut named = scenario.tasks.iter().enumerate();
    let Some((task, core)) = named.find_map(|(number, task)| Some((number, closed(task)?))) else {
        return Ok(());
    };
    let what = format!("core {core} is none of exclusive.cores; name one of these, or add it there");
    Err(Problem::new(format!("task[{task}].core"), what))
}

/// Refuses cores that are asked for and that another process claims, where a task is to have one.
fn check_claims(scenario: &Scenario, machine: &LinuxMachine, neighbours: &Neighbours) -> Result<(), Problem> {
    let CoreChoice::These(cores) = &neighbours.cores else {
        return Ok(());
    };
    if !scenario
        .tasks
        .iter()
        .any(|task| matches!(task.class, Class::Exclusive { .. }))
    {
        return Ok(());
    }
    let claimed = machine.journal().claims_of_others();
    let clash = claimed.iter().find(|(core, _)| cores.contains(core));
    clash.map_or(Ok(()), |(_, refusal)| Err(unfit_cores(refusal)))
}

/// Runs the scenario on this machine.
pub(crate) fn run_scenario(setup: &RunSetup, watch: Watch<'_>) -> Result<FinishedRun, RunError> {
    if let Some(path) = setup.request.store_path.as_deref().filter(|path| path.exists()) {
        // Reports a store that is in use, damaged, of another version or read-only before real-time work disturbs other
        // programs. A new one is made once nothing else is refused.
        drop(engine_options(setup, setup.scenario().store.map_bytes).open(path)?);
    }
    let mapped = setup.request.mapped.as_deref();
    // The folder of a new store is made with it.
    let new = setup.request.store_path.as_deref().filter(|path| !path.exists());
    let tried = mapped.filter(|file| new.is_none() || file.parent() != new);
    if let (Some(file), Volume::Replicas(replicas)) = (tried, setup.scenario().sensors.volume) {
        // Likewise a mapped file; other volumes are known once costs are measured.
        let (is_new, sensors) = (!file.exists(), setup.sensor_specs(&setup.stream(replicas)));
        let options = store_options(setup, &sensors, mapped);
        let trial = Store::open(Memory::default(), LinuxOs, options)?;
        let is_empty = (0..sensors.len() as u32).all(|object| matches!(trial.sample(ObjectId(object)), Ok(None)));
        // While `trial` has the lock: another program's file, and one with values, must stay.
        let _ = (is_new && is_empty).then(|| std::fs::remove_file(file));
    }
    let mut found = None;
    let open = |sensors: &[SensorSpec], place: &StoreLocation<'_>, emulated: &Arc<EmulatedClock>, watch: Watch<'_>| {
        let needs = &setup.scenario().store;
        let store = open_store(setup, &place.main(), needs.map_bytes, (sensors, mapped), emulated)?;
        fill(&store, needs, Fill::Anew, watch)?;
        found = mapped_note(&store);
        Ok(OpenedStore::alone(Arc::new(store)))
    };
    let (mut runtime, mut options, mut notes) = prepare(setup, ClockPreference::default(), open, watch)?;
    notes.extend(found);
    options.duration = Some(setup.scenario().duration);
    if setup.scenario().store.update_mode == workload::UpdateMode::MemoryFirst && mapped.is_none() {
        runtime.group_commit_every(setup.scenario().store.group_commit);
    }
    stage(watch, "starting")?;
    let mut finished = runtime.run(options, watch)?;
    finished.report.summary.notes.splice(0..0, notes);
    Ok(finished)
}

/// Reports the medium of mapped objects, and the values of earlier runs.
fn mapped_note(store: &ScenarioStore) -> Option<String> {
    let (medium, objects) = (store.medium()?, store.objects());
    let samples = (0..objects as u32).filter_map(|object| store.sample(ObjectId(object)).ok()?);
    let newest = samples.clone().filter_map(|sample| sample.sampled_at).max();
    let age = newest.map_or("unknown".into(), |at| LinuxOs.since_boot().since(at).to_string());
    let kept = samples.count();
    Some(format!(
        "{objects} temporal objects on {medium}; {kept} have values of an earlier run, least age: {age}"
    ))
}

/// Prepares a run: refuses what cannot run, measures costs, opens the store by `open`, places the tasks. The last of
/// the results are notes for the report.
fn prepare(
    setup: &RunSetup,
    clock: ClockPreference,
    open: impl FnOnce(&[SensorSpec], &StoreLocation<'_>, &Arc<EmulatedClock>, Watch<'_>) -> Result<OpenedStore, RunError>,
    watch: Watch,
) -> Result<(RuntimeBuilder<ScenarioEngine>, RunOptions, Vec<String>), RunError> {
    let Neighbours {
        lend_to, share_with, ..
    } = &setup.request.neighbours;
    for (key, groups, how) in [
        ("exclusive.lend_to", lend_to, GroupUse::Lent),
        ("exclusive.share_with", share_with, GroupUse::Shared),
    ] {
        check_groups(&KernelTree::default(), groups, how).map_err(|why| Problem::new(key, why.to_string()))?;
    }
    check_interrupts(&KernelTree::default(), &setup.request.neighbours)
        .map_err(|why| Problem::new("exclusive.interrupts", why.to_string()))?;
    let limits = limits_beside(&setup.request.neighbours).map_err(|refusal| unfit_cores(&refusal))?;
    // Opened before costs are measured, so that other programs see at once where this one has its real-time work.
    let machine = LinuxMachine::open(LinuxOptions {
        clock,
        ..LinuxOptions::default()
    })?;
    let mut machine = match setup.request.allocation {
        Some(_) => machine.with_partitions()?,
        None => machine,
    };
    check_claims(setup.scenario(), &machine, &setup.request.neighbours)?;
    let placement = place_here(setup, &machine, &limits)?;
    let split = split::split(setup, machine.offers(), machine.partitions(), &placement)?;
    check_named(setup.scenario(), limits.exclusive.as_deref().unwrap_or_default())?;
    stage(watch, "measuring what store accesses cost here")?;
    let MeasuredCosts { typical: costs, least } = measure(setup, placement.update_core(), watch)?;
    let emulated = machine.emulated_clock();
    let place = StoreLocation {
        given: setup.request.store_path.as_deref(),
        scratch: machine.temporary_dir(in_memory(setup))?,
    };
    let compiled = setup.compile(&costs, &least)?;
    let stream = setup.stream(compiled.replicas);
    setup.check_freshness(&stream)?;

    stage(watch, "filling the store")?;
    let scenario = setup.scenario();
    let sensors = setup.sensor_specs(&stream);
    setup.check_room(sensors.len() as u64)?;
    let OpenedStore {
        store,
        is_fed,
        reads,
        sets,
    } = open(&sensors, &place, &emulated, watch)?;

    let offers = setup.offers(machine.offers());
    let mut header = setup.header(&offers, &costs, compiled.replicas);
    header
        .protection
        .extend(split::protection(setup, &machine, split.is_some()));
    let mut options = RunOptions {
        header,
        regulator: RegulatorOptions {
            split,
            ..setup.regulator(&offers, Time::ZERO)
        },
        pace: scenario.control.pace,
        patience: setup.patience(),
        duration: None,
        seed: scenario.seed,
        probe: scenario.control.probe,
        best_effort_share: scenario.control.best_effort_share,
        record: setup.log_setup(&stream),
        learning: None,
        stages: setup.request.stages.clone(),
    };
    split::begin(&mut machine, &options.regulator)?;
    let mut runtime = RuntimeBuilder::new(machine, store);
    let mut placing = Placing {
        setup,
        place: &place,
        emulated: &emulated,
        sensors: sensors.len() as u32,
        reads,
        sets,
        copies: 0,
        goals: Vec::new(),
    };
    for ((task, program), seat) in scenario.tasks.iter().zip(&compiled.programs).zip(&placement.seats) {
        placing.add(&mut runtime, task, program, seat, watch)?;
    }
    options.regulator.goals = placing.goals;
    runtime.neighbours(setup.request.neighbours.clone());
    if is_fed {
        runtime.sensors(stream, scenario.sensors.value_bytes as usize);
    }
    Ok((runtime, options, compiled.notes))
}

/// Places the scenario's tasks beside the real-time work of other programs, and announces them.
fn place_here(setup: &RunSetup, machine: &LinuxMachine, limits: &Limits) -> Result<Placement, RunError> {
    let updates = match (setup.scenario().store.update_mode, setup.scenario().sensors.volume) {
        (workload::UpdateMode::Transaction, Volume::Utilisation(share)) => Share::clamped(share),
        // Known once costs are measured.
        _ => Share::ZERO,
    };
    let requests = setup.requests();
    match place_beside(machine, &requests, requests.len(), limits, updates) {
        Ok(placed) => setup.checked(Ok(placed.placement)),
        Err(RuntimeError::Place { error, .. }) => setup.checked(Err(error)),
        Err(error) => Err(error.into()),
    }
}

/// Costs are those at full clock, whatever the governor made of the clock so far. Where the clock cannot be turned the
/// run's own plan meets the same refusal and reports it.
fn to_full_clock(machine: &mut LinuxMachine) {
    if let Some(top) = machine.offers().clock().map(|clock| clock.top()) {
        let _ = machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(top)));
    }
}

/// Reports the stage of the work; the watcher answers whether to go on.
fn stage(watch: Watch, what: &str) -> Result<(), RunError> {
    tell(watch, Progress::Stage(what))
}

/// Reports progress; the watcher answers whether to go on.
fn tell(watch: Watch, progress: Progress<'_>) -> Result<(), RunError> {
    if watch(progress).is_break() {
        Err(RunError::Interrupted)
    } else {
        Ok(())
    }
}

/// Where the stores of a run are.
struct StoreLocation<'r> {
    given: Option<&'r Path>,
    /// Removed when the machine's other changes are restored, even after a kill.
    scratch: PathBuf,
}

impl StoreLocation<'_> {
    fn main(&self) -> PathBuf {
        self.given.map_or_else(|| self.scratch.join("store"), Path::to_path_buf)
    }

    fn other(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }
}

/// Adds the scenario's tasks to a runtime.
struct Placing<'s, 'r> {
    setup: &'s RunSetup<'r>,
    place: &'s StoreLocation<'r>,
    emulated: &'s Arc<EmulatedClock>,
    sensors: u32,
    reads: Reads,
    sets: Sets,
    copies: u64,
    /// Goal of each task that was added; a best-effort task is added once for each of its copies.
    goals: Vec<Option<TaskGoal>>,
}

impl Placing<'_, '_> {
    fn add(
        &mut self,
        runtime: &mut RuntimeBuilder<ScenarioEngine>,
        task: &TaskSpec,
        program: &Program,
        seat: &Seat,
        watch: Watch,
    ) -> Result<(), RunError> {
        match task.class {
            Class::RealTime { .. } | Class::Exclusive { .. } => {
                self.goals
                    .push(Some(task.goal.unwrap_or(self.setup.scenario().goal.tasks)));
                let mut interpreter = self.interpreter(program, self.sensors);
                interpreter.surge(self.setup.request.surge);
                interpreter.reads(&self.reads);
                let sets: Vec<_> = self.sets.iter().filter(|(name, _)| *name == task.name).collect();
                let sets: Vec<_> = sets.into_iter().map(|(_, set)| Arc::clone(set)).collect();
                runtime
                    .task(&task.name, task.class, task.arrival, move |job| {
                        interpreter.perform(job)?;
                        sets.iter().try_for_each(|set| set(job.number()))
                    })
                    .takes_at_most(task.demand.compute + task.demand.data)
                    .asks_for(task.goal.unwrap_or(self.setup.scenario().goal.tasks));
                if let Some(core) = task.core {
                    runtime.on_core(core);
                }
            }
            Class::BestEffort => {
                for core in seat.cores() {
                    for _ in 0..task.per_core {
                        self.add_best_effort(runtime, task, program, *core, watch)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A best-effort task works on a database of its own, as in the first paper.
    fn add_best_effort(
        &mut self,
        runtime: &mut RuntimeBuilder<ScenarioEngine>,
        task: &TaskSpec,
        program: &Program,
        core: CoreId,
        watch: Watch,
    ) -> Result<(), RunError> {
        self.goals.push(None);
        let mut interpreter = self.interpreter(program, 0);
        let path = self.place.other(&format!("other-{}", self.copies));
        let needs = &self.setup.scenario().store;
        let store = Arc::new(open_store(
            self.setup,
            &path,
            needs.map_bytes,
            (&[], None),
            self.emulated,
        )?);
        fill(&store, needs, Fill::Anew, watch)?;
        let body = move |job: &mut Job<'_, ScenarioEngine>| interpreter.perform(job);
        let mut added = TaskSetup::new(task.name.clone(), task.class, task.arrival, store, body);
        (added.active, added.core) = (task.active, Some(core));
        runtime.add(added);
        Ok(())
    }

    fn interpreter(&mut self, program: &Program, sensors: u32) -> Interpreter {
        self.copies += 1;
        let scenario = self.setup.scenario();
        let rng = ChaCha8Rng::seed_from_u64(scenario.seed.wrapping_mul(1009).wrapping_add(self.copies));
        Interpreter::new(
            program.clone(),
            sensors,
            scenario.store.objects,
            Arc::clone(self.emulated),
            rng,
        )
    }
}

/// Origin from which the instants of this boot, and of this time namespace, count.
fn clock_origin() -> ClockOrigin {
    let name = punctual_os::linux::clock_origin();
    name.map_or(ClockOrigin::UNKNOWN, |name| ClockOrigin::named(name.as_bytes()))
}

fn engine_options(setup: &RunSetup, map_bytes: u64) -> LmdbOptions {
    LmdbOptions {
        durability: setup.scenario().store.durability,
        quota: map_bytes as usize,
        verify: setup.scenario().store.verify,
        ..LmdbOptions::default()
    }
}

/// Stores that need not survive the machine need no medium.
fn in_memory(setup: &RunSetup) -> bool {
    setup.scenario().store.durability == workload::Durability::Volatile
}

fn open_store(
    setup: &RunSetup,
    path: &Path,
    map_bytes: u64,
    (sensors, mapped): (&[SensorSpec], Option<&Path>),
    emulated: &Arc<EmulatedClock>,
) -> Result<ScenarioStore, RunError> {
    let engine = engine_options(setup, map_bytes).open(path)?;
    Ok(Store::open(
        Emulated::new(engine, Arc::clone(emulated)),
        LinuxOs,
        store_options(setup, sensors, mapped),
    )?)
}

/// Options of the store that the scenario wants, with these sensors, perhaps in a mapped file.
fn store_options(setup: &RunSetup, sensors: &[SensorSpec], mapped: Option<&Path>) -> StoreOptions {
    let needs = &setup.scenario().store;
    let object = |(index, sensor): (usize, &SensorSpec)| ObjectSpec {
        key: sensor_key(index as u32).into(),
        avi: sensor.avi,
        period: sensor.period,
        max_len: sensor.value_bytes_max as usize,
        history: 1,
    };
    StoreOptions {
        objects: sensors.iter().enumerate().map(object).collect(),
        update_mode: needs.update_mode,
        mapped: mapped.map(Path::to_path_buf),
        group_interval: needs.group_commit,
        admission: setup.admission(),
        clock_origin: clock_origin(),
        reader_life_max: needs.reader_life_max,
        ..StoreOptions::default()
    }
}

/// Treatment of ordinary objects that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Objects are written as at first.
    Anew,
    /// Objects stay as they are.
    Missing,
}

/// Puts every ordinary object, in transactions of a thousand; between two of them the user may end it.
fn fill(store: &ScenarioStore, needs: &workload::StoreNeeds, how: Fill, watch: Watch) -> Result<(), RunError> {
    let value = vec![0x5A; needs.object_bytes as usize];
    let objects: Vec<u32> = (0..needs.objects).collect();
    for group in objects.chunks(1000) {
        tell(watch, Progress::Waiting)?;
        let mut transaction = store.write_transaction(Deadline::NONE)?;
        for object in group {
            let key = object_key(*object);
            if how == Fill::Anew || transaction.get(key)?.is_none() {
                transaction.put(key, &value)?;
            }
        }
        transaction.commit()?;
    }
    Ok(())
}

/// Measures costs on a scratch store, in a thread placed like a real-time task, on a machine at full clock that is
/// restored before the run. The user may end it.
fn measure(setup: &RunSetup, core: CoreId, watch: Watch) -> Result<MeasuredCosts, RunError> {
    let mut machine = LinuxMachine::open(LinuxOptions::default())?;
    to_full_clock(&mut machine);
    let emulated = machine.emulated_clock();
    let scenario: &Scenario = setup.scenario();
    let sensor = SensorSpec {
        period: Nanos::from_secs(1),
        avi: Nanos::from_secs(2),
        value_bytes_max: scenario.sensors.value_bytes,
    };
    let path = machine.temporary_dir(in_memory(setup))?.join("calibration");
    let (needs, value_bytes) = (&scenario.store, scenario.sensors.value_bytes);
    let map_bytes = needs
        .bytes_max(CALIBRATION_SENSORS.into(), value_bytes)
        .max(needs.map_bytes);
    let sensors = vec![sensor; CALIBRATION_SENSORS as usize];
    let store = open_store(setup, &path, map_bytes, (&sensors, None), &emulated)?;
    fill(&store, needs, Fill::Anew, watch)?;
    let stop = AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    let measured = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("calibration".into());
        let worker = thread.spawn_scoped(scope, || {
            let _ = tell.send(Tid::current());
            // Where placement is refused, the run's own report says so.
            let _: [Result<(), Refusal>; 2] = [thread::pin(core), thread::real_time(TASK_PRIORITY)];
            calibrate::costs(
                &store,
                &emulated,
                CALIBRATION_SENSORS,
                needs.objects,
                needs.object_bytes,
                value_bytes,
                &|| !stop.load(Ordering::Relaxed),
            )
        });
        let worker = worker.map_err(|why| RuntimeError::Thread {
            role: "calibration".into(),
            why,
        })?;
        let mut guard = told.recv().ok().map(StarvationGuard::new);
        let mut looked = Instant::now();
        while !worker.is_finished() {
            if watch(Progress::Waiting).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
            if looked.elapsed() >= STARVES_AFTER {
                looked = Instant::now();
                guard.as_mut().and_then(StarvationGuard::look);
            }
            std::thread::sleep(ASKED_EVERY);
        }
        Ok::<_, RunError>(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    measured??.ok_or(RunError::Interrupted)
}
