//! The event loop of a store that is served alone. The backend of its door is the pool of threads that call the store.
//! The loop itself carries out short reads only, while nothing waits for the pool: to hand them over costs more.

mod listening;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Token;
use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use crate::door::{Asker, Backend, Door, DoorState};
use crate::metrics::PublishedFigures;
use crate::net::Net;
use crate::pool::{Pool, PoolState};
use crate::resp::Writer;
use crate::session::late;
use crate::stream::Ready;
use crate::work::{Job, JobReply, LateStage, Work};
use crate::{figures, info};
pub use listening::{Options, RunningServer};

/// Limit of the memory of all connections together, in bytes, unless options say otherwise.
pub const BYTES_MAX: usize = 1 << 30;
/// Interval between looks for stalled connections, and the longest wait for events.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

/// In each round, the event loop carries out reads for this long; the pool carries out the others.
const READS_ROUND: Nanos = Nanos::from_micros(200);

/// The event loop, which a thread of its own turns, or the world of a test.
pub struct EventLoop<E: Engine, O: Os> {
    net: Box<dyn Net>,
    /// Sockets that are ready, in a turn.
    ready: Vec<(Token, Ready)>,
    door: Door,
    backend: PoolBackend<E, O>,
    looked: Time,
    page: PublishedFigures<DoorState>,
    stop: Arc<AtomicBool>,
    pool: Pool,
    /// When the server ends, whether all is answered by then or not.
    end: Option<Time>,
}

/// The pool of threads that call the store.
struct PoolBackend<E: Engine, O: Os> {
    shared: Arc<PoolState<E, O>>,
    options: Options,
    address: SocketAddr,
    /// Jobs for the pool, submitted together.
    jobs: Vec<Job>,
    done: Vec<JobReply>,
    /// Until when the event loop carries out reads.
    reads_until: Time,
}

impl<E: Engine + 'static, O: Os> Backend for PoolBackend<E, O> {
    const RUN_MAX: usize = 64;

    fn now(&self) -> Time {
        self.shared.os.now()
    }

    fn take(&mut self, mut work: Work, mut asker: Asker<'_>) -> bool {
        if asker.now < self.reads_until
            && let count @ 1.. = work.short_reads(&self.shared.counts.costs)
            && let Work::Run(asked) = &mut work
        {
            let mut behind = asked.split_off(count);
            *asked = self.shared.read_at_once(std::mem::take(asked), &mut asker);
            asked.append(&mut behind);
            if asked.is_empty() {
                return false;
            }
        }
        self.jobs.push(Job {
            connection: asker.handle(),
            version: asker.session.version,
            queued: self.shared.os.now(),
            work,
        });
        true
    }

    fn next_done(&mut self, _room: usize) -> Option<JobReply> {
        self.done.pop()
    }

    fn late(&mut self, arrived: Time, now: Time) -> Nanos {
        let counts = &self.shared.counts;
        let spent = [now.since(arrived), Nanos::ZERO, Nanos::ZERO, Nanos::ZERO];
        counts.expire(LateStage::Before, spent);
        Nanos(counts.waited.load(Ordering::Relaxed))
    }

    fn info(&mut self, door: &DoorState, sections: &[String], _now: Time) -> String {
        let figures = info::figures(&self.shared, &self.options, self.address, door);
        figures::info(&figures, sections)
    }

    fn ends(&mut self, _id: u64) -> bool {
        true
    }
}

impl<E: Engine + 'static, O: Os> PoolBackend<E, O> {
    /// Sets how long the event loop may carry out reads: not at all while jobs wait, or updates that a read transaction
    /// would install first.
    fn begin_round(&mut self) {
        let is_idle = self.shared.waiting() == 0 && self.shared.store.pending() == 0;
        self.reads_until = if is_idle { self.now() + READS_ROUND } else { Time::ZERO };
    }

    /// Submits queued jobs to the pool; answers `LATE reason=backlog` for those that do not fit.
    fn submit(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        for (job, retry_after) in self.shared.submit(&mut self.jobs) {
            let commands = match &job.work {
                Work::Run(asked) => asked.len(),
                _ => 1,
            };
            self.shared.counts.backlog.fetch_add(commands as u64, Ordering::Relaxed);
            let mut reply = Vec::new();
            let error = late("backlog", retry_after);
            (0..commands).for_each(|_| Writer::new(&mut reply, job.version).error(&error));
            self.done.push(JobReply::of(job.connection, reply));
        }
    }
}

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    fn run(mut self) {
        while self.turn(self.wait()) {}
        self.backend.shared.stop();
        self.backend.shared.join(self.pool);
    }

    /// Time until the next turn, unless an event comes before.
    pub fn wait(&self) -> Nanos {
        let has_more = self.door.has_more() || !self.backend.done.is_empty();
        if has_more { Nanos::ZERO } else { LOOK_EVERY }
    }

    /// Waits at most this long for events, and goes on as far as it can at present; returns whether the server goes on.
    pub fn turn(&mut self, wait: Nanos) -> bool {
        // Without events nothing can go on. If the pool has failed, its replies will never come.
        if self.round(wait).is_err() || self.backend.shared.has_failed() {
            return false;
        }
        let now = self.backend.now();
        if now.since(self.looked) >= LOOK_EVERY {
            self.look(now);
        }
        if !self.stop.load(Ordering::SeqCst) {
            return true;
        }
        self.door.close(&mut *self.net);
        let end = *self.end.get_or_insert(now + self.backend.options.drain_max);
        !self.door.is_drained() && now <= end
    }

    /// Waits for events and results, and gives each connection concerned its turn.
    fn round(&mut self, wait: Nanos) -> io::Result<()> {
        self.net.poll(&mut self.ready, wait)?;
        for (token, ready) in self.ready.drain(..) {
            self.door.ready(token, ready);
        }
        // Once in a round: a thread wakes the loop where no result waits, so those that come meanwhile come together.
        self.backend.shared.take_done(&mut self.backend.done);
        // While changes wait here, the pool's threads count further ones as missed.
        if self.door.telling() == 0 {
            self.door.tell(self.backend.shared.take_told());
        }
        self.backend.begin_round();
        self.door.serve(&mut self.backend);
        self.backend.submit();
        self.door.accept(&mut *self.net, self.backend.now());
        Ok(())
    }

    /// Ends stalled connections, and leaves the state for figures.
    fn look(&mut self, now: Time) {
        self.looked = now;
        self.page.publish(|| self.door.state(now));
        self.door.look(&mut self.backend, now);
    }
}
