//! Whether any machine that still fits the microbenchmarks satisfies a claim: a search through what calibration leaves open.
//!
//! **Terms.** A *wish* is what a claim asks of the machine itself, at rest and without any controller: the clock at which the
//! job ends at its deadline, and the data response ratio there. A machine *fits* if the root mean square of its residuals on the
//! microbenchmarks is at most `RMS_MAX`.
//!
//! **Method.** The search of calibration over the same parameters in the same box, begun at the fitted machines; what is
//! minimised is how far the wish is from being kept, plus `STIFFNESS` times what the residuals lie over `RMS_MAX`. The nearest
//! machine that fits is told with its residuals: the wish is excluded as far as the search can tell, which is local.
//!
//! A wish that is kept on some machines of the ensemble is searched for once for each of the others, keeping its pins.

use punctual_sim::MachineModel;
use punctual_units::Hertz;

use super::{Asked, Basis, Limit};
use crate::calibrate::{
    Bench, Candidate, EDGE, MeasureError, Member, Point, Rest, Situation, Targets, Task, ensemble, minimise, rms,
};
use crate::parallel::in_order;
use crate::qedb::calibrated_points;
use crate::{ExperimentError, Outcome, Progress, Settings};

/// A machine fits the microbenchmarks up to here.
const RMS_MAX: f64 = 0.07;
/// The price of residuals over that: so high that a machine which does not fit is never the nearest.
const STIFFNESS: f64 = 10.0;
/// Machines that a search may try: of a wish that is searched for once, and of one that is searched for member by member.
const TRIES: [usize; 2] = [100, 40];
/// Jobs over which figures are means, as in calibration.
const JOBS: u64 = 20;
/// The clocks of QoD1000 and QoD1800.
const QOD1000: Hertz = Hertz::from_mhz(1000);
const QOD1800: Hertz = Hertz::from_mhz(1800);
/// Halvings of the range of QoD when it is looked for where drr is the nominal one.
const HALVINGS: u32 = 2;
/// The figures of the microbenchmarks.
const TARGETS: &str = include_str!("../../data/qedb-calibration.toml");

/// What claims ask of a machine.
#[derive(Clone, Copy)]
struct Wish {
    claims: &'static [&'static str],
    what: &'static str,
    asked: Asked,
    /// Whose pins are kept, search by search; nobody's where there are none.
    members: &'static [&'static str],
    found: fn(&Rest) -> Result<f64, MeasureError>,
}

const WISHES: [Wish; 5] = [
    Wish {
        claims: &["clock-unmoved-by-computation", "clock-of-mimo-computation"],
        what: "rise of the clock that full QoD needs beside 3 x C90-D10",
        asked: Asked::AtMost(0.1),
        members: &[],
        found: |rest| rise(rest, computation(3, 1.0)),
    },
    Wish {
        claims: &["fresh-unmoved-by-computation", "qod-of-mimo-maximum"],
        what: "drr beside 3 x C90-D10 at QoD 0.95, over the nominal one: above 1, the sum of errors lowers QoD further",
        asked: Asked::AtMost(1.0),
        members: &[],
        found: |rest| Ok(drr(rest, computation(3, 0.95))? / drr(rest, ALONE)?),
    },
    Wish {
        claims: &["tardiness-unmoved-by-computation"],
        what: "response at 1800 MHz and full QoD beside 3 x C90-D10, over that alone",
        asked: Asked::AtMost(1.1),
        members: &[],
        found: |rest| {
            let alone = rest.at(QOD1800, ALONE)?.response();
            Ok(rest.at(QOD1800, computation(3, 1.0))?.response() / alone)
        },
    },
    Wish {
        claims: &["clock-of-mimo-follows-less"],
        what: "what the clock rises by from C90-D10 to C10-D90 on one core where QoD keeps drr nominal, over the same at full QoD",
        asked: Asked::AtMost(0.5),
        members: &[
            "constant-memory",
            "clocked-memory",
            "slow-pollution",
            "cheap-updates",
            "dear-updates",
        ],
        found: follows,
    },
    Wish {
        claims: &["off-target-qod1000"],
        what: "tardiness at 1000 MHz and full QoD beside one core of C50-D50, of a job that three such cores bring to its deadline",
        asked: Asked::AtMost(0.9),
        members: &[],
        found: |rest| {
            let one = rest.at(QOD1000, situation(1, 0.5, 1.0))?.response();
            Ok(one / rest.at(QOD1000, situation(3, 0.5, 1.0))?.response())
        },
    },
];

const ALONE: Situation = situation(0, 0.5, 1.0);

const fn situation(interferers: u32, data_share: f64, qod: f64) -> Situation {
    Situation {
        name: "",
        interferers,
        data_share,
        qod,
    }
}

/// Beside so many cores of C90-D10.
const fn computation(cores: u32, qod: f64) -> Situation {
    situation(cores, 0.1, qod)
}

fn clock(rest: &Rest, situation: Situation) -> Result<f64, MeasureError> {
    Ok(rest.at_deadline(situation)?.map_or(f64::NAN, |(clock, _)| clock))
}

fn drr(rest: &Rest, situation: Situation) -> Result<f64, MeasureError> {
    Ok(rest.at_deadline(situation)?.map_or(f64::NAN, |(_, drr)| drr))
}

fn rise(rest: &Rest, situation: Situation) -> Result<f64, MeasureError> {
    Ok(clock(rest, situation)? / clock(rest, ALONE)? - 1.0)
}

/// The rise of MIMO's clock over that of DVFSonly's.
fn follows(rest: &Rest) -> Result<f64, MeasureError> {
    let nominal = drr(rest, ALONE)?;
    let [least, most] = [0.1, 0.9].map(|share| move |qod| situation(1, share, qod));
    let dvfs = clock(rest, most(1.0))? - clock(rest, least(1.0))?;
    let mimo = clock_of_mimo(rest, &most, nominal)? - clock_of_mimo(rest, &least, nominal)?;
    Ok(mimo / dvfs)
}

/// The clock at the goal where QoD, between 0.5 and 1, brings drr to the nominal one or as near to it as it can.
fn clock_of_mimo(rest: &Rest, beside: &dyn Fn(f64) -> Situation, nominal: f64) -> Result<f64, MeasureError> {
    let (mut low, mut high) = (0.5, 1.0);
    if drr(rest, beside(low))? >= nominal {
        return clock(rest, beside(low));
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if drr(rest, beside(middle))? > nominal {
            high = middle
        } else {
            low = middle
        }
    }
    clock(rest, beside((low + high) / 2.0))
}

/// The nearest machine of a search.
struct Nearest {
    excess: f64,
    found: f64,
    rms: f64,
}

/// Searches for every wish; the settings' machines and seeds play no part, for the searches have machines of their own.
///
/// # Errors
/// [`ExperimentError`] where the settings or the shipped figures are not sound.
pub fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    let refuse = |error: &dyn std::fmt::Display| ExperimentError::Settings(error.to_string());
    let targets: Targets = toml::from_str(TARGETS).map_err(|error| refuse(&error))?;
    let bench = Bench::new(&targets, JOBS, settings.seed);
    let base = MachineModel::exynos5422_a15();
    let task = Task {
        targets: &targets,
        bench: &bench,
        base: &base,
        evaluations_max: TRIES[0],
    };
    let searches = searches();
    let done = |count: usize| progress(&format!("{count} of {} searches", searches.len()));
    let found = in_order(
        &searches,
        settings.workers(),
        |(wish, member)| search(&task, wish, member, TRIES[usize::from(member.is_some())]),
        &done,
    );
    let limits = found
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refuse(&error))?;
    Ok(Outcome {
        name: "qedb-limits".into(),
        platform: "sim".into(),
        machines: ensemble().iter().map(|member| member.name.to_string()).collect(),
        seeds: vec![settings.seed],
        setting: vec![
            (
                "fits".into(),
                format!("residuals of at most {RMS_MAX} rms on the microbenchmarks"),
            ),
            (
                "machines tried".into(),
                format!(
                    "{} by a search that is free, {} by one that keeps pins",
                    TRIES[0], TRIES[1]
                ),
            ),
        ],
        limits,
        ..Outcome::default()
    })
}

/// Every wish with whose pins it is searched for.
fn searches() -> Vec<(Wish, Option<Member>)> {
    let of = |wish: &Wish| match wish.members {
        [] => vec![(*wish, None)],
        members => ensemble()
            .into_iter()
            .filter(|member| members.contains(&member.name))
            .map(|member| (*wish, Some(member)))
            .collect(),
    };
    WISHES.iter().flat_map(of).collect()
}

fn search(task: &Task, wish: &Wish, member: &Option<Member>, tries: usize) -> Result<Limit, MeasureError> {
    let free = member.clone().unwrap_or_else(Member::unpinned);
    let begin: Vec<Point> = calibrated_points()
        .into_iter()
        .map(|(_, point)| free.pin(point))
        .collect();
    let mut tried = 0;
    let mut nearest: Option<Nearest> = None;
    let mut failure = None;
    let mut price = |point: &Point| {
        tried += 1;
        match judge(task, wish, &point.candidate(task.base)) {
            Ok(one) => {
                let price = one.excess + STIFFNESS * (one.rms - RMS_MAX).max(0.0);
                let nearer = nearest.as_ref().is_none_or(|known| one.excess < known.excess);
                if one.rms <= RMS_MAX && nearer {
                    nearest = Some(one);
                }
                price
            }
            Err(error) => {
                failure.get_or_insert(error);
                f64::NAN
            }
        }
    };
    let prices: Vec<f64> = begin.iter().map(&mut price).collect();
    let best = (0..begin.len()).min_by(|a, b| prices[*a].total_cmp(&prices[*b]));
    if let Some(from) = best.map(|best| &begin[best]) {
        let parameters = free.free();
        let start: Vec<f64> = parameters
            .iter()
            .map(|p| p.description().place_of(from.get(*p)))
            .collect();
        let objective = |at: &[f64]| price(&free.place(from, &parameters, at));
        minimise(objective, &start, EDGE / 2.0, tries.saturating_sub(begin.len()));
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let nearest = nearest.unwrap_or(Nearest {
        excess: f64::INFINITY,
        found: f64::NAN,
        rms: f64::NAN,
    });
    let basis = Basis::Search {
        member: member.as_ref().map(|member| member.name.to_string()),
        tried,
        rms: nearest.rms,
    };
    Ok(Limit::new(wish.claims, basis, wish.what, wish.asked, nearest.found))
}

/// How well the candidate fits, and how far it is from the wish.
fn judge(task: &Task, wish: &Wish, candidate: &Candidate) -> Result<Nearest, MeasureError> {
    let rms = rms(task.figures(candidate)?.iter().map(|figure| figure.residual));
    // What does not nearly fit is not measured further: it costs more than any wish.
    if rms.is_nan() || rms > 2.0 * RMS_MAX {
        return Ok(Nearest {
            excess: STIFFNESS,
            found: f64::NAN,
            rms,
        });
    }
    let found = (wish.found)(&Rest::new(task.bench, candidate)?)?;
    Ok(Nearest {
        excess: wish.asked.excess(found),
        found,
        rms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of the first wish where this is asked, after a single machine beside those of the ensemble.
    fn asked(asked: Asked) -> Limit {
        let targets: Targets = toml::from_str(TARGETS).unwrap();
        let (bench, base) = (Bench::new(&targets, JOBS, 1), MachineModel::exynos5422_a15());
        let task = Task {
            targets: &targets,
            bench: &bench,
            base: &base,
            evaluations_max: 0,
        };
        let wish = Wish { asked, ..WISHES[0] };
        search(&task, &wish, &None, calibrated_points().len() + 1).unwrap()
    }

    #[test]
    fn what_every_machine_keeps_is_possible_and_what_none_keeps_is_excluded() {
        let [possible, excluded] = [Asked::AtMost(10.0), Asked::AtMost(-1.0)].map(asked);
        assert!(!possible.excluded && excluded.excluded);
        for limit in [possible, excluded] {
            assert!((0.0..1.0).contains(&limit.found), "{limit:?}");
            let Basis::Search { member, tried, rms } = &limit.basis else {
                panic!("a search")
            };
            assert!(
                member.is_none() && *tried == calibrated_points().len() + 1 && *rms <= RMS_MAX,
                "{limit:?}"
            );
        }
    }

    #[test]
    fn every_wish_is_about_claims_and_members_that_there_are() {
        let claims = crate::claims::Claims::parse(crate::qedb::CLAIMS).unwrap();
        for wish in WISHES {
            let known = |id: &&str| claims.iter().any(|claim| claim.id == **id);
            assert!(wish.claims.iter().all(known), "{:?}", wish.claims);
        }
        assert_eq!(
            searches().len(),
            4 + 5,
            "four for all machines, one for each of five members"
        );
    }
}
