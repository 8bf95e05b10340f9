//! Lists and masks of cores, parsed and printed without allocation: the guardian does so, too (see `undo.rs`).

use std::io::{Cursor, Write};

use super::super::core_mask::CoreMask;
use punctual_units::CoreId;

/// Longest content of a file, or second path, with its terminating zero, in bytes.
pub(crate) const TEXT_BYTES: usize = 512;
/// Number of cores in a set (`cpu_set_t`).
const CORES: u32 = libc::CPU_SETSIZE as u32;

/// Parses a list such as `0-2,5`; an empty list has no cores. `None` if it is no list of cores.
pub(crate) fn parse_list(list: &[u8]) -> Option<CoreMask> {
    let mut mask = CoreMask::default();
    for run in list.trim_ascii().split(|byte| *byte == b',') {
        if run.is_empty() {
            continue;
        }
        let mut ends = run.split(|byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        if ends.next().is_some() || last >= CORES || first > last {
            return None;
        }
        (first..=last).for_each(|core| mask.set(CoreId(core), true));
    }
    Some(mask)
}

/// Parses decimal digits; `None` for other text, or beyond 32 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    let digit = |number: u32, byte: &u8| {
        let digit = char::from(*byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, digit)).flatten()
}

/// Prints `mask` into `buffer` as a list such as `0-2,5`; `None` if it does not fit.
pub(crate) fn print_list<'r>(mask: &CoreMask, buffer: &'r mut [u8; TEXT_BYTES]) -> Option<&'r [u8]> {
    let mut text = Cursor::new(buffer.as_mut_slice());
    let (mut next, mut comma) = (0, "");
    while let Some(first) = (next..CORES).find(|core| mask.has(CoreId(*core))) {
        let end = (first..CORES).find(|core| !mask.has(CoreId(*core))).unwrap_or(CORES);
        let last = end.saturating_sub(1);
        write!(text, "{comma}{first}").ok()?;
        if last > first {
            write!(text, "-{last}").ok()?;
        }
        (comma, next) = (",", end);
    }
    written(text)
}

/// Prints `mask` into `buffer` as `words` 32-bit words in hexadecimal, the highest first; `None` if they do not fit.
pub(super) fn print_words<'r>(mask: &CoreMask, words: usize, buffer: &'r mut [u8; TEXT_BYTES]) -> Option<&'r [u8]> {
    let mut text = Cursor::new(buffer.as_mut_slice());
    for word in (0..words).rev() {
        let bit = |bit: u32| u32::try_from(word).ok()?.checked_mul(32)?.checked_add(bit);
        let set = |at: &u32| bit(*at).is_some_and(|core| mask.has(CoreId(core)));
        let bits = (0..32).filter(set).fold(0u32, |sum, at| sum | 1 << at);
        write!(text, "{bits:x}{}", if word > 0 { "," } else { "" }).ok()?;
    }
    written(text)
}

/// The bytes that were written.
fn written(text: Cursor<&mut [u8]>) -> Option<&[u8]> {
    let end = usize::try_from(text.position()).ok()?;
    text.into_inner().get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_platform::linux::cores;

    proptest! {
        #[test]
        fn a_set_survives_being_printed(cores in prop::collection::btree_set(0u32..1024, 0..40)) {
            let mut mask = CoreMask::default();
            cores.iter().for_each(|core| mask.set(CoreId(*core), true));
            let mut buffer = [0; TEXT_BYTES];
            let list = print_list(&mask, &mut buffer).unwrap();
            prop_assert_eq!(parse_list(list), Some(mask));
            let plain = cores::parse_list(std::str::from_utf8(list).unwrap());
            let plain: Vec<u32> = plain.iter().map(|core| core.0).collect();
            prop_assert_eq!(plain, cores.into_iter().collect::<Vec<_>>());
            let words = print_words(&mask, 32, &mut buffer).unwrap();
            prop_assert_eq!(CoreMask::parse(std::str::from_utf8(words).unwrap()), Some(mask));
        }

        #[test]
        fn no_list_is_too_strange(list in "[0-9,\\- x]{0,60}") {
            let _ = parse_list(list.as_bytes());
        }
    }

    #[test]
    fn lists_are_read_as_the_kernel_prints_them_or_not_at_all() {
        let mut two = CoreMask::default();
        two.set(CoreId(0), true);
        two.set(CoreId(3), true);
        assert_eq!(parse_list(b"0,3\n"), Some(two));
        assert_eq!(parse_list(b""), Some(CoreMask::default()));
        for strange in ["x", "3-1", "0-1-2", "0-99999999", "-"] {
            assert_eq!(parse_list(strange.as_bytes()), None, "{strange}");
        }
    }

    #[test]
    fn what_does_not_fit_is_no_text() {
        let mut every_other = CoreMask::default();
        (0..1024)
            .step_by(2)
            .for_each(|core| every_other.set(CoreId(core), true));
        assert_eq!(print_list(&every_other, &mut [0; TEXT_BYTES]), None);
    }
}
