//! Computes the mean tardiness of a task at which only a given share of its jobs is late.
//!
//! **Problem.** Users ask for a share of late jobs, p; a law holds a mean. How far the mean must stay from the deadline
//! depends on the tail of the jobs' tardiness, which differs by machine and load, and changes.
//!
//! **Terms.** T is a job's tardiness (response time / deadline; late above 1), r the *set point* of its mean, m the
//! running mean of T, x = T / m - 1 a job's *deviation*. The *headroom* h is how far the deadline lies above the set
//! point, relative to it: r = 1 / (1 + h). The *spread* b is the mean of |x|. The *tail* is the part of the jobs beyond
//! t = TAIL_FROM b; a is its share of the jobs, e the mean excess over t. The *surplus* E is the number of late jobs
//! beyond the number aimed at. A *burst* is a run of late jobs of which each comes within SOON / q jobs of the one
//! before; R is the surplus of bursts, F counts the further jobs of bursts, for a while.
//!
//! **Method.** Two estimates, one quick and one sure:
//!
//! ```text
//! b <- b + (min(|x|, CLIP b) - b) / n                     n = PRIOR_JOBS + jobs so far, at most MEMORY
//! a <- a + (1{x > t} - a) / n',  a e likewise             n' the same, at most TAIL_MEMORY
//! E <- E + 1{late} - q                                    q = AIM p, within SURPLUS_MIN .. SURPLUS_MAX
//! R <- R + 1{first of a burst} - q                        the same; while E > 0, q takes it to 0 at most
//! F <- F + 1{further of a burst}, else F (1 - q / w)      w = SOON at first, at most WAIT_MAX
//! S  = min(E, R + F)
//! h  = X(q exp(-S)) exp(BURST max(S, 0)^2)
//! X(s) = t + e ln(a / s)            for s < a: the deviation that a share s of the jobs exceeds
//!      = t ln(1 / 2s) / ln(1 / 2a)  for s >= a
//! ```
//!
//! - *Tail.* Excesses over a high threshold are distributed nearly exponentially, whatever the jobs' own distribution,
//!   if its tail is neither bounded nor a power law (Pickands, "Statistical inference using extreme order statistics",
//!   Annals of Statistics 3(1), 1975, with shape 0). So a few jobs in a hundred say where one in a thousand lies. Only
//!   the upper side counts: jobs that are paced from within end shortly before their goal or well before it, and early
//!   ones are no risk. Below the threshold X is the exponential through half of the jobs at the mean. Excesses are cut
//!   at CLIP times their mean, and deviations at CLIP times the spread (Huber, "Robust estimation of a location
//!   parameter", Annals of Mathematical Statistics 35(1), 1964), so that a single job moves them little.
//! - *Surplus.* The step E <- E + 1{late} - q is the stochastic approximation of a quantile (Robbins and Monro, "A
//!   stochastic approximation method", Annals of Mathematical Statistics 22(3), 1951) with a constant gain, as in
//!   adaptive conformal inference (Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS
//!   2021); a nonlinear function of the summed errors is the integrator of conformal PID control (Angelopoulos, Candès
//!   and Tibshirani, NeurIPS 2023). The sum telescopes: over any n jobs that are counted and leave E within its bounds,
//!   late jobs = q n + change of E, whatever their distribution and however it drifts.
//! - *Gain.* One late job more asks for a share that is smaller by a factor of e. With an exponential tail that is the
//!   optimal gain of the stochastic approximation after 1 / q jobs, kept from there on. The square term answers bursts:
//!   SURPLUS_MAX - SURPLUS_MIN late jobs in a row end at [`HEADROOM_MAX`] wherever they began.
//!
//! - *Bursts.* While a disturbance lasts, each late job lowers the set point. Once it is over, a job on time repays q
//!   of a late job, however low the set point is: to wait there until E is repaid takes 1 / q jobs for each late one,
//!   and gains nothing over a set point at which few are late. So F is forgotten within some w / q jobs. If that was
//!   too soon, the next burst finds more repaid by forgetting than by jobs (E > R + F), and w doubles; it is SOON again
//!   once E is repaid. Of late jobs that come singly all are counted by R, and S is E.
//!
//! **Margin.** Linearised around rest, with 1 / q jobs as the unit of time, E is dE = -E dt + dW: its variance is 1/2,
//! and that of the difference between two instants far apart is 1. So n jobs have q n late ones, with a standard
//! deviation of 1 that does not grow with n. A run of 600 jobs with a goal of 1 % exceeds it with its 7th late job, or
//! beyond 6.5 in a continuous law: q n + 1.64 <= 6.5 asks for q <= 0.81 p so that one run of twenty does. [`AIM`] is
//! that, rounded down.
//!
//! **Which jobs count.** Easing (a job on time lowers E by q) needs jobs that could have been late: where the running
//! mean lies under [`HELD`] of the set point, something else sets the pace (another task, the lowest clock), and a job
//! on time proves nothing. A job that was late although every knob was at its safe end says nothing about the set point
//! either: a lower one would have changed nothing.

/// Part of the allowed share of late jobs that is aimed at; see the module's text.
pub const AIM: f64 = 0.8;
/// Spread, and mean excess, before the first job. Chosen by hand: jobs at a fixed clock beside interferers scatter by
/// less.
pub const PRIOR_SPREAD: f64 = 0.1;
/// Number of jobs that the prior counts for. Chosen by hand.
pub const PRIOR_JOBS: u32 = 8;
/// Threshold of the tail, in spreads above the mean: about a job in twenty lies beyond, of a normal and of a Laplace
/// distribution.
pub const TAIL_FROM: f64 = 2.0;
/// Jobs over which the tail is averaged: some twenty of them lie in it. Chosen by hand.
pub const TAIL_MEMORY: u32 = 400;
/// Least share of the jobs in the tail, where none was there for long.
const TAIL_MIN: f64 = 1e-3;
/// Largest share of the jobs in the tail: beyond half of the jobs there is no tail.
const TAIL_MAX: f64 = 0.4;
/// Jobs over which means run, once that many were measured: a few seconds of a task at 10 to 100 Hz. Chosen by hand.
pub const MEMORY: u32 = 100;
/// Bound on a deviation that counts, in spreads.
pub const CLIP: f64 = 4.0;
/// The least spread, and twice the least mean excess: finer than clocks can be set.
pub const SPREAD_MIN: f64 = 0.005;
/// Largest headroom: the set point is at least 0.4. Work that scatters by more is beyond what a mean can hold.
pub const HEADROOM_MAX: f64 = 1.5;
/// Least surplus, for a tail lighter than assumed. A cautious beginning saves late jobs that are spent afterwards, so
/// this bounds by how much the late jobs of a short run may exceed those aimed at: with -4, 500 jobs at 1 % had 1.22 to
/// 1.30 times the share allowed.
pub const SURPLUS_MIN: f64 = -1.5;
/// Largest surplus, at which the headroom is at its bound.
pub const SURPLUS_MAX: f64 = 8.0;
/// Weight of the squared surplus: with SURPLUS_MAX late jobs too many the headroom is at its most even from the least
/// spread.
pub const BURST: f64 = 0.07;
/// Distance of two late jobs of one burst, and the time for which its further jobs are remembered at first: in jobs,
/// times q. A law needs some of these jobs to answer the first.
pub const SOON: f64 = 0.1;
/// Longest such time: then S is about E.
pub const WAIT_MAX: f64 = 6.4;
/// Part of a late job that was forgotten, from which the next burst counts as a return that failed.
const FORGOTTEN: f64 = 0.5;
/// Further jobs of a burst from which the running mean moves with the set point.
const FOLLOWED: f64 = 1.5;
/// Least part of the set point that the running mean has to reach for a job on time to lower the surplus.
pub const HELD: f64 = 0.9;

/// Estimate of the tail of one task's tardiness.
///
/// ```
/// use punctual_control::Tail;
/// let mut tail = Tail::new(0.01).unwrap();
/// let cautious = tail.set_point();
/// for job in 0..200 {
///     tail.observe(tail.set_point() * if job % 2 == 0 { 0.98 } else { 1.02 }, false);
/// }
/// assert!(tail.set_point() > cautious + 0.1, "quiet jobs need less headroom");
/// let eased = tail.set_point();
/// tail.observe(1.2, false);
/// assert!(tail.set_point() < eased, "a late job needs more");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// q: share of late jobs aimed at.
    aim: f64,
    /// m: running mean; 0 before the first job.
    mean: f64,
    /// r: set point after the last job.
    held: f64,
    /// b: mean of |x|.
    spread: f64,
    /// a: share of the jobs in the tail.
    share: f64,
    /// a e: mean excess over all jobs.
    excess: f64,
    /// E: late jobs beyond those aimed at.
    surplus: f64,
    /// R: bursts of late jobs beyond the late jobs aimed at.
    bursts: f64,
    /// F: further late jobs of bursts, as far as they are remembered.
    further: f64,
    /// w: for how many jobs, times q, they are remembered.
    wait: f64,
    /// Counted jobs on time since the last late one, times q.
    calm: f64,
    /// Number of jobs measured, up to [`TAIL_MEMORY`].
    jobs: u32,
}

impl Tail {
    /// Makes the estimate for a task of whose jobs the share `late` may be late. `None` outside of 0 to 1, both
    /// excluded.
    pub fn new(late: f64) -> Option<Tail> {
        let mut tail = (late > 0.0 && late < 1.0).then_some(Tail {
            aim: AIM * late,
            mean: 0.0,
            held: 1.0,
            spread: PRIOR_SPREAD,
            share: 0.5 * (-TAIL_FROM).exp(),
            excess: 0.5 * (-TAIL_FROM).exp() * PRIOR_SPREAD,
            surplus: 0.0,
            bursts: 0.0,
            further: 0.0,
            wait: SOON,
            calm: SOON,
            jobs: 0,
        })?;
        tail.held = tail.set_point();
        Some(tail)
    }

    /// Takes a completed job with this tardiness; `safe`: every knob was at its safe end all the while. A tardiness
    /// that is no number, or infinite, counts as a late job without a spread.
    pub fn observe(&mut self, tardiness: f64, safe: bool) {
        self.count(tardiness, safe);
        self.measure(tardiness);
    }

    /// Moves the running mean with the set point, in a burst and after it, where a law holds it there: jobs that follow
    /// a new set point do not scatter.
    fn follow(&mut self) {
        let set_point = self.set_point();
        if self.further > FOLLOWED && self.mean >= HELD * self.held {
            self.mean *= set_point / self.held;
        }
        self.held = set_point;
    }

    /// Takes the tardiness of a job whose lateness was counted before by [`missed`](Tail::missed).
    pub fn measure(&mut self, tardiness: f64) {
        if !tardiness.is_finite() || tardiness < 0.0 {
            return;
        }
        if self.mean <= 0.0 {
            self.mean = tardiness;
        }
        let deviation = tardiness / self.mean.max(f64::MIN_POSITIVE) - 1.0;
        let beyond = deviation - TAIL_FROM * self.spread;
        let seen = |memory: u32| f64::from((PRIOR_JOBS + self.jobs + 1).min(memory));
        let (quick, slow) = (seen(MEMORY), seen(TAIL_MEMORY));
        let excess = beyond.clamp(0.0, CLIP * self.mean_excess());
        self.excess += (excess - self.excess) / slow;
        self.share += (f64::from(u8::from(beyond > 0.0)) - self.share) / slow;
        let counted = deviation.abs().min(CLIP * self.spread);
        self.spread = (self.spread + (counted - self.spread) / quick).max(SPREAD_MIN);
        // The mean has no prior: it begins with the first job.
        self.mean += (tardiness - self.mean) / f64::from((self.jobs + 1).min(MEMORY));
        self.jobs = (self.jobs + 1).min(TAIL_MEMORY);
        self.follow();
    }

    /// Counts a job as late before it is complete, or that never will be: it runs past its deadline, or was skipped.
    pub fn missed(&mut self, safe: bool) {
        self.count(f64::INFINITY, safe);
        self.follow();
    }

    fn count(&mut self, tardiness: f64, safe: bool) {
        let within = |surplus: f64| surplus.clamp(SURPLUS_MIN, SURPLUS_MAX);
        if tardiness <= 1.0 {
            if self.mean < HELD * self.held {
                return;
            }
            self.surplus = within(self.surplus - self.aim);
            // Not below what is aimed at while late jobs of a burst are unpaid.
            let least = if self.surplus > 0.0 {
                self.bursts.min(0.0)
            } else {
                SURPLUS_MIN
            };
            self.bursts = within(self.bursts - self.aim).max(least);
            self.further *= 1.0 - (self.aim / self.wait).min(1.0);
            self.calm += self.aim;
            if self.surplus <= self.bursts.max(0.0) {
                self.wait = SOON;
            }
        } else if !safe {
            let first = self.calm >= SOON;
            if first && self.surplus > self.bursts + self.further + FORGOTTEN {
                self.wait = (self.wait * 2.0).min(WAIT_MAX);
            }
            self.surplus = within(self.surplus + 1.0 - self.aim);
            self.bursts = within(self.bursts + f64::from(u8::from(first)) - self.aim);
            self.further += f64::from(u8::from(!first));
            self.calm = 0.0;
        }
    }

    /// r: the set point of the mean, at most the deadline and at least [`HEADROOM_MAX`] below it.
    pub fn set_point(&self) -> f64 {
        let surplus = self.surplus.min(self.bursts + self.further);
        let burst = BURST * surplus.max(0.0).powi(2);
        let headroom = self.exceeded_by(self.aim * (-surplus).exp()) * burst.exp();
        1.0 / (1.0 + headroom.clamp(0.0, HEADROOM_MAX))
    }

    /// X: the deviation that this share of the jobs exceeds.
    fn exceeded_by(&self, share: f64) -> f64 {
        let (from, beyond) = (TAIL_FROM * self.spread, self.tail_share());
        if share < beyond {
            return from + self.mean_excess() * (beyond / share).ln();
        }
        from * (0.5 / share).ln() / (0.5 / beyond).ln()
    }

    fn tail_share(&self) -> f64 {
        self.share.clamp(TAIL_MIN, TAIL_MAX)
    }

    /// e: mean excess of the jobs in the tail.
    fn mean_excess(&self) -> f64 {
        (self.excess / self.tail_share()).max(0.5 * SPREAD_MIN)
    }

    /// E: late jobs beyond those aimed at, among the jobs that were counted.
    pub fn surplus(&self) -> f64 {
        self.surplus
    }

    /// b: the mean relative deviation of a job's tardiness from the running mean.
    pub fn spread(&self) -> f64 {
        self.spread
    }
}
