use super::*;
use crate::claims::{Claims, Reasons};
use punctual_units::Nanos;

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
    assert_eq!(check_claims(Film::Bd, &settings), Ok(()));
    let known: Vec<&str> = settings.claims.iter().map(|claim| claim.id.as_str()).collect();
    let orphan = reasons::KNOWN
        .iter()
        .flat_map(|(ids, _)| *ids)
        .find(|id| !known.contains(id));
    assert_eq!(orphan, None, "a reason for no claim");
}

#[test]
fn claims_about_unknown_runs_are_refused_before_anything_runs() {
    let mut settings = settings(1);
    settings.claims = Claims::parse(&CLAIMS.replacen("wait=20", "wait=25", 1), "x").unwrap();
    let progress = |_: &str| panic!("something ran");
    let error = run(&[Part::Timeline], &Ground::paper(), &settings, &progress)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no run has wait=25"), "{error}");
}

#[test]
fn the_same_settings_give_the_same_outcome_on_any_number_of_threads() {
    let mut settings = settings(2);
    let mut of = |workers| {
        settings.workers = std::num::NonZeroUsize::new(workers);
        run(&[Part::Timeline], &Ground::paper(), &settings, &|_| {}).unwrap()
    };
    let one = of(1);
    assert_eq!(one, of(3));
    assert!(one.failures.is_empty(), "{:?}", one.failures);
    assert_eq!(one.samples.len(), 1, "the first seed's");
    assert_eq!(one.samples[0].runs.len(), plan(&[Part::Timeline], Film::Bd).len());
    let names: Vec<&String> = one.samples[0].runs[0].series.keys().collect();
    let mut expected: Vec<&str> = FRAME_SERIES.into_iter().chain(RUN_SERIES).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(one.measures.iter().all(|measure| measure.spread.is_some()));
}

#[test]
fn a_ground_that_cannot_be_is_refused() {
    let mut ground = Ground::paper();
    ground.media.flash.erase_us = 0.0;
    let error = run(&[Part::Timeline], &ground, &settings(1), &|_| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("flash.erase-us"), "{error}");
}

/// Each change of what runs is in the texts, in its own figures.
#[test]
fn reasons_follow_from_what_ran() {
    let of = |change: fn(&mut Ground)| {
        let mut ground = Ground::paper();
        change(&mut ground);
        let plan = plan(&[Part::Timeline], ground.play.film);
        reasons::reasons(&ground, &carry_out(&plan, &ground, &settings(1), &|_| {}))
    };
    let paper = of(|_| {});
    let ids: Vec<&str> = paper.keys().map(String::as_str).collect();
    let timeline = [
        "blocking-at-7k",
        "blocking-late",
        "blocking-missed",
        "dual-early",
        "dual-in-time",
    ];
    assert!(timeline.iter().all(|id| ids.contains(id)), "{ids:?}");
    assert!(
        !ids.contains(&"utilisation-hdd"),
        "its runs did not take place: {ids:?}"
    );
    type Change = fn(&mut Ground);
    let changes: [(&str, &str, Change); 7] = [
        ("blocking-missed", "a quantum of 500.0 us", |ground| {
            ground.machine.quantum_us = 500.0
        }),
        ("blocking-missed", "8 interactive jobs on 4 cores", |ground| {
            (ground.machine.cores, ground.play.jobs) = (4, 8);
        }),
        ("blocking-missed", "a core is often free", |ground| ground.play.jobs = 1),
        ("blocking-missed", " of its period", |ground| {
            ground.media.flash.read_us = 10.0
        }),
        ("blocking-late", "With 0.19 of the period", |ground| {
            (ground.play.decode, ground.play.period) = (Nanos::from_millis(15), Nanos::from_micros(83_333));
        }),
        ("dual-in-time", "reads of 64.0 us to 64.0 us", |ground| {
            ground.media.pcm.read_ns = [1000.0; 2]
        }),
        ("dual-in-time", " reads of ", |ground| ground.play.film = Film::Dvd),
    ];
    for (id, words, change) in changes {
        let changed = of(change);
        assert_ne!(paper[id], changed[id], "{words}");
        assert!(changed[id].contains(words), "{words}: {}", changed[id]);
    }
}

#[test]
fn what_cannot_be_played_names_its_option() {
    assert_eq!(Play::default().check(), Ok(()));
    type Change = fn(&mut Play);
    let changes: [(&str, Change); 5] = [
        ("--fps", |play| play.period = Nanos::from_millis(2)),
        ("--fps", |play| play.period = Nanos::from_millis(1001)),
        ("--decode", |play| play.decode = play.period),
        ("--decode", |play| play.decode = Nanos::ZERO),
        ("--hogs", |play| play.jobs = 65),
    ];
    for (option, change) in changes {
        let mut ground = Ground::paper();
        change(&mut ground.play);
        let refused = run(&[Part::Timeline], &ground, &settings(1), &|_| panic!("something ran")).unwrap_err();
        assert!(refused.to_string().starts_with(option), "{refused}");
    }
}

#[test]
fn another_film_stands_in_place_of_the_first_one() {
    for film in Film::ALL {
        assert_eq!(film.named(&film.named(CLAIMS)), CLAIMS, "an exchange");
        let mut settings = settings(1);
        settings.claims = Claims::parse(&film.named(CLAIMS), "x").unwrap();
        assert_eq!(check_claims(film, &settings), Ok(()));
    }
    assert_eq!(
        Film::Hd.named("medium=hdd, film=bd, film=hd"),
        "medium=hdd, film=hd, film=bd"
    );
}
