//! The profiler's figures beside those of cache models that see the same addresses.
//!
//! ```sh
//! cargo run --release -p punctual-profiler --example referee -- [--qemu-cache FILE] PROGRAM ARGS >/dev/null
//! ```
//!
//! Prints, on standard error, a row for each number of ways and each set of caches. A row has the misses of the
//! profiler (*ours*) and those of lists that are fed with a trace of the same emulator (`tests/it/referee/addresses.c`;
//! *lists*). Where FILE is QEMU's own example of a cache plugin (`contrib/plugins/cache.c`, compiled for the emulator
//! in `PATH`), it has that plugin's, too (*QEMU*). QEMU's has two levels, and asks for the line of an access's first
//! byte only; so beside it stand lists that count alike (*lists, by first byte*). PROGRAM has one thread and no
//! children, and does the same in each run.

#[path = "../../tracer/tests/it/naive/mod.rs"]
mod naive;
#[path = "../tests/it/referee/mod.rs"]
mod referee;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use naive::{NaiveCaches, Source};
use punctual_profiler::{Cache, Emulator, Geometry, ProfilerRun, Program, ProgramEnding};
use punctual_tracer::LINE_BYTES;
use referee::{Access, Trace};

/// Numbers of ways that are printed.
const WAYS: [u8; 5] = [1, 2, 5, 10, 20];

/// Requests to the last level, and misses with 1, 2, ... ways.
type Figures = (u64, Vec<u64>);
/// Instructions, and the figures of lists for each geometry: by all lines of an access, and by that of its first byte.
type Lists = (u64, Vec<Figures>, Vec<Figures>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut theirs = None;
    if arguments.first().is_some_and(|first| first == "--qemu-cache") && arguments.len() > 1 {
        theirs = Some(PathBuf::from(arguments.remove(1)));
        arguments.remove(0);
    }
    let (name, arguments) = arguments.split_first().ok_or("name a program")?;
    let search = std::env::var_os("PATH").unwrap_or_default();
    let program = Program::find(name, arguments, &search)?;
    let emulator = Emulator::find(&search)?;
    let folder = tempfile::tempdir()?;
    let caches = [("full", full()), ("scaled", scaled())];
    let geometries: Vec<Geometry> = caches.iter().flat_map(|(_, of)| [*of, without_second(*of)]).collect();
    let (instructions, by_lines, by_first_byte) = lists(&emulator, folder.path(), &program, &geometries)?;
    eprintln!("{}, {instructions} instructions", program.name.display());
    eprintln!("caches | levels | ways | QEMU | lists, by first byte | ours | off by % | lists | ours is off by %");
    for (number, geometry) in geometries.iter().enumerate() {
        let name = caches[number / 2].0;
        let levels = if geometry.l2.is_some() { 3 } else { 2 };
        let (counted, ours) = ours(&program, geometry, &search)?;
        let (lists, alike) = (&by_lines[number], &by_first_byte[number]);
        let row = |ways: &str, qemu: &str, alike: u64, ours: u64, lists: u64| {
            let off = |of: u64| 100.0 * (ours as f64 / of as f64 - 1.0);
            let (theirs, lists_off) = (off(alike), off(lists));
            eprintln!(
                "{name} | {levels} | {ways} | {qemu} | {alike} | {ours} | {theirs:+.3} | {lists} | {lists_off:+.3}"
            );
        };
        row("requests", "", alike.0, ours.0, lists.0);
        for ways in WAYS {
            let of = |figures: &Figures| figures.1[usize::from(ways) - 1];
            let qemu = match &theirs {
                Some(plugin) if geometry.l2.is_none() => {
                    qemus(&emulator, plugin, folder.path(), &program, geometry, ways)?.to_string()
                }
                _ => String::new(),
            };
            row(&ways.to_string(), &qemu, of(alike), of(&ours), of(lists));
        }
        if counted != instructions {
            eprintln!("{counted} instructions in ours: the program did something else");
        }
    }
    Ok(())
}

fn full() -> Geometry {
    Geometry::FULL
}

fn scaled() -> Geometry {
    let private = |bytes| Cache { bytes, ways: 8 };
    Geometry {
        l1: private(16 << 10),
        l2: Some(private(64 << 10)),
        way_bytes: 64 << 10,
        ..full()
    }
}

fn without_second(geometry: Geometry) -> Geometry {
    Geometry { l2: None, ..geometry }
}

/// Instructions and figures by the profiler.
fn ours(program: &Program, geometry: &Geometry, search: &OsStr) -> Result<(u64, Figures), Box<dyn Error>> {
    let mut run = ProfilerRun::start(program, geometry, search)?;
    let ending = loop {
        if let Some(ending) = run.wait(Duration::from_secs(1))? {
            break ending;
        }
    };
    if ending != ProgramEnding::Finished {
        return Err(ending.to_string().into());
    }
    let mut misses = vec![0; geometry.ways.into()];
    for window in run.windows() {
        misses
            .iter_mut()
            .zip(window.misses())
            .for_each(|(sum, more)| *sum += more);
    }
    let sum = |of: fn(&punctual_profiler::Window) -> u64| run.windows().iter().map(of).sum::<u64>();
    Ok((
        sum(|window| window.instructions),
        (sum(|window| window.requests), misses),
    ))
}

/// Feeds a trace of `program` to lists.
fn lists(
    emulator: &Emulator,
    folder: &Path,
    program: &Program,
    geometries: &[Geometry],
) -> Result<Lists, Box<dyn Error>> {
    let plugin = referee::compile(folder, referee::since_9(&emulator.version))?;
    let mut trace = Trace::start(&emulator.path, &plugin, folder, program)?;
    let caches = || geometries.iter().map(NaiveCaches::new).collect::<Vec<_>>();
    let (mut by_lines, mut by_first_byte) = (caches(), caches());
    let mut instructions = 0;
    while let Some(access) = trace.next()? {
        instructions += u64::from(access.instruction);
        let Access { address, bytes, .. } = access;
        let source = if access.instruction {
            Source::Instructions
        } else {
            Source::Data
        };
        let (first, last) = (address / LINE_BYTES, (address + bytes - 1) / LINE_BYTES);
        for caches in &mut by_lines {
            (first..=last).for_each(|line| caches.ask(source, &[line]));
        }
        for caches in &mut by_first_byte {
            caches.ask(source, &[first]);
        }
    }
    let figures = |caches: Vec<NaiveCaches>| caches.into_iter().map(|mut caches| caches.take()).collect();
    Ok((instructions, figures(by_lines), figures(by_first_byte)))
}

/// Misses of the second level by QEMU's own example, the ways being as many as are asked for.
fn qemus(
    emulator: &Emulator,
    plugin: &Path,
    folder: &Path,
    program: &Program,
    geometry: &Geometry,
    ways: u8,
) -> Result<u64, Box<dyn Error>> {
    let log = folder.join("log");
    let (l1, l2) = (geometry.l1, geometry.way_bytes * u64::from(ways));
    let arguments = format!(
        "{},limit=0,icachesize={},iassoc={},dcachesize={},dassoc={},l2cachesize={l2},l2assoc={ways}",
        plugin.display(),
        l1.bytes,
        l1.ways,
        l1.bytes,
        l1.ways,
    );
    let options: [&OsStr; 6] = [
        "-d".as_ref(),
        "plugin".as_ref(),
        "-D".as_ref(),
        log.as_ref(),
        "-plugin".as_ref(),
        arguments.as_ref(),
    ];
    let status = referee::emulated(&emulator.path, &options, program).status()?;
    if !status.success() {
        return Err(format!("QEMU's plugin: {status}").into());
    }
    let text = std::fs::read_to_string(&log)?;
    // core, data accesses, misses, rate, instructions, misses, rate, second level: accesses, misses, rate
    let row = text
        .lines()
        .find(|line| line.starts_with('0'))
        .ok_or("no figures of QEMU's plugin")?;
    Ok(row
        .split_whitespace()
        .nth(8)
        .ok_or("too few figures of QEMU's plugin")?
        .parse()?)
}
