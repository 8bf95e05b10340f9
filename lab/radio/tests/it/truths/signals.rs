//! Filters and receiver on signals whose answer is known.

use proptest::prelude::*;
use punctual_radio::filters::{TapsError, bands, low_pass};
use punctual_radio::sound::{self, quantized};
use punctual_radio::{InputSpectrum, OptionError, Options, Spectrum, receive};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The gain of a filter at a frequency, in parts of the rate.
fn gain(taps: &[f64], frequency: f64) -> f64 {
    let turn = |at: usize| 2.0 * std::f64::consts::PI * frequency * at as f64;
    let parts = taps
        .iter()
        .enumerate()
        .map(|(at, tap)| (tap * turn(at).cos(), tap * turn(at).sin()));
    let (re, im) = parts.fold((0.0, 0.0), |(a, b), (re, im)| (a + re, b + im));
    f64::hypot(re, im)
}

proptest! {
    #[test]
    fn bands_sum_to_a_pure_delay(
        half in 20usize..300, cutoffs in prop::collection::btree_set(100u32..12_400, 0..12),
    ) {
        let cutoffs: Vec<f64> = cutoffs.into_iter().map(f64::from).collect();
        let bands = bands(2 * half + 1, &cutoffs, 25_000.0).unwrap();
        prop_assert_eq!(bands.len(), cutoffs.len() + 1);
        for tap in 0..=2 * half {
            let sum: f64 = bands.iter().map(|band| band[tap]).sum();
            let expected = if tap == half { 1.0 } else { 0.0 };
            prop_assert!((sum - expected).abs() < 1e-12, "tap {}: {}", tap, sum);
        }
    }

    #[test]
    fn filters_are_of_linear_phase_and_of_gain_one_at_rest(taps in 1usize..400, cutoff in 0.01f64..0.49) {
        let taps = low_pass(taps, cutoff, 1.0).unwrap();
        prop_assert!((taps.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (tap, mirrored) in taps.iter().zip(taps.iter().rev()) {
            prop_assert!((tap - mirrored).abs() < 1e-12);
        }
    }

    #[test]
    fn any_bytes_make_finite_sound(seed: u64, low in 0u8..=255, width in 0u8..=255) {
        let mut iq = vec![[0u8; 2]; 3000];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(iq.as_flattened_mut());
        for byte in iq.as_flattened_mut() {
            *byte = low.saturating_add(*byte % width.max(1));
        }
        let sound = receive(&iq, &Options::default()).unwrap();
        // The angle is at most half a turn, 1.67 of full scale; filters overshoot by less than half.
        prop_assert!(sound.iter().all(|sample| sample.abs() < 5.0));
    }
}

#[test]
fn the_filters_of_the_receiver_pass_and_stop_what_they_should() {
    let decibels = |taps: &[f64], hertz: f64, rate: f64| 20.0 * gain(taps, hertz / rate).log10();
    let channel = low_pass(81, 95e3, 250e3).unwrap();
    assert!(decibels(&channel, 85e3, 250e3) > -0.1);
    assert!(decibels(&channel, 106e3, 250e3) < -50.0);
    let audio = low_pass(500, 11_500.0, 250e3).unwrap();
    assert!(decibels(&audio, 10_500.0, 250e3) > -0.1);
    assert!(decibels(&audio, 12_500.0, 250e3) < -50.0);
}

#[test]
fn silence_is_silent() {
    for still in [[127, 127], [128, 128], [127, 128], [128, 127]] {
        assert_eq!(receive(&[still; 10_000], &Options::default()).unwrap(), vec![0.0; 1000]);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let idle: Vec<[u8; 2]> = (0..10_000)
        .map(|_| [0, 1].map(|_| 127 + (rng.next_u32() & 1) as u8))
        .collect();
    assert_eq!(receive(&idle, &Options::default()).unwrap(), vec![0.0; 1000], "seed 7");
}

#[test]
fn a_recording_of_nothing_is_no_sound() {
    assert_eq!(receive(&[], &Options::default()).unwrap(), Vec::<f32>::new());
}

#[test]
fn a_still_carrier_plays_its_distance() {
    // 25 kHz above the middle: a third of full scale. The carrier turns a tenth of a circle with each sample.
    let carrier = |at: usize| {
        let turn = 0.1 * at as f64 * 2.0 * std::f64::consts::PI;
        [turn.cos(), turn.sin()].map(|part| (127.5 + 100.0 * part).round() as u8)
    };
    let sound = receive(&(0..20_000).map(carrier).collect::<Vec<_>>(), &Options::default()).unwrap();
    let end = sound[1900];
    assert!((end - 1.0 / 3.0).abs() < 1e-3, "{end}");
}

#[test]
fn gains_raise_and_lower_their_band() {
    let options = Options {
        gains: vec![0.0, 6.0, -6.0],
        ..Options::default()
    };
    let cutoffs = options.cutoffs();
    let taps = bands(401, &cutoffs, 25_000.0).unwrap();
    let centre = (cutoffs[0] * cutoffs[1]).sqrt();
    assert!((gain(&taps[1], centre / 25_000.0) - 1.0).abs() < 0.01);
    assert!(gain(&taps[0], centre / 25_000.0) < 0.01);
    assert!(gain(&taps[2], centre / 25_000.0) < 0.01);
}

#[test]
fn options_that_make_no_receiver_are_told() {
    let told = |options: Options| receive(&[], &options).unwrap_err().to_string();
    let with = |frame, gains: &[f64], emphasis| Options {
        frame,
        gains: gains.to_vec(),
        emphasis,
        ..Options::default()
    };
    let frame = told(with(255, &[0.0], 50.0));
    assert!(frame.contains("255") && frame.contains("a multiple of 10"), "{frame}");
    assert_eq!(told(with(250, &[], 50.0)), "0 bands: take 1 to 16");
    assert!(told(with(250, &[0.0, 99.0], 50.0)).contains("band 2 is 99 dB"));
    assert_eq!(receive(&[], &with(0, &[0.0], 50.0)), Err(OptionError::Frame(0)));
    assert!(told(with(250, &[f64::NAN], 50.0)).contains("NaN dB"));
    assert!(told(with(250, &[0.0], -1.0)).contains("-1 us"));
    assert_eq!(low_pass(0, 1.0, 10.0), Err(TapsError::Number(0)));
    assert_eq!(bands(4, &[1.0], 10.0), Err(TapsError::Even(4)));
    assert_eq!(bands(5, &[2.0, 1.0], 10.0), Err(TapsError::Order(1.0)));
    assert!(low_pass(5, 5.0, 10.0).unwrap_err().to_string().contains("not at 5 Hz"));
}

#[test]
fn a_sine_is_in_its_band_of_the_spectrum() {
    let mut spectrum = Spectrum::new(12);
    let edges: Vec<f32> = spectrum.edges().collect();
    let mut powers = Vec::new();
    for band in 4..12 {
        let pitch = (edges[band] * edges[band + 1]).sqrt();
        let sine = |at: usize| (2.0 * std::f32::consts::PI * pitch / 25_000.0 * at as f32).sin();
        spectrum.measure(&(0..3000).map(sine).collect::<Vec<_>>(), &mut powers);
        let loudest = (0..12).max_by(|&a, &b| powers[a].total_cmp(&powers[b])).unwrap();
        assert_eq!(loudest, band, "{powers:?}");
        assert!(powers[band].abs() < 0.5, "{pitch} Hz: {powers:?}");
    }
    spectrum.measure(&[], &mut powers);
    assert_eq!(powers, [-96.0; 12]);
}

#[test]
fn sixteen_bits_round_and_cut_off() {
    assert_eq!(
        [0.0, 1.0, -1.0, 0.5 / 32767.0, 9.0, -9.0].map(quantized),
        [0, 32767, -32767, 0, 32767, -32768]
    );
    assert_eq!(quantized(f32::NAN), 0);
}

#[test]
fn a_carrier_is_one_line_of_the_input() {
    let mut spectrum = InputSpectrum::new(256);
    let carrier = |at: usize| {
        let angle = std::f64::consts::TAU * (260.0 / 2048.0) * at as f64;
        [angle.cos(), angle.sin()].map(|part| (127.5 + 127.0 * part).round() as u8)
    };
    let input: Vec<[u8; 2]> = (0..InputSpectrum::SAMPLES).map(carrier).collect();
    let mut powers = Vec::new();
    spectrum.measure(&input, &mut powers);
    // The middle of a line: (1024 + 260) / 8 is 160.5.
    assert!(powers[160].abs() < 0.5, "{}", powers[160]);
    assert!(
        powers
            .iter()
            .enumerate()
            .all(|(at, power)| (158..=162).contains(&at) || *power < -40.0),
        "{powers:?}"
    );
}

#[test]
fn a_file_in_memory_is_the_one_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.wav");
    let samples: Vec<f32> = (0..60_000).map(|at| (at as f32 * 0.01).sin()).collect();
    let mut file = sound::Sound::create(&path).unwrap();
    samples.chunks(77).for_each(|part| file.write(part).unwrap());
    file.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), sound::wav(&samples));
}
