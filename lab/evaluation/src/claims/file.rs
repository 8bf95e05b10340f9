//! The claims file: TOML, checked as a whole before anything runs.

use std::collections::BTreeMap;

use punctual_toml::Section;

use super::reason;
use super::{Claim, Formula, Nature, Paper, Role, Rule};
use crate::samples::Labels;

/// A claim that cannot be compared with the runs: file, line, key, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClaimError(String);

/// The claims of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(Vec<Claim>);

/// Reasons why claims do not hold, by the claim's id: written after the runs, apart from the claims.
pub type Reasons = BTreeMap<String, String>;

/// Reads a file of reasons; `shown` is its name.
///
/// # Errors
/// One line per fault: file, line, key, remedy.
pub fn reasons(text: &str, shown: &str) -> Result<Reasons, Vec<String>> {
    punctual_toml::read(text, shown, |top| {
        let texts = top.all_texts();
        for (id, text) in &texts {
            if let Err(what) = reason::check(text) {
                top.complain(id, what);
            }
        }
        texts
    })
}

impl Claims {
    /// Reads a claims file; `shown` is its name.
    ///
    /// # Errors
    /// One line per fault: file, line, key, remedy.
    pub fn parse(text: &str, shown: &str) -> Result<Claims, Vec<String>> {
        let mut ids: Vec<String> = Vec::new();
        let read = |section: &mut Section<'_, '_>| {
            let id = section.needed("id", Section::text);
            if !id.is_empty() && ids.contains(&id) {
                section.complain("id", "an earlier claim has this id; give it one of its own");
            }
            ids.push(id.clone());
            claim(section, shown, id)
        };
        let claims = punctual_toml::read(text, shown, |top| top.tables("claim", read))?;
        Ok(Claims(claims.into_iter().flatten().collect()))
    }

    /// The claims about one experiment.
    pub fn of<'c>(&'c self, experiment: &'c str) -> impl Iterator<Item = &'c Claim> {
        self.0.iter().filter(move |claim| claim.experiment == experiment)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter()
    }

    /// Refuses a claim about an unknown experiment.
    ///
    /// # Errors
    /// [`ClaimError`] with the list of known experiments.
    pub fn check_experiments(&self, known: &[&str]) -> Result<(), ClaimError> {
        match self.0.iter().find(|claim| !known.contains(&claim.experiment.as_str())) {
            None => Ok(()),
            Some(claim) => {
                let (place, name, known) = (&claim.experiment_place, &claim.experiment, known.join(", "));
                let what = format!("{place}: there is no experiment \"{name}\"; there are {known}");
                Err(ClaimError(what))
            }
        }
    }

    /// Refuses a formula of `experiment` that names samples or labels that its runs do not have.
    ///
    /// # Errors
    /// [`ClaimError`] with the name, and the known names.
    pub fn check_names(&self, experiment: &str, series: &[&str], planned: &[Labels]) -> Result<(), ClaimError> {
        self.of(experiment).try_for_each(|claim| {
            let formulas = std::iter::once(&claim.formula).chain(&claim.premises);
            let named = { formulas.into_iter() }.try_for_each(|formula| formula.check(series, planned));
            named.map_err(|error| ClaimError(format!("{}: {error}", claim.formula_place)))
        })
    }
}

fn claim(section: &mut Section<'_, '_>, shown: &str, id: String) -> Option<Claim> {
    let kinds = [
        ("structural", Nature::Structural),
        ("quantitative", Nature::Quantitative),
    ];
    let roles = [
        ("prediction", Role::Prediction),
        ("calibration", Role::Calibration),
        ("setting", Role::Setting),
        ("added", Role::Added),
    ];
    section.require("kind", "write \"structural\" or \"quantitative\"");
    let kind = section.choice("kind", &kinds);
    section.require("paper", "write the paper's figure, or its finding");
    let paper = match section.is_text("paper") {
        true => section.text("paper").map(Paper::Finding),
        false => section.number("paper").map(Paper::Figure),
    };
    let formula = Formula::parse(&section.needed("formula", Section::text));
    let formula = match formula {
        Err(error) if section.is_text("formula") => {
            section.complain("formula", error.to_string());
            None
        }
        formula => formula.ok(),
    };
    let role = section.choice("role", &roles).unwrap_or_default();
    let (experiment, source) = (
        section.needed("experiment", Section::text),
        section.needed("source", Section::text),
    );
    let text = section.needed("text", Section::text);
    let (tolerance, points) = (section.number("tolerance"), section.number("points"));
    let bound = section.choice("bound", &[("at-most", Rule::AtMost), ("at-least", Rule::AtLeast)]);
    let premises = premises(section);
    let plausible = section.numbers("plausible").and_then(|range| match *range {
        [low, high] if low < high => Some([low, high]),
        _ => {
            section.complain("plausible", "give two numbers that rise, such as [0, 1.2]");
            None
        }
    });
    let rule = rule(kind?, formula.as_ref()?, paper.as_ref()?, (tolerance, points, bound));
    Some(Claim {
        id,
        experiment,
        kind: kind?,
        role,
        source,
        text,
        paper: paper?,
        formula: formula?,
        rule: rule.map_err(|(key, what)| section.complain(key, what)).ok()?,
        premises,
        plausible,
        experiment_place: section.place_of("experiment", shown),
        formula_place: section.place_of("formula", shown),
    })
}

/// The comparisons of the list `premise`.
fn premises(section: &mut Section<'_, '_>) -> Vec<Formula> {
    let mut premises = Vec::new();
    for text in section.texts("premise").unwrap_or_default() {
        match Formula::parse(&text) {
            Ok(formula) if formula.is_comparison() => premises.push(formula),
            Ok(_) => section.complain("premise", "a premise compares two sides: with <, <=, > or >="),
            Err(error) => section.complain("premise", error.to_string()),
        }
    }
    premises
}

/// Rule of a claim; the error is a key, and what is wrong with it.
fn rule(
    kind: Nature,
    formula: &Formula,
    paper: &Paper,
    (tolerance, points, bound): (Option<f64>, Option<f64>, Option<Rule>),
) -> Result<Rule, (&'static str, &'static str)> {
    let is_comparison = formula.is_comparison();
    match (kind, paper) {
        (Nature::Quantitative, Paper::Finding(_)) => {
            return Err(("paper", "the `paper` of a quantitative claim is its figure"));
        }
        (Nature::Structural, _) if !is_comparison => {
            return Err(("formula", "a structural claim compares two sides: with <, <=, > or >="));
        }
        (Nature::Quantitative, _) if is_comparison => {
            let what = "the formula of a quantitative claim is a number; `bound` and `tolerance` compare it";
            return Err(("formula", what));
        }
        _ => {}
    }
    match (kind, tolerance, points, bound) {
        (Nature::Structural, None, None, None) => Ok(Rule::Comparison),
        (Nature::Structural, ..) => Err(("kind", "a structural claim has no `tolerance` and no `bound`")),
        (_, None, Some(off), None) if 0.0 < off && off < 1.0 => Ok(Rule::Points(off)),
        (_, Some(off), None, None) if 0.0 < off && off < 1.0 => Ok(Rule::Within(off)),
        (_, None, None, Some(bound)) => Ok(bound),
        (_, None, Some(_), None) => Err(("points", "`tolerance` and `points` lie above 0 and below 1")),
        (_, Some(_), None, None) => Err(("tolerance", "`tolerance` and `points` lie above 0 and below 1")),
        (_, _, Some(_), _) => {
            let what = "`points` stands in place of `tolerance` and `bound`; remove one of them";
            Err(("points", what))
        }
        _ => Err(("kind", "a quantitative claim has either a `tolerance` or a `bound`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::labels;
    use proptest::prelude::*;

    const SOUND: &str = r#"
[[claim]]
id = "ratio"
experiment = "one"
kind = "quantitative"
source = "Fig. 1"
text = "twice as much"
paper = 2
formula = "mean(power, cores=1) / mean(power, cores=0)"
tolerance = 0.25
"#;

    fn refused(change: &[(&str, &str)]) -> String {
        let text = change.iter().fold(SOUND.to_string(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        Claims::parse(&text, "x").unwrap_err().join("\n")
    }

    #[test]
    fn a_claim_is_read_as_written() {
        let claims = Claims::parse(SOUND, "x").unwrap();
        let claim = claims.of("one").next().unwrap();
        assert_eq!(
            (claim.rule, &claim.formula_place[..], claim.role),
            (Rule::Within(0.25), "x:9: claim[0].formula", Role::Prediction)
        );
        assert_eq!(claim.paper, Paper::Figure(2.0));
        assert_eq!(claims.of("two").count(), 0);
    }

    #[test]
    fn each_fault_names_its_line_and_its_claim() {
        let open_bracket = refused(&[("cores=0)", "cores=0")]);
        assert!(
            open_bracket.starts_with("x:9: claim[0].formula: at character 43: "),
            "{open_bracket}"
        );
        assert!(refused(&[("tolerance = 0.25\n", "")]).contains("either a `tolerance` or a `bound`"));
        assert!(refused(&[("0.25", "25")]).contains("above 0 and below 1"));
        let points = refused(&[("tolerance = 0.25", "tolerance = 0.25\npoints = 0.1")]);
        assert!(points.contains("in place of `tolerance`"), "{points}");
        assert!(refused(&[("quantitative", "structural")]).contains("compares two sides"));
        assert!(refused(&[("paper = 2", "paper = \"twice\"")]).contains("is its figure"));
        let misspelt = refused(&[("tolerance", "tolerence")]);
        let hint = "x:10: claim[0].tolerence: unknown key; did you mean claim[0].tolerance?";
        assert!(misspelt.ends_with(hint), "{misspelt}");
        assert!(refused(&[("[[claim]]", "[[claim]")]).starts_with("x:2: "));
        let twice = Claims::parse(&format!("{SOUND}{SOUND}"), "x").unwrap_err().join("\n");
        assert!(twice.starts_with("x:13: claim[1].id: an earlier claim"), "{twice}");
    }

    #[test]
    fn unknown_samples_and_experiments_are_named() {
        let claims = Claims::parse(SOUND, "x").unwrap();
        let planned = [labels([("cores", "0")]), labels([("cores", "1")])];
        assert_eq!(claims.check_names("one", &["power"], &planned), Ok(()));
        let unknown = claims.check_names("one", &["clock"], &planned).unwrap_err().to_string();
        assert!(
            unknown.starts_with("x:9: claim[0].formula: at character 1: "),
            "{unknown}"
        );
        assert!(unknown.contains("`power`"), "{unknown}");
        assert_eq!(claims.check_experiments(&["one"]), Ok(()));
        let unknown = claims.check_experiments(&["two", "three"]).unwrap_err().to_string();
        assert!(
            unknown.contains("no experiment \"one\"") && unknown.ends_with("two, three"),
            "{unknown}"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,300}", at in 0usize..SOUND.len()) {
            let _ = Claims::parse(&text, "x");
            let mut changed = SOUND.to_string();
            changed.insert_str(at, &text);
            let _ = Claims::parse(&changed, "x");
        }
    }
}
