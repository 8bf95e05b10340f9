//! The thread of one program or file.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use punctual_platform::linux::pipes::{GroupedProgram, Patient};
use punctual_platform::linux::process::ProcessId;
use punctual_units::Nanos;

use super::halves::{Feeding, PipeEnd, ReadingStage, Stamps, UnansweredFrames, WaitTime};
use super::{LOOK, Orders, Peer, PipeError, PipeReport, PipeSpec, RESTARTS_MAX};
use crate::linux::pinned::Pinned;
use crate::linux::shared::{End, Segment};
use crate::{AnyStage, TurnResult};

/// Time for a program that has closed a pipe to end, so that its exit status is known.
const GRACE: Duration = Duration::from_secs(1);

/// A program or file with its stages.
pub(super) struct PipeRun {
    pub(super) piped: PipeSpec,
    pub(super) feeding: Option<Pinned>,
    pub(super) reading: Option<Pinned>,
    pub(super) shared: Segment,
    pub(super) orders: Arc<Orders>,
}

/// Why a half takes no further step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Over {
    /// The stage or the pipeline has ended.
    Stage,
    /// The pipe is closed at the other end, or its program has ended, or the thread was ordered to end.
    Closed,
    /// The stage cannot continue.
    Failed(String),
}

/// Action after a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again,
    Done,
    Failed,
}

/// Action after a program ended `well`, or because it was ordered to. `over`: no frame is left for it. `in_vain`:
/// number of consecutive starts without a frame.
fn next(well: bool, over: bool, restart: bool, in_vain: u32) -> Next {
    match () {
        () if well => Next::Done,
        () if restart && !over && in_vain < RESTARTS_MAX => Next::Again,
        () => Next::Failed,
    }
}

impl PipeRun {
    /// Serves until the stream is over. Sends to `started` whether the program started.
    pub(super) fn serve(mut self, started: &SyncSender<Result<(), PipeError>>) -> PipeReport {
        let mut report = PipeReport {
            name: self.piped.name.clone(),
            restarts: 0,
            refused: 0,
            killed: false,
            failure: None,
        };
        let peer = std::mem::replace(&mut self.piped.peer, Peer::Program(Vec::new()));
        let (feeding, reading) = (self.feeding.take(), self.reading.take());
        let served = match (peer, feeding, reading) {
            (Peer::Program(command), feeding, reading) => match Life::begin(&self, command) {
                Ok(life) => {
                    let _ = started.send(Ok(()));
                    life.serve(feeding, reading, &mut report)
                }
                Err(why) => {
                    let _ = started.send(Err(why));
                    Ok(())
                }
            },
            (Peer::From(from), None, Some(reading)) => {
                let _ = started.send(Ok(()));
                self.serve_reader(from, reading)
            }
            (Peer::To(to), Some(feeding), None) => {
                let _ = started.send(Ok(()));
                self.serve_writer(to, feeding, &mut report)
            }
            _ => {
                let why = "a file has one end: it is read by a source, or written by a sink";
                let _ = started.send(Err(self.bytes(why.into())));
                Ok(())
            }
        };
        if let Err(why) = served {
            self.orders.failed.store(true, Ordering::Relaxed);
            self.orders.end_sources.store(true, Ordering::Relaxed);
            report.failure = Some(why);
        }
        report
    }

    fn bytes(&self, why: String) -> PipeError {
        let name = self.piped.name.clone();
        PipeError::Bytes { name, why }
    }

    fn stamps(&self) -> Stamps {
        Stamps::Clock {
            period: self.piped.period.unwrap_or_default(),
            deadline: self.piped.deadline.unwrap_or_default(),
            next: self.shared.now(),
            orders: Arc::clone(&self.orders),
        }
    }

    fn serve_reader(&self, from: Box<dyn Read + Send>, mut reading: Pinned) -> Result<(), PipeError> {
        let mut half = ReadingStage::new(from, self.stamps());
        let over = turns(&mut reading, &mut half, || self.orders.sources_end());
        reading.end(&mut half);
        self.checked(over, half.end.failure)
    }

    fn serve_writer(
        &self,
        to: Box<dyn Write + Send>,
        mut feeding: Pinned,
        report: &mut PipeReport,
    ) -> Result<(), PipeError> {
        let mut half = Feeding::new(to, None);
        let over = turns(&mut feeding, &mut half, || self.orders.stop());
        feeding.end(&mut half);
        let flushed = half.to.flush().err().map(|why| why.to_string());
        report.refused = half.refused;
        self.checked(over, half.end.failure.or(flushed))
    }

    /// The failure of a half, if it has failed.
    fn checked(&self, over: Over, failure: Option<String>) -> Result<(), PipeError> {
        let why = match over {
            Over::Failed(why) => Some(why),
            _ => failure,
        };
        why.map_or(Ok(()), |why| Err(self.bytes(why)))
    }
}

/// An end of a pipe as a stage.
trait Half: AnyStage {
    fn end(&self) -> &PipeEnd;
}

impl Half for ReadingStage {
    fn end(&self) -> &PipeEnd {
        &self.end
    }
}

impl Half for Feeding {
    fn end(&self) -> &PipeEnd {
        &self.end
    }
}

/// Executes steps until the pipe is closed, the stage or pipeline has ended, or `gone` returns true while it waits.
fn turns<H: Half>(pinned: &mut Pinned, half: &mut H, mut gone: impl FnMut() -> bool) -> Over {
    // The time for which the last step has waited.
    let waited = |half: &H| Nanos(half.end().waited.swap(0, Ordering::Relaxed));
    loop {
        let heard = pinned.heard();
        match pinned.turn_less(half, waited) {
            TurnResult::Stepped if half.end().closed => return Over::Closed,
            TurnResult::Stepped => {}
            TurnResult::Wait if gone() => return Over::Closed,
            TurnResult::Wait => pinned.wait(heard, Some(LOOK)),
            TurnResult::Ended | TurnResult::ShutOut => return Over::Stage,
            TurnResult::Failed(why) => return Over::Failed(why.to_string()),
        }
    }
}

/// A program that runs, and is started again.
struct Life<'s> {
    served: &'s PipeRun,
    command: Vec<String>,
    program: GroupedProgram,
    /// Number of frames that have passed through its pipes, including those of previous programs.
    frames: u64,
    /// Number of consecutive starts without a frame.
    in_vain: u32,
}

impl<'s> Life<'s> {
    fn begin(served: &'s PipeRun, command: Vec<String>) -> Result<Life<'s>, PipeError> {
        Ok(Life {
            program: start(served, &command)?,
            served,
            command,
            frames: 0,
            in_vain: 0,
        })
    }

    fn serve(self, feeding: Option<Pinned>, reading: Option<Pinned>, report: &mut PipeReport) -> Result<(), PipeError> {
        match (feeding, reading) {
            (None, Some(reading)) => self.source(reading, report),
            (Some(feeding), None) => self.sink(feeding, report),
            (Some(feeding), Some(reading)) => self.middle(feeding, reading, report),
            (None, None) => Ok(()),
        }
    }

    fn source(mut self, mut reading: Pinned, report: &mut PipeReport) -> Result<(), PipeError> {
        let orders = Arc::clone(&self.served.orders);
        let mut half = ReadingStage::new(Box::new(io::empty()), self.served.stamps());
        let ended = loop {
            half.reopen(self.output(&half.end.waited, |orders| !orders.sources_end())?);
            let over = turns(&mut reading, &mut half, || orders.sources_end());
            if let Over::Failed(why) = over {
                break Err(self.served.bytes(why));
            }
            // A program that has closed its output, or was ordered to end, writes nothing more.
            let status = match orders.sources_end() {
                true => None,
                false => self.wait(Some(GRACE)),
            };
            if status.is_none() {
                self.kill();
            }
            match self.after(status, over == Over::Stage, half.end.frames, report) {
                Ok(true) => {}
                ended => break ended,
            }
        };
        reading.end(&mut half);
        ended.map(drop)
    }

    fn sink(mut self, mut feeding: Pinned, report: &mut PipeReport) -> Result<(), PipeError> {
        let mut half = Feeding::new(Box::new(io::sink()), None);
        let ended = loop {
            half.reopen(self.input(&half.end.waited)?);
            let over = self.feed(&mut feeding, &mut half);
            report.refused = half.refused;
            if let Over::Failed(why) = over {
                break Err(self.served.bytes(why));
            }
            let status = self.fed(&over, &mut feeding, &mut half);
            report.killed |= status.is_none();
            match self.after(status, over == Over::Stage, half.end.frames, report) {
                Ok(true) => {}
                ended => break ended,
            }
        };
        feeding.end(&mut half);
        ended.map(drop)
    }

    fn middle(mut self, mut feeding: Pinned, mut reading: Pinned, report: &mut PipeReport) -> Result<(), PipeError> {
        let (given, orders) = (UnansweredFrames::none(), Arc::clone(&self.served.orders));
        let mut feeder = Feeding::new(Box::new(io::sink()), Some(given.clone()));
        feeder.reopen(self.input(&feeder.end.waited)?);
        let mut reader = ReadingStage::new(Box::new(io::empty()), Stamps::Given(given));
        reader.reopen(self.output(&reader.end.waited, |orders| !orders.stop())?);
        let reads = std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let over = turns(&mut reading, &mut reader, || orders.stop());
                reading.end(&mut reader);
                (over, reader.end.failure)
            });
            let over = self.feed(&mut feeding, &mut feeder);
            report.refused = feeder.refused;
            let status = self.fed(&over, &mut feeding, &mut feeder);
            report.killed |= status.is_none();
            let ended = match over {
                Over::Failed(why) => Err(self.served.bytes(why)),
                over => self
                    .after(status, over == Over::Stage, feeder.end.frames, report)
                    .map(drop),
            };
            feeding.end(&mut feeder);
            // A panic of the thread has been printed.
            (ended, reads.join().ok())
        });
        match reads {
            (Ok(()), Some((over, failure))) => self.served.checked(over, failure),
            (ended, _) => ended,
        }
    }

    /// Feeds the program until it takes no more, or has ended.
    fn feed(&mut self, feeding: &mut Pinned, half: &mut Feeding) -> Over {
        let child = &mut self.program.child;
        let orders = &self.served.orders;
        let gone = || orders.stop() || !matches!(child.try_wait(), Ok(None));
        turns(feeding, half, gone)
    }

    /// Closes the program's input, and waits until it has ended. A program that has closed its input itself may still
    /// run; its stage has ended then. `None`: it had to be killed.
    fn fed(&mut self, over: &Over, feeding: &mut Pinned, half: &mut Feeding) -> Option<ExitStatus> {
        half.reopen(Box::new(io::sink()));
        if *over == Over::Closed {
            if let Some(status) = self.wait(Some(GRACE)) {
                return Some(status);
            }
            feeding.end(half);
        }
        let status = self.wait(None);
        if status.is_none() {
            self.kill();
        }
        status
    }

    /// Waits until the program has ended, until all are ordered to end, or for `at_most`.
    fn wait(&mut self, at_most: Option<Duration>) -> Option<ExitStatus> {
        let since = Instant::now();
        loop {
            // A child that cannot be waited for has been reaped already.
            let gone = || ExitStatus::from_raw(0);
            match self.program.child.try_wait().unwrap_or_else(|_| Some(gone())) {
                Some(status) => return Some(status),
                None if self.served.orders.stop() => return None,
                None if at_most.is_some_and(|at_most| since.elapsed() >= at_most) => return None,
                None => {}
            }
            if let Some(process) = ProcessId::of(self.program.child.id() as i32) {
                process.wait_gone(LOOK);
            }
        }
    }

    fn kill(&mut self) {
        self.program.kill();
        let _ = self.program.child.wait();
    }

    /// Handles the end of a program (`None`: it was killed on purpose); returns whether it runs again.
    fn after(
        &mut self,
        status: Option<ExitStatus>,
        over: bool,
        frames: u64,
        report: &mut PipeReport,
    ) -> Result<bool, PipeError> {
        self.in_vain = if frames > self.frames { 0 } else { self.in_vain + 1 };
        self.frames = frames;
        let well = status.is_none_or(|status| status.success());
        match next(well, over, self.served.piped.restart, self.in_vain) {
            Next::Done => Ok(false),
            Next::Again => {
                report.restarts += 1;
                self.program = start(self.served, &self.command)?;
                Ok(true)
            }
            Next::Failed => Err(PipeError::Ended {
                name: self.served.piped.name.clone(),
                program: self.command.join(" "),
                how: status.map_or_else(String::new, how_it_ended),
            }),
        }
    }

    fn input(&mut self, waited: &WaitTime) -> Result<Box<dyn Write + Send>, PipeError> {
        let shared = self.served.shared.clone();
        let orders = Arc::clone(&self.served.orders);
        let goes_on = move || shared.end() == End::Runs && !orders.stop();
        match self.program.child.stdin.take() {
            Some(pipe) => Ok(Box::new(self.patient(pipe.into(), goes_on, waited)?)),
            None => Ok(Box::new(io::sink())),
        }
    }

    fn output(&mut self, waited: &WaitTime, goes_on: fn(&Orders) -> bool) -> Result<Box<dyn Read + Send>, PipeError> {
        let shared = self.served.shared.clone();
        let orders = Arc::clone(&self.served.orders);
        let goes_on = move || shared.end() == End::Runs && goes_on(&orders);
        match self.program.child.stdout.take() {
            Some(pipe) => Ok(Box::new(self.patient(pipe.into(), goes_on, waited)?)),
            None => Ok(Box::new(io::empty())),
        }
    }

    fn patient<F: Fn() -> bool>(&self, pipe: OwnedFd, goes_on: F, waited: &WaitTime) -> Result<Patient<F>, PipeError> {
        Patient::new(pipe, goes_on, Arc::clone(waited)).map_err(|why| self.served.bytes(why.to_string()))
    }
}

/// Starts the program, with pipes where its stages are. A source gets an empty input; a sink writes to the standard
/// output of this process.
fn start(served: &PipeRun, command: &[String]) -> Result<GroupedProgram, PipeError> {
    let (program, arguments) = command
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first, rest));
    let piped = |there: bool, else_: fn() -> Stdio| if there { Stdio::piped() } else { else_() };
    let mut started = Command::new(program);
    started
        .args(arguments)
        .stdin(piped(served.piped.takes.is_some(), Stdio::null))
        .stdout(piped(served.piped.makes.is_some(), Stdio::inherit));
    GroupedProgram::start(&mut started).map_err(|why| PipeError::Start {
        name: served.piped.name.clone(),
        program: program.to_owned(),
        why,
    })
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_again_where_that_is_asked_and_makes_sense() {
        assert_eq!(next(true, false, true, 0), Next::Done);
        assert_eq!(next(false, false, true, 0), Next::Again);
        assert_eq!(next(false, false, true, RESTARTS_MAX - 1), Next::Again);
        assert_eq!(next(false, false, true, RESTARTS_MAX), Next::Failed);
        assert_eq!(next(false, true, true, 0), Next::Failed);
        assert_eq!(next(false, false, false, 0), Next::Failed);
    }
}
