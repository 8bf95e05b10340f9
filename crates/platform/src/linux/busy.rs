//! How busy each core was, by `/proc/stat` (proc_stat(5)).
//!
//! The kernel gives, per core and in ticks of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal, guest,
//! guest_nice. *Busy* is user + nice + system + irq + softirq. Time of guests is part of user and nice already. *Steal*
//! is time that the hypervisor gave to other machines: neither busy nor idle, and reported separately, because nothing
//! on this machine slowed down a job that is late by it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use punctual_units::{CoreId, Nanos};

use super::KernelTree;

/// Time of one core since boot, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTimes {
    /// Number of the core.
    pub core: CoreId,
    /// Time in which the core ran anything.
    pub busy: Nanos,
    /// Time in which the core ran nothing, waiting for input and output included.
    pub idle: Nanos,
    /// Time in which the core had work, but the hypervisor ran another machine.
    pub steal: Nanos,
    /// Part of `busy` in which the core served interrupts.
    pub interrupts: Nanos,
}

/// `/proc/stat`, open: to open it again and again costs as much as to read it.
#[derive(Debug)]
pub struct Stat {
    file: File,
    bytes: Vec<u8>,
    tick: Nanos,
}

impl Stat {
    /// Opens the file.
    ///
    /// # Errors
    /// The reason why it could not be opened.
    pub fn open(tree: &KernelTree) -> Result<Stat, String> {
        let file = File::open(tree.path(STAT)).map_err(|why| format!("{STAT}: {why}"))?;
        Ok(Stat {
            file,
            bytes: vec![0; STAT_BYTES],
            tick: tick(),
        })
    }

    /// Reads the times of all cores that are online now, ascending.
    ///
    /// # Errors
    /// The reason why the file could not be read; or that it lists no core.
    pub fn read(&mut self) -> Result<Vec<CoreTimes>, String> {
        let mut read = 0;
        loop {
            if read == self.bytes.len() {
                self.bytes.resize(2 * read, 0);
            }
            let more = self.file.read_at(&mut self.bytes[read..], read as u64);
            let more = more.map_err(|why| format!("{STAT}: {why}"))?;
            read += more;
            // The lines of cores come first.
            if more == 0 || self.bytes[..read].windows(AFTER.len()).any(|bytes| bytes == AFTER) {
                break;
            }
        }
        let times = parse(&self.bytes[..read], self.tick);
        if times.is_empty() {
            return Err(format!("{STAT}: no line of a core in it"));
        }
        Ok(times)
    }
}

/// Reads the times of all cores that are online, ascending.
///
/// # Errors
/// The reason why `/proc/stat` could not be read; or that it lists no core.
pub fn read(tree: &KernelTree) -> Result<Vec<CoreTimes>, String> {
    Stat::open(tree)?.read()
}

const STAT: &str = "/proc/stat";

/// Begin of the line after those of the cores.
const AFTER: &[u8] = b"\nintr";

/// Room for the file on a machine with dozens of cores.
const STAT_BYTES: usize = 16 * 1024;

/// Length of a tick of `/proc/stat` (USER_HZ).
fn tick() -> Nanos {
    // SAFETY: takes and returns plain numbers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Nanos(1_000_000_000 / u64::try_from(per_second).unwrap_or(100).max(1))
}

/// Parses the cores' lines of `/proc/stat`, in units of `tick`; ascending. They come first. Broken lines are left out;
/// fields that old kernels lack are zero.
pub fn parse(stat: &[u8], tick: Nanos) -> Vec<CoreTimes> {
    let mut times: Vec<CoreTimes> = stat
        .split(|byte| *byte == b'\n')
        .take_while(|line| line.starts_with(b"cpu"))
        .filter_map(|line| parse_core(str::from_utf8(line).ok()?, tick))
        .collect();
    times.sort_unstable_by_key(|times| times.core);
    times.dedup_by_key(|times| times.core);
    times
}

/// Parses "cpu3 user nice system idle iowait irq softirq steal guest guest_nice".
fn parse_core(line: &str, tick: Nanos) -> Option<CoreTimes> {
    let mut fields = line.split_ascii_whitespace();
    let core = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = [0u64; 8];
    for (i, ticks) in ticks.iter_mut().enumerate() {
        match fields.next() {
            Some(field) => *ticks = field.parse().ok()?,
            None if i < 4 => return None, // every kernel has user, nice, system, idle
            None => break,
        }
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.map(|ticks| tick * ticks);
    Some(CoreTimes {
        core: CoreId(core),
        busy: user + nice + system + irq + softirq,
        idle: idle + iowait,
        steal,
        interrupts: irq + softirq,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Nanos = Nanos::from_millis(10);

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy_and_guests_are_counted_once() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                    cpu1 10 20 30 1000 2000 40 50 7 8 9\n\
                    cpu0 1 0 0 100 0 0 0 0 1 0\n\
                    intr 12 0 3\nctxt 5\n";
        let times = parse(stat.as_bytes(), TICK);
        assert_eq!(
            times,
            [
                CoreTimes {
                    core: CoreId(0),
                    busy: TICK,
                    idle: TICK * 100,
                    steal: Nanos::ZERO,
                    interrupts: Nanos::ZERO
                },
                CoreTimes {
                    core: CoreId(1),
                    busy: TICK * 150,
                    idle: TICK * 3000,
                    steal: TICK * 7,
                    interrupts: TICK * 90
                },
            ]
        );
    }

    #[test]
    fn fields_that_old_kernels_lack_are_zero_and_broken_lines_are_left_out() {
        let times = parse(b"cpu0 1 2 3 4\ncpu1 1 2 3\ncpu2 1 x 3 4\ncpux 1 2 3 4\n", TICK);
        assert_eq!(times.len(), 1);
        assert_eq!((times[0].busy, times[0].idle), (TICK * 6, TICK * 4));
    }

    #[test]
    fn this_machine_tells_and_its_times_do_not_decrease() {
        let tree = KernelTree::default();
        let earlier = read(&tree).unwrap();
        let later = read(&tree).unwrap();
        assert_eq!(earlier.len(), later.len());
        for (earlier, later) in earlier.iter().zip(&later) {
            assert!(later.busy >= earlier.busy && later.steal >= earlier.steal);
        }
    }

    #[test]
    fn a_file_without_cores_fails_and_names_itself() {
        let (_folder, tree) = crate::linux::testing::tree(&[(STAT, "intr 0")]);
        assert!(read(&tree).unwrap_err().contains(STAT));
        assert!(read(&KernelTree::at("/nowhere")).unwrap_err().contains(STAT));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            parse(&bytes, TICK);
        }

        #[test]
        fn no_line_is_too_strange(lines in prop::collection::vec("cpu[0-9]{0,11}( {1,2}[0-9]{1,21}){0,12}", 0..10)) {
            let times = parse(lines.join("\n").as_bytes(), TICK);
            prop_assert!(times.is_sorted_by(|a, b| a.core < b.core));
        }

        #[test]
        fn every_tick_is_busy_idle_or_stolen(fields in prop::array::uniform10(0u64..1 << 40)) {
            let line = fields.iter().fold("cpu7".to_owned(), |line, field| format!("{line} {field}"));
            let times = parse(line.as_bytes(), Nanos(1));
            let all: u64 = fields[..8].iter().sum();
            prop_assert_eq!((times[0].busy + times[0].idle + times[0].steal).0, all);
        }
    }
}
