//! What the first paper's figures bound for each other, whatever the machine.
//!
//! Figures are looked up in the claims by id, so that nothing is written twice; where one is missing, the bounds that need it
//! are left out. Two premises, both the paper's, are used throughout: at the goal a job takes its deadline, so that
//! computation takes 1 - drr of it; and interference leaves computation alone (section 3). A third, *growth*, is its
//! Fig. 3(a): a clock x times slower makes jobs x^g times longer, with g = 1.08.

use super::{Asked, Basis, Limit};
use crate::claims::{Claims, Paper};

/// "On target" is within this share of the goal; so is "at its minimum or maximum". As in the claims file.
const BAND: f64 = 0.1;
/// Clocks in MHz: of QoD1000, of QoD1800, and the highest.
const QOD1000: f64 = 1000.0;
const QOD1800: f64 = 1800.0;
const TOP: f64 = 2000.0;
/// Fig. 3(a): the second clock with a figure, in MHz.
const SLOWER: f64 = 1100.0;
/// The higher set point of drr (Fig. 10(e)).
const HIGH_DRR: f64 = 0.40;
/// Section 5.2: `ondemand` lowers the clock below this utilisation.
const OPEN_LOWERS_BELOW: f64 = 0.2;
/// Section 5.1: the deadline is this share of the period.
const DEADLINE: f64 = 0.5;
/// The data share of the most data-intensive interferers, which the microbenchmark's are at most.
const MOST_DATA: f64 = 0.9;
/// That of C90-D10.
const LEAST_DATA: f64 = 0.1;
/// The part of the time that a core interferes, with transactions as long as the deadline (50 ms) and pauses of 100 ms on
/// average.
const DUTY: f64 = 1.0 / 3.0;
/// "Over a quarter more", "within a quarter".
const QUARTER: f64 = 1.25;

/// Every bound whose figures `claims` has.
pub fn limits(claims: &Claims) -> Vec<Limit> {
    let figures = Figures { claims };
    let all = [
        first_sample(&figures, false),
        first_sample(&figures, true),
        clock_of_higher_drr(&figures),
        clock_after_shedding(&figures),
        drr_of_most_clock(&figures),
        drr_beside_computation(&figures),
        clock_beside_computation(&figures),
        one_core_at_qod1000(&figures, false),
        one_core_at_qod1000(&figures, true),
        clock_of_open(&figures),
        power_of_qod1800(&figures),
    ];
    all.into_iter().flatten().collect()
}

/// The paper's figures by the claim that has them.
struct Figures<'c> {
    claims: &'c Claims,
}

impl Figures<'_> {
    fn of(&self, id: &str) -> Option<f64> {
        match self.claims.iter().find(|claim| claim.id == id)?.paper {
            Paper::Figure(figure) => Some(figure),
            Paper::Finding(_) => None,
        }
    }

    /// A bound on the claims that there are of `claims`; none where there are none.
    fn limit(&self, claims: &[&str], from: &[&str], what: String, asked: Asked, found: f64) -> Option<Limit> {
        let known: Vec<&str> = claims
            .iter()
            .copied()
            .filter(|id| self.claims.iter().any(|c| c.id == *id))
            .collect();
        let ids = from.iter().map(|id| id.to_string()).collect();
        (!known.is_empty()).then(|| Limit::new(&known, Basis::Figures { ids }, what, asked, found))
    }

    /// Growth: the exponent of the clock in a job's length.
    fn growth(&self) -> Option<f64> {
        let longer = self.of("response-alone-1100")? / self.of("response-alone")?;
        Some(longer.ln() / (TOP / SLOWER).ln())
    }

    /// How much longer the disturbance of Fig. 10 makes a job at the clock before it: at least, if data accesses take the same
    /// time at every clock, or by growth.
    fn disturbed(&self, by_growth: bool) -> Option<f64> {
        let (rise, drr) = (self.of("disturbed-clock-of-dvfs")?, self.of("drr-of-dvfs")?);
        Some(match by_growth {
            true => (1.0 + rise).powf(self.growth()?),
            false => (1.0 - drr) * (1.0 + rise) + drr,
        })
    }

    /// How much longer data accesses are beside three cores of C90-D10, at least. Interference grows ever more slowly with the
    /// neighbours' traffic (Fig. 3: the first core does most of the harm), so that a part of a core's traffic does at
    /// least that part of its harm.
    fn beside_computation(&self) -> Option<f64> {
        let (alone, one) = (self.of("data-alone")?, self.of("data-one-core")?);
        let traffic = 3.0 * LEAST_DATA * DUTY / MOST_DATA;
        Some(1.0 + traffic * (one - alone) / alone)
    }
}

const DISTURBANCE: [&str; 2] = ["disturbed-clock-of-dvfs", "drr-of-dvfs"];
const GROWTH: [&str; 2] = ["response-alone", "response-alone-1100"];

fn first_sample(figures: &Figures, by_growth: bool) -> Option<Limit> {
    let how = match by_growth {
        true => "by growth",
        false => "if data accesses take the same time at every clock",
    };
    figures.limit(
        &["overshoot-dvfs-only", "overshoot-mimo-nominal", "overshoot-mimo-high"],
        &[&DISTURBANCE[..], &GROWTH[..if by_growth { 2 } else { 0 }]].concat(),
        format!("overshoot of the first whole sample, which is taken at the clock before the disturbance, {how}"),
        Asked::AtMost(figures.of("overshoot-dvfs-only")?),
        figures.disturbed(by_growth)? - 1.0,
    )
}

/// At the goal the clock is proportional to 1 / (1 - drr).
fn clock_of_higher_drr(figures: &Figures) -> Option<Limit> {
    let claimed = figures.of("disturbed-clock-of-mimo-high")?;
    figures.limit(
        &["disturbed-clock-of-mimo-high"],
        &["drr-before"],
        format!("rise of the clock at the goal while drr goes to {HIGH_DRR}"),
        Asked::AtLeast(0.75 * claimed),
        (1.0 - figures.of("drr-before")?) / (1.0 - HIGH_DRR) - 1.0,
    )
}

/// From where DVFSonly comes to rest, half of the updates shorten data accesses as in Fig. 4; the clock may fall by as much.
fn clock_after_shedding(figures: &Figures) -> Option<Limit> {
    let (rise, drr) = (figures.of("disturbed-clock-of-dvfs")?, figures.of("drr-of-dvfs")?);
    let kept = figures.of("data-qod-50")? / figures.of("data-qod-100")?;
    let shorter = (1.0 - drr) + drr * kept;
    figures.limit(
        &["disturbed-clock-of-mimo-nominal"],
        &[
            "disturbed-clock-of-dvfs",
            "drr-of-dvfs",
            "data-qod-50",
            "data-qod-100",
            "response-alone",
            "response-alone-1100",
        ],
        "rise of the clock at the goal where half of the updates save DVFSonly as much as in Fig. 4, by growth".into(),
        Asked::AtMost(figures.of("disturbed-clock-of-mimo-nominal")?),
        (1.0 + rise) * shorter.powf(1.0 / figures.growth()?) - 1.0,
    )
}

/// With so much more clock, computation takes so much less of the deadline; the rest is data.
fn drr_of_most_clock(figures: &Figures) -> Option<Limit> {
    let three = figures.of("data-three-cores")? / figures.of("response-three-cores")?;
    figures.limit(
        &["clock-of-dvfs-data"],
        &[
            "clock-of-dvfs-data",
            "drr-before",
            "data-three-cores",
            "response-three-cores",
        ],
        "drr that this clock implies, against that beside three cores without pauses (Fig. 3(c))".into(),
        Asked::AtMost(three),
        1.0 - (1.0 - figures.of("drr-before")?) / (1.0 + figures.of("clock-of-dvfs-data")?),
    )
}

fn drr_beside_computation(figures: &Figures) -> Option<Limit> {
    let (nominal, longer) = (figures.of("drr-before")?, figures.beside_computation()?);
    figures.limit(
        &["qod-of-mimo-maximum", "fresh-unmoved-by-computation"],
        &["drr-before", "data-alone", "data-one-core"],
        "drr at full QoD beside 3 x C90-D10, at least; above its set point, the sum of errors lowers QoD".into(),
        Asked::AtMost(nominal),
        nominal * longer / (1.0 - nominal + nominal * longer),
    )
}

/// If the clock sped up data accesses as it does computation; it needs more if it does not.
fn clock_beside_computation(figures: &Figures) -> Option<Limit> {
    let (nominal, longer) = (figures.of("drr-before")?, figures.beside_computation()?);
    let job = 1.0 - nominal + nominal * longer;
    figures.limit(
        &["clock-of-mimo-computation"],
        &[
            "drr-before",
            "data-alone",
            "data-one-core",
            "response-alone",
            "response-alone-1100",
        ],
        "rise of the clock at the goal and full QoD beside 3 x C90-D10, at least, by growth".into(),
        Asked::AtMost(figures.of("clock-of-mimo-computation")?),
        job.powf(1.0 / figures.growth()?) - 1.0,
    )
}

/// QoD1000 has to shed beside three cores of C50-D50 (Fig. 10(c)), so its job alone is not shorter than 1 / (what they do to
/// it); one core does a part of that harm (Fig. 3). Beside one core it may not be too late, because beside three it is not; so
/// it would have to be too early beside C90-D10, C70-D30 and C50-D50, which are most mixes.
fn one_core_at_qod1000(figures: &Figures, by_growth: bool) -> Option<Limit> {
    let three = figures.disturbed(by_growth)?;
    let alone = figures.of("data-alone")?;
    let part = (figures.of("data-one-core")? - alone) / (figures.of("data-three-cores")? - alone);
    let how = if by_growth {
        "by growth"
    } else {
        "if data accesses take the same time at every clock"
    };
    figures.limit(
        &["off-target-qod1000"],
        &[&DISTURBANCE[..], &["data-alone", "data-one-core", "data-three-cores"]].concat(),
        format!("tardiness of QoD1000 at full QoD beside one core of C50-D50, at least, {how}"),
        Asked::AtMost(1.0 - BAND),
        (1.0 + part * (three - 1.0)) / three,
    )
}

/// The lowest clock that `ondemand` between 20 and 90 % comes down to while nothing interferes.
///
/// QoD1000 has to shed under the disturbance of Fig. 10(c), so that its job alone takes at least 1 / (what that does) of the
/// deadline at 1000 MHz; this, at the top clock by growth, is the least utilisation.
fn lowest_clock_of_open(figures: &Figures) -> Option<f64> {
    let at_1000 = DEADLINE / figures.disturbed(true)?;
    let at_top = at_1000 * (QOD1000 / TOP).powf(figures.growth()?);
    Some(TOP * (at_top / OPEN_LOWERS_BELOW).min(1.0))
}

/// Power rises at least with the clock.
fn clock_of_open(figures: &Figures) -> Option<Limit> {
    figures.limit(
        &["power-alike"],
        &[&DISTURBANCE[..], &GROWTH].concat(),
        "clock of Open alone over that of QoD1000, at least: at 2 GHz its core is not idle enough to come down further"
            .into(),
        Asked::AtMost(QUARTER),
        lowest_clock_of_open(figures)? / QOD1000,
    )
}

/// Power rises at most with the cube of the clock, where the voltage is proportional to it.
fn power_of_qod1800(figures: &Figures) -> Option<Limit> {
    figures.limit(
        &["power-of-qod1800"],
        &[&DISTURBANCE[..], &GROWTH].concat(),
        "power of QoD1800 over that of Open alone, at most, likewise: the cube of their clocks' ratio".into(),
        Asked::AtLeast(QUARTER),
        (QOD1800 / lowest_clock_of_open(figures)?).powi(3),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qedb::CLAIMS;

    fn shipped() -> Claims {
        Claims::parse(CLAIMS).unwrap()
    }

    fn found(claims: &Claims, id: &str) -> Vec<(f64, bool)> {
        let about = |limit: &Limit| limit.claims.iter().any(|claim| claim == id);
        limits(claims)
            .into_iter()
            .filter(about)
            .map(|limit| (limit.found, limit.excluded))
            .collect()
    }

    /// The shipped claims with another figure for one of them.
    fn with(id: &str, figure: f64) -> Claims {
        let at = CLAIMS.find(&format!("id = \"{id}\"\n")).unwrap();
        let (head, tail) = CLAIMS.split_at(at);
        let line = tail.lines().find(|line| line.starts_with("paper = ")).unwrap();
        Claims::parse(&(head.to_string() + &tail.replacen(line, &format!("paper = {figure}"), 1))).unwrap()
    }

    #[test]
    fn bounds_are_what_a_pocket_calculator_says() {
        let claims = shipped();
        let overshoot = found(&claims, "overshoot-dvfs-only");
        assert!(
            (overshoot[0].0 - (0.56 * 1.37 + 0.44 - 1.0)).abs() < 1e-12,
            "{overshoot:?}"
        );
        assert!((overshoot[1].0 - 0.404).abs() < 2e-3, "{overshoot:?}");
        assert!(overshoot.iter().all(|(_, excluded)| *excluded));
        assert!((found(&claims, "disturbed-clock-of-mimo-high")[0].0 - 0.2).abs() < 1e-12);
    }

    #[test]
    fn figures_that_agree_exclude_nothing() {
        // A disturbance that needs 10 % more clock does not overshoot by more than 20 %.
        let mild = with("disturbed-clock-of-dvfs", 0.1);
        assert!(
            found(&mild, "overshoot-dvfs-only")
                .iter()
                .all(|(_, excluded)| !excluded)
        );
        // A first core that does no harm leaves drr where it is.
        let harmless = with("data-one-core", 0.05);
        let [(drr, excluded)] = found(&harmless, "qod-of-mimo-maximum")[..] else {
            panic!("one bound")
        };
        assert!((drr - 0.28).abs() < 1e-12 && !excluded);
    }

    #[test]
    fn bounds_without_their_figures_are_left_out() {
        let few = CLAIMS.replace("id = \"data-one-core\"", "id = \"other\"");
        let few = Claims::parse(&few).unwrap();
        assert!(found(&few, "qod-of-mimo-maximum").is_empty());
        assert!(!found(&few, "overshoot-dvfs-only").is_empty());
        assert!(limits(&Claims::default()).is_empty());
    }
}
