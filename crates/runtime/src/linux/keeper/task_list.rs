//! The tasks of a run and the caller's own threads: which of them runs on which core, at which priority.

use std::sync::Arc;

use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest, Seat, Unfit, place};
use punctual_platform::Machine;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::thread::{Guests, Tid, set_scheduling};
use punctual_platform::linux::{BestEffort, LinuxMachine, Others, thread};
use punctual_units::{CoreId, Share, TaskId, Time};
use punctual_workload::{Active, Arrival, Class, Goal, TaskGoal};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::error::RuntimeError;
use crate::linux::RunOptions;
use crate::linux::beside::{announced, check_claims, limits_of, refused, unclaimed, update_share};
use crate::linux::exclusive::{Exclusive, TaskPlacement, kept, priority};
use crate::linux::seats::SavedThread;
use crate::linux::shared::{Tenure, ThreadPlace, unprotected};
use crate::linux::tasks::TaskState;
use crate::report::Protection;
use crate::schedule::NextRelease;
use crate::under_way::Schedule;

/// Greatest number of tasks in a runtime's life, ended ones included: each keeps its figures to the end.
pub const TASKS_MAX: usize = 256;

/// The tasks of a run, and the input of their placement.
pub(super) struct TaskList {
    /// Cores that this process may use.
    usable: Vec<CoreId>,
    /// Those of them that no other program claims.
    cores: Vec<CoreId>,
    /// Exclusive cores of the run. Kept to its end: dropping the last handle of a core would end the sweep for threads
    /// that start meanwhile.
    exclusive: Vec<ExclusiveCore>,
    limits: Limits,
    /// Work of other programs, when the last task was added.
    others: Others,
    /// Announces the tasks to other programs.
    journal: Journal,
    movers: Guests,
    /// The core of sensor updates, and the share of it that they need.
    updates: (CoreId, Share),
    /// Exclusive cores for tasks and threads that come later.
    kept: Vec<CoreId>,
    /// Threads of the caller, not of the runtime.
    pub(super) guests: Vec<Guest>,
    bounded: Option<BestEffort>,
    pub(super) goal: Goal,
    seed: u64,
    pub(super) settle_s: f64,
    /// Indexed by number, ended tasks included.
    pub(super) tasks: Vec<TaskEntry>,
}

/// A thread of the caller, on the core that it was given.
pub(super) struct Guest {
    pub(super) name: String,
    pub(super) request: PlacementRequest,
    pub(super) seat: Seat,
    pub(super) place: Arc<SavedThread>,
    /// Thread of another program; `None`: of this process, which gives it back itself.
    pub(super) thread: Option<Tid>,
    /// Tasks that the thread of another program reports, once for each of its reporters.
    pub(super) tasks: Vec<TaskId>,
}

impl Drop for Guest {
    /// Runs before the machine is restored, because the sweep of the thread's core would undo the restored affinity.
    fn drop(&mut self) {
        self.place.give_back();
    }
}

pub(super) struct TaskEntry {
    pub(super) name: String,
    pub(super) request: PlacementRequest,
    pub(super) seat: Seat,
    pub(super) goal: Option<TaskGoal>,
    /// Whether other programs report its jobs: its threads, if they have cores of ours, are among the guests.
    pub(super) is_reported: bool,
    /// Times of its releases; `None` if events release it.
    pub(super) timed: Option<(Arrival, Active)>,
    pub(super) state: Arc<TaskState>,
}

impl TaskEntry {
    fn runs(&self) -> bool {
        !self.is_reported && self.state.ended().is_none()
    }

    /// The task's request, fixed to its present core.
    fn settled(&self) -> PlacementRequest {
        settled(self.request, &self.seat)
    }
}

/// Turns `request` into one for the class and core of `seat`.
fn settled(request: PlacementRequest, seat: &Seat) -> PlacementRequest {
    let class = match (seat, request.class) {
        // An exclusive task that was refused a core.
        (Seat::RealTime(_), Class::Exclusive { deadline }) => Class::RealTime { deadline },
        (_, class) => class,
    };
    PlacementRequest {
        class,
        core: Some(first_core(seat)),
        ..request
    }
}

impl TaskList {
    /// An empty list of a run on these cores.
    pub(super) fn new(machine: &LinuxMachine, options: &RunOptions, placed: &TaskPlacement) -> TaskList {
        let bounds = options.best_effort_share < Share::ONE || options.regulator.best_effort.is_some();
        TaskList {
            usable: machine.offers().cores.clone(),
            cores: machine.offers().cores.clone(),
            exclusive: placed.exclusive.iter().flat_map(Exclusive::cores).cloned().collect(),
            limits: placed.limits.clone(),
            others: Others::default(),
            journal: machine.journal().clone(),
            movers: machine.guests(),
            updates: (placed.placement.update_core(), update_share(&options.header.load)),
            kept: placed.kept.clone(),
            guests: Vec::new(),
            bounded: bounds.then(|| machine.best_effort()),
            goal: options.regulator.goal,
            seed: options.seed,
            settle_s: options.header.settle_s,
            tasks: Vec::new(),
        }
    }

    /// Source of the draws of task `number`.
    pub(super) fn rng(&self, number: usize) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(number as u64))
    }

    /// Releases of task `number` in a run that starts at `start`; `None` if events release it.
    pub(super) fn schedule(&self, number: usize, start: Time) -> Option<Schedule> {
        let (arrival, active) = self.tasks[number].timed?;
        let mut rng = self.rng(number);
        let next = NextRelease::new(arrival, active, start, &mut rng);
        Some(Schedule { next, rng })
    }

    /// Places a new task beside the running ones, which stay on their cores, and other programs' work. Returns its
    /// seat, the request after any downgrade, and the refusal.
    pub(super) fn seat(
        &mut self,
        name: &str,
        request: PlacementRequest,
    ) -> Result<(Seat, PlacementRequest, Option<Protection>), RuntimeError> {
        let invalid = |why: String| RuntimeError::Task {
            name: name.to_owned(),
            why,
        };
        if self.tasks.len() == TASKS_MAX {
            return Err(invalid(format!(
                "{TASKS_MAX} tasks were added to this runtime, and their figures are kept: use one task with changing jobs, or start another runtime"
            )));
        }
        if self.running().any(|kept| kept.name == name) || self.seated().any(|guest| guest.name == name) {
            return Err(invalid(
                "a task of this name runs already: stop it first, or choose another name".into(),
            ));
        }
        self.look_around();
        let (request, told) = match request.class {
            Class::Exclusive { deadline } => match self.seat_exclusively(request) {
                Ok(seat) => return Ok((seat, request, None)),
                Err(why) => {
                    let (class, core) = (Class::RealTime { deadline }, None);
                    (PlacementRequest { class, core, ..request }, Some(no_core(name, why)))
                }
            },
            Class::RealTime { .. } | Class::BestEffort => (request, None),
        };
        check_claims(name, &request, &self.others)?;
        let placed = self.place_beside(request).map_err(|error| {
            let running = self.running().map(|kept| kept.name.as_str());
            let guests = self.seated().map(|guest| guest.name.as_str());
            let names: Vec<&str> = running.chain(guests).chain([name]).collect();
            refused(error, &names, &self.others)
        })?;
        Ok((placed.1, request, told))
    }

    /// Reads which cores other programs claim now, and which tasks they have announced.
    fn look_around(&mut self) {
        self.others = self.journal.others();
        self.cores = unclaimed(&self.usable, &self.others, &self.requests(), &mut Vec::new());
        self.limits = limits_of(&self.limits, &self.cores, &self.others);
    }

    /// Place on the first reserved core that admits the request, or the reason why none does.
    fn seat_exclusively(&self, request: PlacementRequest) -> Result<Seat, String> {
        let meant = |core: &&CoreId| request.core.is_none_or(|named| named == **core);
        let mut why = "no core is kept for tasks and threads that come later".to_owned();
        for core in self.kept.iter().filter(meant) {
            let core = Some(*core);
            match self.place_beside(PlacementRequest { core, ..request }) {
                Ok((_, seat @ Seat::Exclusive(_))) => return Ok(seat),
                Ok((Some(unfit), _)) => why = unfit.to_string(),
                Ok((None, _)) => {}
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// Places `request` beside everything that runs; the first value says why it was refused what it asked for.
    fn place_beside(&self, request: PlacementRequest) -> Result<(Option<Unfit>, Seat), PlaceError> {
        let mut requests = self.requests();
        let new = requests.len();
        requests.push(request);
        let placement = place_all(&requests, &self.kept, &self.cores, &self.limits)?;
        let unfit = placement.refused.into_iter().find(|(task, _)| *task == new);
        Ok((unfit.map(|(_, why)| why), placement.seats[new].clone()))
    }

    /// Requests of the running tasks, then of the callers' threads, fixed to their cores.
    pub(super) fn requests(&self) -> Vec<PlacementRequest> {
        let guests = self.seated().map(|guest| settled(guest.request, &guest.seat));
        self.running().map(TaskEntry::settled).chain(guests).collect()
    }

    fn seated(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().filter(|guest| guest.place.is_taken())
    }

    /// The seated thread of another program, if it is one.
    pub(super) fn guest(&mut self, thread: Tid) -> Option<&mut Guest> {
        let is_it = |guest: &&mut Guest| guest.thread == Some(thread) && guest.place.is_taken();
        self.guests.iter_mut().find(is_it)
    }

    /// Takes note that a thread of another program reports `task` no more; gives it back if that was the last one.
    pub(super) fn dismiss(&mut self, thread: Tid, task: TaskId) {
        let Some(guest) = self.guest(thread) else { return };
        if let Some(at) = guest.tasks.iter().position(|its| *its == task) {
            guest.tasks.swap_remove(at);
        }
        if guest.tasks.is_empty() {
            guest.place.give_back();
        }
    }

    /// Means of moving threads of other programs.
    pub(super) fn movers(&self) -> Guests {
        self.movers.clone()
    }

    pub(super) fn taken(&self, core: CoreId) -> Option<&ExclusiveCore> {
        self.exclusive.iter().find(|taken| taken.obtained().core == core)
    }

    fn running(&self) -> impl Iterator<Item = &TaskEntry> {
        self.tasks.iter().filter(|kept| kept.runs())
    }

    /// Sets the priorities of all real-time threads anew, from all tasks that run now, and announces these to other
    /// programs. A thread whose priority is refused keeps its old one: the report of its start says what it obtained.
    pub(super) fn reorder(&mut self) {
        // Listed once: others may end meanwhile.
        let mut tasks: Vec<&mut TaskEntry> = self.tasks.iter_mut().filter(|kept| kept.runs()).collect();
        let mut guests: Vec<&mut Guest> = { self.guests.iter_mut() }
            .filter(|guest| guest.place.is_taken())
            .collect();
        let settled_guests = guests.iter().map(|guest| settled(guest.request, &guest.seat));
        let requests: Vec<PlacementRequest> = tasks.iter().map(|kept| kept.settled()).chain(settled_guests).collect();
        let placed = place_all(&requests, &self.kept, &self.cores, &self.limits);
        let mut seats = placed
            .map_or_else(|_| Vec::new(), |placement| placement.seats)
            .into_iter();
        let rank = |seat: &Seat| seat.chair().map(|chair| chair.rank);
        for kept in &mut tasks {
            let Some(seat) = seats.next() else { break };
            let moved = rank(&kept.seat) != rank(&seat);
            if let (true, Some(tid), Some(chair)) = (moved, kept.state.thread(), seat.chair()) {
                let _ = set_scheduling(tid, thread::Scheduling::Fifo(priority(chair)));
            }
            kept.seat = seat;
        }
        for guest in &mut guests {
            let Some(seat) = seats.next() else { break };
            if let (true, Some(chair)) = (rank(&guest.seat) != rank(&seat), seat.chair()) {
                guest.place.set_priority(priority(chair));
            }
            guest.seat = seat;
        }
        let guests = guests.iter().map(|guest| guest.seat.clone());
        let seats: Vec<Seat> = tasks.iter().map(|kept| kept.seat.clone()).chain(guests).collect();
        // Without the ledger, or room in it, other programs keep what they know of this one.
        let _ = self.journal.announce_now(&announced(&requests, &seats, self.updates));
    }

    pub(super) fn thread_place(&self, name: &str, seat: &Seat) -> ThreadPlace {
        let mut thread = at(name, first_core(seat), seat.chair().map(priority));
        thread.role = name.into();
        thread.serves = false;
        let exclusive = |core: CoreId| self.taken(core);
        match seat {
            Seat::RealTime(_) => thread,
            Seat::Exclusive(chair) => ThreadPlace {
                tenure: exclusive(chair.core).cloned().map(Tenure::Occupant),
                ..thread
            },
            Seat::BestEffort(_) => ThreadPlace {
                bounded: self.bounded.clone(),
                // A thread that is kept off one of the exclusive cores is kept off all.
                tenure: self.exclusive.first().cloned().map(Tenure::Lendee),
                ..thread
            },
        }
    }

    /// Goal of each task, by its number; `None` for best-effort ones.
    pub(super) fn goals(&self) -> Vec<Option<TaskGoal>> {
        self.tasks.iter().map(|kept| kept.goal).collect()
    }

    pub(super) fn states(&self) -> Vec<(String, Arc<TaskState>)> {
        let state = |kept: &TaskEntry| (kept.name.clone(), Arc::clone(&kept.state));
        self.tasks.iter().map(state).collect()
    }
}

/// Places `requests` on `cores`, and keeps those of the `reserved` ones empty that none of them uses.
fn place_all(
    requests: &[PlacementRequest],
    reserved: &[CoreId],
    cores: &[CoreId],
    limits: &Limits,
) -> Result<Placement, PlaceError> {
    let exclusive = |request: &&PlacementRequest| matches!(request.class, Class::Exclusive { .. });
    let used: Vec<CoreId> = requests
        .iter()
        .filter(exclusive)
        .filter_map(|request| request.core)
        .collect();
    let empty = reserved.iter().filter(|core| !used.contains(core));
    let all: Vec<PlacementRequest> = requests
        .iter()
        .copied()
        .chain(empty.map(|core| kept(Some(*core))))
        .collect();
    place(&all, cores, limits)
}

/// Report entry: a task or thread runs as a real-time one, because it has no exclusive core.
fn no_core(name: &str, why: String) -> Protection {
    let remedy = "keep a core for it when the runtime starts (keep_cores), and say how long it takes (takes_at_most)";
    unprotected(format!("{name}: on a core of its own"), why, remedy)
}

pub(super) fn first_core(seat: &Seat) -> CoreId {
    seat.cores().first().copied().unwrap_or_default()
}

/// Place of a thread of the runtime.
pub(super) fn at(name: &str, core: CoreId, priority: Option<u8>) -> ThreadPlace {
    ThreadPlace {
        role: format!("thread {name}"),
        name: name.into(),
        core,
        priority,
        bounded: None,
        tenure: None,
        serves: true,
    }
}
