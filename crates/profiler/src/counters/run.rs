//! A program under way, and its counters.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::cutter::{CountedWindow, Cutter};
use super::error::CountersError;
use super::event::Events;
use super::group::Group;
use crate::ending::ask_to_end;
use crate::program::Program;

/// How often the counters are read: at three instructions a nanosecond, every three million of them.
const READ_EVERY: Duration = Duration::from_millis(1);

/// A program that is being counted. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Counting {
    child: Child,
    group: Group,
    cutter: Cutter,
    ended: bool,
}

impl Counting {
    /// Starts `program` under `events`, for windows of `window` progress. Whatever else the calling thread starts while
    /// this lives is counted, too.
    ///
    /// # Errors
    /// [`CountersError`]: this machine does not count an event, or the program does not start.
    pub fn start(program: &Program, events: &Events, window: u64) -> Result<Counting, CountersError> {
        let group = Group::open(events)?;
        let child = Command::new(&program.path)
            .arg0(&program.name)
            .args(&program.arguments)
            .spawn()
            .map_err(CountersError::system("the program cannot be started"))?;
        Ok(Counting {
            child,
            group,
            cutter: Cutter::new(window),
            ended: false,
        })
    }

    /// Reads counters for `time`, or until the program ends; its status, if it did.
    ///
    /// # Errors
    /// [`CountersError`].
    pub fn wait(&mut self, time: Duration) -> Result<Option<ExitStatus>, CountersError> {
        let until = Instant::now() + time;
        loop {
            // First the status, then the counters: a program that has ended counts no more.
            let status = self.child.try_wait();
            let status = status.map_err(CountersError::system("the program cannot be waited for"))?;
            self.cutter.take(&self.group.read()?)?;
            if status.is_some() {
                self.ended = true;
                return Ok(status);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(READ_EVERY);
        }
    }

    /// Asks the program to end, as `kill` does.
    pub fn ask_to_end(&self) {
        if !self.ended {
            ask_to_end(&self.child);
        }
    }

    /// Ends the program at once.
    pub fn kill(&mut self) {
        // It may just have ended.
        let _ = self.child.kill();
    }

    /// Progress so far.
    pub fn progress(&self) -> f64 {
        self.cutter.progress()
    }

    /// Windows that lie wholly between two readings.
    pub fn interpolated(&self) -> u64 {
        self.cutter.interpolated()
    }

    /// The windows so far.
    ///
    /// # Errors
    /// [`CountersError::NeverFree`].
    pub fn windows(&self) -> Result<Vec<CountedWindow>, CountersError> {
        self.cutter.clone().finish()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
