//! Whose turn it is. All state is behind one mutex; all decisions are made by the task that has the token.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use punctual_units::Time;

use super::deadlock::{Deadlock, DeadlockReason};
use super::random::{Random, mixed};
use punctual_os::{REAL_TIME_PRIORITIES, Refusal, Scheduling, Tid, Wake};

/// The most threads that a virtual system has at a time. Each is a real thread with a stack.
pub const THREADS_MAX: usize = 1024;

/// The most calls at one instant. A loop that asks the clock until it has moved never ends otherwise.
pub const CALLS_PER_INSTANT_MAX: u32 = 1 << 22;

/// A task that could go on passes the token to an equal at one call in this many. Rarely enough that a task gets some
/// way, often enough that short critical sections are cut.
const SWITCH_ONE_IN: usize = 3;

pub(super) struct Kernel {
    state: Mutex<State>,
}

struct State {
    now: Time,
    /// By how much the clock of ages is ahead, in nanoseconds.
    ahead: i64,
    random: Random,
    digest: u64,
    /// The number of the last lock or place.
    numbered: u64,
    calls: u32,
    /// The task that has the token.
    running: usize,
    tasks: Vec<Task>,
    threads: HashMap<ThreadId, usize>,
    /// The holder of each lock that is held.
    held: BTreeMap<u64, usize>,
    /// The places whose permit was given and not taken.
    permits: BTreeSet<u64>,
    stopped: Option<Deadlock>,
}

struct Task {
    name: String,
    scheduling: Scheduling,
    status: Status,
    parent: usize,
    /// Tasks that it started and that have not ended.
    children: usize,
    turn: Arc<Condvar>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// It could run; one of the ready ones has the token.
    Ready,
    Waits(Wait),
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Lock(u64),
    Permit { place: u64, until: Time },
    Sleep { until: Time },
    Children,
}

impl Wait {
    /// The instant that ends it, if one does.
    fn until(self) -> Option<Time> {
        match self {
            Wait::Permit { until, .. } | Wait::Sleep { until } => Some(until).filter(|until| *until < Time::MAX),
            Wait::Lock(_) | Wait::Children => None,
        }
    }
}

type Locked<'k> = MutexGuard<'k, State>;

impl Kernel {
    pub fn new(seed: u64) -> Kernel {
        let root = std::thread::current().id();
        Kernel {
            state: Mutex::new(State {
                now: Time::ZERO,
                ahead: 0,
                random: Random(seed),
                digest: 0,
                numbered: 0,
                calls: 0,
                running: ROOT,
                tasks: vec![Task::new(
                    "the first thread".to_owned(),
                    ROOT,
                    Scheduling::Other { nice: 0 },
                )],
                threads: HashMap::from([(root, ROOT)]),
                held: BTreeMap::new(),
                permits: BTreeSet::new(),
                stopped: None,
            }),
        }
    }

    fn state(&self) -> Locked<'_> {
        // A panic inside leaves at worst a decision undone; the tasks that unwind still have to take their turns.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Time {
        let mut state = self.state();
        state.calls = state.calls.saturating_add(1);
        if state.calls > CALLS_PER_INSTANT_MAX && state.stopped.is_none() {
            state.stop(DeadlockReason::TimeStands);
            state = self.go_on(state);
        }
        state.now
    }

    pub fn since_boot(&self) -> Time {
        let now = self.now();
        Time(now.0.saturating_add_signed(self.state().ahead))
    }

    /// Sets the clock of ages on by `nanos`.
    pub fn set_on(&self, nanos: i64) {
        self.state().ahead += nanos;
    }

    pub fn digest(&self) -> u64 {
        self.state().digest
    }

    pub fn runs_as(&self, thread: Tid) -> u8 {
        let state = self.state();
        state
            .alive(thread, "reading the priority")
            .map_or(0, |task| state.ranks()[task])
    }

    pub fn deadlock(&self) -> Option<Deadlock> {
        self.state().stopped.clone()
    }

    pub fn number(&self) -> u64 {
        let mut state = self.state();
        state.numbered += 1;
        state.numbered
    }

    pub fn this_thread(&self) -> Tid {
        tid(self.state().me())
    }

    pub fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        let state = self.state();
        let task = state.alive(thread, "reading the scheduling")?;
        Ok(state.tasks[task].scheduling)
    }

    pub fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        let (mut state, me) = self.enter();
        let task = state.alive(thread, "changing the scheduling")?;
        let in_range = match scheduling {
            Scheduling::Fifo(rank) | Scheduling::RoundRobin(rank) => REAL_TIME_PRIORITIES.contains(&rank),
            Scheduling::Other { nice } | Scheduling::Batch { nice } => (-20..=19).contains(&nice),
            Scheduling::Idle => true,
        };
        if !in_range {
            return Err(Refusal {
                what: format!("scheduling thread {thread} as {scheduling:?}"),
                why: "there is no such priority or nice value".to_owned(),
                remedy: "choose a priority from 1 to 99, or a nice value from -20 to 19".to_owned(),
            });
        }
        state.tasks[task].scheduling = scheduling;
        self.yield_turn(state, me);
        Ok(())
    }

    pub fn sleep_until(&self, wake: Time) {
        let (mut state, me) = self.enter_to_wait();
        if wake <= state.now || state.stopped.is_some() {
            return self.yield_turn(state, me);
        }
        state.tasks[me].status = Status::Waits(Wait::Sleep { until: wake });
        let state = self.pass(state, me);
        drop(self.go_on(state));
    }

    pub fn lock(&self, lock: u64) {
        let (state, me) = self.enter_to_wait();
        let holder = state.held.get(&lock);
        assert_ne!(holder, Some(&me), "a lock was locked again by the thread that holds it");
        let mut state = self.yielded(state, me);
        // Once round, unless the run is stopped: a task that unwinds waits on.
        while state.held.contains_key(&lock) {
            state.tasks[me].status = Status::Waits(Wait::Lock(lock));
            state = self.pass(state, me);
            if state.held.get(&lock) == Some(&me) {
                return; // handed over
            }
            state = self.go_on(state);
        }
        state.held.insert(lock, me);
    }

    pub fn try_lock(&self, lock: u64) -> bool {
        let (state, me) = self.enter_to_wait();
        let mut state = self.yielded(state, me);
        let free = !state.held.contains_key(&lock);
        if free {
            state.held.insert(lock, me);
        }
        free
    }

    pub fn unlock(&self, lock: u64) {
        let (mut state, me) = self.enter();
        state.held.remove(&lock);
        let waiters = state.tasks_that(|status| status == Status::Waits(Wait::Lock(lock)));
        if let Some(next) = state.most_urgent(&waiters) {
            state.held.insert(lock, next);
            state.tasks[next].status = Status::Ready;
        }
        self.yield_turn(state, me);
    }

    pub fn park_until(&self, place: u64, deadline: Time) -> Wake {
        let (state, me) = self.enter_to_wait();
        let mut state = self.yielded(state, me);
        if state.permits.remove(&place) {
            return Wake::Woken;
        }
        if deadline <= state.now || state.stopped.is_some() {
            return Wake::TimedOut;
        }
        state.tasks[me].status = Status::Waits(Wait::Permit { place, until: deadline });
        let mut state = self.pass(state, me);
        if state.permits.remove(&place) {
            return Wake::Woken;
        }
        drop(self.go_on(state));
        Wake::TimedOut
    }

    pub fn unpark(&self, place: u64) {
        let (mut state, me) = self.enter();
        state.permits.insert(place);
        let parked = |status| matches!(status, Status::Waits(Wait::Permit { place: at, .. }) if at == place);
        for task in state.tasks_that(parked) {
            state.tasks[task].status = Status::Ready;
        }
        self.yield_turn(state, me);
    }

    pub fn forget_place(&self, place: u64) {
        self.state().permits.remove(&place);
    }

    /// Makes a task of each name, children of the caller that are ready.
    pub fn enlist(&self, names: Vec<String>) -> Vec<Tid> {
        let (mut state, me) = self.enter();
        let scheduling = state.tasks[me].scheduling;
        state.tasks[me].children += names.len();
        names
            .into_iter()
            .map(|name| tid(state.enlist(Task::new(name, me, scheduling))))
            .collect()
    }

    /// The calling thread is `task` from here on; returns when it is its turn.
    pub fn begin(&self, task: Tid) {
        let me = task.0 as usize;
        let mut state = self.state();
        state.threads.insert(std::thread::current().id(), me);
        drop(self.until_turn(state, me));
    }

    /// `task` has ended, or could not be started. Does not wait for anything.
    pub fn end(&self, task: Tid) {
        let me = task.0 as usize;
        let mut state = self.state();
        state.tasks[me].status = Status::Ended;
        let parent = state.tasks[me].parent;
        state.tasks[parent].children -= 1;
        if state.tasks[parent].children == 0 && state.tasks[parent].status == Status::Waits(Wait::Children) {
            state.tasks[parent].status = Status::Ready;
        }
        if state.running == me {
            state.threads.remove(&std::thread::current().id());
            state.hand_on();
        }
    }

    /// Waits until all tasks that the caller has started have ended.
    pub fn wait_for_children(&self) {
        let (mut state, me) = self.enter();
        if state.tasks[me].children > 0 {
            state.tasks[me].status = Status::Waits(Wait::Children);
            drop(self.pass(state, me));
        }
    }

    /// Goes on with the panic of a child.
    pub fn pass_on_panic(&self, panic: Box<dyn Any + Send>) -> ! {
        match panic.downcast::<Deadlock>() {
            // Tasks end with the report quietly; the first one says it, once.
            Ok(deadlock) if self.state().me() == ROOT => panic!("{deadlock}"),
            Ok(deadlock) => resume_unwind(deadlock),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn enter(&self) -> (Locked<'_>, usize) {
        let mut state = self.state();
        let me = state.me();
        state.calls = state.calls.saturating_add(1);
        if state.calls > CALLS_PER_INSTANT_MAX && state.stopped.is_none() {
            state.stop(DeadlockReason::TimeStands);
        }
        (state, me)
    }

    /// For the calls that end a task when the run is stopped; the others may be made by destructors.
    fn enter_to_wait(&self) -> (Locked<'_>, usize) {
        let (state, me) = self.enter();
        (self.go_on(state), me)
    }

    /// Lets the seed, or a higher priority, give the token to another task that is ready.
    fn yield_turn(&self, state: Locked<'_>, me: usize) {
        drop(self.yielded(state, me));
    }

    fn yielded<'k>(&self, mut state: Locked<'k>, me: usize) -> Locked<'k> {
        let ready = state.tasks_that(|status| status == Status::Ready);
        if ready.len() == 1 {
            return state; // the caller
        }
        let ranks = state.ranks();
        let highest = ready.iter().map(|task| ranks[*task]).max();
        if highest == Some(ranks[me]) && state.random.below(SWITCH_ONE_IN) > 0 {
            return state;
        }
        self.pass(state, me)
    }

    /// Gives the token to the task that the seed chooses, and returns when the caller has it again.
    fn pass<'k>(&self, mut state: Locked<'k>, me: usize) -> Locked<'k> {
        state.hand_on();
        self.until_turn(state, me)
    }

    fn until_turn<'k>(&self, mut state: Locked<'k>, me: usize) -> Locked<'k> {
        let turn = Arc::clone(&state.tasks[me].turn);
        while state.running != me || state.tasks[me].status != Status::Ready {
            state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Ends the calling task by a panic if the run is stopped. One that unwinds already goes on.
    fn go_on<'k>(&self, state: Locked<'k>) -> Locked<'k> {
        let Some(deadlock) = state.stopped.clone().filter(|_| !std::thread::panicking()) else {
            return state;
        };
        let me = state.me();
        drop(state);
        match me {
            ROOT => panic!("{deadlock}"),
            _ => resume_unwind(Box::new(deadlock)),
        }
    }
}

/// The task that made the system.
const ROOT: usize = 0;

/// Tasks that unwind wait for each other. Their destructors cannot be left out, so nothing is left but to end the
/// process, after the report.
fn give_up(report: &Deadlock) -> ! {
    let _ = catch_unwind(|| panic!("threads that unwind after a deadlock wait for each other: {report}"));
    std::process::abort()
}

fn tid(task: usize) -> Tid {
    Tid(task as i32)
}

impl Task {
    fn new(name: String, parent: usize, scheduling: Scheduling) -> Task {
        Task {
            name,
            scheduling,
            status: Status::Ready,
            parent,
            children: 0,
            turn: Arc::default(),
        }
    }
}

impl State {
    fn me(&self) -> usize {
        let thread = std::thread::current();
        let me = self.threads.get(&thread.id()).copied();
        let name = thread.name().unwrap_or("without a name");
        me.unwrap_or_else(|| panic!("thread {name} is no task of this virtual system: start it with `together`"))
    }

    fn alive(&self, thread: Tid, action: &str) -> Result<usize, Refusal> {
        let task = usize::try_from(thread.0).unwrap_or(usize::MAX);
        match self.tasks.get(task) {
            Some(found) if found.status != Status::Ended => Ok(task),
            _ => Err(Refusal {
                what: format!("{action} of thread {thread}"),
                why: "there is no such thread".to_owned(),
                remedy: "name a thread that is alive".to_owned(),
            }),
        }
    }

    /// Gives `task` a number: one of a task that has ended, if there is one.
    fn enlist(&mut self, task: Task) -> usize {
        match self.tasks.iter().position(|task| task.status == Status::Ended) {
            Some(free) => {
                self.tasks[free] = task;
                free
            }
            None => {
                assert!(
                    self.tasks.len() < THREADS_MAX,
                    "a virtual system has at most {THREADS_MAX} threads"
                );
                self.tasks.push(task);
                self.tasks.len() - 1
            }
        }
    }

    fn tasks_that(&self, holds: impl Fn(Status) -> bool) -> Vec<usize> {
        let tasks = self.tasks.iter().enumerate();
        tasks
            .filter(|(_, task)| holds(task.status))
            .map(|(task, _)| task)
            .collect()
    }

    /// As what each task runs: its own real-time priority, or the highest among those that wait for its locks.
    fn ranks(&self) -> Vec<u8> {
        let mut ranks: Vec<u8> = self.tasks.iter().map(|task| task.scheduling.rank()).collect();
        // A chain of locks is no longer than there are tasks: each round settles at least one more of them.
        for _ in 0..self.tasks.len() {
            let mut raised = false;
            for (waiter, task) in self.tasks.iter().enumerate() {
                let Status::Waits(Wait::Lock(lock)) = task.status else {
                    continue;
                };
                if let Some(&holder) = self.held.get(&lock)
                    && ranks[holder] < ranks[waiter]
                {
                    ranks[holder] = ranks[waiter];
                    raised = true;
                }
            }
            if !raised {
                break;
            }
        }
        ranks
    }

    /// One of `tasks` of the highest priority, as the seed chooses.
    fn most_urgent(&mut self, tasks: &[usize]) -> Option<usize> {
        let ranks = self.ranks();
        let highest = tasks.iter().map(|task| ranks[*task]).max()?;
        let urgent: Vec<usize> = tasks.iter().copied().filter(|task| ranks[*task] == highest).collect();
        Some(urgent[self.random.below(urgent.len())])
    }

    /// Gives the token to a task that is ready; lets time pass, or stops the run, where none is.
    fn hand_on(&mut self) {
        let next = loop {
            let ready = self.tasks_that(|status| status == Status::Ready);
            if let Some(next) = self.most_urgent(&ready) {
                break next;
            }
            if !self.jump() {
                self.stop(DeadlockReason::AllWait);
            }
        };
        self.running = next;
        self.digest = mixed(self.digest ^ mixed(self.now.0 ^ (next as u64) << 48));
        self.tasks[next].turn.notify_one();
    }

    /// Moves the clock to the next instant that a task waits for; false if there is none.
    fn jump(&mut self) -> bool {
        let until = |task: &Task| match task.status {
            Status::Waits(wait) => wait.until(),
            Status::Ready | Status::Ended => None,
        };
        let Some(next) = self.tasks.iter().filter_map(until).min() else {
            return false;
        };
        self.now = next;
        self.calls = 0;
        for task in self.tasks.iter_mut().filter(|task| until(task) == Some(next)) {
            task.status = Status::Ready;
        }
        true
    }

    /// Ends the run: writes the report, and takes every task out of its wait but those that wait for others to end.
    fn stop(&mut self, cause: DeadlockReason) {
        let report = self.report(cause);
        if self.stopped.is_some() {
            give_up(&report);
        }
        self.stopped = Some(report);
        for task in &mut self.tasks {
            match task.status {
                Status::Waits(Wait::Children) | Status::Ended => {}
                Status::Waits(_) | Status::Ready => task.status = Status::Ready,
            }
        }
    }

    fn report(&self, cause: DeadlockReason) -> Deadlock {
        let alive = self.tasks.iter().filter(|task| task.status != Status::Ended);
        Deadlock {
            cause,
            at: self.now,
            threads: alive.map(|task| (task.name.clone(), self.waits(task))).collect(),
        }
    }

    fn waits(&self, task: &Task) -> String {
        match task.status {
            Status::Ready => "could run".to_owned(),
            Status::Ended => "has ended".to_owned(),
            Status::Waits(Wait::Lock(lock)) => {
                let holder = self
                    .held
                    .get(&lock)
                    .map_or("no thread", |holder| &self.tasks[*holder].name);
                format!("waits for lock {lock}, which {holder} holds")
            }
            Status::Waits(Wait::Permit {
                place,
                until: Time::MAX,
            }) => format!("is parked at place {place}"),
            Status::Waits(Wait::Permit { place, until }) => format!("is parked at place {place} until {until:?}"),
            Status::Waits(Wait::Sleep { until }) => format!("sleeps until {until:?}"),
            Status::Waits(Wait::Children) => format!("waits for the end of {} threads", task.children),
        }
    }
}
