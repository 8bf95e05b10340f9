//! The file of a profile, with a row for each window.

use std::io::{self, Write};

use punctual_tracer::{Geometry, Window};

/// Writes `windows`, which were counted with `geometry`, as comma-separated values: number of the window, instructions
/// before it and in it, requests to the LLC, and the requests that miss with 1, 2, ... ways. Remarks under the line of
/// names list the modelled caches (sizes in bytes; `l2` is 0 without a second level), so that readers need not guess.
///
/// ```
/// use punctual_profiler::{Cache, Geometry, Window, write};
/// let private = |bytes| Cache { bytes, ways: 8 };
/// let l2 = Some(private(262_144));
/// let geometry = Geometry { l1: private(32768), l2, ways: 2, way_bytes: 2_097_152, window: 1000 };
/// let window = Window { instructions: 1000, requests: 9, distances: vec![5, 3] };
/// let mut file = Vec::new();
/// write(&[window.clone(), window], &geometry, &mut file)?;
/// assert_eq!(String::from_utf8_lossy(&file), "\
/// window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2
/// ## kind: modelled
/// ## ways: 2
/// ## way-bytes: 2097152
/// ## l1: 32768
/// ## l2: 262144
/// ## window: 1000
/// 0,0,1000,9,4,1
/// 1,1000,1000,9,4,1
/// ");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Errors of writing to `file`.
pub fn write(windows: &[Window], geometry: &Geometry, file: &mut dyn Write) -> io::Result<()> {
    write!(file, "window_index,instr_start,instr_count,llc_requests")?;
    (1..=geometry.ways).try_for_each(|count| write!(file, ",miss_w{count}"))?;
    writeln!(file)?;
    remarks(geometry, file)?;
    let mut start = 0;
    for (index, window) in windows.iter().enumerate() {
        write!(file, "{index},{start},{},{}", window.instructions, window.requests)?;
        window
            .misses()
            .take(geometry.ways.into())
            .try_for_each(|misses| write!(file, ",{misses}"))?;
        writeln!(file)?;
        start += window.instructions;
    }
    Ok(())
}

/// Writes the modelled caches as remarks.
fn remarks(geometry: &Geometry, file: &mut dyn Write) -> io::Result<()> {
    let Geometry {
        l1,
        l2,
        ways,
        way_bytes,
        window,
    } = geometry;
    let l2 = l2.map_or(0, |cache| cache.bytes);
    writeln!(file, "# kind: modelled")?;
    writeln!(file, "# ways: {ways}\n# way-bytes: {way_bytes}")?;
    writeln!(file, "# l1: {}\n# l2: {l2}\n# window: {window}", l1.bytes)
}
