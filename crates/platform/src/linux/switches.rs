//! Records which threads had a core, and when: the kernel writes each thread switch on a core to a ring that is read
//! only on demand (perf_event_open(2), `PERF_RECORD_SWITCH_CPU_WIDE`, with an event that counts nothing).
//!
//! The ring is overwritten backwards, so that the newest switches are always in it and no thread has to read
//! continuously. A switch takes 64 bytes of it: [`RING_BYTES`] hold the last 4096, four seconds of a core with a
//! thousand switches per second. `cargo run --release -p punctual-platform --example switch_cost` prints the cost of a
//! switch with a ring and without one.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};

use punctual_os::linux::mapping::Mapping;
use punctual_os::{LinuxOs, Tid};
use punctual_units::{Clock, CoreId, Nanos, Time};

use super::{perf, refused};
use crate::Refusal;

/// Size of a core's ring in bytes; its mapping has a page more.
pub const RING_BYTES: usize = 256 << 10;

/// A turn of a thread on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The thread, [`IDLE`] or [`ELSEWHERE`].
    pub thread: Tid,
    /// Process id of the thread.
    pub process: i32,
    /// Instant at which the thread got the core.
    pub from: Time,
    /// Instant at which the thread lost it; for the last turn, when the ring was read.
    pub until: Time,
    /// Whether the thread was still ready to run at `until`.
    pub preempted: bool,
}

/// Time on a core that a thread had while another one was ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptingThread {
    /// The thread, [`IDLE`] or [`ELSEWHERE`].
    pub thread: Tid,
    /// Process id of the thread.
    pub process: i32,
    /// Total time that it had the core.
    pub took: Nanos,
}

/// The latest thread switches on one core.
#[derive(Debug)]
pub struct Switches {
    /// A page with the kernel's write position, then the ring.
    mapped: Mapping,
    event: OwnedFd,
    /// Keeps it to one thread: a call pauses the kernel's writes for itself alone.
    of_one_thread: PhantomData<Cell<()>>,
}

impl Switches {
    /// Makes the kernel record the thread switches on `core` from now on.
    ///
    /// # Errors
    /// [`Refusal`] without permission, or if the kernel has no performance events.
    pub fn of(core: CoreId) -> Result<Switches, Refusal> {
        let refusal = |why: &dyn std::fmt::Display| {
            refused(
                format!("seeing which threads take core {core} (perf_event_open)"),
                why,
                "run as root, grant CAP_PERFMON, or write 0 to /proc/sys/kernel/perf_event_paranoid, so that late jobs \
                 name the threads that took their core",
            )
        };
        let event = perf::open(perf::SWITCHES, -1, core.0 as libc::c_int).map_err(|why| refusal(&why))?;
        let mapped = Mapping::of(&event, perf::page() + RING_BYTES, false).map_err(|why| refusal(&why))?;
        Ok(Switches {
            mapped,
            event,
            of_one_thread: PhantomData,
        })
    }

    /// The turns that ended after `since`, as far back as the ring goes, ascending. Switches during the microseconds of
    /// this call are lost.
    pub fn since(&self, since: Time) -> Vec<Turn> {
        if !self.pause(true) {
            return Vec::new(); // the kernel would overwrite the records being read
        }
        let now = LinuxOs.now();
        let head = perf::head(&self.mapped);
        // Another core may still be writing a record that it began before the pause. That is the newest one, and
        // `turns` accepts any bytes.
        let ring = perf::copied(&self.mapped, 0, RING_BYTES as u64);
        self.pause(false);
        turns(&ring, head, now, since)
    }

    fn pause(&self, pause: bool) -> bool {
        // SAFETY: the call takes a number.
        unsafe { libc::ioctl(self.event.as_raw_fd(), PAUSE_OUTPUT, libc::c_ulong::from(pause)) == 0 }
    }
}

/// The kernel's id for the thread that has a core while no other one wants it.
pub const IDLE: Tid = Tid(0);
/// A thread that this process cannot name, because it is in another PID namespace. The kernel's id for it is [`IDLE`].
pub const ELSEWHERE: Tid = Tid(-1);

/// Request `_IOW('$', 9, __u32)`: pauses writing to the ring.
const PAUSE_OUTPUT: libc::Ioctl = 0x4004_2409;

const SWITCH_CPU_WIDE: u32 = 15;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// Least size of a record, in bytes: a header of 8, the other thread, this thread, the time.
const RECORD_BYTES: usize = 32;

/// The turns in `ring`, whose newest record is at `head`: the kernel writes downwards, so older records are at higher
/// offsets.
fn turns(ring: &[u8], head: u64, now: Time, since: Time) -> Vec<Turn> {
    let number = |at: u64, bytes: usize| {
        let at = (at % ring.len() as u64) as usize;
        let mut number = [0; size_of::<u64>()];
        // A record is aligned, so no number of it wraps around the end; bytes of a torn one may.
        if let Some(found) = ring.get(at..at + bytes) {
            number[..bytes].copy_from_slice(found);
        }
        u64::from_le_bytes(number)
    };
    let written = head.wrapping_neg().min(ring.len() as u64);
    // Offsets from the head do not overflow.
    let base = head % ring.len() as u64;
    let (mut at, mut until, mut preempted) = (base, now, None);
    let mut turns = Vec::new();
    while at + RECORD_BYTES as u64 <= base + written && until > since {
        let (kind, misc, size) = (number(at, 4) as u32, number(at + 4, 2) as u16, number(at + 6, 2));
        if size < RECORD_BYTES as u64 {
            break;
        }
        let (process, thread, time) = (number(at + 16, 4), number(at + 20, 4), Time(number(at + 24, 8)));
        at += size;
        if kind != SWITCH_CPU_WIDE {
            continue;
        }
        if misc & SWITCH_OUT != 0 {
            (until, preempted) = (time.min(until), Some(misc & SWITCH_OUT_PREEMPT != 0));
            continue;
        }
        let thread = match Tid(thread as i32) {
            // The idle thread stays ready whenever it loses a core; a thread that went to sleep is not the idle thread.
            IDLE if preempted == Some(false) => ELSEWHERE,
            thread => thread,
        };
        turns.push(Turn {
            thread,
            process: process as i32,
            from: time.min(until),
            until,
            preempted: preempted.unwrap_or(false),
        });
        (until, preempted) = (time.min(until), None);
    }
    turns.reverse();
    turns
}

/// The threads that had the core of `thread` while `thread` was ready, from `from` until `until`, the longest first. By
/// the kernel's account, it was ready for `ready` in sum; the result does not exceed that.
///
/// After a preemption, `thread` was ready at once. After it gave up the core by itself, as until its release, it became
/// ready some time before it got the core again, but not while the core idled; the rest of `ready` decides how long
/// before.
pub fn taken(turns: &[Turn], thread: Tid, from: Time, until: Time, ready: Nanos) -> Vec<PreemptingThread> {
    let mut gaps = Vec::new();
    let (mut begin, mut preempted) = (from, false);
    for turn in turns.iter().filter(|turn| turn.thread == thread && turn.until > from) {
        let end = turn.from.min(until);
        let idles = turns
            .iter()
            .filter(|turn| turn.thread == IDLE && turn.from < end && !preempted);
        let idled = idles.map(|turn| turn.until.min(end)).max().unwrap_or(begin);
        gaps.push((preempted, begin.max(idled), end));
        (begin, preempted) = (turn.until, turn.preempted);
    }
    // Gaps after a preemption first, each kind from the latest to the earliest.
    gaps.reverse();
    gaps.sort_by_key(|(preempted, ..)| !preempted);
    let mut left = ready;
    let mut taken: Vec<PreemptingThread> = Vec::new();
    for (_, begin, end) in gaps {
        let begin = begin.max(end - left.min(end.since(begin)));
        left = left.saturating_sub(end.since(begin));
        for turn in turns.iter().filter(|turn| turn.thread != thread) {
            let took = turn.until.min(end).since(turn.from.max(begin));
            if took == Nanos::ZERO {
                continue;
            }
            match taken.iter_mut().find(|other| other.thread == turn.thread) {
                Some(other) => other.took += took,
                None => taken.push(PreemptingThread {
                    thread: turn.thread,
                    process: turn.process,
                    took,
                }),
            }
        }
    }
    taken.sort_by_key(|taken| std::cmp::Reverse(taken.took));
    taken
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::super::KernelTree;
    use super::super::cores;
    use super::super::thread::pin;
    use super::*;

    fn turn(thread: i32, from: u64, until: u64, preempted: bool) -> Turn {
        Turn {
            thread: Tid(thread),
            process: thread,
            from: Time(from),
            until: Time(until),
            preempted,
        }
    }

    #[test]
    fn each_thread_has_what_it_took_while_the_job_was_ready() {
        let turns = [
            turn(9, 0, 100, false), // the job before
            turn(5, 100, 300, true),
            turn(6, 300, 400, false),
            turn(9, 400, 500, true), // released at 150
            turn(6, 500, 530, false),
            turn(9, 530, 600, false), // waits for a lock
            turn(0, 600, 700, false),
            turn(7, 700, 720, false),
            turn(9, 720, 800, false),
        ];
        let taken = |ready| {
            let taken = taken(&turns, Tid(9), Time(150), Time(800), Nanos(ready));
            taken
                .iter()
                .map(|taken| (taken.thread.0, taken.took.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(300), [(5, 150), (6, 130), (7, 20)], "all but the idle time");
        assert_eq!(taken(50), [(6, 30), (7, 20)], "preemption, then the latest");
        assert_eq!(taken(0), []);
    }

    /// The kernel's records of these turns, in a ring as it writes them.
    fn written(turns: &[Turn], bytes: usize) -> (Vec<u8>, u64) {
        let (mut ring, mut head) = (vec![0; bytes], 0u64);
        let mut write = |misc: u16, turn: &Turn, at: Time| {
            let mut record = Vec::new();
            record.extend(SWITCH_CPU_WIDE.to_le_bytes());
            record.extend(misc.to_le_bytes());
            record.extend((RECORD_BYTES as u16).to_le_bytes());
            record.extend([0; 8]);
            record.extend(turn.process.to_le_bytes());
            record.extend(turn.thread.0.to_le_bytes());
            record.extend(at.0.to_le_bytes());
            head = head.wrapping_sub(RECORD_BYTES as u64);
            for (i, byte) in record.into_iter().enumerate() {
                ring[((head + i as u64) % bytes as u64) as usize] = byte;
            }
        };
        for turn in turns {
            write(0, turn, turn.from);
            let preempted = if turn.preempted { SWITCH_OUT_PREEMPT } else { 0 };
            write(SWITCH_OUT | preempted, turn, turn.until);
        }
        (ring, head)
    }

    /// A record that may be one of a change, or of any other kind and length.
    fn strange() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![4 => Just(SWITCH_CPU_WIDE), 1 => any::<u32>()];
        let size = prop_oneof![6 => Just(RECORD_BYTES as u16), 1 => Just(64), 1 => any::<u16>()];
        let rest = prop::collection::vec(any::<u8>(), RECORD_BYTES - 8);
        (kind, any::<u16>(), size, rest).prop_map(|(kind, misc, size, rest)| {
            [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), &rest].concat()
        })
    }

    fn random_turns() -> impl Strategy<Value = Vec<Turn>> {
        prop::collection::vec((0i32..6, 1u64..50, any::<bool>()), 1..60).prop_map(|list| {
            let mut at = 1;
            let next = |(thread, lasts, preempted): (i32, u64, bool)| {
                let turn = turn(thread, at, at + lasts, preempted);
                at += lasts;
                turn
            };
            list.into_iter().map(next).collect()
        })
    }

    proptest! {
        /// However many turns the ring has seen, it has the last ones, whole and in order.
        #[test]
        fn the_ring_has_the_last_turns(all in random_turns(), records in 2usize..64, since in 0u64..500) {
            let (ring, head) = written(&all, records.next_power_of_two() * RECORD_BYTES);
            let end = all.last().unwrap().until;
            let read = turns(&ring, head, end, Time(since));
            let kept = ring.len() / RECORD_BYTES / 2;
            let elsewhere = |turn: Turn| match turn.thread {
                IDLE if !turn.preempted => Turn { thread: ELSEWHERE, ..turn },
                _ => turn,
            };
            let expected: Vec<Turn> = all.iter().rev().take(kept).rev().copied().map(elsewhere)
                .filter(|turn| turn.until > Time(since)).collect();
            prop_assert_eq!(read, expected);
        }

        /// No thread is told to have taken more than the job was ready, nor more than it had.
        #[test]
        fn no_more_is_taken_than_was_there(all in random_turns(), from in 0u64..500, lasts in 0u64..500, ready in 0u64..500) {
            let until = Time(from + lasts);
            let found = taken(&all, Tid(3), Time(from), until, Nanos(ready));
            prop_assert!(found.iter().map(|it| it.took.0).sum::<u64>() <= ready);
            for it in &found {
                let had = all.iter().filter(|turn| turn.thread == it.thread);
                let had: u64 = had.map(|turn| turn.until.min(until).since(turn.from.max(Time(from))).0).sum();
                prop_assert!(it.took.0 <= had && it.thread != Tid(3));
            }
            prop_assert!(found.is_sorted_by_key(|it| std::cmp::Reverse(it.took)));
        }

        /// Whatever is in the ring: records of any kind, size and time give turns one after the other.
        #[test]
        fn no_bytes_are_too_strange(
            records in prop::collection::vec(strange(), 1..9),
            head in any::<u64>(),
            now in any::<u64>(),
        ) {
            let mut ring: Vec<u8> = records.concat();
            ring.resize(ring.len().next_power_of_two(), 0);
            let begin = (head % ring.len() as u64) as usize;
            ring.rotate_right(begin);
            let turns = turns(&ring, head, Time(now), Time::ZERO);
            prop_assert!(turns.iter().all(|turn| turn.from <= turn.until && turn.until <= Time(now)));
            prop_assert!(turns.windows(2).all(|two| two[0].until <= two[1].from), "{turns:?}");
            prop_assert!(turns.len() <= ring.len() / RECORD_BYTES);
        }
    }

    /// Two threads that share a core are each seen to take it from the other.
    #[test]
    fn the_thread_that_takes_a_core_is_seen() {
        let _machine = punctual_testing::shared_machine();
        let core = *cores::usable(&KernelTree::default()).last().unwrap();
        let switches = match Switches::of(core) {
            Ok(switches) => switches,
            Err(refusal) => return eprintln!("skipped: {refusal}"),
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = punctual_testing::SetOnDrop(&over);
            let (tell, told) = std::sync::mpsc::channel();
            for _ in 0..2 {
                let (tell, over) = (tell.clone(), &over);
                scope.spawn(move || {
                    pin(core).unwrap();
                    tell.send(Tid::current()).unwrap();
                    while !over.load(Ordering::Relaxed) {}
                });
            }
            let threads = [told.recv().unwrap(), told.recv().unwrap()];
            let begun = LinuxOs.now();
            // However busy the machine is, both get the core again and again.
            let both_take_it = || {
                let turns = switches.since(begun);
                let taken = |by: usize, from: usize| {
                    let all = taken(&turns, threads[from], begun, LinuxOs.now(), Nanos::from_secs(1000));
                    all.iter().any(|it| it.thread == threads[by] && it.took > Nanos::ZERO)
                };
                (taken(0, 1) && taken(1, 0)).then_some(turns)
            };
            let seen = punctual_testing::wait_for(|| "each takes the core from the other".into(), both_take_it);
            drop(ends);
            let own = i32::try_from(std::process::id()).unwrap();
            for thread in threads {
                assert!(
                    seen.iter()
                        .any(|turn| turn.thread == thread && turn.process == own && turn.preempted)
                );
            }
            assert!(seen.is_sorted_by_key(|turn| turn.from));
        });
    }
}
