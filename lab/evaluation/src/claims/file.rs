//! The claims file: TOML, checked as a whole before anything runs.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Claim, Formula, FormulaError, Nature, Paper, Role, Rule};
use crate::samples::Labels;

/// An error in a claims file, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The file is not TOML, or has unknown keys.
    #[error("line {line}: {what}")]
    File {
        /// The line, from 1.
        line: usize,
        what: String,
    },
    /// A claim cannot be used.
    #[error("line {line}: claim \"{id}\": {what}")]
    Claim {
        /// The line, from 1.
        line: usize,
        id: String,
        /// The error, and what to write instead.
        what: String,
    },
}

/// The claims of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(Vec<Claim>);

/// Reasons why claims do not hold, by the claim's id: written after the runs, apart from the claims.
pub type Reasons = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    claim: Vec<Spanned<Row>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Row {
    id: String,
    experiment: String,
    kind: Nature,
    #[serde(default)]
    role: Role,
    source: String,
    text: String,
    paper: Paper,
    formula: Spanned<String>,
    tolerance: Option<f64>,
    points: Option<f64>,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bound {
    AtMost,
    AtLeast,
}

impl Claims {
    /// Reads a claims file.
    ///
    /// # Errors
    /// [`ClaimError`] names the line and the claim at fault.
    pub fn parse(text: &str) -> Result<Claims, ClaimError> {
        let file: File = toml::from_str(text).map_err(|error| ClaimError::File {
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            what: error.message().to_string(),
        })?;
        let mut claims: Vec<Claim> = Vec::new();
        for row in file.claim {
            let line = line_of(text, row.span().start);
            let claim = claim(row.into_inner(), text)?;
            if claims.iter().any(|other| other.id == claim.id) {
                let what = "an earlier claim has this id; give it one of its own".into();
                return Err(ClaimError::Claim {
                    line,
                    id: claim.id,
                    what,
                });
            }
            claims.push(claim);
        }
        Ok(Claims(claims))
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
    /// [`ClaimError::Claim`] with the list of known experiments.
    pub fn check_experiments(&self, known: &[&str]) -> Result<(), ClaimError> {
        match self.0.iter().find(|claim| !known.contains(&claim.experiment.as_str())) {
            None => Ok(()),
            Some(claim) => Err(ClaimError::Claim {
                line: claim.line,
                id: claim.id.clone(),
                what: format!(
                    "there is no experiment \"{}\"; there are {}",
                    claim.experiment,
                    known.join(", ")
                ),
            }),
        }
    }

    /// Refuses a formula of `experiment` that names samples or labels that its runs do not have.
    ///
    /// # Errors
    /// [`ClaimError::Claim`] with the name, and the known names.
    pub fn check_names(&self, experiment: &str, series: &[&str], planned: &[Labels]) -> Result<(), ClaimError> {
        self.of(experiment).try_for_each(|claim| {
            let named = claim.formula.check(series, planned);
            named.map_err(|error| refused(&claim.id, claim.line, &error))
        })
    }
}

fn claim(row: Row, text: &str) -> Result<Claim, ClaimError> {
    let line = line_of(text, row.formula.span().start);
    let id = row.id.clone();
    let refuse = |what: &str| ClaimError::Claim {
        line,
        id: id.clone(),
        what: what.into(),
    };
    let formula = Formula::parse(row.formula.get_ref()).map_err(|error| refused(&id, line, &error))?;
    if row.points.is_some() && (row.tolerance.is_some() || row.bound.is_some()) {
        return Err(refuse(
            "`points` stands in place of `tolerance` and `bound`; remove one of them",
        ));
    }
    let rule = match (row.kind, row.tolerance.or(row.points), row.bound) {
        (Nature::Structural, ..) if !formula.is_comparison() => {
            return Err(refuse("a structural claim compares two sides: with <, <=, > or >="));
        }
        (Nature::Structural, None, None) => Rule::Comparison,
        (Nature::Structural, _, _) => return Err(refuse("a structural claim has no `tolerance` and no `bound`")),
        (Nature::Quantitative, ..) if formula.is_comparison() => {
            return Err(refuse(
                "the formula of a quantitative claim is a number; `bound` and `tolerance` compare it",
            ));
        }
        (Nature::Quantitative, Some(off), None) if off <= 0.0 || off >= 1.0 => {
            return Err(refuse("`tolerance` and `points` lie above 0 and below 1"));
        }
        (Nature::Quantitative, Some(off), None) if row.points.is_some() => Rule::Points(off),
        (Nature::Quantitative, Some(off), None) => Rule::Within(off),
        (Nature::Quantitative, None, Some(Bound::AtMost)) => Rule::AtMost,
        (Nature::Quantitative, None, Some(Bound::AtLeast)) => Rule::AtLeast,
        (Nature::Quantitative, ..) => return Err(refuse("a quantitative claim has either a `tolerance` or a `bound`")),
    };
    if let (Nature::Quantitative, Paper::Finding(_)) = (row.kind, &row.paper) {
        return Err(refuse("the `paper` of a quantitative claim is its figure"));
    }
    Ok(Claim {
        id: row.id,
        experiment: row.experiment,
        kind: row.kind,
        role: row.role,
        source: row.source,
        text: row.text,
        paper: row.paper,
        formula,
        rule,
        line,
    })
}

fn refused(id: &str, line: usize, error: &FormulaError) -> ClaimError {
    ClaimError::Claim {
        line,
        id: id.into(),
        what: format!("formula: {error}"),
    }
}

/// The line of a byte of `text`, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
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
        Claims::parse(&text).unwrap_err().to_string()
    }

    #[test]
    fn a_claim_is_read_as_written() {
        let claims = Claims::parse(SOUND).unwrap();
        let claim = claims.of("one").next().unwrap();
        assert_eq!(
            (claim.rule, claim.line, claim.role),
            (Rule::Within(0.25), 9, Role::Prediction)
        );
        assert_eq!(claim.paper, Paper::Figure(2.0));
        assert_eq!(claims.of("two").count(), 0);
    }

    #[test]
    fn each_fault_names_its_line_and_its_claim() {
        let open_bracket = refused(&[("cores=0)", "cores=0")]);
        assert!(
            open_bracket.starts_with("line 9: claim \"ratio\": formula: at character 43: "),
            "{open_bracket}"
        );
        assert!(refused(&[("tolerance = 0.25\n", "")]).contains("either a `tolerance` or a `bound`"));
        assert!(refused(&[("0.25", "25")]).contains("above 0 and below 1"));
        let points = refused(&[("tolerance = 0.25", "tolerance = 0.25\npoints = 0.1")]);
        assert!(points.contains("in place of `tolerance`"), "{points}");
        assert!(refused(&[("quantitative", "structural")]).contains("compares two sides"));
        assert!(refused(&[("paper = 2", "paper = \"twice\"")]).contains("is its figure"));
        assert!(refused(&[("tolerance", "tolerence")]).starts_with("line 10: unknown field `tolerence`"));
        assert!(refused(&[("[[claim]]", "[[claim]")]).starts_with("line 2: "));
        let twice = Claims::parse(&format!("{SOUND}{SOUND}")).unwrap_err().to_string();
        assert!(
            twice.starts_with("line 12: claim \"ratio\": an earlier claim"),
            "{twice}"
        );
    }

    #[test]
    fn unknown_samples_and_experiments_are_named() {
        let claims = Claims::parse(SOUND).unwrap();
        let planned = [labels([("cores", "0")]), labels([("cores", "1")])];
        assert_eq!(claims.check_names("one", &["power"], &planned), Ok(()));
        let unknown = claims.check_names("one", &["clock"], &planned).unwrap_err().to_string();
        assert!(
            unknown.starts_with("line 9: claim \"ratio\": formula: at character 1: "),
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
            let _ = Claims::parse(&text);
            let mut changed = SOUND.to_string();
            changed.insert_str(at, &text);
            let _ = Claims::parse(&changed);
        }
    }
}
