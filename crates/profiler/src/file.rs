//! The file of a profile: a row per window.

use std::io::{self, Write};

use punctual_tracer::Window;

/// Writes `windows` for 1 to `ways` ways as comma-separated values: number of the window, instructions before it and in it, requests to
/// the LLC, and how many of them miss with 1, 2, ... ways.
///
/// ```
/// use punctual_profiler::{Window, write};
/// let window = Window { instructions: 1000, requests: 9, distances: vec![5, 3] };
/// let mut file = Vec::new();
/// write(&[window.clone(), window], 2, &mut file)?;
/// assert_eq!(String::from_utf8_lossy(&file), "\
/// window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2
/// 0,0,1000,9,4,1
/// 1,1000,1000,9,4,1
/// ");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `file`.
pub fn write(windows: &[Window], ways: usize, file: &mut dyn Write) -> io::Result<()> {
    write!(file, "window_index,instr_start,instr_count,llc_requests")?;
    (1..=ways).try_for_each(|count| write!(file, ",miss_w{count}"))?;
    writeln!(file)?;
    let mut start = 0;
    for (index, window) in windows.iter().enumerate() {
        write!(file, "{index},{start},{},{}", window.instructions, window.requests)?;
        window
            .misses()
            .take(ways)
            .try_for_each(|misses| write!(file, ",{misses}"))?;
        writeln!(file)?;
        start += window.instructions;
    }
    Ok(())
}
