//! Prices on the simulated machine: the least energy once goals hold, and fresh data for what they are worth.

use crate::{common, learnt};

use common::unwatched;
use punctual_control::Stability;
use punctual_loop::{DeciderEvent, Event, Mismatch, Unfit, replay};
use punctual_runtime::report::FinishedRun;
use punctual_scenario::{ControllerSource, PlatformChoice, RunError, RunRequest, check_controller, run};
use punctual_units::{Nanos, Share};
use punctual_workload::{ControllerKind, Pace, Prices, TaskGoal};

fn request(prices: Option<Prices>) -> RunRequest {
    let mut request = common::request(PlatformChoice::Sim, ControllerKind::Mimo, 30);
    let scenario = &mut request.scenario;
    scenario.goal.tasks = TaskGoal::Late(Share::clamped(0.01));
    scenario.tasks[0].demand.compute = Nanos::from_millis(12);
    scenario.tasks[0].demand.data = Nanos::from_micros(1500);
    let control = &mut scenario.control;
    (control.pace, control.within, control.prices) = (Pace::Job, true, prices);
    request.record = true;
    request.controller = Some(ControllerSource::Model(learnt::model().clone()));
    request
}

fn finished(prices: Option<Prices>) -> FinishedRun {
    run(&request(prices), &mut unwatched).expect("the run ends in order")
}

/// A machine without a meter of energy gives up no fresh data unasked.
#[test]
fn linux_obeys_only_prices_that_are_stated() {
    let mut request = request(Some(Prices::default()));
    assert_eq!(request.prices(), Some(Prices::default()));
    request.platform = PlatformChoice::Linux;
    assert_eq!(request.prices(), None);
    request.scenario.control.prices_stated = true;
    assert_eq!(request.prices(), Some(Prices::default()));
}

/// With prices `mimo` runs with the gains of `clock`: these are judged, with no need of those of `mimo`.
#[test]
fn the_gains_that_run_are_those_that_are_judged() {
    let designed = learnt::model().for_every_job(2.0).unwrap().design().unwrap();
    let check = |prices, document| {
        let mut request = request(prices);
        request.controller = Some(ControllerSource::Controller(document));
        check_controller(&request)
    };
    let priced = Some(Prices::default());
    let (mut without_clock, mut without_mimo, mut unstable) = (designed.clone(), designed.clone(), designed);
    without_clock.clock = None;
    assert!(check(None, without_clock.clone()).is_ok());
    let refused = check(priced, without_clock).unwrap_err();
    assert!(
        matches!(&refused, RunError::Mismatch(Mismatch(why)) if why.contains("`goal.drr` in place of prices")),
        "{refused}"
    );
    without_mimo.mimo = None;
    assert!(check(priced, without_mimo.clone()).is_ok());
    let missing = "there are no gains for the controller `mimo`";
    assert!(matches!(check(None, without_mimo), Err(RunError::Mismatch(Mismatch(why))) if why.starts_with(missing)));
    // Gains of the law alone: their loop is judged by the verdict in the file.
    unstable.model = None;
    unstable.clock.as_mut().unwrap().verdict = Stability::Unstable { spectral_radius: 1.2 };
    assert!(check(None, unstable.clone()).is_ok());
    let refused = check(priced, unstable);
    assert!(matches!(
        refused,
        Err(RunError::Unfit(Unfit(why))) if why.starts_with("the loop that `clock` closes around its model is unstable")
    ));
}

#[test]
fn prices_save_energy_at_the_same_goals_and_buy_what_is_worth_it() {
    let without = finished(None).report.summary;
    let priced = finished(Some(Prices::default()));
    let log = priced.log.expect("a log was asked for");
    let is_begun =
        |event: &DeciderEvent| matches!(event, DeciderEvent::Tasks(event) if matches!(**event, Event::Begun(_)));
    let begun = log.decisions.iter().filter(|decision| is_begun(&decision.event));
    let begun = begun.count();
    assert!(begun > 200, "{begun} releases");
    assert_eq!(replay(&log), Ok(Vec::new()));
    let priced = priced.report.summary;
    let (energy, before) = (priced.energy_j.unwrap(), without.energy_j.unwrap());
    assert!(energy < 0.8 * before, "{energy} J after {before} J");
    assert!(priced.fresh_share_min >= Some(0.5), "{:?}", priced.fresh_share_min);

    let dear = Prices {
        freshness: 5.0,
        ..Prices::default()
    };
    let dear = finished(Some(dear)).report.summary;
    let (fresher, fresh) = (dear.fresh_share_mean.unwrap(), priced.fresh_share_mean.unwrap());
    assert!(fresher > fresh + 0.1, "{fresher} after {fresh}");
    assert!(dear.energy_j > priced.energy_j);
    assert!(
        dear.misses.max(priced.misses) <= 3,
        "{} and {} late jobs",
        dear.misses,
        priced.misses
    );
}
