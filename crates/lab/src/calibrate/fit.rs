//! One member's fit: the free parameters that bring the microbenchmark nearest to the figures.

use punctual_sim::MachineModel;
use punctual_units::Nanos;
use serde::Serialize;

use super::ensemble::Member;
use super::microbenchmark::{Bench, Condition, Interferer, MeasureError, Response, Work};
use super::parameter::{Candidate, Point};
use super::search::{EDGE, Found, minimise};
use super::targets::{Target, Targets, rms};

/// How often the search tells how far it is.
const TELL_EVERY: usize = 100;

/// Everything that stays the same while machines are fitted.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The figures.
    pub targets: &'a Targets,
    /// The setting in which candidates are measured.
    pub bench: &'a Bench,
    /// The machine on which every candidate is built: its clock steps, voltages, power and caches.
    pub base: &'a MachineModel,
    /// How many candidates a member's search may measure.
    pub evaluations_max: usize,
}

/// A fitted member.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Where all parameters came to lie.
    pub point: Point,
    /// The machine and the job.
    pub candidate: Candidate,
    /// Every figure beside the paper's, in their order.
    pub figures: Vec<Figure>,
    /// Root mean square of the relative residuals.
    pub rms: f64,
    /// Candidates measured.
    pub evaluations: usize,
    /// The rms that exploring reached from each starting point.
    pub rms_by_start: Vec<f64>,
}

/// One figure, ours beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figure {
    /// The target's id.
    pub id: String,
    /// The paper's.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// Relative; 0 where a bound is kept.
    pub residual: f64,
}

/// The interferers of the microbenchmark, which the paper does not specify: transactions one after the other without a
/// pause, as data-intensive as any of its evaluation (C10-D90) and alone as long as the job.
pub fn interferer_of(candidate: &Candidate) -> Interferer {
    Interferer {
        work: Work::of(candidate.job.nominal_ms(), 0.9),
        pause_min: Nanos::ZERO,
        pause_max: Nanos::ZERO,
    }
}

impl Task<'_> {
    /// Fits `member`, telling `progress` the number of candidates measured and the best rms so far.
    ///
    /// Half of the candidates go to exploring from every starting point alike, the other half to going on from the best.
    ///
    /// # Errors
    /// [`MeasureError`] where a figure asks for what the machine does not have.
    pub fn fit(&self, member: &Member, progress: &mut dyn FnMut(usize, f64)) -> Result<Fit, MeasureError> {
        let (free, starts) = (member.free(), member.starts());
        let (mut asked, mut best, mut failure) = (0, f64::INFINITY, None);
        let rms_of = |squares: f64| (squares / self.targets.figures.len() as f64).sqrt();
        let mut search = |from: &Point, edge: f64, evaluations_max: usize| {
            let objective = |at: &[f64]| {
                let squares = self.judge(&member.place(from, &free, at)).unwrap_or_else(|error| {
                    failure.get_or_insert(error);
                    f64::NAN
                });
                asked += 1;
                best = squares.min(best);
                if asked % TELL_EVERY == 0 {
                    progress(asked, rms_of(best));
                }
                squares
            };
            let start: Vec<f64> = free.iter().map(|p| p.description().place_of(from.get(*p))).collect();
            let found = minimise(objective, &start, edge, evaluations_max);
            (member.place(from, &free, &found.at), found)
        };
        let each = self.evaluations_max / (2 * starts.len().max(1));
        let explored: Vec<(Point, Found)> = starts.iter().map(|start| search(start, EDGE, each)).collect();
        let mut searched: Vec<(Point, Found)> = explored.clone();
        if let Some((point, _)) = explored.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value)) {
            let asked: usize = explored.iter().map(|(_, found)| found.evaluations).sum();
            searched.push(search(point, EDGE / 2.0, self.evaluations_max.saturating_sub(asked)));
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let evaluations = searched.iter().map(|(_, found)| found.evaluations).sum();
        let best = searched.into_iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let point = best.map_or_else(|| member.pin(Point::middle()), |(point, _)| point);
        let candidate = point.candidate(self.base);
        let figures = self.figures(&candidate)?;
        Ok(Fit {
            rms: rms(figures.iter().map(|figure| figure.residual)),
            point,
            candidate,
            figures,
            evaluations,
            rms_by_start: explored.iter().map(|(_, found)| rms_of(found.value)).collect(),
        })
    }

    /// The sum of the squared residuals.
    fn judge(&self, point: &Point) -> Result<f64, MeasureError> {
        let figures = self.figures(&point.candidate(self.base))?;
        Ok(figures.iter().map(|figure| figure.residual * figure.residual).sum())
    }

    /// Every figure of this candidate beside the paper's.
    pub fn figures(&self, candidate: &Candidate) -> Result<Vec<Figure>, MeasureError> {
        let interferer = interferer_of(candidate);
        let measured: Vec<(Condition, Response)> = self
            .targets
            .conditions()
            .into_iter()
            .map(|condition| {
                let response = self
                    .bench
                    .measure(&candidate.machine, candidate.job, interferer, condition)?;
                Ok((condition, response))
            })
            .collect::<Result<_, MeasureError>>()?;
        let figure = |target: &Target| {
            let under = measured.iter().find(|(condition, _)| *condition == target.condition());
            let ours = under.map_or(f64::INFINITY, |(_, response)| target.of(response));
            Figure {
                id: target.id.clone(),
                paper: target.value,
                ours,
                residual: target.residual(ours),
            }
        };
        Ok(self.targets.figures.iter().map(figure).collect())
    }
}
