//! The intake before the executors of a node: the gate, the queue, and the learned cost.

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::queue::{RequestQueue, WaitingRequest};
use super::timely::Forecast;
use super::{Ask, Gate, Late, QUEUE_MAX, Reason, ServiceOrder};
use crate::ids::NodeId;

/// Requests on their way through one node. `T` is the caller's name of a request.
///
/// The caller asks [`judge`](Intake::judge) and, if that admits the request, calls [`enter`](Intake::enter). After
/// every change it takes out expired requests ([`expired`](Intake::expired)), then starts requests on free executors
/// ([`start`](Intake::start)). It wakes at [`next_expiry`](Intake::next_expiry), so that refusals are in time.
#[derive(Clone, Debug)]
pub struct Intake<T> {
    node: NodeId,
    gate: Gate,
    cost: Cost,
    queue: RequestQueue<T>,
    executors: Vec<Option<RunningRequest>>,
    running_items: u64,
    running: usize,
    backlog_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct RunningRequest {
    ask: Ask,
    admitted: Time,
    since: Time,
    forecast: f64,
    scale: f64,
}

/// A request that an executor must carry out now.
#[derive(Clone, Debug, PartialEq)]
pub struct Start<T> {
    /// Number of the executor, from 0, to be passed to [`Intake::finish`].
    pub executor: usize,
    pub ask: Ask,
    /// The caller's name of the request.
    pub work: T,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedRequest {
    pub ask: Ask,
    /// Time from its admission to its end.
    pub delay: Nanos,
    /// Whether it ended by its deadline.
    pub timely: bool,
}

/// The report of a node on every reply and heartbeat: enough for a balancer to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BacklogReport {
    /// Items admitted and not finished.
    pub backlog: u64,
    /// Requests admitted and not finished.
    pub requests: u32,
    /// Learned cost: seconds of one executor for an item.
    pub cost: f64,
    /// Number of requests that run at once.
    pub executors: u32,
    /// d: items up to which the node admits; infinite if everything is admitted.
    pub bound: f64,
}

impl<T> Intake<T> {
    /// An intake before `executors` (at least 1 is assumed), with an assumed cost of `prior` for an item, learned from
    /// then on.
    pub fn new(node: NodeId, executors: usize, prior: Nanos, gate: Gate, order: ServiceOrder) -> Intake<T> {
        Intake {
            node,
            gate,
            cost: Cost::new(prior),
            queue: RequestQueue::new(order),
            executors: vec![None; executors.max(1)],
            running_items: 0,
            running: 0,
            backlog_max: u64::MAX,
        }
    }

    /// Whether the request may enter, and its forecast. Changes nothing.
    ///
    /// # Errors
    /// [`Late`], to be answered to the client at once.
    pub fn judge(&self, ask: Ask, now: Time) -> Result<Forecast, Late> {
        if now >= ask.deadline && self.knows_deadlines() {
            return Err(self.late(Reason::Expired, 0.0));
        }
        let forecast = self.forecast(ask.items, now);
        let left = ask.deadline.since(now).as_secs_f64();
        let backlog = self.backlog().saturating_add(u64::from(ask.items));
        if self.queue.len() >= QUEUE_MAX {
            return Err(self.late(Reason::Backlog, self.drained_in(u64::from(ask.items))));
        }
        if backlog > self.backlog_max {
            return Err(self.late(Reason::Backlog, self.drained_in(backlog - self.backlog_max)));
        }
        // A request alone on the node is a probe: by it the node learns whether its margin has become too large; and by
        // one of usual size, whether the cost that it has learned is too large. With a cost above all deadlines it
        // would admit nothing, and learn no other.
        let is_usual = f64::from(ask.items) <= self.cost.size();
        let probe = self.requests() == 0 && (is_usual || forecast.seconds() <= left);
        match &self.gate {
            Gate::Open | Gate::Dropping => Ok(forecast),
            Gate::Timely(law) => match law.excess(forecast, left) {
                excess if excess > 0.0 && !probe => Err(self.late(Reason::Backlog, excess)),
                _ => Ok(forecast),
            },
        }
    }

    /// Queues a request that [`judge`](Intake::judge) has admitted at this instant.
    pub fn enter(&mut self, ask: Ask, forecast: Forecast, work: T, now: Time) {
        let corrected = match &self.gate {
            Gate::Timely(law) => law.corrected(forecast),
            Gate::Open | Gate::Dropping => forecast.seconds(),
        };
        self.queue.push(ask, work, now, corrected, forecast.scale);
    }

    /// Removes and returns an admitted request that can no longer end in time, with its refusal. To be called until it
    /// returns `None`.
    pub fn expired(&mut self, now: Time) -> Option<(T, Late)> {
        if now < self.next_expiry()? {
            return None;
        }
        let dropped = self.queue.pop(0)?;
        Some((dropped.work, self.late(Reason::Expired, 0.0)))
    }

    /// The instant from which on the next request in line can no longer end in time; `None` if nothing is dropped.
    pub fn next_expiry(&self) -> Option<Time> {
        if !self.knows_deadlines() {
            return None;
        }
        let ask = self.queue.earliest()?;
        // If nothing runs, it starts now, and shows its own time.
        let own = match self.running {
            0 => 0.0,
            _ => f64::from(ask.items) * self.cost.each(),
        };
        Some(ask.deadline - Nanos::from_secs_f64(own))
    }

    /// The next request, if there is one and an executor is free. `draw` is a random number, used by
    /// [`ServiceOrder::Random`] alone.
    pub fn start(&mut self, now: Time, draw: u64) -> Option<Start<T>> {
        let executor = self.executors.iter().position(Option::is_none)?;
        let WaitingRequest {
            ask,
            work,
            since,
            forecast,
            scale,
            ..
        } = self.queue.pop(draw)?;
        self.executors[executor] = Some(RunningRequest {
            ask,
            admitted: since,
            since: now,
            forecast,
            scale,
        });
        self.running += 1;
        self.running_items += u64::from(ask.items);
        Some(Start { executor, ask, work })
    }

    /// Notes that the request on `executor` has ended; `None` if there was none.
    pub fn finish(&mut self, executor: usize, now: Time) -> Option<EndedRequest> {
        let running = self.executors.get_mut(executor)?.take()?;
        self.running -= 1;
        self.running_items -= u64::from(running.ask.items);
        self.cost
            .learn(running.ask.items, now.since(running.since).as_secs_f64());
        let delay = now.since(running.admitted);
        match &mut self.gate {
            Gate::Open | Gate::Dropping => {}
            Gate::Timely(law) => law.finished(running.forecast, running.scale, delay.as_secs_f64(), now),
        }
        Some(EndedRequest {
            ask: running.ask,
            delay,
            timely: now <= running.ask.deadline,
        })
    }

    /// Frees an executor whose request was not served: nothing is learned from it.
    pub fn abandon(&mut self, executor: usize) {
        if let Some(running) = self.executors.get_mut(executor).and_then(Option::take) {
            self.running -= 1;
            self.running_items -= u64::from(running.ask.items);
        }
    }

    /// The bound on the backlog, in items; `u64::MAX`: no bound.
    pub fn backlog_max(&self) -> u64 {
        self.backlog_max
    }

    /// Sets the bound on the backlog, in items, which holds whatever the gate decides: the knob. `u64::MAX`: no bound.
    pub fn set_backlog_max(&mut self, items: u64) {
        self.backlog_max = items;
    }

    /// Number of requests that run at once.
    pub fn executors(&self) -> usize {
        self.executors.len()
    }

    /// Items admitted and not finished.
    pub fn backlog(&self) -> u64 {
        self.queue.items() + self.running_items
    }

    /// Requests admitted and not finished.
    pub fn requests(&self) -> usize {
        self.queue.len() + self.running
    }

    /// The node's report on its backlog.
    pub fn report(&self) -> BacklogReport {
        BacklogReport {
            backlog: self.backlog(),
            requests: self.requests() as u32,
            cost: self.cost.each(),
            executors: self.executors.len() as u32,
            bound: self.bound(),
        }
    }

    /// d: the lower of the knob and the gate's bound.
    fn bound(&self) -> f64 {
        let knob = match self.backlog_max {
            u64::MAX => f64::INFINITY,
            items => items as f64,
        };
        match &self.gate {
            Gate::Open | Gate::Dropping => knob,
            Gate::Timely(law) => knob.min(law.bound(self.drain(), self.cost.request(), self.executors.len())),
        }
    }

    /// False for the open gate, which serves every request in its turn.
    fn knows_deadlines(&self) -> bool {
        !matches!(self.gate, Gate::Open)
    }

    fn forecast(&self, items: u32, now: Time) -> Forecast {
        let own = f64::from(items) * self.cost.each();
        let executors = self.executors.len();
        let wait = if self.running < executors {
            0.0
        } else {
            (self.queue.items() as f64 * self.cost.each() + self.remaining(now)) / executors as f64
        };
        let pause = match &self.gate {
            Gate::Open | Gate::Dropping => 0.0,
            Gate::Timely(law) => law.pause(self.cost.request()),
        };
        Forecast::new(wait, own, self.cost.request(), executors, pause)
    }

    /// Seconds that running requests still need, of all executors together.
    fn remaining(&self, now: Time) -> f64 {
        let of = |running: &RunningRequest| {
            let all = f64::from(running.ask.items) * self.cost.each();
            (all - now.since(running.since).as_secs_f64()).max(0.0)
        };
        self.executors.iter().flatten().map(of).sum()
    }

    /// Seconds of the whole node for an item.
    fn drain(&self) -> f64 {
        self.cost.each() / self.executors.len() as f64
    }

    fn drained_in(&self, items: u64) -> f64 {
        items as f64 * self.drain()
    }

    fn late(&self, reason: Reason, seconds: f64) -> Late {
        Late {
            reason,
            retry_after: Nanos::from_secs_f64(seconds),
            node: self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::admission::Timely;

    const MS: u64 = 1_000_000;

    fn timely(executors: usize) -> Intake<u32> {
        let gate = Gate::Timely(Timely::new(Nanos::from_secs(1)));
        Intake::new(
            NodeId(7),
            executors,
            Nanos::from_millis(1),
            gate,
            ServiceOrder::Deadline,
        )
    }

    fn offer(intake: &mut Intake<u32>, items: u32, deadline: u64, work: u32, now: Time) -> Result<(), Late> {
        let ask = Ask {
            items,
            deadline: Time(deadline),
        };
        let forecast = intake.judge(ask, now)?;
        intake.enter(ask, forecast, work, now);
        Ok(())
    }

    #[test]
    fn the_earliest_deadline_is_first() {
        let mut intake = timely(1);
        let deadlines = [900, 500, 700, 500].map(|at| at * MS);
        for (work, deadline) in (0u32..).zip(deadlines) {
            offer(&mut intake, 10, deadline, work, Time(0)).unwrap();
        }
        let mut order = Vec::new();
        while let Some(start) = intake.start(Time(0), 0) {
            order.push(start.work);
            intake.finish(start.executor, Time(10 * MS)).unwrap();
        }
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[test]
    fn what_cannot_end_in_time_is_told_before_its_deadline() {
        let mut intake = timely(1);
        offer(&mut intake, 100, 1000 * MS, 0, Time(0)).unwrap();
        offer(&mut intake, 100, 500 * MS, 1, Time(0)).unwrap();
        assert_eq!(intake.start(Time(0), 0).map(|start| start.work), Some(1));
        // The one that runs stalls; the other needs 100 ms of its time.
        let expiry = intake.next_expiry().unwrap();
        assert_eq!(expiry, Time(900 * MS));
        assert_eq!(intake.expired(Time(expiry.0 - 1)), None);
        let (work, late) = intake.expired(expiry).unwrap();
        assert_eq!((work, late.reason, late.node), (0, Reason::Expired, NodeId(7)));
        assert_eq!((intake.expired(expiry), intake.next_expiry()), (None, None));
    }

    /// A burst on a busy machine once cost more than any deadline: a request of usual size shows that it is over.
    #[test]
    fn a_cost_above_all_deadlines_is_unlearned() {
        let mut intake = timely(2);
        let mut now = Time(0);
        for _ in 0..2000 {
            offer(&mut intake, 100, now.0 + 60_000 * MS, 0, now).unwrap();
            let start = intake.start(now, 0).unwrap();
            now = now + Nanos::from_secs(2);
            intake.finish(start.executor, now);
        }
        assert!(intake.cost.request() > 1.0);
        let mut served = 0;
        for _ in 0..4000 {
            now = now + Nanos::from_millis(200);
            assert_eq!(intake.expired(now), None);
            if offer(&mut intake, 100, now.0 + 1000 * MS, 0, now).is_ok() {
                assert_eq!(intake.expired(now), None);
                let start = intake.start(now, 0).unwrap();
                intake.finish(start.executor, now + Nanos::from_millis(100));
                served += 1;
            }
        }
        assert_eq!(served, 4000);
        assert!(intake.cost.request() < 0.11, "{}", intake.cost.request());
    }

    #[test]
    fn a_refusal_names_reason_node_and_time() {
        let mut intake = timely(1);
        let late = offer(&mut intake, 10, 5 * MS, 0, Time(5 * MS)).unwrap_err();
        assert_eq!(late.reason, Reason::Expired);
        let late = offer(&mut intake, 2000, 1000 * MS, 0, Time(0)).unwrap_err();
        assert_eq!(
            late.to_string(),
            format!("late reason=backlog retry_after={}ms node=7", late.retry_after.0 / MS)
        );
        assert!(late.retry_after >= Nanos::from_secs(1));
        intake.set_backlog_max(50);
        assert_eq!(
            offer(&mut intake, 51, 1000 * MS, 0, Time(0)).unwrap_err().reason,
            Reason::Backlog
        );
        assert_eq!(offer(&mut intake, 50, 1000 * MS, 0, Time(0)), Ok(()));
    }

    #[test]
    fn the_knob_bounds_the_backlog_and_a_dropping_gate_drops() {
        for (gate, dropped) in [(Gate::Open, 0), (Gate::Dropping, 3)] {
            let mut intake = Intake::new(NodeId(1), 2, Nanos::from_millis(1), gate, ServiceOrder::Deadline);
            intake.set_backlog_max(250);
            for work in 0..4 {
                let admitted = offer(&mut intake, 80, 1000 * MS, work, Time(0)).is_ok();
                assert_eq!(admitted, work < 3, "{work}");
            }
            assert_eq!(intake.report().bound, 250.0);
            let late = std::iter::from_fn(|| intake.expired(Time(1000 * MS)));
            assert_eq!(late.count(), dropped);
        }
    }

    proptest! {
        /// Whatever comes, waits, expires and ends: nothing is lost, and in the end nothing is left.
        #[test]
        fn what_enters_leaves_once(
            steps in prop::collection::vec((1u32..200, 1u64..1500, 0u64..30), 1..200),
            executors in 1usize..4,
        ) {
            let mut intake = timely(executors);
            let (mut now, mut entered, mut left) = (Time(0), 0, 0);
            let mut running: Vec<usize> = Vec::new();
            for (items, deadline, gap) in steps {
                now = now + Nanos::from_millis(gap);
                entered += usize::from(offer(&mut intake, items, now.0 + deadline * MS, 0, now).is_ok());
                if gap % 3 == 0 && let Some(executor) = running.pop() {
                    prop_assert!(intake.finish(executor, now).is_some());
                    left += 1;
                }
                while intake.expired(now).is_some() {
                    left += 1;
                }
                running.extend(std::iter::from_fn(|| intake.start(now, 0)).map(|start| start.executor));
                prop_assert_eq!(intake.requests(), entered - left);
                prop_assert!(running.len() <= executors);
            }
            while let Some(executor) = running.pop() {
                prop_assert!(intake.finish(executor, now).is_some());
                prop_assert!(intake.finish(executor, now).is_none());
                running.extend(intake.start(now, 0).map(|start| start.executor));
            }
            prop_assert_eq!((intake.backlog(), intake.requests()), (0, 0));
        }
    }
}
