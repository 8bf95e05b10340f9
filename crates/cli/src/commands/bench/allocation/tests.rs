use punctual_allocation::policy::Exact;
use punctual_allocation::{Objective, Pool, Programs};

use super::instants::Instants;
use super::*;

fn scaled() -> Programs {
    let sets = shipped().unwrap();
    let scaled = sets.iter().find(|set| set.name == "scaled").unwrap();
    Programs::new(&scaled.profiles, Objective::Speed).unwrap()
}

#[test]
fn instants_are_of_all_kinds() {
    let programs = scaled();
    let instants = Instants::draw(&programs, Pool::PAPER, 4, 2.6, 1);
    let all: Vec<_> = instants.iter().collect();
    let busy = all.iter().flatten().flatten().count();
    assert!(
        busy > all.len() * 2 && busy < all.len() * 4,
        "{busy} jobs at {} instants",
        all.len()
    );
    assert!(all.iter().flatten().flatten().any(|job| !job.waiting.is_empty()));
    assert!(all.iter().flatten().flatten().any(|job| job.deadline < instants.now()));
    let progress = |job: &punctual_allocation::Running<'_>| (0.0..=1.0).contains(&job.progress);
    assert!(all.iter().flatten().flatten().all(progress));
}

#[test]
fn nobody_is_above_exact_and_the_control_is_not_compared() {
    let programs = scaled();
    let instants = Instants::draw(&programs, Pool::PAPER, 4, 2.6, 1);
    let cores: Vec<_> = instants.iter().take(200).collect();
    let exact = Exact::new(&programs, Pool::PAPER, 4);
    let mut policies = policies::all(&programs, Pool::PAPER, exact, &instants);
    for (policy, ratio) in ratios(&mut policies, &programs, &cores).iter().enumerate() {
        let name = policies[policy].name;
        match ratio {
            None => assert!(policies[policy].is_control, "{name}"),
            Some((mean, least)) if name == policies::EXACT => assert_eq!((*mean, *least), (1.0, 1.0)),
            Some((mean, least)) => assert!(*mean < 1.0 && least <= mean && *least > 0.0, "{name}: {mean} {least}"),
        }
    }
}

#[test]
fn a_bound_is_on_both_figures() {
    let bound = &SETTINGS[0].bounds[0];
    let figures = |median_ns, one_p99_ns| Figures {
        name: bound.policy,
        is_control: false,
        cost: timing::Cost {
            median_ns,
            one_p99_ns,
            swept_median_ns: 1e9,
            swept_p99_ns: 1e9,
        },
        of_exact: None,
        of_exact_least: None,
    };
    assert!(kept(bound, &[figures(2000.0, 5000.0)]).kept);
    assert!(!kept(bound, &[figures(2001.0, 5000.0)]).kept);
    assert!(!kept(bound, &[figures(2000.0, 5001.0)]).kept);
}
