use super::*;
use crate::claims::{Claims, Reasons, Verdict, reasons};
use punctual_allocation::mapping::{Idle, MappingTable, Search};

fn settings(seeds: u32) -> Settings {
    Settings {
        machines: Vec::new(),
        seed: 1,
        seeds,
        profiles: Vec::new(),
        sets: 1,
        claims: Claims::parse(CLAIMS, "x").unwrap(),
        reasons: Reasons::new(),
        workers: None,
    }
}

#[test]
fn the_shipped_claims_name_what_there_is() {
    let settings = settings(1);
    assert_eq!(check_claims(&settings), Ok(()));
    let reasons = reasons(REASONS, "x").unwrap();
    let known: Vec<&str> = settings.claims.iter().map(|claim| claim.id.as_str()).collect();
    let orphan = reasons.keys().find(|id| !known.contains(&id.as_str()));
    assert_eq!(orphan, None, "a reason for no claim");
}

#[test]
fn the_same_settings_give_the_same_outcome_on_any_number_of_threads() {
    let mut settings = settings(2);
    let mut of = |workers| {
        settings.workers = std::num::NonZeroUsize::new(workers);
        run(&[Part::Cost, Part::Checkpoint], &Mpsoc::paper(), &settings, &|_| {}).unwrap()
    };
    let one = of(1);
    assert_eq!(one, of(3));
    assert!(one.failures.is_empty(), "{:?}", one.failures);
    assert!(
        one.claims
            .iter()
            .all(|row| matches!(row.outcome, Verdict::Holds | Verdict::Setting))
    );
}

/// Every part has the runs that it plans, with the series that it names and no other.
#[test]
fn runs_are_as_planned() {
    for part in Part::ALL {
        let runs: Vec<Run> = part
            .runs(&Mpsoc::paper(), 1)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
        let labels: Vec<Labels> = runs.iter().map(|run| run.labels.clone()).collect();
        assert_eq!(labels, part.labels(), "{}", part.name());
        let known = part.series();
        let stray = runs
            .iter()
            .flat_map(|run| run.series.keys())
            .find(|name| !known.contains(&name.as_str()));
        assert_eq!(stray, None, "{}", part.name());
    }
}

#[test]
fn the_loads_are_the_papers() {
    let three = radio::radio(3, 14, radio::TASK_BYTES).unwrap();
    let cycles: f64 = three.costs().iter().map(|cost| cost.cycles).sum();
    assert!((cycles - 1e6 / 6.0).abs() < 1e-6);
    let share = three.costs()[radio::DEMODULATION].cycles / cycles;
    assert!((share - 45.0 / 94.0).abs() < 1e-12);
    let moved = |from, to| radio::mapping(3, from).moves(&radio::mapping(3, to)).count();
    assert_eq!((moved(1, 2), moved(2, 3), moved(1, 3)), (1, 2, 3));
}

#[test]
fn a_machine_of_two_cores_is_refused() {
    let machine = Mpsoc {
        cores: 2,
        ..Mpsoc::paper()
    };
    let error = run(&[Part::Map], &machine, &settings(1), &|_| panic!("something ran")).unwrap_err();
    assert!(error.to_string().starts_with("cores: 2; "), "{error}");
}

/// The best of all mappings is never dearer than the best of the paper's three.
#[test]
fn all_mappings_include_the_papers() {
    for idle in Idle::ALL {
        let problem = radio::problem(3, map::cores(&Mpsoc::paper()), idle).unwrap();
        let papers = Search::among(problem.clone(), [1, 2, 3].map(|cores| radio::mapping(3, cores)));
        let all = MappingTable::new(&Search::new(problem.clone()).unwrap(), None);
        let papers = MappingTable::new(&papers, None);
        for fps in (1..120).map(|number| f64::from(number) * 50.0) {
            let watts = |table: &MappingTable| table.row(fps).and_then(|row| problem.watts(&row.configuration, fps));
            let (Some(all), Some(papers)) = (watts(&all), watts(&papers)) else {
                continue;
            };
            assert!(all <= papers * (1.0 + 1e-9), "{fps}: {all} {papers}");
        }
    }
}
