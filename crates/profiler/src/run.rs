//! A run of a program under the emulator.

use std::ffi::OsStr;
use std::process::Child;
use std::time::{Duration, Instant};

use punctual_tracer::{Channel, Geometry, Progress, Window};

use crate::emulator::Emulator;
use crate::ending::{ProgramEnding, ask_to_end};
use crate::error::ProfilerError;
use crate::program::Program;
use crate::start;

/// Period of emptying the channel: well before it is full, whatever the speed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A program that is being profiled. If dropped before its end, it is killed.
#[derive(Debug)]
pub struct ProfilerRun {
    emulator: Child,
    channel: Channel,
    ways: usize,
    windows: Vec<Window>,
    ended: bool,
}

impl ProfilerRun {
    /// Starts `program` on the caches of `geometry`; the emulator is searched in `search` (the value of `PATH`). The
    /// program lives no longer than the thread that calls this.
    ///
    /// # Errors
    /// [`ProfilerError`]: no emulator, caches that cannot be modelled, or a refusal of the system.
    pub fn start(program: &Program, geometry: &Geometry, search: &OsStr) -> Result<ProfilerRun, ProfilerError> {
        geometry.check()?;
        let emulator = Emulator::find(search)?;
        let shared = start::memory_file(c"punctual-windows")?;
        let channel = Channel::create(&shared, geometry)?;
        Ok(ProfilerRun {
            emulator: start::start(&emulator.path, program, &start::image()?, &shared)?,
            channel,
            ways: geometry.ways.into(),
            windows: Vec::new(),
            ended: false,
        })
    }

    /// Collects windows for `time`, or until the program ends. Returns its ending, or `None` if it still runs.
    ///
    /// # Errors
    /// [`ProfilerError::System`] if the emulator cannot be waited for.
    pub fn wait(&mut self, time: Duration) -> Result<Option<ProgramEnding>, ProfilerError> {
        let until = Instant::now() + time;
        loop {
            // First the status, then the windows: after the end, all windows written before it are there.
            let status = self.emulator.try_wait();
            let status = status.map_err(ProfilerError::system("the emulator cannot be waited for"))?;
            self.channel.take(self.ways, &mut self.windows);
            if let Some(status) = status {
                self.end();
                return Ok(Some(ProgramEnding::of(status, &self.channel.progress())));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends SIGTERM to the program.
    pub fn ask_to_end(&self) {
        if !self.ended {
            ask_to_end(&self.emulator);
        }
    }

    /// Kills the program at once.
    pub fn kill(&mut self) {
        // An error means that the program has just ended.
        let _ = self.emulator.kill();
    }

    /// Progress of the program so far.
    pub fn progress(&self) -> Progress {
        self.channel.progress()
    }

    /// Windows so far, in order; after the end the last one is shorter.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Adds the window that the program did not complete.
    fn end(&mut self) {
        let open = self.channel.open_window(self.ways);
        if !self.ended && open.instructions > 0 {
            self.windows.push(open);
        }
        self.ended = true;
    }
}

impl Drop for ProfilerRun {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.emulator.kill();
            let _ = self.emulator.wait();
        }
    }
}
