//! Evidence about a late job from outside of its thread: the probe saw the core taken away, other threads had the core
//! while the job was ready, a thread held the lock, or the hypervisor ran other guests.

use std::collections::HashMap;

use punctual_os::{LinuxOs, Scheduling};
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::busy::{CoreTimes, Stat};
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::run_queue::RunQueue;
use punctual_platform::linux::switches::{ELSEWHERE, IDLE, PreemptingThread, Switches, Turn, taken};
use punctual_platform::linux::thread::{Tid, cpu_time_of, name_of, scheduling};
use punctual_store::permit::WaitedFor;
use punctual_units::{Clock, CoreId, Nanos, TaskId, Time};
use punctual_workload::{JobMeasurements, JobOutcome};

use super::known::JobFacts;
use super::shared::protection;
use super::{CONTROL_PRIORITY, FEEDER_PRIORITY, PROBE_PRIORITY};
use crate::causes::{CULPRITS_MAX, Evidence};
use crate::report::{Activity, Culprit, FilledCore, Protection};

/// At most one part in this many of the time is spent on finding the threads that took the core from late jobs. If
/// there are more late jobs, some are not examined.
const ONE_IN: u64 = 100;

/// Lifetime of a cached thread name: the id may belong to another thread afterwards.
const REMEMBERED: Nanos = Nanos::from_secs(1);

/// Interval between two looks for cores that threads of other processes fill: the period of the kernel's throttling.
const FILLED_EVERY: Nanos = Nanos::from_secs(1);

/// Share of that time that real-time threads have in all where they fill a core: the kernel throttles them at 0.95.
const FILLED_SHARE: f64 = 0.85;

/// Share of it in which such a core is busy, by the kernel's ticks of 10 ms.
const FULL_SHARE: f64 = FILLED_SHARE - 0.05;

/// Share of it that those of other processes have had at least, and the one that is named by itself.
const OTHERS_SHARE: f64 = 0.2;
const NAMED_SHARE: f64 = 0.05;

/// Wait of the control thread for its core in such a second, if the kernel throttled it.
const THROTTLED: Nanos = Nanos::from_millis(10);

/// Wait of a thread below it, which is ready for most of the time that the kernel throttles, 50 ms of such a second.
const THROTTLED_BELOW: Nanos = Nanos::from_millis(30);

/// Wait of a thread of highest priority from which it may have been throttled: only then a core is examined, as that
/// takes a millisecond.
const KEPT_OFF: Nanos = Nanos::from_millis(2);

/// Greatest number of reported threads that filled cores.
const FILLED_MAX: usize = 8;

/// Greatest number of cached names.
const NAMES_MAX: usize = 64;

/// The probe, our own real-time threads on its core (which the kernel throttles if they fill it), and the sources that
/// tell which threads have the cores of our tasks.
#[derive(Default)]
pub(super) struct Witness<'p> {
    probe: Option<&'p GapProbe>,
    /// Core of the probe.
    core: CoreId,
    /// Core of each task.
    cores: Vec<(TaskId, CoreId)>,
    threads: Vec<Tid>,
    /// Read at late jobs.
    stat: Option<Stat>,
    /// Times of the cores at the last look, since boot; empty if the kernel does not report them.
    times: Vec<CoreTimes>,
    /// Switch records of each core with a task that has a deadline, and of the control thread's, where the kernel
    /// provides them.
    switches: Vec<(CoreId, Switches)>,
    refused: bool,
    /// Cores that real-time threads of other processes filled.
    filled: Vec<FilledCore>,
    /// When the cores were last examined for that, and their times then.
    filled_at: Time,
    times_then: Vec<CoreTimes>,
    /// Threads of this run that throttling, each other and other processes alone keep from their cores.
    above: Vec<ThreadAbove>,
    /// Earliest time for examining the next late job.
    looks_again: Time,
    names: Vec<(Tid, String)>,
    names_since: Time,
}

impl<'p> Witness<'p> {
    /// The witness of `core`, on which `probe` runs if the kernel allowed it.
    pub(super) fn new(core: CoreId, probe: Option<&'p GapProbe>) -> Witness<'p> {
        let mut witness = Witness {
            probe,
            core,
            threads: probe.map(GapProbe::tid).into_iter().collect(),
            stat: Stat::open(&KernelTree::default()).ok(),
            filled_at: LinuxOs.now(),
            ..Witness::default()
        };
        // Waits of the probe are gaps, which are seen otherwise.
        witness.watch_above(core, probe.map(GapProbe::tid), false);
        witness
    }

    /// Notes that the calling thread, the control thread, runs on `core`.
    pub(super) fn runs_on(&mut self, core: CoreId) {
        self.watch_above(core, Some(Tid::current()), true);
    }

    /// Adds to the counted CPU time those of the real-time `threads` that run on the probe's core.
    pub(super) fn count(&mut self, threads: impl IntoIterator<Item = (CoreId, Tid)>) {
        for (core, thread) in threads {
            // The control thread wakes in step with the kernel's throttling, and may never meet it; the feeder does.
            if scheduling(thread).is_ok_and(|it| it.rank() >= FEEDER_PRIORITY) {
                self.watch_above(core, Some(thread), true);
            }
            // A thread that reports two tasks comes twice.
            if core == self.core && !self.threads.contains(&thread) {
                self.threads.push(thread);
            }
        }
    }

    fn watch_above(&mut self, core: CoreId, thread: Option<Tid>, waits: bool) {
        let Some(thread) = thread.filter(|it| self.above.iter().all(|known| known.thread != *it)) else {
            return;
        };
        let queue = RunQueue::of(std::process::id() as i32, thread).filter(|_| waits);
        let rank = scheduling(thread).map_or(0, Scheduling::rank);
        let (waited, used) = (Nanos::ZERO, Nanos::ZERO);
        let mut new = ThreadAbove {
            core,
            thread,
            rank,
            queue,
            waited,
            used,
        };
        new.since_last();
        self.above.push(new);
    }

    /// How long threads of this run have waited since the last call for each of their cores while none of their own
    /// rank or above had it; those below the control thread only if the kernel may have throttled them.
    fn kept_off(&mut self) -> Vec<(CoreId, Nanos)> {
        let spans: Vec<(Nanos, Nanos)> = self.above.iter_mut().map(ThreadAbove::since_last).collect();
        let kept = |(number, it): (usize, &ThreadAbove)| {
            it.queue.as_ref()?;
            let others = { self.above.iter().enumerate() }
                .filter(|(other, by)| *other != number && by.core == it.core && by.rank >= it.rank);
            let by_others = others.map(|(other, _)| spans[other].1).sum();
            let waited = spans[number].0.saturating_sub(by_others);
            let may_be_throttled = it.rank >= CONTROL_PRIORITY || waited >= THROTTLED_BELOW;
            Some((it.core, if may_be_throttled { waited } else { Nanos::ZERO }))
        };
        self.above.iter().enumerate().filter_map(kept).collect()
    }

    /// Adds a task on `core`; its late jobs are explained if it is `judged` by a deadline. Returns the reason the first
    /// time that threads taking a core cannot be named.
    pub(super) fn watch(&mut self, task: TaskId, core: CoreId, judged: bool) -> Option<Protection> {
        // A program that was started anew may have another core.
        self.cores.retain(|(other, _)| *other != task);
        self.cores.push((task, core));
        if judged { self.watch_core(core) } else { None }
    }

    /// Notes which threads have `core`. Returns the reason the first time that this is refused.
    pub(super) fn watch_core(&mut self, core: CoreId) -> Option<Protection> {
        if self.refused || self.switches.iter().any(|(other, _)| *other == core) {
            return None;
        }
        match Switches::of(core) {
            Ok(switches) => {
                self.switches.push((core, switches));
                None
            }
            Err(refusal) => {
                self.refused = true;
                Some(protection(
                    "late jobs name the threads that took their core".into(),
                    Err(refusal),
                ))
            }
        }
    }

    /// Takes the times of the cores, read just now; the next late job counts from here.
    pub(super) fn look(&mut self, times: &[CoreTimes]) {
        self.times.clear();
        self.times.extend_from_slice(times);
        let now = LinuxOs.now();
        if now.since(self.filled_at) >= FILLED_EVERY {
            self.look_for_filled_cores(now);
            self.filled_at = now;
            self.times_then.clone_from(&self.times);
        }
    }

    /// Finds real-time threads of other processes that have filled a core since the last such look.
    fn look_for_filled_cores(&mut self, now: Time) {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let waits = self.kept_off();
        let passed = now.since(self.filled_at);
        for (core, switches) in &self.switches {
            let busy = |times: &[CoreTimes]| times_of(*core, times).map(|times| times.busy);
            let is_idle = busy(&self.times)
                .zip(busy(&self.times_then))
                .is_some_and(|(busy, then)| busy.saturating_sub(then) < passed.scaled(FULL_SHARE));
            let here = waits.iter().filter(|(other, _)| other == core);
            let kept_off = here.map(|(_, waited)| *waited).max();
            let gap = match self.probe {
                _ if kept_off.is_some() => kept_off.unwrap_or_default(),
                Some(probe) if *core == self.core => probe.longest_gap(self.filled_at, now).max(probe.since_wake(now)),
                _ => KEPT_OFF,
            };
            // Most seconds end here.
            if is_idle || gap < KEPT_OFF {
                continue;
            }
            let turns = switches.since(self.filled_at);
            // A thread that has ended may have been an ordinary one, of a build for example, unless the kernel
            // throttled this core.
            let rank = |thread| match scheduling(thread) {
                Ok(scheduling) => Some(scheduling.rank()),
                Err(_) => (kept_off < Some(THROTTLED)).then_some(0),
            };
            let Some(most) = fullest(&turns, own, self.filled_at, now, rank) else {
                continue;
            };
            let seconds = most.took.as_secs_f64();
            let known = |it: &FilledCore| (it.core, it.by.thread) == (*core, Some(most.thread.0));
            if let Some(known) = self.filled.iter().position(known) {
                self.filled[known].seconds += seconds;
            } else if let Ok(scheduling) = scheduling(most.thread)
                && self.filled.len() < FILLED_MAX
            {
                let by = Culprit {
                    thread: Some(most.thread.0),
                    process: Some(most.process),
                    program: name_of(Tid(most.process)),
                    scheduling: Some(scheduling),
                    ..Culprit::named(name_or_gone(most.thread))
                };
                let core = *core;
                self.filled.push(FilledCore { core, by, seconds });
            }
        }
    }

    /// Cores that real-time threads of other processes filled, the longest first.
    pub(super) fn filled_cores(&self) -> Vec<FilledCore> {
        let mut filled = self.filled.clone();
        filled.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        filled
    }

    /// CPU time that the counted threads have used since they started.
    pub(super) fn used(&self) -> Nanos {
        self.threads.iter().filter_map(|thread| cpu_time_of(*thread)).sum()
    }

    /// Whether a gap at least as long as the job's overrun lies between its release and its end.
    pub(super) fn explains(&self, job: &JobOutcome) -> bool {
        job.overrun()
            .is_some_and(|overrun| self.gap(job, job.released) >= overrun)
    }

    /// Longest time between `from` and the job's end in which the core was taken from all threads.
    fn gap(&self, job: &JobOutcome, from: Time) -> Nanos {
        let probe = self.probe.filter(|_| self.core_of(job.task) == Some(self.core));
        probe.map_or(Nanos::ZERO, |probe| probe.longest_gap(from, job.finished))
    }

    fn core_of(&self, task: TaskId) -> Option<CoreId> {
        self.cores
            .iter()
            .find(|(other, _)| *other == task)
            .map(|(_, core)| *core)
    }

    /// All evidence about a job that has ended.
    pub(super) fn evidence(&mut self, job: &JobOutcome, beside: JobFacts) -> Evidence {
        if job.overrun().is_none() {
            return beside.known.into();
        }
        let now = LinuxOs.now();
        // Time taken while the previous job still ran belongs to that span.
        let begun = job.released + beside.known.behind.min(job.split.released_late);
        let looked = if now < self.looks_again {
            None
        } else {
            let preemptors = self.preemptors(job, begun, beside);
            let after = LinuxOs.now();
            self.looks_again = after + after.since(now) * ONE_IN;
            preemptors
        };
        // Only threads with the probe's priority or above explain a gap of it. If no thread is known, all time in which
        // the job was ready may be theirs.
        let outranks =
            |it: &Preemptor| it.taken.thread != IDLE && it.scheduling.is_none_or(|own| own.rank() >= PROBE_PRIORITY);
        let sum = |of: &dyn Fn(&Preemptor) -> bool| {
            let all = looked.iter().flatten();
            all.filter(|it| of(it)).map(|it| it.taken.took).sum::<Nanos>()
        };
        let by_threads = match &looked {
            Some(_) => sum(&outranks),
            None => beside.known.ready.unwrap_or_default(),
        };
        let throttled = sum(&|it| it.throttles);
        let stolen = self.gap(job, begun).saturating_sub(by_threads);
        // A stop concerns all threads, wherever the probe is.
        let stop = |probe: &GapProbe| probe.longest_stop(begun, job.finished);
        let stopped = self.probe.map_or(Nanos::ZERO, stop);
        let fillers = self.filled.iter().filter(|it| Some(it.core) == self.core_of(job.task));
        let us = throttled.as_micros_f64();
        let fillers = fillers.map(|it| Culprit { us, ..it.by.clone() }).collect();
        // Threads that ran only because the kernel throttled real-time threads are not to blame.
        let preemptors = looked.into_iter().flatten().filter(|it| !it.throttles);
        let [stolen_ticks, interrupts] = self.taken_since(job.task);
        Evidence {
            known: JobMeasurements {
                throttled,
                stopped,
                stolen,
                ..beside.known
            },
            holder: beside.waited_for.map(|it| self.holder(it, beside.known.syncs, now)),
            preemptors: preemptors.take(CULPRITS_MAX).map(Preemptor::named).collect(),
            fillers,
            stolen: stolen_ticks,
            interrupts,
        }
    }

    /// Time that the hypervisor and interrupts have taken from the core of `task` since the last look, in ticks of 10
    /// ms; looks again. `None` for a task on another core, and if the kernel does not report it.
    fn taken_since(&mut self, task: TaskId) -> [Option<Nanos>; 2] {
        if self.core_of(task) != Some(self.core) {
            return [None; 2];
        }
        let before = times_of(self.core, &self.times);
        let times = self.stat.as_mut().and_then(|stat| stat.read().ok());
        self.look(&times.unwrap_or_default());
        let after = times_of(self.core, &self.times);
        let since = |of: fn(&CoreTimes) -> Nanos| Some(of(&after?).saturating_sub(of(&before?)));
        [since(|times| times.steal), since(|times| times.interrupts)]
    }

    /// The threads that had the job's core while the job was ready, from `begun` on, the longest first. `None` if
    /// unknown.
    fn preemptors(&self, job: &JobOutcome, begun: Time, beside: JobFacts) -> Option<Vec<Preemptor>> {
        let core = self.core_of(job.task);
        let (Some(thread), Some(ready)) = (beside.thread, beside.known.ready) else {
            return None;
        };
        // A task without a core may have run on any, and turns of its thread show on which.
        let rings = { self.switches.iter() }.filter(|(other, _)| core.is_none_or(|core| core == *other));
        let of_ring =
            |(_, switches): &(CoreId, Switches)| taken(&switches.since(begun), thread, begun, job.finished, ready);
        let mut taken: Vec<PreemptingThread> = rings.clone().flat_map(of_ring).collect();
        taken.sort_by_key(|taken| std::cmp::Reverse(taken.took));
        rings.clone().next()?;
        let real_time = scheduling(thread).is_ok_and(|own| own.rank() > 0);
        let own = i32::try_from(std::process::id()).ok();
        let told = taken.into_iter().map(|taken| {
            let known = taken.thread.0 > 0;
            let scheduling = known.then(|| scheduling(taken.thread).ok()).flatten();
            let ours = Some(taken.process) == own;
            // The scheduling policy is read afterwards. A thread of ours may have inherited the priority of a waiting
            // thread, and has returned it since.
            let ordinary = taken.thread == IDLE || !ours && scheduling.is_some_and(|it| it.rank() == 0);
            Preemptor {
                taken,
                ours,
                scheduling,
                throttles: real_time && ordinary,
            }
        });
        Some(told.collect())
    }

    fn holder(&mut self, held: WaitedFor, syncs: bool, now: Time) -> Culprit {
        let WaitedFor {
            thread,
            held,
            committing,
        } = held;
        if now.since(self.names_since) > REMEMBERED || self.names.len() == NAMES_MAX {
            self.names.clear();
            self.names_since = now;
        }
        let known = self
            .names
            .iter()
            .find(|(other, _)| *other == thread)
            .map(|(_, name)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = name_or_gone(thread);
            self.names.push((thread, name.clone()));
            name
        });
        let doing = committing.map(|committing| match committing * 2 > held {
            true if syncs => Activity::Syncing,
            true => Activity::Committing,
            false => Activity::Working,
        });
        Culprit {
            thread: Some(thread.0),
            doing,
            us: held.as_micros_f64(),
            ..Culprit::named(name)
        }
    }
}

/// A thread of this run with the feeder's priority or above, or the control thread.
struct ThreadAbove {
    core: CoreId,
    thread: Tid,
    rank: u8,
    /// Account of its waits; `None` where they do not count.
    queue: Option<RunQueue>,
    /// How long it had waited for its core, and had it, at the last look.
    waited: Nanos,
    used: Nanos,
}

impl ThreadAbove {
    /// How long it has waited for its core, and had it, since the last call.
    fn since_last(&mut self) -> (Nanos, Nanos) {
        let (waited, used) = (self.waited, self.used);
        self.waited = { self.queue.as_ref() }.and_then(RunQueue::waited).unwrap_or(waited);
        self.used = cpu_time_of(self.thread).unwrap_or(used);
        (self.waited.saturating_sub(waited), self.used.saturating_sub(used))
    }
}

/// A thread that had the core while a job was ready.
struct Preemptor {
    taken: PreemptingThread,
    /// Whether the thread belongs to this process.
    ours: bool,
    scheduling: Option<Scheduling>,
    /// Whether the kernel ran the thread in order to throttle real-time threads.
    throttles: bool,
}

impl Preemptor {
    fn named(self) -> Culprit {
        let PreemptingThread { thread, process, took } = self.taken;
        let name = match thread {
            IDLE => "no thread".into(),
            ELSEWHERE => "a thread of another PID namespace".into(),
            thread => name_or_gone(thread),
        };
        let known = thread.0 > 0;
        Culprit {
            thread: known.then_some(thread.0),
            process: Some(process).filter(|_| known && !self.ours),
            program: (known && !self.ours).then(|| name_of(Tid(process))).flatten(),
            scheduling: self.scheduling,
            us: took.as_micros_f64(),
            ..Culprit::named(name)
        }
    }
}

/// The real-time thread of another process than `own` that filled the core from `since` to `now`, if need be with our
/// own, by the turns there; with the time of all such threads of others. Threads that have ended count as those that it
/// started, a shell's commands for example. `rank` answers a thread's real-time priority, 0 for ordinary threads,
/// `None` for one that has ended.
fn fullest(
    turns: &[Turn],
    own: i32,
    since: Time,
    now: Time,
    rank: impl Fn(Tid) -> Option<u8>,
) -> Option<PreemptingThread> {
    // Where threads change often, the kernel's ring does not go back to `since`.
    let since = turns.first()?.from.max(since);
    let least = |share| now.since(since).scaled(share);
    let mut had: HashMap<i32, PreemptingThread> = HashMap::new();
    for turn in turns.iter().filter(|turn| turn.thread.0 > 0) {
        let (thread, process) = (turn.thread, turn.process);
        let none = PreemptingThread {
            thread,
            process,
            took: Nanos::ZERO,
        };
        had.entry(thread.0).or_insert(none).took += turn.until.min(now).since(turn.from.max(since));
    }
    let mut had: Vec<PreemptingThread> = had.into_values().collect();
    had.sort_by_key(|it| std::cmp::Reverse(it.took));
    let mut filled: Nanos = had.iter().map(|it| it.took).sum();
    let (mut took, mut most) = (Nanos::ZERO, None);
    for it in had {
        // To ask takes system calls: most cores are left after the longest thread.
        if filled < least(FILLED_SHARE) {
            return None;
        }
        match rank(it.thread) {
            Some(0) => filled = filled.saturating_sub(it.took),
            _ if it.process == own => {}
            known => {
                took += it.took;
                most = most.or(known.map(|_| it));
            }
        }
    }
    let most = most?;
    let named = filled >= least(FILLED_SHARE) && took >= least(OTHERS_SHARE) && most.took >= least(NAMED_SHARE);
    named.then_some(PreemptingThread { took, ..most })
}

fn name_or_gone(thread: Tid) -> String {
    name_of(thread).unwrap_or_else(|| "a thread that has ended".into())
}

fn times_of(core: CoreId, times: &[CoreTimes]) -> Option<CoreTimes> {
    times.iter().find(|times| times.core == core).copied()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;

    use punctual_os::linux::thread::{process_cpu_time_of, set_scheduling};
    use punctual_platform::linux::thread::{allowed_cores, pin, pin_thread, real_time, thread_cpu_time};
    use punctual_testing::{CHILD_MAX, machine, wait_until};

    use super::*;

    /// Whether a program that fills `core` at `priority` is named, beside a feeder that waits for it, and a
    /// control thread that has it for `load`. An error where the rights for that are missing.
    fn is_named(core: CoreId, priority: u8, load: Nanos) -> Result<bool, String> {
        let mut witness = Witness::default();
        if let Some(refusal) = witness.watch_core(core) {
            return Err(format!("{refusal:?}"));
        }
        // A thread there that acts each time that it is asked, and answers then.
        let on_core = |priority, mut act: Box<dyn FnMut() + Send>| {
            let (ask, asked) = channel::<()>();
            let (answer, answers) = channel();
            std::thread::spawn(move || {
                let is_placed = pin(core).and_then(|()| real_time(priority)).is_ok();
                while is_placed && answer.send(Tid::current()).is_ok() && asked.recv().is_ok() {
                    act();
                }
            });
            (ask, answers)
        };
        let lost = |_| "no real-time rights".to_string();
        let (wake, fed) = on_core(FEEDER_PRIORITY, Box::new(|| ()));
        let (burst, over) = on_core(
            CONTROL_PRIORITY,
            Box::new(move || {
                wake.send(()).unwrap();
                let end = thread_cpu_time() + load;
                while thread_cpu_time() < end {}
            }),
        );
        for thread in [&fed, &over] {
            witness.count([(core, thread.recv().map_err(lost)?)]);
        }
        let mut spin = Command::new("sh");
        let spinner = punctual_testing::start(spin.args(["-c", "while :; do :; done"]), CHILD_MAX).unwrap();
        let main = Tid(spinner.id() as i32);
        let placed = pin_thread(main, &[core]).and_then(|()| set_scheduling(main, Scheduling::Fifo(priority)));
        placed.map_err(|why| why.to_string())?;
        let spins = |for_at_least: Nanos| {
            let had = || process_cpu_time_of(spinner.id()).unwrap();
            let end = had() + for_at_least;
            wait_until("the program spins", || had() >= end);
        };
        spins(LOAD.scaled(0.5));
        witness.kept_off();
        witness.filled_at = LinuxOs.now();
        burst.send(()).unwrap();
        over.recv().unwrap();
        spins(LOAD);
        let now = LinuxOs.now();
        // SAFETY: plain numbers; the child has not been waited for.
        unsafe { libc::kill(main.0, libc::SIGSTOP) };
        // The feeder's wait counts once it is over.
        fed.recv().unwrap();
        witness.look_for_filled_cores(now);
        Ok(!witness.filled_cores().is_empty())
    }

    /// Load of a test on a core, far below the time after which the kernel throttles it.
    const LOAD: Nanos = Nanos::from_millis(60);

    /// The control thread alone may never meet the kernel's throttling, for which a program above the feeder stands.
    #[test]
    fn a_program_is_named_where_the_feeder_waits_for_others_than_the_control_thread() {
        let _machine = machine();
        let &[core, elsewhere, ..] = allowed_cores().as_slice() else {
            return eprintln!("skipped: two cores are needed");
        };
        pin(elsewhere).unwrap();
        // Other load may hide it once.
        let some = |priority, load, wanted: bool| {
            let mut rounds = (0..3).map(|_| is_named(core, priority, load));
            rounds.find(|named| *named != Ok(!wanted))
        };
        for (priority, load, wanted) in [(FEEDER_PRIORITY + 1, Nanos::ZERO, true), (20, LOAD, false)] {
            match some(priority, load, wanted) {
                Some(Err(why)) => return eprintln!("skipped: {why}"),
                named => assert_eq!(named, Some(Ok(wanted)), "at {priority}"),
            }
        }
    }

    #[test]
    fn a_thread_of_another_process_that_fills_a_core_is_found() {
        let ms = |ms| Time::ZERO + Nanos::from_millis(ms);
        let turn = |thread, process, from, until| Turn {
            thread: Tid(thread),
            process,
            from: ms(from),
            until: ms(until),
            preempted: true,
        };
        let own = turn(8, 7, 900, 1000);
        // It ran before, too.
        let turns = [
            turn(20, 21, 0, 500),
            turn(30, 30, 500, 520),
            turn(20, 21, 520, 900),
            own,
        ];
        let of = |turns: &[Turn], own, rank: fn(Tid) -> Option<u8>| fullest(turns, own, ms(100), ms(1000), rank);
        let most = of(&turns, 7, |_| Some(20)).unwrap();
        assert_eq!((most.thread, most.process), (Tid(20), 21));
        assert_eq!(most.took, Nanos::from_millis(800), "of all real-time threads");
        assert_eq!(of(&turns, 21, |_| Some(20)), None, "others have 120 ms of 900");
        assert_eq!(
            of(&turns, 7, |thread| (thread != Tid(20)).then_some(20)),
            None,
            "it cannot be named"
        );
        assert_eq!(of(&turns, 7, |_| Some(0)), None, "ordinary threads are not throttled");
        assert_eq!(of(&[], 7, |_| Some(20)), None);
        let asked = std::cell::Cell::new(0);
        let ordinary = |_| {
            asked.set(asked.get() + 1);
            Some(0)
        };
        assert_eq!(fullest(&turns, 7, ms(100), ms(1000), ordinary), None);
        assert_eq!(asked.get(), 1, "system calls: the longest thread decides");
        // A shell that starts a command again and again: most of the time is theirs, and they have ended.
        let shell = |from: u64| {
            [
                turn(20, 20, from, from + 2),
                turn(1000 + from as i32, 30, from + 2, from + 10),
            ]
        };
        let turns: Vec<Turn> = (50..99).flat_map(|i| shell(i * 10)).chain([own]).collect();
        let most = of(&turns, 7, |thread| (thread == Tid(20)).then_some(20)).unwrap();
        assert_eq!((most.thread, most.took), (Tid(20), Nanos::from_millis(490)));
        assert_eq!(of(&turns, 7, |_| None), None, "no thread of them can be named");
    }
}
