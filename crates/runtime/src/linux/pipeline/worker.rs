//! A worker: the process of one core that starts the stages' processes there, and replaces those that die.
//!
//! It has one thread, so that it can fork: a copy of a small process that has everything mapped is there sooner than a
//! program that is executed. Its stages are made before, and never carry out a step here.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use punctual_allocation::mapping::Cores;
use punctual_pipeline::{AnyStage, Control};
use punctual_platform::linux::process::{Ended, ProcessId, count_ended_children, die_with, exit_now, fork, reap};
use punctual_platform::linux::thread;
use punctual_units::Nanos;

use super::coordinator::Duties;
use super::instance::{FAILS, Instance, REFUSES};
use super::shared::{Bodies, End, Note, Shared};
use super::{Kin, Role, environment};

/// Deaths of a stage in a row, without a step between, until the pipeline ends: one that dies at every frame is broken.
const DEATHS_MAX: u64 = 16;
/// How long a worker waits for the processes of the one before it.
const LAST_ONES: Nanos = Nanos::from_secs(1);

/// Serves the core of that number until the pipeline ends.
pub(super) fn serve(shared: Shared, core: usize, kin: &Kin, bodies: &Bodies, machine: Option<&Cores>) -> ! {
    die_with(kin.parent);
    // Refusals were told by the process that started this one.
    let _ = thread::pin(shared.core(core));
    if let Some(priority) = kin.priority {
        let _ = punctual_os::linux::thread::real_time(priority);
    }
    // The word is waited for until the process ends.
    let shared: &'static Shared = Box::leak(Box::new(shared));
    count_ended_children(shared.worker_bell(core).count);
    let own = std::process::id() as i32;
    shared.worker(core).store(own as u64, Relaxed);
    let mut worker = Worker {
        shared,
        core,
        own,
        tag: kin.tag.clone(),
        bodies: shared
            .stages()
            .filter_map(|stage| Some((stage, bodies(shared.name(stage))?)))
            .collect(),
        children: HashMap::new(),
        duties: Duties::new(shared, core, shared.ground(machine)),
    };
    worker.take_over();
    worker.run()
}

struct Worker {
    shared: &'static Shared,
    core: usize,
    own: i32,
    tag: String,
    /// Each stage as it is before the first frame.
    bodies: HashMap<usize, Box<dyn AnyStage>>,
    /// Processes by number: stage and slot.
    children: HashMap<i32, (usize, u8)>,
    duties: Duties,
}

impl Worker {
    fn own_slots(&self) -> impl Iterator<Item = (usize, u8)> + use<> {
        let (shared, core) = (self.shared, self.core);
        let slots = move |stage| (0..shared.slots()).map(move |slot| (stage, slot));
        let all = shared.stages().flat_map(slots);
        all.filter(move |(_, slot)| shared.core_of(*slot) == core)
    }

    /// Goes on where another worker of this core has died. The kernel kills its processes; no stage is given to another
    /// one before they are gone.
    fn take_over(&mut self) {
        for (stage, slot) in self.own_slots() {
            let pid = self.shared.slot(stage, slot).pid;
            if pid != 0 {
                let gone = ProcessId::of(pid).is_none_or(|process| process.wait_gone(LAST_ONES));
                if gone {
                    self.died(stage, slot);
                }
            }
        }
    }

    fn run(&mut self) -> ! {
        let bell = self.shared.worker_bell(self.core);
        bell.waits(true);
        loop {
            let heard = bell.heard();
            while let Some(ended) = reap() {
                self.ended(ended);
            }
            match self.shared.end() {
                End::Runs => self.start_wanted(),
                _ if self.children.is_empty() => exit_now(0),
                // They end by themselves, but for one that hangs, or is no program of ours.
                _ => {
                    for process in self.children.keys().filter_map(|pid| ProcessId::of(*pid)) {
                        process.kill();
                    }
                }
            }
            let at_most = self.duties.look();
            self.shared.wait(bell, heard, Some(at_most));
            bell.waits(true);
        }
    }

    fn start_wanted(&mut self) {
        for (stage, slot) in self.own_slots() {
            let said = self.shared.slot(stage, slot);
            if said.wanted && said.pid == 0 {
                // Refused (too many processes): tried again at the next look.
                let _ = self.start(stage, slot, said.executed);
            }
        }
    }

    fn start(&mut self, stage: usize, slot: u8, executed: bool) -> std::io::Result<()> {
        let pid = match executed {
            true => self.execute(stage, slot)?,
            false => self.fork(stage, slot)?,
        };
        self.children.insert(pid, (stage, slot));
        self.shared.set_slot(stage, slot, |it| it.pid = pid);
        Ok(())
    }

    fn fork(&mut self, stage: usize, slot: u8) -> std::io::Result<i32> {
        // SAFETY: a worker has one thread, and the child never returns.
        match unsafe { fork() }? {
            Some(child) => Ok(child),
            None => {
                die_with(self.own);
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

    /// Starts the slot's process as this program once more.
    fn execute(&self, stage: usize, slot: u8) -> std::io::Result<i32> {
        let role = Role::Instance {
            core: self.core,
            stage,
            slot,
        };
        let kin = Kin {
            parent: self.own,
            priority: None,
            tag: self.tag.clone(),
        };
        let mut command = Command::new(self.shared.program());
        command
            .args(std::env::args_os().skip(1))
            .envs(environment(self.shared, &role, &kin));
        let own = self.own;
        // SAFETY: two plain system calls between fork and exec. What is set holds for the program that is executed,
        // too.
        unsafe {
            command.pre_exec(move || {
                die_with(own);
                Ok(())
            })
        };
        Ok(command.spawn()?.id() as i32)
    }

    fn ended(&mut self, ended: Ended) {
        let Some((stage, slot)) = self.children.remove(&ended.pid) else {
            return;
        };
        self.shared.set_slot(stage, slot, |it| it.pid = 0);
        match ended.code {
            Some(0) => {}
            Some(FAILS) => self.shared.end_by(End::Failed(stage)),
            Some(REFUSES) => {
                self.shared.set_slot(stage, slot, |it| it.wanted = false);
                self.died(stage, slot);
            }
            _ => self.died(stage, slot),
        }
    }

    /// What becomes of the stage of a process that has died.
    fn died(&mut self, stage: usize, slot: u8) {
        let shared = self.shared;
        shared.set_slot(stage, slot, |it| it.pid = 0);
        if shared.end() != End::Runs {
            return;
        }
        let owned = shared.control(stage).owner == slot;
        if owned {
            shared.note(stage, Note::Restarts).fetch_add(1, Relaxed);
            if self.too_often(stage) {
                return shared.end_by(End::Failed(stage));
            }
        }
        let spare = self.spare(stage, slot);
        if let Some(next) = shared.change_control(stage, |control: Control| control.died(slot, Some(spare))) {
            shared.set_slot(stage, next.owner, |it| it.wanted = true);
            shared.ring(shared.slot_bell(stage, next.owner));
            shared.ring(shared.worker_bell(shared.core_of(next.owner)));
        }
        // One that was started to take the stage over, and died before it had it, is not tried again.
        if !owned && shared.slot(stage, slot).executed {
            shared.set_slot(stage, slot, |it| it.wanted = false);
        }
        if shared.slot(stage, slot).wanted {
            let _ = self.start(stage, slot, false);
        }
    }

    /// The slot that has the stage when the process in `slot` has died: the other one of this core where a process is
    /// ready there, else the same, once a process is in it again.
    fn spare(&self, stage: usize, slot: u8) -> u8 {
        let others = self.own_slots().filter(|(of, other)| *of == stage && *other != slot);
        let ready = |(_, other): &(usize, u8)| self.shared.slot(stage, *other).pid != 0;
        { others }.find(ready).map_or(slot, |(_, other)| other)
    }

    fn too_often(&self, stage: usize) -> bool {
        let note = |note| self.shared.note(stage, note);
        let steps = self.shared.layout.steps(&self.shared.region, stage);
        let deaths = match note(Note::StepsAtDeath).swap(steps, Relaxed) == steps {
            true => note(Note::Deaths).load(Relaxed) + 1,
            false => 1,
        };
        note(Note::Deaths).store(deaths, Relaxed);
        deaths > DEATHS_MAX
    }
}
