//! The engine's record of a temporal object: number, sampling instant and clock origin, value.
//!
//! **Instants across restarts.** A sampling instant counts from the origin of the machine's clock, on Linux from boot.
//! After a reboot it means nothing, and the wall clock cannot replace it: without a battery it starts anywhere, and
//! time synchronisation moves it. So the record names its clock's origin. A store opened by a clock of the same origin
//! (the same boot) knows the sample's age exactly; opened by any other, it keeps the value and treats it as stale until
//! its sensor reports.
//!
//! Layout, little-endian: sequence number (8 bytes), sampling instant (8), clock origin (8; 0: instant unknown), value.

use punctual_units::{Seq, Time, fnv1a};

use super::Sample;

const HEADER_LEN: usize = 24;
const NO_ORIGIN: u64 = 0;

/// The origin that a clock's instants count from; instants of two clocks are comparable if their origins are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOrigin(Option<std::num::NonZeroU64>);

impl ClockOrigin {
    /// An origin unlike all others: no value from an earlier run is known to be fresh.
    pub const UNKNOWN: ClockOrigin = ClockOrigin(None);

    /// The origin named by `identity`, for example the boot id that Linux draws at random at each boot.
    pub fn named(identity: &[u8]) -> ClockOrigin {
        // An origin is random already, it only has to fit into the record.
        ClockOrigin(std::num::NonZeroU64::new(fnv1a(identity.iter().copied())))
    }

    /// The origin's number; `None` if it is unknown.
    pub(crate) fn known(self) -> Option<u64> {
        self.0.map(std::num::NonZeroU64::get)
    }

    fn number(self) -> u64 {
        self.0.map_or(NO_ORIGIN, |origin| origin.get())
    }
}

/// Replaces the content of `record` by the encoding of a value.
pub(crate) fn encode(record: &mut Vec<u8>, sample: Sample, value: &[u8], origin: ClockOrigin) {
    record.clear();
    record.extend(encode_header(sample, origin).into_iter().flat_map(u64::to_le_bytes));
    record.extend_from_slice(value);
}

/// The words of a record before the value.
pub(super) fn encode_header(sample: Sample, origin: ClockOrigin) -> [u64; 3] {
    let origin = sample.sampled_at.map_or(NO_ORIGIN, |_| origin.number());
    [sample.seq.0, sample.sampled_at.unwrap_or(Time::ZERO).0, origin]
}

/// Decodes a record: the value and its sample, whose instant is known only if `origin` is the record's. `None` for
/// bytes that are no record.
pub fn decode(record: &[u8], origin: ClockOrigin) -> Option<(Sample, &[u8])> {
    let (header, value) = record.split_first_chunk::<HEADER_LEN>()?;
    let ([seq, sampled_at, recorded_origin], []) = header.as_chunks::<8>() else {
        return None;
    };
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let comparable = origin != ClockOrigin::UNKNOWN && number(recorded_origin) == origin.number();
    let sampled_at = comparable.then(|| Time(number(sampled_at)));
    Some((
        Sample {
            seq: Seq(number(seq)),
            sampled_at,
        },
        value,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_comes_back_and_its_instant_only_to_the_same_clock(
            seq: u64, at: Option<u64>, value: Vec<u8>, same: bool,
        ) {
            let sample = Sample { seq: Seq(seq), sampled_at: at.map(Time) };
            let (here, there) = (ClockOrigin::named(b"boot 1"), ClockOrigin::named(b"boot 2"));
            let mut record = vec![1, 2, 3];
            encode(&mut record, sample, &value, here);
            let (back, content) = decode(&record, if same { here } else { there }).unwrap();
            prop_assert_eq!(content, &value);
            prop_assert_eq!(back.seq, sample.seq);
            prop_assert_eq!(back.sampled_at, sample.sampled_at.filter(|_| same));
            prop_assert_eq!(decode(&record, ClockOrigin::UNKNOWN).unwrap().0.sampled_at, None);
        }

        #[test]
        fn bytes_that_are_no_record_are_told_apart(bytes in prop::collection::vec(any::<u8>(), 0..HEADER_LEN)) {
            prop_assert_eq!(decode(&bytes, ClockOrigin::UNKNOWN), None);
        }
    }
}
