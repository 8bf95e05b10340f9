//! A worker: the process of one core that starts the stages' processes there, and replaces those that die.
//!
//! It has one thread, so that it can fork: a copy of a small process that has everything mapped starts sooner than an
//! executed program. Its stages are made before, and never execute a step here.

use std::collections::HashMap;
use std::io::ErrorKind::{ExecutableFileBusy, OutOfMemory, WouldBlock};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use punctual_platform::linux::process::{ChildExit, ProcessId, count_ended_children, die_with, exit_now, fork, reap};
use punctual_platform::linux::thread::{self, Scheduling};
use punctual_units::{Nanos, Time};

use super::coordinator::Duties;
use super::instance::{DONE, FAILS, Instance, REFUSES};
use super::priority::{StageSettings, above_stages};
use super::shared::{Bodies, End, Note, Segment};
use super::watchdog::{Beat, OwnerActivity, Watchdog};
use super::{Kin, PipelineOptions, StageProcess, environment};
use crate::{AnyStage, Control, Death, Deaths, Phase, after_end, buried, emptied, may_go_on, started, starts};

/// Greatest number of deaths in a row of a stage's processes, of those that count ([`Deaths`](crate::Deaths)): a stage
/// that dies at every frame is broken, and ends the pipeline.
const DEATHS_MAX: u64 = 16;
/// Number of such deaths after which a new version is replaced by the previous one.
const DEATHS_OF_A_VERSION_MAX: u64 = 3;
/// Longest period of a worker's looks, which also prove that it does not hang.
const LOOK_MAX: Nanos = Nanos::from_secs(1);
/// Shortest period of the looks; between these bounds, a worker looks five times in the longest time of a step.
const LOOK_MIN: Nanos = Nanos::from_millis(10);
const LOOKS_OF_A_STEP: u64 = 5;
/// Longest time that a worker waits for the processes of its predecessor to die, or, at the end, for its own.
const LAST_ONES: Nanos = Nanos::from_secs(1);
/// Time for a killed process to die. Another one continues its stage then: the kernel does not end a process in a
/// frozen group (cgroup v1), or one that waits for a device.
const DIES: Nanos = Nanos::from_millis(20);

/// Serves the core of that index until the pipeline ends.
pub(super) fn serve(shared: Segment, core: usize, kin: &Kin, bodies: &Bodies, options: &PipelineOptions) -> ! {
    die_with(kin.parent);
    // The process that started this one has reported refusals.
    let _ = thread::pin(shared.core(core));
    let scheduling = above_stages(kin.priority);
    // Leaked, because the kernel writes to the bell's word until the process ends.
    let shared: &'static Segment = Box::leak(Box::new(shared));
    count_ended_children(shared.worker_bell(core).count);
    let own = std::process::id() as i32;
    let before = shared.worker(core).swap(own as u64, Relaxed);
    let mut worker = Worker {
        shared,
        core,
        own,
        scheduling,
        tag: kin.tag.clone(),
        bodies: shared
            .stages()
            .filter_map(|stage| Some((stage, bodies(shared.name(stage))?)))
            .collect(),
        children: HashMap::new(),
        duties: Duties::new(shared, core, shared.ground(options)),
        ending: None,
    };
    if before != 0 {
        worker.take_over();
    }
    worker.run()
}

struct Worker {
    shared: &'static Segment,
    core: usize,
    own: i32,
    /// Scheduling of the stages; `None`: as this worker has.
    scheduling: Option<Scheduling>,
    tag: String,
    /// The stages, in their state before the first frame.
    bodies: HashMap<usize, Box<dyn AnyStage>>,
    /// Processes by process id.
    children: HashMap<i32, ChildInstance>,
    duties: Duties,
    /// When this worker learnt that the pipeline ends.
    ending: Option<Time>,
}

/// A process that this worker has started.
struct ChildInstance {
    stage: usize,
    slot: u8,
    /// Watches its beat, while it owns the stage.
    watchdog: Watchdog,
    /// When it was killed because it stood still.
    killed: Option<Time>,
    /// Whether its death was counted before its end, because the end takes too long.
    counted: bool,
    /// Process of a worker that has died: this one is not notified of its end.
    left: Option<ProcessId>,
}

impl ChildInstance {
    fn new(stage: usize, slot: u8) -> ChildInstance {
        ChildInstance {
            stage,
            slot,
            watchdog: Watchdog::default(),
            killed: None,
            counted: false,
            left: None,
        }
    }
}

impl Worker {
    fn own_slots(&self) -> impl Iterator<Item = (usize, u8)> + use<> {
        let (shared, core) = (self.shared, self.core);
        let slots = move |stage| (0..shared.slots()).map(move |slot| (stage, slot));
        let all = shared.migratable().flat_map(slots);
        all.filter(move |(_, slot)| shared.core_of(*slot) == core)
    }

    /// Continues after another worker of this core has died; the kernel kills that worker's processes. Their stages get
    /// another epoch, so that a process still in a step cannot commit it, even if the worker died before it recorded
    /// the process.
    fn take_over(&mut self) {
        let own = ProcessId::own();
        for (stage, slot) in self.own_slots() {
            let pid = self.shared.slot(stage, slot).pid;
            let process = if pid == 0 { None } else { ProcessId::of(pid) };
            // A process that began after this worker is of another program.
            let process = process.filter(|process| process.started <= own.started);
            if let Some(process) = process.filter(|process| !process.wait_gone(LAST_ONES)) {
                // The process does not end: another one continues its stage, and the slot is taken until it has ended.
                process.kill();
                let left = ChildInstance {
                    killed: Some(self.shared.now()),
                    left: Some(process),
                    ..ChildInstance::new(stage, slot)
                };
                self.children.insert(pid, left);
                continue;
            }
            if pid != 0 || self.shared.control(stage).owner == slot {
                // It died with its worker, and not of its own.
                self.shared.set_beat(stage, self.shared.now(), OwnerActivity::Rests);
                self.gone(stage, slot, None, false);
            }
        }
    }

    fn run(&mut self) -> ! {
        let bell = self.shared.worker_bell(self.core);
        let every = Nanos(self.shared.step_max().0 / LOOKS_OF_A_STEP).clamp(LOOK_MIN, LOOK_MAX);
        bell.waits(true);
        let (mut looked, mut rung, mut due) = (self.shared.now(), None, every);
        loop {
            let heard = bell.heard();
            let now = self.shared.now();
            // A death rings, too. The duties wake the worker more often if a policy or statistics need it.
            if rung != Some(heard) || now.since(looked) >= due {
                due = self.look(now.since(looked), now, every).min(every);
                (looked, rung) = (now, Some(heard));
            }
            let left = Nanos(due.0.saturating_sub(self.shared.now().since(looked).0)).max(Nanos(1));
            let at_most = self.duties.look().map_or(left, |duties| duties.min(left));
            self.shared.wait(bell, heard, Some(at_most));
            bell.waits(true);
        }
    }

    /// Reaps, starts and checks the worker's processes; returns when the next of them may have to be killed.
    fn look(&mut self, since: Nanos, now: Time, every: Nanos) -> Nanos {
        self.shared.looked(self.core).store(now.0, Relaxed);
        let left = self
            .children
            .iter()
            .filter_map(|(pid, child)| Some((*pid, child.left?)));
        let gone: Vec<i32> = left
            .filter(|(_, process)| !process.lives())
            .map(|(pid, _)| pid)
            .collect();
        let gone = gone.into_iter().map(|pid| ChildExit {
            pid,
            code: None,
            ran: Nanos::ZERO,
        });
        for ended in gone.chain(std::iter::from_fn(reap)) {
            self.ended(ended);
        }
        if self.shared.end() == End::Runs {
            self.start_wanted();
            return self.watch(since, now, every);
        }
        let ending = *self.ending.get_or_insert(now);
        if self.children.is_empty() || now.since(ending) >= LAST_ONES {
            exit_now(0);
        }
        // Processes end by themselves, unless one hangs or runs a foreign program.
        for process in self.children.keys().filter_map(|pid| ProcessId::of(*pid)) {
            process.kill();
        }
        LAST_ONES
    }

    /// Kills the processes that own a stage and stand still: in a step for too long, or with a step to do and without
    /// beginning it. Returns when the next one is due.
    fn watch(&mut self, since: Nanos, now: Time, every: Nanos) -> Nanos {
        let (shared, mut due, mut stuck) = (self.shared, every, Vec::new());
        for (pid, child) in &mut self.children {
            let (stage, control) = (child.stage, shared.control(child.stage));
            if control.owner != child.slot {
                child.watchdog = Watchdog::default();
                continue;
            }
            if let Some(killed) = child.killed {
                match now.since(killed) >= DIES {
                    true => stuck.push(*pid),
                    false => due = due.min(DIES),
                }
                continue;
            }
            let beat = shared.beat(stage);
            let at_most = match beat.activity {
                OwnerActivity::Starts => shared.start_max(stage),
                OwnerActivity::Steps => shared.step_max(),
                OwnerActivity::Rests => shared.step_max().max(shared.rest_max() * 2),
            };
            let value = Beat::word(beat.at, beat.activity);
            let stands = child.watchdog.look(value, now.since(beat.at), since, every);
            let owes = || control.phase == Phase::Asked || shared.layout.can_step(&shared.region, stage);
            if beat.activity != OwnerActivity::Steps && !owes() {
                continue;
            }
            match at_most.0.checked_sub(stands.0) {
                None | Some(0) => {
                    shared.note(stage, Note::Hung).fetch_add(1, Relaxed);
                    // A process that has ended meanwhile is reaped.
                    let _ = ProcessId::of(*pid).is_some_and(ProcessId::kill);
                    child.killed = Some(now);
                    due = due.min(DIES);
                }
                Some(left) => due = due.min(Nanos(left)),
            }
        }
        stuck.into_iter().for_each(|pid| self.abandon(pid));
        due
    }

    /// Gives a stage to another process although its owner, which was killed, has not ended. The owner cannot commit a
    /// step any more, and its slot stays taken until it ends.
    fn abandon(&mut self, pid: i32) {
        let (shared, child) = (self.shared, &self.children[&pid]);
        let (stage, slot, counted) = (child.stage, child.slot, child.counted);
        let own = |other: &u8| shared.core_of(*other) == self.core;
        let (here, elsewhere): (Vec<u8>, Vec<u8>) = (0..shared.slots()).filter(|other| *other != slot).partition(own);
        let others = || here.iter().chain(&elsewhere).copied();
        let said = |other| shared.slot(stage, other);
        // A new process is not stuck for the same reason.
        let empty = others().find(|other| said(*other).pid == 0);
        let ready = || others().find(|other| may_go_on(said(*other), shared.versions(stage).now));
        let Some(spare) = empty.or_else(ready) else { return };
        shared.forget_yield(stage, slot);
        let handed = |control: Control| (control.owner == slot).then(|| control.died(slot, Some(spare)))?;
        let Some(next) = shared.change_control(stage, handed) else {
            return;
        };
        match counted {
            // It was given the stage again, for want of an empty slot.
            true => shared.set_beat(stage, shared.now(), OwnerActivity::Starts),
            false => self.count_death(stage),
        }
        if let Some(child) = self.children.get_mut(&pid) {
            child.counted = true;
        }
        shared.ring(shared.slot_bell(stage, next.owner));
        shared.ring(shared.worker_bell(shared.core_of(next.owner)));
    }

    fn start_wanted(&mut self) {
        for (stage, slot) in self.own_slots() {
            // Retried at the next look.
            let _ = self.start(stage, slot);
        }
    }

    /// Starts the process of a slot, if one is wanted and none exists.
    fn start(&mut self, stage: usize, slot: u8) -> std::io::Result<()> {
        let (shared, said) = (self.shared, self.shared.slot(stage, slot));
        let Some(start) = starts(shared.control(stage), slot, said, shared.versions(stage).now) else {
            return Ok(());
        };
        // Before the process reads it. On a concurrent request, the next look starts the process.
        if !shared.change_slot(stage, slot, said, start) {
            return Ok(());
        }
        may_die!(shared, Starts);
        let pid = match start.is_executed() {
            true => self.execute(stage, slot, start.version.program).inspect_err(|why| {
                // Too many processes, too little memory, or a program that is still being written: no refusal.
                if !matches!(why.kind(), WouldBlock | OutOfMemory | ExecutableFileBusy) {
                    let program = shared.program(start.version.program);
                    shared.refuse(stage, &format!("{} cannot be started: {why}", program.display()));
                }
            })?,
            false => self.fork(stage, slot)?,
        };
        may_die!(shared, Started);
        self.children.insert(pid, ChildInstance::new(stage, slot));
        shared.set_slot(stage, slot, |it| *it = started(*it, start, pid));
        Ok(())
    }

    fn fork(&mut self, stage: usize, slot: u8) -> std::io::Result<i32> {
        // SAFETY: a worker has one thread, and the child never returns.
        match unsafe { fork() }? {
            Some(child) => Ok(child),
            None => {
                die_with(self.own);
                StageSettings::new(self.shared, stage, self.scheduling).set();
                match self.bodies.remove(&stage) {
                    Some(body) => Instance {
                        shared: self.shared,
                        stage,
                        slot,
                        body,
                    }
                    .live(),
                    None => exit_now(FAILS),
                }
            }
        }
    }

    /// Starts the slot's process by executing its program.
    fn execute(&self, stage: usize, slot: u8, program: u8) -> std::io::Result<i32> {
        let role = Some(StageProcess { stage, slot, program });
        let kin = Kin {
            parent: self.own,
            priority: None,
            tag: self.tag.clone(),
        };
        let mut command = Command::new(self.shared.program(program));
        command
            .args(std::env::args_os().skip(1))
            .envs(environment(self.shared, &kin, self.core, role));
        let (own, settings) = (self.own, StageSettings::new(self.shared, stage, self.scheduling));
        // SAFETY: plain system calls between fork and exec. Their settings hold for the executed program, too.
        unsafe {
            command.pre_exec(move || {
                die_with(own);
                settings.set();
                Ok(())
            })
        };
        Ok(command.spawn()?.id() as i32)
    }

    fn ended(&mut self, ended: ChildExit) {
        let Some(child) = self.children.remove(&ended.pid) else {
            return;
        };
        let (stage, slot) = (child.stage, child.slot);
        self.shared.count_ran(stage, slot, ended.ran);
        self.explain(stage, slot, ended);
        if ended.code == Some(FAILS) {
            self.shared.end_by(End::Failed(stage));
        }
        self.gone(stage, slot, ended.code, child.counted);
    }

    /// Records why a process that was started to take over a stage did not, unless it did so itself.
    fn explain(&self, stage: usize, slot: u8, ended: ChildExit) {
        let (shared, fresh) = (self.shared, self.shared.slot(stage, slot).fresh);
        let quiet = matches!(ended.code, Some(DONE | REFUSES));
        if quiet || !fresh || shared.control(stage).owner == slot || shared.refusal(stage).is_some() {
            return;
        }
        let how = match ended.code {
            Some(code) => format!("ended with exit status {code}"),
            None => "was killed, or crashed,".into(),
        };
        shared.refuse(stage, &format!("the new process {how} before it was ready"));
    }

    /// Handles the end of a process, which exited with `code` or was killed. A process that ended as not needed may
    /// have been asked for meanwhile, or own the stage by now. `counted`: its death was counted before.
    fn gone(&mut self, stage: usize, slot: u8, code: Option<i32>, counted: bool) {
        let shared = self.shared;
        may_die!(shared, Reaped);
        let runs = shared.end() == End::Runs;
        let owned = shared.control(stage).owner == slot;
        if runs && owned && !counted && code != Some(DONE) {
            self.count_death(stage);
        }
        let how = match code {
            Some(DONE) => Death::NotNeeded,
            Some(REFUSES) => Death::Refused,
            _ => Death::Died,
        };
        // Before the slot is marked empty: a handover that finds it empty is meant for the next process, and continues
        // whatever this one did.
        if runs {
            let spare = self.spare(stage, slot);
            // A handover that was meant for the slot is one, though its process has ended as not needed.
            if how != Death::NotNeeded {
                shared.forget_yield(stage, slot);
            }
            shared.change_control(stage, |control: Control| buried(control, slot, how, spare));
        }
        may_die!(shared, Buried);
        // The next process of the slot has no CPU time yet.
        shared.counted(stage, slot).store(0, Relaxed);
        let now = shared.versions(stage).now;
        shared.set_slot(stage, slot, |it| {
            *it = after_end(*it, owned, how, now);
            it.wanted |= how != Death::Refused && shared.is_kept(slot) && !owned && code.is_none();
        });
        if !runs {
            return;
        }
        let said = shared.slot(stage, slot);
        shared.change_control(stage, |control| emptied(control, slot, said));
        // In any case: the present owner may have missed a ring, or must be started.
        let owner = shared.control(stage).owner;
        shared.ring(shared.slot_bell(stage, owner));
        shared.ring(shared.worker_bell(shared.core_of(owner)));
        let _ = self.start(stage, slot);
    }

    /// Slot that owns the stage after the process in `slot` has died: another one of this core with a ready process,
    /// else the same slot, once it has a process again.
    fn spare(&self, stage: usize, slot: u8) -> u8 {
        let shared = self.shared;
        let others = self.own_slots().filter(|(of, other)| *of == stage && *other != slot);
        let ready = |(_, other): &(usize, u8)| may_go_on(shared.slot(stage, *other), shared.versions(stage).now);
        { others }.find(ready).map_or(slot, |(_, other)| other)
    }

    /// Counts the death of a stage's owner; ends the pipeline if there were too many in a row.
    fn count_death(&self, stage: usize) {
        self.shared.note(stage, Note::Restarts).fetch_add(1, Relaxed);
        if self.too_often(stage) {
            self.shared.end_by(End::Failed(stage));
        }
    }

    /// Counts a death of a stage's process; returns whether there were too many in a row. A version that has done no
    /// step yet is replaced by the previous one.
    fn too_often(&self, stage: usize) -> bool {
        let (shared, now) = (self.shared, self.shared.now());
        let steps = shared.layout.steps(&shared.region, stage);
        let rested = shared.beat(stage).activity == OwnerActivity::Rests;
        // Twice as long as the process of a stage may take until it is ready, or killed for standing still.
        let window = Nanos(shared.start_max(stage).0.saturating_mul(2));
        let deaths = shared.deaths(stage).after(steps, now, rested, window);
        shared.set_deaths(stage, deaths);
        // The next process has given no sign yet.
        shared.set_beat(stage, now, OwnerActivity::Starts);
        let versions = shared.versions(stage);
        let began = shared.note(stage, Note::StepsAtVersion).load(Relaxed) == steps;
        if deaths.count > DEATHS_OF_A_VERSION_MAX && began && versions.can_go_back() {
            shared.set_deaths(stage, Deaths::default());
            shared.set_versions(stage, versions.back());
            return false;
        }
        deaths.count > DEATHS_MAX
    }
}
