use proptest::prelude::*;

use super::*;
use crate::samples::{Run, labels};

fn run(pairs: &[(&str, &str)], samples: &[f64]) -> Run {
    Run {
        labels: labels(pairs.iter().copied()),
        settled_from: 1,
        series: [(
            "clock".to_string(),
            samples.iter().map(|sample| Some(*sample)).collect(),
        )]
        .into(),
    }
}

fn runs() -> Vec<Run> {
    vec![
        run(&[("approach", "mimo"), ("workload", "c50-d50")], &[9.0, 1.0, 2.0, 3.0]),
        run(&[("approach", "mimo"), ("workload", "c10-d90")], &[9.0, 4.0, 6.0]),
        run(&[("approach", "open"), ("workload", "c50-d50")], &[9.0, 0.0]),
    ]
}

fn value(text: &str) -> f64 {
    Formula::parse(text).unwrap().evaluate(&runs()).unwrap()
}

fn refused(text: &str) -> String {
    Formula::parse(text).unwrap_err().to_string()
}

#[test]
fn arithmetic_is_that_of_school() {
    assert_eq!(value("1 + 2 * 3 - 8 / 4"), 5.0);
    assert_eq!(value("-(1 + 2) * -3"), 9.0);
    assert_eq!(value("7 - 2 - 1"), 4.0);
    assert_eq!(value("(1 < 2) + (2 <= 2) + (1 > 2) + (3 >= 2)"), 3.0);
    assert_eq!(value("abs(-2) + least(3, 1, 2) + greatest(3, 1, 2)"), 6.0);
}

#[test]
fn samples_are_chosen_by_label_and_number() {
    assert_eq!(value("mean(clock, workload=c50-d50, approach=mimo)"), 2.0);
    assert_eq!(value("mean(clock, approach=mimo)"), 3.2, "all samples weigh alike");
    assert_eq!(value("median(clock, approach=mimo)"), 3.0);
    assert_eq!(value("max(clock, approach=mimo) - min(clock, approach=mimo)"), 5.0);
    assert_eq!(value("highest(clock) + lowest(clock)"), 5.0, "of the runs' means");
    assert_eq!(value("mean(clock, approach=mimo, workload=c50-d50, from=0, to=2)"), 5.0);
    let missing = Formula::parse("mean(clock, approach=mimo, from=9)")
        .unwrap()
        .evaluate(&runs());
    assert_eq!(missing, Err(Missing("`clock` where approach=mimo".into())));
}

#[test]
fn goals_are_met_or_missed() {
    assert_eq!(value("off(clock, approach=mimo, goal=2, band=0.1)"), 0.5);
    assert_eq!(value("off(clock, approach=mimo, goal=3.5, band=0.5)"), 0.0);
    assert_eq!(value("overshoot(clock, approach=mimo, goal=4)"), 0.5);
    assert_eq!(value("overshoot(clock, approach=open, goal=4)"), 0.0);
    let of = |samples: &[f64]| {
        let formula = Formula::parse("settling(clock, from=1, goal=1, band=0.1)").unwrap();
        formula.evaluate(&[run(&[], samples)]).unwrap()
    };
    assert_eq!(of(&[9.0, 1.0, 1.05, 0.95]), 0.0);
    assert_eq!(
        of(&[9.0, 2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 9.0]),
        3.0,
        "one sample in the band is no rest"
    );
    assert_eq!(of(&[9.0, 2.0, 2.0, 2.0, 2.0, 2.0]), 5.0, "never");
}

#[test]
fn what_is_compared_is_told_apart() {
    let formula = Formula::parse("mean(clock, approach=open) < 3").unwrap();
    assert!(formula.is_comparison());
    assert_eq!(formula.sides(&runs()), Ok((0.0, Some(3.0))));
    let number = Formula::parse("(1 < 2) + 1").unwrap();
    assert!(!number.is_comparison());
    assert_eq!(number.sides(&runs()), Ok((2.0, None)));
}

#[test]
fn refusals_name_their_place() {
    let planned: Vec<Labels> = runs().into_iter().map(|run| run.labels).collect();
    let check = |text: &str| Formula::parse(text).unwrap().check(&["clock", "drr"], &planned);
    assert_eq!(check("mean(clock, approach=mimo) < mean(drr)"), Ok(()));
    let mut list = String::new();
    let mut record = |text: &str, at: usize, error: String| {
        assert!(error.starts_with(&format!("at character {at}: ")), "{text}: {error}");
        list += &format!("{text}\n  => {error}\n");
    };
    for (text, at) in [
        ("1 +", 4),
        ("1 ? 2", 3),
        ("(1 2)", 4),
        ("1 2", 3),
        ("1.2.3", 1),
        ("1e999", 1),
        ("abs(1, 2)", 1),
        ("off(clock, goal=1)", 1),
        ("mean(clock, from=-1)", 18),
        ("mean(clock, cores=1, cores=2)", 22),
        ("average(clock)", 1),
    ] {
        record(text, at, refused(text));
    }
    for (text, at) in [
        ("1 + mean(clok)", 5),
        ("mean(clock, approach=mino)", 1),
        ("mean(clock, aproach=mimo)", 1),
        ("mean(clock, approach=open, workload=c10-d90)", 1),
    ] {
        record(text, at, check(text).unwrap_err().to_string());
    }
    insta::assert_snapshot!("formulas", list);
    assert!(refused(&"(".repeat(1000)).contains("more than 32 levels deep"));
    assert!(refused(&"-".repeat(1000)).contains("more than 32 levels deep"));
    assert!(refused(&"1".repeat(5000)).contains("at most 4096 characters"));
}

/// A formula without samples, as text and as its value.
fn arithmetic() -> impl Strategy<Value = (String, f64)> {
    let number = (0u32..1000).prop_map(|n| (format!("{}", f64::from(n) / 8.0), f64::from(n) / 8.0));
    number.prop_recursive(4, 32, 2, |inner| {
        (inner.clone(), inner, 0usize..6).prop_map(|((a, x), (b, y), operator)| match operator {
            0 => (format!("({a} + {b})"), x + y),
            1 => (format!("({a}- {b})"), x - y),
            2 => (format!("({a} *{b})"), x * y),
            3 => (format!("-{a}"), -x),
            4 => (format!("greatest({a},{b})"), x.max(y)),
            _ => (format!("({a} < {b})"), f64::from(x < y)),
        })
    })
}

proptest! {
    #[test]
    fn a_formula_is_worth_what_it_says((text, expected) in arithmetic()) {
        prop_assert_eq!(Formula::parse(&text).unwrap().evaluate(&[]).unwrap(), expected, "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Formula::parse(&text);
    }

    #[test]
    fn nothing_that_nearly_is_a_formula_makes_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "mean", "settling", "abs", "(", ")", ",", "=", "<", "<=", "-", "+", "/", "clock", "from", "goal", "1", "0.5", "c90-d10", " ",
        ]), 0..40)
    ) {
        let text = words.join(" ");
        if let Ok(formula) = Formula::parse(&text) {
            let _ = formula.evaluate(&runs());
            let _ = formula.check(&["clock"], &[]);
        }
    }
}
