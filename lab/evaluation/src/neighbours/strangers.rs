//! Starts unrelated programs. They must not be children of this process, because an exclusive core leaves its children
//! where they are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use punctual_units::Nanos;
use serde::Serialize;

/// Limit of the time that a program takes to begin, and to end after a request.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

punctual_units::named! {
    /// A program that runs in a loop. Its failures are counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Stranger by name {
        /// Links a small program, by lld where the Rust toolchain or the machine has it, and runs it.
        Link = "link",
        /// Starts a Java virtual machine that compiles and runs a program.
        Jvm = "jvm",
        /// Runs a Go program with a goroutine per core.
        Go = "go",
        /// Runs a parallel loop of OpenMP.
        Openmp = "openmp",
    }
}

impl Stranger {
    /// Two shell scripts: one that prepares the program in a folder, and one that runs it there.
    fn scripts(self) -> (&'static str, &'static str) {
        match self {
            Stranger::Link => (
                "printf 'int main(void) { return 0; }\\n' >main.c && cc -c main.c && \
                 lld=$(rustc --print sysroot 2>/dev/null)/lib/rustlib/$(uname -m)-unknown-linux-gnu/bin/gcc-ld; \
                 if [ -x \"$lld/ld.lld\" ]; then echo \"-B$lld -fuse-ld=lld\" >flags; \
                 elif command -v ld.lld >/dev/null; then echo -fuse-ld=lld >flags; else : >flags; fi; \
                 cc $(cat flags) main.o -o main",
                "cc $(cat flags) main.o -o main && ./main",
            ),
            Stranger::Jvm => (
                "printf 'public class Main { public static void main(String[] a) { int[] s = \
                 java.util.stream.IntStream.range(0, 1 << 16).parallel().map(i -> i * i).toArray(); \
                 System.exit(s[3] == 9 ? 0 : 1); } }\\n' >Main.java && java Main.java",
                "java Main.java",
            ),
            Stranger::Go => (
                "printf 'package main\\nimport (\"runtime\"; \"sync\")\\nfunc main() { var w sync.WaitGroup; \
                 for i := 0; i < runtime.NumCPU()*4; i++ { w.Add(1); go func() { defer w.Done(); \
                 s := make([]int, 0); for j := 0; j < 100000; j++ { s = append(s, j) } }() }; w.Wait() }\\n' \
                 >main.go && \
                 PATH=$PATH:/usr/local/go/bin GOCACHE=$PWD/cache GOFLAGS=-mod=mod go build -o main main.go && ./main",
                "./main",
            ),
            Stranger::Openmp => (
                "printf '#include <omp.h>\\nint main(void) { long s = 0;\\n#pragma omp parallel for reduction(+:s)\\n\
                 for (int i = 0; i < 10000000; i++) s += i & 7;\\nreturn s == 35000000 ? 0 : 1; }\\n' >main.c && \
                 cc -O1 -fopenmp main.c -o main && ./main",
                "./main",
            ),
        }
    }

    /// Prepares the program in `folder`.
    ///
    /// # Errors
    /// The last line of the error output, or why no shell ran.
    pub fn prepare(self, folder: &Path) -> Result<(), String> {
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let made = Command::new("sh")
            .args(["-c", self.scripts().0])
            .current_dir(folder)
            .output();
        match made {
            Ok(made) if made.status.success() => Ok(()),
            Ok(made) => {
                let said = String::from_utf8_lossy(&made.stderr);
                Err(said.lines().last().unwrap_or("it failed without a word").to_owned())
            }
            Err(why) => Err(format!("sh: {why}")),
        }
    }
}

/// Counts of a program in a loop, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounts {
    /// Number of successful runs.
    pub runs: u64,
    pub failed: u64,
    /// Core time of all runs that have ended, in steps of 10 ms.
    pub used: Nanos,
}

impl std::ops::Sub for LoopCounts {
    type Output = LoopCounts;
    fn sub(self, earlier: LoopCounts) -> LoopCounts {
        LoopCounts {
            runs: self.runs - earlier.runs,
            failed: self.failed - earlier.failed,
            used: self.used.saturating_sub(earlier.used),
        }
    }
}

/// A shell in a session of its own that runs a script until this is dropped. Scripts also end after this process has
/// ended.
#[derive(Debug)]
struct DetachedShell {
    pid: i32,
}

impl DetachedShell {
    /// Starts the shell through a parent that ends at once, so that the shell is no child of this process.
    fn start(script: &str, folder: &Path) -> io::Result<DetachedShell> {
        let number = folder.join("pid");
        let _ = fs::remove_file(&number);
        let told = format!("echo $$ >pid.new; mv pid.new pid; {script}");
        let mut starter = Command::new("sh");
        let starter = starter.args(["-c", "setsid sh -c \"$0\" &", &told]).current_dir(folder);
        starter
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let since = Instant::now();
        loop {
            let told = fs::read_to_string(&number).unwrap_or_default();
            if let Ok(pid) = told.trim().parse() {
                return Ok(DetachedShell { pid });
            }
            if since.elapsed() > PATIENCE {
                return Err(io::Error::other(
                    "a shell in a session of its own (setsid) did not begin",
                ));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for DetachedShell {
    fn drop(&mut self) {
        // SAFETY: the call takes plain numbers; the shell leads a session, and so a process group, of its own.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        let since = Instant::now();
        while Path::new(&format!("/proc/{}", self.pid)).exists() && since.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
    }
}

/// A program that a shell runs in a loop.
#[derive(Debug)]
pub struct Looping {
    folder: PathBuf,
    shell: DetachedShell,
}

impl Looping {
    /// Runs `stranger`, which was prepared in `folder`, again and again; the shell executes the commands `first`
    /// before.
    ///
    /// # Errors
    /// The error of starting a shell.
    pub fn start(stranger: Stranger, folder: &Path, first: &str) -> io::Result<Looping> {
        let run = stranger.scripts().1;
        let script = format!(
            "{first}while kill -0 {own}; do if {{ {run}; }} >/dev/null 2>said; then echo >>runs; else code=$?; \
             [ -s failures ] || {{ echo \"exit $code\"; cat said; }} >first; echo >>failures; fi; done",
            own = std::process::id()
        );
        for file in ["runs", "failures", "first"] {
            fs::write(folder.join(file), "")?;
        }
        Ok(Looping {
            folder: folder.to_owned(),
            shell: DetachedShell::start(&script, folder)?,
        })
    }

    /// Process id of the shell; each run is a child of the shell, and so in its control group.
    pub fn pid(&self) -> i32 {
        self.shell.pid
    }

    /// Counts since the start.
    pub fn done(&self) -> LoopCounts {
        let lines = |file: &str| {
            let text = fs::read(self.folder.join(file)).unwrap_or_default();
            text.iter().filter(|byte| **byte == b'\n').count() as u64
        };
        LoopCounts {
            runs: lines("runs"),
            failed: lines("failures"),
            used: core_time(self.pid(), 16),
        }
    }

    /// Exit of the first failed run, and the last line of its output.
    pub fn first_failure(&self) -> Option<String> {
        let text = fs::read_to_string(self.folder.join("first")).unwrap_or_default();
        let mut lines = text.lines();
        let code = lines.next()?;
        Some(lines.next_back().map_or(code.into(), |said| format!("{code}: {said}")))
    }
}

/// A CPU-bound program that never sleeps.
#[derive(Debug)]
pub struct Hog(DetachedShell);

impl Hog {
    /// Starts a program; the shell executes the commands `first` before.
    ///
    /// # Errors
    /// The error of starting a shell.
    pub fn start(folder: &Path, first: &str) -> io::Result<Hog> {
        fs::create_dir_all(folder)?;
        let own = std::process::id();
        DetachedShell::start(&format!("{first}while kill -0 {own}; do :; done"), folder).map(Hog)
    }

    /// Process id of the shell.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }

    /// Core time since the start, in steps of 10 ms.
    pub fn used(&self) -> Nanos {
        core_time(self.pid(), 14)
    }
}

/// Core time of process `pid`, in user mode and in the kernel: its own from field 14 of proc_pid_stat(5) on, that of
/// the children that it has waited for from field 16 on.
fn core_time(pid: i32, first: usize) -> Nanos {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let both = fields.split(' ').skip(first - 3).take(2);
    Nanos::from_millis(10) * both.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
}

/// Programs that sleep, because a shared machine has thousands of threads, most of which have nothing to do.
#[derive(Debug)]
pub struct Crowd {
    shell: DetachedShell,
}

impl Crowd {
    /// Starts `count` sleeping programs, spread over `groups` (folders of control groups) and the group of this
    /// process.
    ///
    /// # Errors
    /// The error of starting them.
    pub fn start(folder: &Path, count: u32, groups: &[PathBuf]) -> io::Result<Crowd> {
        fs::create_dir_all(folder)?;
        let groups: Vec<String> = groups.iter().map(|group| group.display().to_string()).collect();
        let script = format!(
            "set -- {}; n=0; while [ $n -lt {count} ]; do sleep 1000000 & n=$((n + 1)); \
             [ $# -eq 0 ] || {{ echo $! >\"$1/cgroup.procs\"; shift; }}; done; echo >started; wait",
            groups.join(" ")
        );
        let crowd = Crowd {
            shell: DetachedShell::start(&script, folder)?,
        };
        let since = Instant::now();
        while !folder.join("started").exists() {
            if since.elapsed() > PATIENCE {
                let why = format!("{count} sleeping programs did not start (shell {})", crowd.shell.pid);
                return Err(io::Error::other(why));
            }
            std::thread::sleep(POLL);
        }
        Ok(crowd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_sleeps_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let crowd = Crowd::start(folder.path(), 7, &[]).unwrap();
        let pid = crowd.shell.pid;
        let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        assert_eq!(children().split_whitespace().count(), 7);
        drop(crowd);
        assert_eq!(children(), "");
    }

    #[test]
    fn a_program_in_a_loop_is_counted_and_is_no_child_of_this_process() {
        let folder = tempfile::tempdir().unwrap();
        if let Err(why) = Stranger::Link.prepare(folder.path()) {
            return eprintln!("skipped: {why}");
        }
        let looping = Looping::start(Stranger::Link, folder.path(), "").unwrap();
        let after = |what: &str, condition: &dyn Fn(&LoopCounts) -> bool| {
            punctual_testing::wait_for(
                || format!("{what}: {:?}", looping.done()),
                || condition(&looping.done()).then_some(()),
            );
        };
        after("a run", &|done| done.runs > 0);
        // Counted in whole ticks of 10 ms, which a single run may not take.
        after("core time", &|done| done.used > Nanos::ZERO);
        let status = fs::read_to_string(format!("/proc/{}/status", looping.pid())).unwrap();
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:"))
            .unwrap()
            .trim();
        assert_ne!(parent, std::process::id().to_string());
        // A failure is counted as one: the checker is not blind.
        fs::write(folder.path().join("main.o"), "no object").unwrap();
        after("a failure", &|done| done.failed > 0);
        let first = looping.first_failure().unwrap();
        assert!(
            first.starts_with("exit 1: ") && first.len() > "exit 1: ".len(),
            "{first}"
        );
    }
}
