//! The file of a measured profile: a row per window.

use std::io::{self, Write};

use super::cutter::CountedWindow;

/// Writes `windows`, which were measured with so many cache `ways` and bandwidth `partitions`, as comma-separated
/// values: the allocation, a number for each window in place of the kind of behaviour (nothing is clustered here), its
/// first and last instruction counted from 1, instructions per second of processor time; and, beside what a profile
/// needs, cycles, cache references and misses. A remark under the line of names says that this was counted.
///
/// ```
/// use punctual_profiler::counters::{CountedWindow, write_measured};
/// let window = CountedWindow { ns: 500.0, counts: [1000.0, 1500.0, 90.0, 9.0] };
/// let mut file = Vec::new();
/// write_measured(&[window, window], 20, 10, &mut file)?;
/// assert_eq!(String::from_utf8_lossy(&file), "\
/// cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s,cycles,cache_references,cache_misses
/// ## kind: counted
/// 20,10,0,1,1000,2000000000,1500,90,9
/// 20,10,1,1001,2000,2000000000,1500,90,9
/// ");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `file`.
pub fn write_measured(windows: &[CountedWindow], ways: u8, partitions: u8, file: &mut dyn Write) -> io::Result<()> {
    writeln!(
        file,
        "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s,cycles,cache_references,cache_misses"
    )?;
    writeln!(file, "# kind: counted")?;
    let mut done = 0;
    for (number, window) in windows.iter().enumerate() {
        let [instructions, cycles, requests, misses] = window.counts.map(|count| count.round() as u64);
        // A rate of 0 would never end, and time is never 0 where something was done.
        let rate = ((window.progress() * 1e9 / window.ns.max(1.0)).round() as u64).max(1);
        let (start, end) = (done + 1, done + instructions);
        writeln!(
            file,
            "{ways},{partitions},{number},{start},{end},{rate},{cycles},{requests},{misses}"
        )?;
        done = end;
    }
    Ok(())
}
