//! The sound does not depend on how a recording is cut into frames, nor on where a stage's state has been.

use proptest::prelude::*;
use punctual_radio::filters::{Fir, Line};
use punctual_radio::{Options, Receiver, receive};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn noise(seed: u64, samples: usize) -> Vec<[u8; 2]> {
    let mut iq = vec![[0; 2]; samples];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(iq.as_flattened_mut());
    iq
}

fn bits(sound: &[f32]) -> Vec<u32> {
    sound.iter().map(|sample| sample.to_bits()).collect()
}

proptest! {
    /// Any lengths, also those that the options refuse because no sample of sound ends with them.
    #[test]
    fn frames_of_all_lengths_give_the_same_bits(
        seed: u64, cuts in prop::collection::vec(0usize..1500, 1..12), bands in 1usize..6,
    ) {
        let iq = noise(seed, 5000);
        let options = Options { gains: vec![-1.0; bands], ..Options::default() };
        let whole = receive(&iq, &Options { frame: 5000, ..options.clone() }).unwrap();
        let mut receiver = Receiver::new(&Options { frame: 5000, ..options.clone() }).unwrap();
        let (mut sound, mut rest) = (Vec::new(), iq.as_slice());
        for cut in cuts {
            let (frame, after) = rest.split_at(cut.min(rest.len()));
            receiver.frame(frame, &mut sound);
            rest = after;
        }
        receiver.frame(rest, &mut sound);
        prop_assert_eq!(bits(&sound), bits(&whole));
        prop_assert_eq!(bits(&receive(&iq, &options).unwrap()), bits(&whole));
    }

    #[test]
    fn a_filter_goes_on_from_its_saved_line(
        seed: u64, taps in 1usize..200, every in 1u32..9, cut in 0usize..900,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let taps: Vec<f64> = (0..taps).map(|_| rng.random_range(-1.0..1.0)).collect();
        let input: Vec<f32> = (0..900).map(|_| rng.random_range(-1.0..1.0)).collect();
        let mut output = [0.0; 900];
        let mut fir = Fir::new(&taps, every);
        let whole = fir.run(&mut fir.line(), &input, &mut output);
        let (mut moved, mut line) = ([0.0; 900], fir.line());
        let made = fir.run(&mut line, &input[..cut], &mut moved);
        let mut line: Line = postcard::from_bytes(&postcard::to_stdvec(&line).unwrap()).unwrap();
        let mut other = Fir::new(&taps, every);
        prop_assert!(other.takes(&line));
        prop_assert!(other.outputs_max(cut) >= made);
        let all = made + other.run(&mut line, &input[cut..], &mut moved[made..]);
        prop_assert_eq!(bits(&moved[..all]), bits(&output[..whole]));
    }
}
