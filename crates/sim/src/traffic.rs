//! The resources that cores share: hits by the lines that each core holds in the cache, misses by the queue at the
//! memory.
//!
//! Between two events rates are constant, so the lines that each core has fetched are sums of rate times time. Once all
//! cores together have fetched a [`REVISION`] of the cache, the cache is updated and every hit ratio is computed anew:
//! the more traffic, the more often; on a machine without misses, never.

use punctual_units::{Nanos, Time};

use crate::cache::{Cache, FetchCounts, hit_ratio};
use crate::cores::{Core, Occupant};
use crate::costs::Traffic;
use crate::memory::Contention;
use crate::model::{ClockStep, MachineModel};
use crate::power::Activity;
use crate::runner::Runner;

/// Part of the cache that may be fetched before hit ratios are revised. By hand: a smaller one changes mean response
/// times by less than 2 % (`the_revision_is_fine_enough`).
const REVISION: f64 = 1.0 / 32.0;

/// Hit ratios of one core by the data that it works on; `None` until they are needed: a core that rests or computes
/// needs no ratio, and its power function is most of the cost of a revision.
#[derive(Clone, Copy, Debug)]
struct Hits {
    /// In the data of real-time tasks: temporal objects and their updates.
    own: Option<f64>,
    /// In the data of best-effort tasks.
    others: Option<f64>,
}

impl Hits {
    /// No line is held before the first revision.
    const COLD: Hits = Hits {
        own: Some(0.0),
        others: Some(0.0),
    };
    const UNKNOWN: Hits = Hits {
        own: None,
        others: None,
    };
}

/// State of the shared cache and memory.
#[derive(Clone, Debug)]
pub(crate) struct SharedCache {
    cache: Cache,
    contention: Contention,
    hits: Vec<Hits>,
    /// Present traffic of each core to the memory.
    traffic: Vec<Traffic>,
    /// Scratch space for the think time of each core.
    think: Vec<f64>,
    /// Lines per nanosecond that each core fetches.
    rates: Vec<FetchCounts>,
    /// Lines that each core has fetched since the latest revision, up to `booked`.
    fetched: Vec<FetchCounts>,
    booked: Time,
    /// When the next revision is due.
    revision: Time,
    /// Number of lines that are fetched between two revisions.
    quantum: f64,
    /// The clock for which the contention's service time was set.
    step: Option<ClockStep>,
}

impl SharedCache {
    pub fn new(model: &MachineModel) -> SharedCache {
        SharedCache::revised_every(REVISION, model)
    }

    fn revised_every(part: f64, model: &MachineModel) -> SharedCache {
        let cores = model.cores as usize;
        let cache = Cache::new(&model.cache, cores);
        SharedCache {
            quantum: cache.lines() * part,
            cache,
            contention: Contention::new(cores),
            hits: vec![Hits::COLD; cores],
            traffic: vec![Traffic::default(); cores],
            think: vec![0.0; cores],
            rates: vec![FetchCounts::default(); cores],
            fetched: vec![FetchCounts::default(); cores],
            booked: Time::ZERO,
            revision: Time::MAX,
            step: None,
        }
    }

    /// When hit ratios are revised next, unless the mix changes before.
    pub fn revision(&self) -> Time {
        self.revision
    }

    /// Lines that each core holds, as of the latest revision.
    pub fn held_lines(&self) -> Vec<f64> {
        (0..self.hits.len()).map(|core| self.cache.held(core)).collect()
    }

    /// Sets the pace of every running segment, and returns the activity that determines the power.
    pub fn pace(
        &mut self,
        model: &MachineModel,
        step: ClockStep,
        cores: &mut [Core],
        runners: &[Runner],
        now: Time,
    ) -> Activity {
        self.book(now);
        if self.revision <= now {
            self.revise();
        }
        if self.step != Some(step) {
            self.step = Some(step);
            self.contention.retune(model.memory.service_at(step));
        }
        self.demand(model, step, cores, runners);
        self.supply(model, cores, now)
    }

    /// Books the fetches at the present rates up to `now`.
    fn book(&mut self, now: Time) {
        let span = now.since(self.booked).0 as f64;
        for (fetched, rate) in self.fetched.iter_mut().zip(&self.rates) {
            fetched.live += rate.live * span;
            fetched.dead += rate.dead * span;
        }
        self.booked = now;
    }

    /// Fills the cache with the booked fetches, and invalidates the hit ratios.
    fn revise(&mut self) {
        self.cache.fill(&self.fetched);
        self.fetched.fill(FetchCounts::default());
        self.hits.fill(Hits::UNKNOWN);
    }

    /// Hit ratio of this core as of the latest revision, in its own data or in that of best-effort tasks.
    fn hits(&mut self, model: &MachineModel, core: usize, best_effort: bool) -> f64 {
        let Hits { own, others } = &mut self.hits[core];
        let (known, range_kib) = match best_effort {
            true => (others, model.store.others_working_set_kib),
            false => (own, model.store.working_set_kib),
        };
        *known.get_or_insert_with(|| hit_ratio(&model.cache, self.cache.held(core), model.cache.lines_of(range_kib)))
    }

    /// Computes the traffic of each running segment to cache and memory.
    fn demand(&mut self, model: &MachineModel, step: ClockStep, cores: &[Core], runners: &[Runner]) {
        for (i, core) in cores.iter().enumerate() {
            let traffic = core.segment().map(|segment| {
                let effort = segment.effort;
                let best_effort =
                    matches!(core.occupant(), Some(Occupant::Runner(runner)) if runners[runner].deadline.is_none());
                // A core without accesses needs no hit ratio.
                let hits = if effort.accesses > 0.0 {
                    self.hits(model, i, best_effort)
                } else {
                    0.0
                };
                let mut traffic = Traffic::of(model, step, effort, hits);
                traffic.private_ns += segment.fixed_ns;
                traffic
            });
            self.traffic[i] = traffic.unwrap_or_default();
            self.think[i] = self.traffic[i].think_ns();
        }
    }

    /// Computes the pace of each segment under that traffic.
    fn supply(&mut self, model: &MachineModel, cores: &mut [Core], now: Time) -> Activity {
        let residence = self.contention.residence(&self.think);
        let mut activity = Activity::default();
        let mut fetched_per_ns = 0.0;
        for (i, core) in cores.iter_mut().enumerate() {
            self.rates[i] = FetchCounts::default();
            let Some(effort) = core.segment().map(|segment| segment.effort) else {
                continue;
            };
            let traffic = self.traffic[i];
            let pace = traffic.duration_ns(residence[i]);
            core.pace_at(pace, now);
            activity.busy += 1;
            activity.cache_per_ns += (effort.accesses + effort.uncached) / pace;
            activity.memory_per_ns += traffic.accesses / pace;
            let lines = |accesses: f64| accesses * model.cache.lines_per_miss / pace;
            self.rates[i] = FetchCounts {
                live: lines(traffic.accesses - effort.uncached),
                dead: lines(effort.uncached),
            };
            fetched_per_ns += lines(traffic.accesses);
        }
        self.revision = self.next_revision(fetched_per_ns, now);
        activity
    }

    fn next_revision(&self, fetched_per_ns: f64, now: Time) -> Time {
        if fetched_per_ns <= 0.0 || self.quantum <= 0.0 {
            return Time::MAX;
        }
        let fetched: f64 = self.fetched.iter().map(|fetched| fetched.live + fetched.dead).sum();
        let wait = ((self.quantum - fetched) / fetched_per_ns).ceil().max(1.0);
        now + Nanos(wait as u64)
    }
}

#[cfg(test)]
mod tests {
    use punctual_store::updates::AdmissionOptions;
    use punctual_testing::task_by_hand;
    use punctual_workload::{Arrival, Class, JobOutcome, ObjectSet, Op, Program, SensorStream, Trace, UpdateMode};

    use super::*;
    use crate::{Simulation, SimulationEvent, SimulationLoad};

    /// The mean response time in nanoseconds of a data-intensive job among data-intensive neighbours, with updates.
    fn mean_response(revision: f64) -> f64 {
        let [deadline, period] = [50, 100].map(Nanos::from_millis);
        let [pause_min, pause_max] = [5, 15].map(Nanos::from_millis);
        let gets = Program {
            ops: vec![Op::Get {
                table: ObjectSet::Sensors,
                count: 9_000,
            }],
        };
        let analysis = task_by_hand("analysis", Class::RealTime { deadline }, Arrival::Periodic { period });
        let pauses = Arrival::AfterCompletion { pause_min, pause_max };
        let tasks = vec![
            (analysis, gets.clone()),
            (task_by_hand("browse", Class::BestEffort, pauses), gets),
        ];
        let second = Nanos::from_secs(1);
        let trace = Trace::synthetic(300, Nanos::from_millis(10), Nanos::from_millis(90), second, 1);
        let load = SimulationLoad {
            tasks,
            placement: None,
            stream: SensorStream::new(trace, 1.0, 1),
            admission: AdmissionOptions::default(),
            update_mode: UpdateMode::Transaction,
            group_commit: Nanos::from_millis(50),
            value_bytes: 64,
            split: None,
            seed: 1,
        };
        let model = MachineModel::exynos5422_a15();
        let mut machine = Simulation::new(model.clone(), load).expect("a sound load");
        machine.shared = SharedCache::revised_every(revision, &model);
        let mut jobs: Vec<JobOutcome> = Vec::new();
        loop {
            match machine.run_until(Time::ZERO + second * 5) {
                SimulationEvent::Completed(outcome) if outcome.deadline.is_some() => jobs.push(outcome),
                SimulationEvent::Reached => break,
                _ => {}
            }
        }
        jobs.iter().map(|job| job.response().0 as f64).sum::<f64>() / jobs.len() as f64
    }

    #[test]
    fn the_revision_is_fine_enough() {
        let (as_it_is, finer) = (mean_response(REVISION), mean_response(REVISION / 8.0));
        assert!(
            (as_it_is / finer - 1.0).abs() < 0.02,
            "{as_it_is} ns, {finer} ns with finer revisions"
        );
        let coarse = mean_response(1.0);
        assert!(
            (coarse / finer - 1.0).abs() > 0.02,
            "the test sees a coarse one: {coarse} ns, {finer} ns"
        );
    }
}
