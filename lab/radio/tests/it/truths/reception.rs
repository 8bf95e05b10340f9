//! How good the receiver is.

use std::path::Path;

use punctual_radio::sound::{self, Fingerprint};
use punctual_radio::{IQ_BYTES, Options, Quality, REFERENCE, Recording, STATION, quality, receive};

use crate::truths::station::{Programme, recording};

/// The bounds that every station is held to.
fn assert_good(what: &str, found: Quality, options: &Options) {
    println!("{what}: {found:?}");
    assert_eq!(found.delay_samples, options.delay() as i64, "{what}");
    assert!(found.correlation >= 0.9999, "{what}: {found:?}");
    assert!(found.snr_db >= 40.0, "{what}: {found:?}");
}

fn whole(mut recording: Recording) -> Vec<[u8; IQ_BYTES]> {
    let (mut all, mut frame) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match recording.read(&mut frame).unwrap() {
            0 => return all,
            read => all.extend_from_slice(frame[..read].as_chunks().0),
        }
    }
}

#[test]
fn the_shipped_recording_sounds_like_its_reference() {
    let iq = whole(Recording::open(Path::new(STATION)).unwrap());
    assert_eq!(iq.len(), 2_500_000);
    let reference = sound::read(Path::new(REFERENCE)).unwrap();
    let options = Options::default();
    let sound = receive(&iq, &options).unwrap();
    assert_good("shipped recording", quality(&sound, &reference).unwrap(), &options);
    let plain = receive(
        &iq,
        &Options {
            emphasis: 0.0,
            ..options
        },
    )
    .unwrap();
    println!(
        "shipped recording without de-emphasis: {:?}",
        quality(&plain, &reference).unwrap()
    );
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(&sound);
    println!("shipped recording: SHA-256 {}", fingerprint.digits());
}

#[test]
fn other_stations_sound_like_what_they_send() {
    let stations = [(1, 50.0), (3, 75.0), (5, 0.0), (2, 50.0), (4, 75.0)];
    for (seed, emphasis) in stations.into_iter().take(punctual_testing::campaign(3, 5)) {
        let (programme, seconds) = (Programme::new(seed), 2.0);
        let options = Options {
            emphasis,
            ..Options::default()
        };
        let sound = receive(&recording(&programme, seconds, emphasis, seed), &options).unwrap();
        let found = quality(&sound, &programme.sound(seconds)).unwrap();
        assert_good(&format!("seed {seed}, {emphasis} us"), found, &options);
    }
}

/// Planted: each fault that a receiver may have is seen by the figures.
#[test]
fn a_worse_receiver_is_found_out() {
    let (programme, seconds) = (Programme::new(1), 1.0);
    let iq = recording(&programme, seconds, 50.0, 1);
    let reference = programme.sound(seconds);
    let heard = |options: &Options| quality(&receive(&iq, options).unwrap(), &reference).unwrap();
    let good = |found: Quality| found.correlation >= 0.9999 && found.snr_db >= 40.0;
    let standard = Options::default();
    assert!(good(heard(&standard)));
    let other_emphasis = Options {
        emphasis: 75.0,
        ..standard.clone()
    };
    assert!(!good(heard(&other_emphasis)));
    let uneven = Options {
        gains: vec![0.0, 0.0, 1.0, 0.0],
        ..standard.clone()
    };
    assert!(!good(heard(&uneven)));
    let mut lost = receive(&iq, &standard).unwrap();
    lost.drain(12_000..12_025);
    assert!(!good(quality(&lost, &reference).unwrap()), "a lost frame");
    let mut twice = receive(&iq, &standard).unwrap();
    twice.splice(12_000..12_000, twice[11_975..12_000].to_vec());
    assert!(!good(quality(&twice, &reference).unwrap()), "a frame played twice");
}
