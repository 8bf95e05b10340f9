//! Jobs of a thread that reports none: a job begins when the system call returns in which the thread waits for its next
//! release, and ends with its next such call.
//!
//! **Problem.** Between wake-up and sleep, just the late jobs cannot be seen: a late thread does not sleep before its
//! next job. **Method.** The kernel writes each such call of the thread and its return to a ring (perf_event_open(2),
//! tracepoints `raw_syscalls:sys_enter` and `sys_exit`, which it filters by the call's number), because a call for an
//! instant in the past returns at once, but is made. It also writes for which instant the call sets the thread's timer
//! (`timer:hrtimer_start`): the release. `WaitTracker` makes jobs of these events.
//!
//! **Bounds.** A program that leaves the call out where it is late has one job in place of two. A wait within a job, in
//! the same kind of call, ends that job. A wait that a signal ends begins no job. Programs of another word size number
//! their calls otherwise, and are refused.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use punctual_custody::tree::entries;
use punctual_jobs::{JobSource, ReportedJob};
use punctual_os::linux::mapping::Mapping;
use punctual_os::{LinuxOs, Tid};
use punctual_units::{Clock, Nanos, Time};

use super::thread::name_of;
use super::{KernelTree, last_error, perf, refused};
use crate::{Observation, Refusal, ThreadSelector, WaitCall};

/// Size of a thread's ring in bytes: 600 jobs, and so 0.6 s of a thread with a thousand a second.
const RING_BYTES: usize = 128 << 10;

/// Time for which a thread is watched to find the call in which it waits...
const SEARCH: Nanos = Nanos::from_secs(1);
/// ...and the least number of waits in it.
const SEARCHED: u32 = 8;

/// The system calls in which threads wait.
const CALLS: &[(libc::c_long, WaitCall)] = &[
    (libc::SYS_clock_nanosleep, WaitCall::ClockNanosleep),
    (libc::SYS_nanosleep, WaitCall::ClockNanosleep),
    (libc::SYS_epoll_pwait, WaitCall::EpollWait),
    (libc::SYS_epoll_pwait2, WaitCall::EpollWait),
    (libc::SYS_read, WaitCall::TimerRead),
    (libc::SYS_futex, WaitCall::Futex),
    (libc::SYS_ppoll, WaitCall::Poll),
    (libc::SYS_pselect6, WaitCall::Poll),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, WaitCall::EpollWait),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, WaitCall::Poll),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, WaitCall::Poll),
];

/// Values that a call returns when a signal has interrupted it: `EINTR`, and the kernel's own, by which it is made
/// again (`ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`; linux/errno.h).
const INTERRUPTED: [i64; 5] = [-(libc::EINTR as i64), -512, -513, -514, -516];

/// Numbers of the tracepoints of waits in the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoints {
    enter: u16,
    exit: u16,
    timer: u16,
}

impl Tracepoints {
    /// Finds them in tracefs, and tries them on the calling thread.
    ///
    /// # Errors
    /// [`Refusal`] without permission, or if the kernel has no such tracepoints, or no tracefs is mounted.
    pub fn find(tree: &KernelTree) -> Result<Tracepoints, Refusal> {
        let refusal = |what: &str, why: &dyn std::fmt::Display| {
            let remedy = "run as root; if /sys/kernel/tracing is empty, mount -t tracefs tracefs /sys/kernel/tracing";
            refused(format!("observing threads ({what})"), why, remedy)
        };
        let find = |name: &str, fields: &[&str]| -> Result<u16, Refusal> {
            let read = |root: &str| tree.read(format!("{root}/events/{name}/format"));
            let text = read("/sys/kernel/tracing").or_else(|why| read("/sys/kernel/debug/tracing").map_err(|_| why));
            let text = text.map_err(|why| refusal(name, &why))?;
            if let Some(field) = fields.iter().find(|field| !text.contains(**field)) {
                return Err(refusal(name, &format!("this kernel's records have no `{field}`")));
            }
            let id = text.lines().find_map(|line| line.strip_prefix("ID: ")?.parse().ok());
            id.ok_or_else(|| refusal(name, &"its format has no number"))
        };
        let found = Tracepoints {
            enter: find(
                "raw_syscalls/sys_enter",
                &["long id;\toffset:8;", "args[6];\toffset:16;"],
            )?,
            exit: find("raw_syscalls/sys_exit", &["long ret;\toffset:16;"])?,
            timer: find("timer/hrtimer_start", &["softexpires;\toffset:32;"])?,
        };
        let tried = EventRing::of(&found, Tid(0), None);
        tried.map(|_| found).map_err(|why| refusal("perf_event_open", &why))
    }

    /// The event that a tracepoint's record tells of (the tracepoint's `format` in tracefs).
    fn event(&self, fields: &[u8]) -> Option<Event> {
        let id = u16::from_ne_bytes(*fields.first_chunk()?);
        let word = |index: usize| number(fields, index * size_of::<u64>());
        if id == self.enter {
            return Some(Event::Calls {
                call: word(1)? as libc::c_long,
                arguments: [word(2)?, word(3)?],
            });
        }
        if id == self.exit {
            return Some(Event::Returns(word(2)? as i64));
        }
        // The time before it is the latest one, with the timer's slack.
        let until = word(4).filter(|_| id == self.timer)?;
        Some(Event::SetsTimer(Time(until)))
    }
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The thread makes a system call, with these first arguments.
    Calls { call: libc::c_long, arguments: [u64; 2] },
    /// A system call returns this value.
    Returns(i64),
    /// A call sets the timer that wakes the thread.
    SetsTimer(Time),
    /// This many records found no room in the ring.
    Lost(u64),
}

/// The events in `bytes` of a ring, from its oldest record on.
fn decoded(bytes: &[u8], points: &Tracepoints) -> Vec<(Time, Event)> {
    const LOST: u64 = 2;
    const SAMPLE: u64 = 9;
    let (mut rest, mut events) = (bytes, Vec::new());
    while let Some(header) = number(rest, 0) {
        let size = (header >> 48) as usize;
        let Some(record) = rest.get(..size).filter(|_| size >= 8) else {
            break;
        };
        rest = &rest[size..];
        let event = match header as u32 as u64 {
            LOST => number(record, 16).map(|lost| (Time::ZERO, Event::Lost(lost))),
            // The time, the size of the tracepoint's record, and that, which begins with its number.
            SAMPLE => {
                let event = record.get(20..).and_then(|fields| points.event(fields));
                number(record, 8).map(Time).zip(event)
            }
            _ => None,
        };
        events.extend(event);
    }
    events
}

/// The word at `at`, which need not be aligned.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// State of a thread between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not known: nothing has been seen, or records were lost.
    #[default]
    Unknown,
    /// In its call, which has set the timer for `due`; `tells`: that is an instant of our clock. Not `asleep`: a signal
    /// has interrupted the call, which is not made again yet.
    Waits {
        due: Option<Time>,
        tells: bool,
        asleep: bool,
    },
    /// In a job, since its last call returned.
    Works { released: Option<Time>, begun: Time },
}

/// Waits of a thread whose call is not known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    since: Option<Time>,
    wait: Option<(WaitCall, Time)>,
    waited: [Nanos; WaitCall::ALL.len()],
    waits: u32,
}

/// Makes jobs of a thread's events. Pure.
#[derive(Clone, Copy, Debug, Default)]
struct WaitTracker {
    /// `None`: still searched for.
    call: Option<WaitCall>,
    search: Search,
    state: State,
    /// Records that were lost.
    lost: u64,
}

impl WaitTracker {
    /// Takes the next event; returns the job that it ends. `is_timer`: whether a descriptor is a timerfd.
    fn take(&mut self, (at, event): (Time, Event), is_timer: &dyn Fn(libc::c_int) -> bool) -> Option<ReportedJob> {
        match (event, self.state) {
            (Event::Lost(records), _) => {
                (self.state, self.search.wait) = (State::Unknown, None);
                self.lost += records;
            }
            (Event::Calls { call, .. }, _) if call == libc::SYS_restart_syscall => self.sleeps(true),
            (Event::Calls { call, arguments }, state) => {
                let wait = wait_of(call, arguments, is_timer)?;
                if self.call.is_none() {
                    self.search.wait = Some((wait, at));
                } else if self.call == Some(wait) {
                    let tells = is_of_our_clock(call, arguments);
                    self.state = State::Waits {
                        due: None,
                        tells,
                        asleep: true,
                    };
                    if let State::Works { released, begun } = state {
                        return Some(ReportedJob {
                            released,
                            begun,
                            ended: at,
                        });
                    }
                }
            }
            // The wait goes on once the kernel, or the program, makes the call again.
            (Event::Returns(value), _) if INTERRUPTED.contains(&value) => self.sleeps(false),
            (Event::Returns(_), State::Waits { due, asleep: true, .. }) => {
                let released = due.filter(|due| *due <= at);
                self.state = State::Works { released, begun: at };
            }
            (Event::Returns(_), _) if self.call.is_none() => self.search(at),
            (
                Event::SetsTimer(until),
                State::Waits {
                    tells: true,
                    asleep: true,
                    ..
                },
            ) => {
                self.state = State::Waits {
                    due: Some(until),
                    tells: true,
                    asleep: true,
                };
            }
            (Event::Returns(_) | Event::SetsTimer(_), _) => {}
        }
        None
    }

    /// A wait is interrupted or, with `is_asleep`, goes on.
    fn sleeps(&mut self, is_asleep: bool) {
        if let State::Waits { asleep, .. } = &mut self.state {
            *asleep = is_asleep;
        }
    }

    /// Takes the return from a wait, while the call is searched for.
    fn search(&mut self, at: Time) {
        let search = &mut self.search;
        let Some((wait, from)) = search.wait.take() else { return };
        search.waited[wait as usize] += at.since(from);
        search.waits += 1;
        let since = *search.since.get_or_insert(from);
        if search.waits >= SEARCHED && at.since(since) >= SEARCH {
            let calls = WaitCall::ALL;
            self.call = calls.into_iter().max_by_key(|call| search.waited[*call as usize]);
        }
    }
}

/// The wait that a system call is, if it is one.
fn wait_of(call: libc::c_long, arguments: [u64; 2], is_timer: &dyn Fn(libc::c_int) -> bool) -> Option<WaitCall> {
    let (_, wait) = CALLS.iter().find(|(number, _)| *number == call)?;
    let futex = arguments[1] as libc::c_int & libc::FUTEX_CMD_MASK;
    let waits = match wait {
        WaitCall::TimerRead => is_timer(arguments[0] as libc::c_int),
        WaitCall::Futex => [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET, libc::FUTEX_WAIT_REQUEUE_PI].contains(&futex),
        _ => true,
    };
    waits.then_some(*wait)
}

/// Whether the timer of a wait is set by `CLOCK_MONOTONIC`.
fn is_of_our_clock(call: libc::c_long, arguments: [u64; 2]) -> bool {
    match call {
        libc::SYS_clock_nanosleep => arguments[0] as libc::clockid_t == libc::CLOCK_MONOTONIC,
        libc::SYS_futex => arguments[1] as libc::c_int & libc::FUTEX_CLOCK_REALTIME == 0,
        _ => true,
    }
}

/// The kernel's records of a thread's waits.
#[derive(Debug)]
struct EventRing {
    /// A page with the positions of both sides, then the ring.
    mapped: Mapping,
    /// Calls, returns and, where the kernel can filter them, timers. The first has the ring.
    events: Vec<OwnedFd>,
    tail: u64,
}

impl EventRing {
    /// Makes the kernel record the waits of `thread` in `call`, or in any.
    fn of(points: &Tracepoints, thread: Tid, call: Option<WaitCall>) -> io::Result<EventRing> {
        const SET_OUTPUT: libc::Ioctl = 0x2405;
        let open = |id| perf::open(perf::tracepoint(id), thread.0, -1);
        let mut events = vec![open(points.enter)?, open(points.exit)?];
        // Older kernels cannot tell a thread's timers from the machine's, and are not asked for releases.
        let timer = open(points.timer)?;
        if filter(&timer, "function.function == hrtimer_wakeup").is_ok() {
            events.push(timer);
        }
        let asked = CALLS.iter().filter(|(_, wait)| call.is_none_or(|call| call == *wait));
        let numbers = asked.map(|(number, _)| *number).chain([libc::SYS_restart_syscall]);
        let asked: Vec<String> = numbers.map(|number| format!("id == {number}")).collect();
        let asked = asked.join(" || ");
        { &events[..2] }.iter().try_for_each(|event| filter(event, &asked))?;
        // Mapping before would record calls of the calling thread in between.
        let mapped = Mapping::of(&events[0], perf::page() + RING_BYTES, true)?;
        let ring = EventRing {
            mapped,
            events,
            tail: 0,
        };
        for event in &ring.events[1..] {
            // SAFETY: takes two open descriptors.
            if unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.events[0].as_raw_fd()) } != 0 {
                return Err(last_error());
            }
        }
        Ok(ring)
    }

    /// Whether the thread has ended.
    fn has_ended(&self) -> bool {
        let mut polled = libc::pollfd {
            fd: self.events[0].as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the structure lives until the call returns, which writes its last field.
        unsafe { libc::poll(&mut polled, 1, 0) == 1 && polled.revents & libc::POLLHUP != 0 }
    }

    /// Records since the last call.
    fn take(&mut self) -> Vec<u8> {
        let head = perf::head(&self.mapped);
        let bytes = perf::copied(&self.mapped, self.tail, head);
        self.tail = head;
        perf::release(&self.mapped, head);
        bytes
    }
}

/// Lets the kernel write only records of a tracepoint that pass (Documentation/trace/events.rst, "Event filtering").
fn filter(event: &OwnedFd, passes: &str) -> io::Result<()> {
    const SET_FILTER: libc::Ioctl = 0x4008_2406;
    let passes = CString::new(passes)?;
    // SAFETY: the text ends with a zero and lives until the call returns, which reads it only.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER, passes.as_ptr()) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// A thread of another program whose waits the kernel records.
#[derive(Debug)]
pub struct ObservedThread {
    ring: EventRing,
    points: Tracepoints,
    tracker: WaitTracker,
    selector: ThreadSelector,
    /// Process and number of the thread.
    thread: (i32, Tid),
    /// Jobs that were not taken yet.
    ended: Vec<ReportedJob>,
}

impl ObservedThread {
    /// Observes a thread of a process from now on.
    ///
    /// # Errors
    /// The kernel's error, also for a thread that has ended.
    pub fn of(points: &Tracepoints, observation: &Observation, thread: (i32, Tid)) -> io::Result<ObservedThread> {
        // The fifth byte of an ELF file is its class, by word size (elf(5)); a kernel's thread has no file.
        let mut head = [0; 5];
        let read = File::open(format!("/proc/{}/exe", thread.0)).and_then(|mut file| file.read_exact(&mut head));
        if read.is_ok() && u32::from(head[4]) * 32 != usize::BITS {
            return Err(io::Error::other("its program has another word size"));
        }
        Ok(ObservedThread {
            ring: EventRing::of(points, thread.1, observation.call)?,
            points: *points,
            tracker: WaitTracker {
                call: observation.call,
                ..WaitTracker::default()
            },
            selector: observation.threads.clone(),
            thread,
            ended: Vec::new(),
        })
    }

    /// Process and number of the thread.
    pub fn thread(&self) -> (i32, Tid) {
        self.thread
    }

    /// The call that ends the thread's jobs, once the thread has begun one, and whether the release of that is known.
    pub fn begun(&mut self) -> Option<(WaitCall, bool)> {
        self.read();
        let first = self.ended.first().map(|job| job.released);
        let first = first.or_else(|| self.open_job().map(|(released, _)| released))?;
        Some((self.tracker.call?, first.is_some()))
    }

    /// Whether the kernel tells for which instants the thread sets its timer.
    #[cfg(test)]
    fn knows_releases(&self) -> bool {
        self.ring.events.len() == 3
    }

    fn read(&mut self) {
        let (process, call) = (self.thread.0, self.tracker.call);
        let is_timer = |fd: libc::c_int| {
            let link = fs::read_link(format!("/proc/{process}/fd/{fd}"));
            link.is_ok_and(|link| link.as_os_str() == "anon_inode:[timerfd]")
        };
        for event in decoded(&self.ring.take(), &self.points) {
            self.ended.extend(self.tracker.take(event, &is_timer));
        }
        if self.tracker.call != call {
            // The kernel refuses an event a second filter. Without a new ring, records of other calls are skipped.
            if let Ok(ring) = EventRing::of(&self.points, self.thread.1, self.tracker.call) {
                (self.ring, self.tracker.state) = (ring, State::Unknown);
                // The jobs between both rings are not known.
                self.ended.clear();
            }
        }
    }
}

impl JobSource for ObservedThread {
    fn jobs(&mut self) -> Vec<ReportedJob> {
        self.read();
        std::mem::take(&mut self.ended)
    }

    fn open_job(&self) -> Option<(Option<Time>, Time)> {
        match self.tracker.state {
            State::Works { released, begun } => Some((released, begun)),
            // Released, and without a core since.
            State::Waits {
                due: Some(due),
                asleep: true,
                ..
            } if due <= LinuxOs.now() && !self.ring.has_ended() => Some((Some(due), due)),
            State::Unknown | State::Waits { .. } => None,
        }
    }

    /// Once the thread executes another program, or has another name; not if it has ended, or its name cannot be read.
    fn is_closed(&self) -> bool {
        !self.ring.has_ended() && name_of(self.thread.1).is_some() && !has(&self.selector, self.thread)
    }

    fn has_ended(&self) -> bool {
        self.ring.has_ended()
    }

    fn dropped(&self) -> u64 {
        self.tracker.lost
    }
}

/// Whether `selector` asks for a thread of a process.
fn has(selector: &ThreadSelector, thread: (i32, Tid)) -> bool {
    let program = program(thread.0, selector.group.is_some());
    program.is_some_and(|(name, groups)| selector.has_program(&name, &groups)) && has_thread(selector, thread)
}

/// The name of a process and, if asked for, its control groups.
fn program(process: i32, with_groups: bool) -> Option<(String, String)> {
    let groups = with_groups.then(|| KernelTree::default().text(format!("/proc/{process}/cgroup")));
    Some((name_of(Tid(process))?, groups.unwrap_or_default()))
}

/// Whether `selector` asks for a thread, by its name, of a process for which it asks.
fn has_thread(selector: &ThreadSelector, (process, thread): (i32, Tid)) -> bool {
    name_of(thread).is_some_and(|name| selector.has_thread(&name, thread.0 == process))
}

/// The threads for which each of `selectors` asks: its index, and process and thread; never those of this process.
pub fn threads(selectors: &[&ThreadSelector]) -> Vec<(usize, (i32, Tid))> {
    let numbers = |folder: String| {
        let entries = entries(folder.as_ref());
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    let with_groups = selectors.iter().any(|it| it.group.is_some());
    let mut found = Vec::new();
    for process in numbers("/proc".into()).filter(|process| *process != std::process::id() as i32) {
        let Some((name, groups)) = program(process, with_groups) else {
            continue;
        };
        let asks = |(_, selector): &(usize, &&ThreadSelector)| selector.has_program(&name, &groups);
        for (index, selector) in selectors.iter().enumerate().filter(asks) {
            let all = numbers(format!("/proc/{process}/task")).map(|thread| (process, Tid(thread)));
            let asked = all.filter(|thread| has_thread(selector, *thread));
            found.extend(asked.map(|thread| (index, thread)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;
    use punctual_testing::wait_until;

    use super::*;

    const POINTS: Tracepoints = Tracepoints {
        enter: 443,
        exit: 442,
        timer: 460,
    };

    /// The kernel's record of an event.
    fn record((at, event): (u64, Event)) -> Vec<u8> {
        let (id, words) = match event {
            Event::Calls { call, arguments } => (443u16, vec![call as u64, arguments[0], arguments[1], 0, 0, 0, 0]),
            Event::Returns(value) => (442, vec![7, value as u64]),
            Event::SetsTimer(until) => (460, vec![1, 2, until.0, until.0, 0]),
            Event::Lost(lost) => {
                let header = [2u64 | 24 << 48, 77, lost];
                return header.iter().flat_map(|word| word.to_ne_bytes()).collect();
            }
        };
        let mut fields: Vec<u8> = id.to_ne_bytes().to_vec();
        fields.resize(8, 0);
        fields.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        fields.resize(fields.len() + 4, 0); // so that with its size, it ends at a multiple of 8
        let header = 9u64 | ((20 + fields.len()) as u64) << 48;
        let mut bytes = [header.to_ne_bytes(), at.to_ne_bytes()].concat();
        bytes.extend((fields.len() as u32).to_ne_bytes());
        bytes.extend(fields);
        bytes
    }

    /// A call of descriptor 3 or, to sleep, of our clock.
    fn calls(call: libc::c_long) -> Event {
        let first = if call == SLEEP { 1 } else { 3 };
        Event::Calls {
            call,
            arguments: [first, 0],
        }
    }

    #[test]
    fn events_are_read_from_the_bytes_of_a_ring() {
        let events = [
            (5, calls(libc::SYS_read)),
            (6, Event::SetsTimer(Time(4))),
            (7, Event::Returns(-4)),
            (0, Event::Lost(9)),
        ];
        let bytes = events.map(record).concat();
        let read = decoded(&bytes, &POINTS);
        assert_eq!(read, events.map(|(at, event)| (Time(at), event)));
        assert_eq!(
            decoded(&bytes[..bytes.len() - 1], &POINTS).len(),
            3,
            "a record that is cut off"
        );
        assert_eq!(decoded(&[0; 64], &POINTS), []);
    }

    fn tracked(call: Option<WaitCall>, events: &[(u64, Event)]) -> (Vec<ReportedJob>, WaitTracker) {
        let mut tracker = WaitTracker {
            call,
            ..WaitTracker::default()
        };
        let take = |event: &(u64, Event)| tracker.take((Time(event.0), event.1), &|fd| fd == 3);
        (events.iter().filter_map(take).collect(), tracker)
    }

    const SLEEP: libc::c_long = libc::SYS_clock_nanosleep;

    #[test]
    fn a_job_is_between_two_waits_also_if_the_second_returns_at_once() {
        let sleep = |at: u64, until: u64, returns: u64| {
            [
                (at, calls(SLEEP)),
                (at, Event::SetsTimer(Time(until))),
                (returns, Event::Returns(0)),
            ]
        };
        let events = [sleep(5, 100, 101), sleep(250, 200, 251), sleep(290, 300, 301)].concat();
        let (jobs, tracker) = tracked(Some(WaitCall::ClockNanosleep), &events);
        let job = |released: u64, begun: u64, ended: u64| ReportedJob {
            released: Some(Time(released)),
            begun: Time(begun),
            ended: Time(ended),
        };
        assert_eq!(jobs, [job(100, 101, 250), job(200, 251, 290)]);
        assert!(matches!(tracker.state, State::Works { begun: Time(301), .. }));
    }

    #[test]
    fn a_timer_of_another_clock_tells_no_release() {
        let sleep = |clock: libc::clockid_t| Event::Calls {
            call: SLEEP,
            arguments: [clock as u64, 1],
        };
        for (clock, released) in [
            (libc::CLOCK_MONOTONIC, Some(Time(5))),
            (libc::CLOCK_REALTIME, None),
            (libc::CLOCK_TAI, None),
        ] {
            let events = [
                (1, sleep(clock)),
                (1, Event::SetsTimer(Time(5))),
                (6, Event::Returns(0)),
            ];
            let (_, tracker) = tracked(Some(WaitCall::ClockNanosleep), &events);
            let begun = Time(6);
            assert_eq!(tracker.state, State::Works { released, begun });
        }
        let futex = |flags: libc::c_int| is_of_our_clock(libc::SYS_futex, [0, flags as u64]);
        assert!(futex(libc::FUTEX_WAIT_BITSET) && !futex(libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME));
    }

    #[test]
    fn only_the_waits_of_a_kind_of_call_end_jobs() {
        let futex = |operation: libc::c_int| Event::Calls {
            call: libc::SYS_futex,
            arguments: [0, operation as u64],
        };
        let returns = Event::Returns(0);
        let wait = futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
        let wake = futex(libc::FUTEX_WAKE);
        let events = [
            (1, wait),
            (2, returns),
            (3, wake),
            (4, returns),
            (5, calls(SLEEP)),
            (6, returns),
            (7, wait),
        ];
        let (jobs, _) = tracked(Some(WaitCall::Futex), &events);
        assert_eq!(
            jobs.iter().map(|job| (job.begun.0, job.ended.0)).collect::<Vec<_>>(),
            [(2, 7)]
        );
        let other = Event::Calls {
            call: libc::SYS_read,
            arguments: [4, 0],
        };
        let read = calls(libc::SYS_read);
        let (jobs, _) = tracked(
            Some(WaitCall::TimerRead),
            &[(1, read), (2, returns), (3, other), (4, returns), (5, read)],
        );
        assert_eq!(
            jobs.iter().map(|job| (job.begun.0, job.ended.0)).collect::<Vec<_>>(),
            [(2, 5)]
        );
    }

    #[test]
    fn the_call_is_found_in_which_a_thread_waits_longest() {
        let ms = 1_000_000;
        let events: Vec<(u64, Event)> = (0..20)
            .flat_map(|job| {
                let at = job * 100 * ms;
                let sleeps = [(at, calls(SLEEP)), (at + 80 * ms, Event::Returns(0))];
                let reads = [(at + 85 * ms, calls(libc::SYS_read)), (at + 90 * ms, Event::Returns(8))];
                [sleeps, reads].concat()
            })
            .collect();
        let (jobs, tracker) = tracked(None, &events);
        assert_eq!(tracker.call, Some(WaitCall::ClockNanosleep));
        assert_eq!(jobs.len(), 8, "those after the search, and the first wait after it");
    }

    #[test]
    fn a_wait_that_a_signal_interrupts_begins_its_job_only_once_it_goes_on() {
        let futex = |operation: libc::c_int| Event::Calls {
            call: libc::SYS_futex,
            arguments: [0, operation as u64],
        };
        let (wait, wake) = (futex(libc::FUTEX_WAIT), futex(libc::FUTEX_WAKE));
        let interrupted = [
            (1, wait),
            (2, Event::Returns(-512)),
            // By the signal's handler.
            (3, wake),
            (4, Event::SetsTimer(Time(1))),
            (5, Event::Returns(0)),
        ];
        for again in [wait, calls(libc::SYS_restart_syscall)] {
            let goes_on = [(6, again), (7, Event::Returns(0)), (8, wait)];
            let (jobs, _) = tracked(Some(WaitCall::Futex), &[&interrupted[..], &goes_on].concat());
            let (released, begun, ended) = (None, Time(7), Time(8));
            assert_eq!(jobs, [ReportedJob { released, begun, ended }]);
        }
        let abandoned = [&interrupted[..], &[(6, wake), (7, Event::Returns(1)), (8, wait)]].concat();
        assert_eq!(tracked(Some(WaitCall::Futex), &abandoned).0, []);
    }

    /// A job: how long it waits and works, whether a signal interrupts its wait, and whether records are lost before.
    fn job() -> impl Strategy<Value = (u64, u64, bool, bool)> {
        (0u64..50, 1u64..50, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
    }

    proptest! {
        /// Every job is found whose begin and end were recorded, with its instants and its release.
        #[test]
        fn all_jobs_are_found_whose_records_are_there(list in prop::collection::vec(job(), 1..40)) {
            let (mut at, mut events, mut expected, mut open) = (0, Vec::new(), Vec::new(), None);
            for (waits, works, interrupted, lost) in list {
                if lost {
                    events.push((at, Event::Lost(1)));
                    open = None;
                }
                let until = Time(at + waits);
                expected.extend(open.map(|(released, begun)| ReportedJob { released, begun, ended: Time(at) }));
                events.extend([(at, calls(SLEEP)), (at, Event::SetsTimer(until))]);
                if interrupted {
                    let call = if works % 2 == 0 { SLEEP } else { libc::SYS_restart_syscall };
                    let again = [(at, Event::Returns(-516)), (at, calls(call)), (at, Event::SetsTimer(until))];
                    events.extend(again);
                }
                at += waits;
                events.push((at, Event::Returns(0)));
                open = Some((Some(until), Time(at)));
                at += works;
            }
            let (jobs, tracker) = tracked(Some(WaitCall::ClockNanosleep), &events);
            prop_assert_eq!(jobs, expected);
            let lost = events.iter().filter(|(_, event)| matches!(event, Event::Lost(_))).count();
            prop_assert_eq!(tracker.lost, lost as u64);
        }

        /// Any bytes are taken; jobs do not overlap, however strange the records are.
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300), from in 0u8..12) {
            let mut record = vec![from, 0, 0, 0, 0, 0];
            record.extend((bytes.len() as u16 + 8).to_ne_bytes());
            record.extend(bytes);
            decoded(&record, &POINTS);
        }

        #[test]
        fn jobs_do_not_overlap(kinds in prop::collection::vec((0u8..6, 0u64..9), 0..80)) {
            let event = |(kind, value): (u8, u64)| match kind {
                0 | 1 => calls(SLEEP),
                2 | 3 => Event::Returns(if value == 0 { -4 } else { 0 }),
                4 => Event::SetsTimer(Time(value * 9)),
                _ => Event::Lost(value),
            };
            let events: Vec<(u64, Event)> = (0..).zip(kinds.into_iter().map(event)).collect();
            let (jobs, _) = tracked(Some(WaitCall::ClockNanosleep), &events);
            prop_assert!(jobs.iter().all(|job| job.released.is_none_or(|at| at <= job.begun) && job.begun < job.ended));
            prop_assert!(jobs.windows(2).all(|two| two[0].ended < two[1].begun));
        }
    }

    /// Observes the calling thread; `None`, with a note, without rights.
    fn observed(call: Option<WaitCall>) -> Option<ObservedThread> {
        let points = Tracepoints::find(&KernelTree::default());
        let points = points.inspect_err(|refusal| eprintln!("skipped: {refusal}")).ok()?;
        let observation = Observation {
            call,
            threads: ThreadSelector::default(),
        };
        let own = (std::process::id() as i32, Tid::current());
        Some(ObservedThread::of(&points, &observation, own).unwrap())
    }

    /// Sleeps until an instant by an absolute timer; returns at once for one in the past.
    fn sleep_until(at: Time) {
        let at = libc::timespec {
            tv_sec: (at.0 / 1_000_000_000) as _,
            tv_nsec: (at.0 % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the time lives until the call returns, which reads it only.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut()) };
    }

    #[test]
    fn each_job_between_two_waits_of_a_thread_is_seen_with_the_release_that_it_asked_for() {
        let Some(mut thread) = observed(Some(WaitCall::ClockNanosleep)) else {
            return;
        };
        // Half of the instants have passed.
        let asked: Vec<Time> = (0..40u64)
            .map(|number| {
                let now = LinuxOs.now();
                let at = if number % 2 == 0 {
                    Time(now.0 - 5_000_000)
                } else {
                    now + Nanos::from_millis(1)
                };
                sleep_until(at);
                at
            })
            .collect();
        let jobs = thread.jobs();
        assert_eq!((jobs.len(), thread.dropped()), (39, 0));
        assert!(thread.open_job().is_some());
        if thread.knows_releases() {
            let released: Vec<_> = jobs.iter().filter_map(|job| job.released).collect();
            assert_eq!(released, asked[..39]);
        }
        assert!(
            jobs.iter()
                .all(|job| job.begun <= job.ended && job.ended <= LinuxOs.now())
        );
    }

    #[test]
    fn reads_of_a_timer_waits_for_a_word_and_polls_end_jobs() {
        let Some(mut reads) = observed(Some(WaitCall::TimerRead)) else {
            return;
        };
        let mut polls = observed(Some(WaitCall::Poll)).unwrap();
        let mut words = observed(Some(WaitCall::Futex)).unwrap();
        // SAFETY: the numbers, buffers and times live until each call returns; the descriptor is closed once.
        unsafe {
            let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            let every = libc::timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            let setting = libc::itimerspec {
                it_interval: every,
                it_value: every,
            };
            libc::timerfd_settime(timer, 0, &setting, std::ptr::null_mut());
            let mut buffer = [0u8; 8];
            let word = 0u32;
            for _ in 0..6 {
                libc::read(timer, buffer.as_mut_ptr().cast(), 8);
                libc::read(-1, buffer.as_mut_ptr().cast(), 8);
                libc::poll(std::ptr::null_mut(), 0, 0);
                // Returns at once: the word is another one.
                libc::syscall(
                    libc::SYS_futex,
                    &word,
                    libc::FUTEX_WAIT,
                    1,
                    std::ptr::null::<libc::timespec>(),
                );
                libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAKE, 1);
            }
            let jobs = [&mut reads, &mut polls, &mut words].map(|it| it.jobs().len());
            libc::close(timer);
            assert_eq!(jobs, [5; 3]);
        }
    }

    #[test]
    fn once_the_call_is_found_other_calls_are_not_recorded() {
        let Some(mut thread) = observed(None) else { return };
        // As if it had been watched for long.
        (thread.tracker.search.since, thread.tracker.search.waits) = (Some(Time(1)), SEARCHED);
        sleep_until(LinuxOs.now() + Nanos::from_millis(1));
        // Jobs before the ring is another one are not handed over.
        (0..3).for_each(|_| sleep_until(Time(1)));
        assert!(thread.jobs().is_empty() && thread.tracker.call == Some(WaitCall::ClockNanosleep));
        // SAFETY: no descriptors are given.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 0) };
        assert!(thread.ring.take().is_empty());
        (0..3).for_each(|_| sleep_until(Time(1)));
        assert_eq!(thread.jobs().len(), 2);
    }

    #[test]
    fn a_thread_that_ends_in_its_wait_leaves_no_job() {
        let Some(own) = observed(Some(WaitCall::ClockNanosleep)) else {
            return;
        };
        let mut sleep = Command::new("sleep").arg("600").spawn().expect("sleep");
        let thread = (sleep.id() as i32, Tid(sleep.id() as i32));
        let observation = Observation::default();
        let mut observed = ObservedThread::of(&own.points, &observation, thread).unwrap();
        let waits = State::Waits {
            due: Some(Time(1)),
            tells: true,
            asleep: true,
        };
        observed.tracker.state = waits;
        observed.tracker.sleeps(false);
        assert!(observed.open_job().is_none(), "a signal has ended the wait");
        observed.tracker.sleeps(true);
        assert!(!observed.ring.has_ended() && !observed.is_closed() && observed.open_job().is_some());
        observed.selector.program = Some("another".into());
        assert!(observed.is_closed());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(!observed.is_closed(), "it has ended, and is not another task's");
        observed.tracker.state = waits;
        assert!(observed.open_job().is_none());
    }

    #[test]
    fn records_that_find_no_room_are_counted_and_later_jobs_are_seen() {
        let Some(mut thread) = observed(Some(WaitCall::ClockNanosleep)) else {
            return;
        };
        (0..5_000).for_each(|_| sleep_until(Time(1)));
        let before = thread.jobs().len();
        assert!(before > 100 && before < 2_000, "{before}");
        (0..10).for_each(|_| sleep_until(Time(1)));
        assert_eq!(
            thread.jobs().len(),
            9,
            "the first wait after the gap begins the first job"
        );
        assert!(thread.dropped() > 0);
    }

    #[test]
    fn threads_of_programs_are_found_by_name_until_they_end() {
        let mut sleep = Command::new("sleep").arg("600").spawn().expect("sleep");
        wait_until("it executes", || {
            name_of(Tid(sleep.id() as i32)).as_deref() == Some("sleep")
        });
        let thread = (sleep.id() as i32, Tid(sleep.id() as i32));
        let named = |program: &str| ThreadSelector {
            program: Some(program.into()),
            ..ThreadSelector::default()
        };
        let selectors = ["wake", "sleep", "sleep"].map(named);
        let mut found = threads(&selectors.each_ref());
        found.retain(|(_, found)| *found == thread);
        assert_eq!(found, [(1, thread), (2, thread)]);
        assert_eq!(selectors.each_ref().map(|it| has(it, thread)), [false, true, true]);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        let selector = ThreadSelector::default();
        assert!(
            !threads(&[&selector])
                .iter()
                .any(|(_, (process, _))| *process == std::process::id() as i32)
        );
    }
}
