//! How fast programs are profiled: the table of docs/guide/profiling.md.
//!
//! ```sh
//! cargo run --release -p punctual-profiler --example profiling_speed >/dev/null
//! ```
//!
//! Prints it on standard error. Runs six programs of a Debian 12 with a compiler, one after another, on a text that it
//! makes; what is missing is left out, and said. Processor time is that of the profiler, the emulator and the program
//! together, in user mode (`getrusage`).

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use punctual_profiler::{Geometry, ProfilerRun, Program, ProgramEnding};

/// Bytes of the text, and characters of its lines.
const TEXT_BYTES: u64 = 3_000_000;
const LINE: u64 = 76;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let text = folder.path().join("text");
    write_text(&text)?;
    eprintln!("| program | instructions | M/s of CPU time | M/s on the wall clock |\n|---|---|---|---|");
    for command in commands(&text, folder.path()) {
        let shown = shown(&command, folder.path());
        match row(&command) {
            Ok(row) => eprintln!("| `{shown}` | {row} |"),
            Err(why) => eprintln!("left out: {shown}: {why}"),
        }
    }
    Ok(())
}

/// The command, without the folder of what was made for it.
fn shown(command: &[OsString], folder: &Path) -> String {
    let folder = format!("{}/", folder.display());
    let word = |word: &OsString| {
        let word = word.to_string_lossy().replace(&folder, "");
        if word.contains('(') { format!("'{word}'") } else { word }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Lines of letters and digits in no order: the same each time.
fn write_text(path: &Path) -> std::io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut file = BufWriter::new(File::create(path)?);
    let mut drawn: u64 = 1;
    for place in 1..=TEXT_BYTES {
        drawn = drawn
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let letter = LETTERS[(drawn >> 58) as usize];
        file.write_all(&[if place % (LINE + 1) == 0 { b'\n' } else { letter }])?;
    }
    file.flush()
}

fn commands(text: &Path, folder: &Path) -> Vec<Vec<OsString>> {
    let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
    let on_text = |line: &str| {
        let mut words = words(line);
        words.push(text.into());
        words
    };
    let mut python = words("python3.11 -S -c");
    // That of the system: others on the way may be scripts.
    python[0] = "/usr/bin/python3.11".into();
    python.push("print(len({str(i):i*i for i in range(200000)}))".into());
    let mut all = vec![
        on_text("sha256sum"),
        on_text("gzip -c"),
        on_text("xz -6 -T1 -c"),
        on_text("sort --parallel=1"),
        python,
    ];
    if let Some((compiler, source)) = compiler(folder) {
        let mut command = vec![compiler.into()];
        command.extend(words("-O2 -quiet -fpreprocessed"));
        command.extend([source.into(), "-o".into(), "/dev/null".into()]);
        all.push(command);
    }
    all
}

/// gcc's compiler proper, and the tests' threads.c after the preprocessor.
fn compiler(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output().ok()?;
    let compiler = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/threads.c");
    let preprocessed = folder.join("threads.i");
    let status = Command::new("gcc")
        .arg("-E")
        .arg(source)
        .arg("-o")
        .arg(&preprocessed)
        .status()
        .ok()?;
    (compiler.is_absolute() && status.success()).then_some((compiler, preprocessed))
}

/// Instructions and speeds of one program.
fn row(command: &[OsString]) -> Result<String, Box<dyn Error>> {
    let (name, arguments) = command.split_first().ok_or("no program")?;
    let search = std::env::var_os("PATH").unwrap_or_default();
    let program = Program::find(name, arguments, &search)?;
    let (before, begun) = (user_time(), Instant::now());
    let instructions = profiled(&program, &search)?;
    let (wall, user) = (begun.elapsed(), user_time() - before);
    let speed = |time: Duration| instructions as f64 * 1e-6 / time.as_secs_f64();
    Ok(format!(
        "{:.1} M | {:.0} | {:.1}",
        instructions as f64 * 1e-6,
        speed(user),
        speed(wall)
    ))
}

fn profiled(program: &Program, search: &OsStr) -> Result<u64, Box<dyn Error>> {
    let mut run = ProfilerRun::start(program, &Geometry::FULL, search)?;
    let ending = loop {
        if let Some(ending) = run.wait(Duration::from_secs(1))? {
            break ending;
        }
    };
    if ending != ProgramEnding::Finished {
        return Err(ending.to_string().into());
    }
    Ok(run.windows().iter().map(|window| window.instructions).sum())
}

/// Processor time in user mode, of this process and of those that it has waited for.
fn user_time() -> Duration {
    let of = |whose| {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: room for a usage, of which all zeros is one.
        let time = unsafe {
            libc::getrusage(whose, usage.as_mut_ptr());
            usage.assume_init().ru_utime
        };
        Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}
