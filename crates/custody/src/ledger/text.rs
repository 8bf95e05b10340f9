//! Lists and masks of cores, parsed and printed without allocation: the guardian does so, too (see `undo.rs`).

use super::super::core_mask::CoreMask;
use punctual_units::CoreId;

/// Longest content of a file, or second path, with its terminating zero, in bytes.
pub(crate) const TEXT_BYTES: usize = 512;
/// Number of cores in a set (`cpu_set_t`).
const CORES: u32 = libc::CPU_SETSIZE as u32;

/// A text of bounded length.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
    /// Whether a push did not fit.
    cut: bool,
}

impl Text {
    pub(crate) const EMPTY: Text = Text {
        bytes: [0; TEXT_BYTES],
        len: 0,
        cut: false,
    };

    /// The text; `None` if something did not fit.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len).filter(|_| !self.cut)
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        let end = self.len.saturating_add(more.len());
        match self.bytes.get_mut(self.len..end) {
            Some(room) => {
                room.iter_mut().zip(more).for_each(|(to, from)| *to = *from);
                self.len = end;
            }
            None => self.cut = true,
        }
    }

    pub(crate) fn push_number(&mut self, number: u32, base: u32) {
        let mut digits = [0u8; 10];
        let (mut left, mut used) = (number, 0usize);
        for digit in digits.iter_mut().rev() {
            *digit = char::from_digit(left.checked_rem(base).unwrap_or(0), base).map_or(b'0', |digit| digit as u8);
            left = left.checked_div(base).unwrap_or(0);
            used = used.saturating_add(1);
            if left == 0 {
                break;
            }
        }
        self.push(digits.get(digits.len().saturating_sub(used)..).unwrap_or(&[]));
    }
}

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

/// Prints `mask` as a list such as `0-2,5`.
pub(super) fn print_list(mask: &CoreMask, text: &mut Text) {
    let mut next = 0;
    let mut comma: &[u8] = b"";
    while let Some(first) = (next..CORES).find(|core| mask.has(CoreId(*core))) {
        let end = (first..CORES).find(|core| !mask.has(CoreId(*core))).unwrap_or(CORES);
        let last = end.saturating_sub(1);
        text.push(comma);
        text.push_number(first, 10);
        if last > first {
            text.push(b"-");
            text.push_number(last, 10);
        }
        (comma, next) = (b",", end);
    }
}

/// Prints `mask` as `words` 32-bit words in hexadecimal, the highest first.
pub(super) fn print_words(mask: &CoreMask, words: usize, text: &mut Text) {
    for word in (0..words).rev() {
        let bit = |bit: u32| u32::try_from(word).ok()?.checked_mul(32)?.checked_add(bit);
        let set = |at: &u32| bit(*at).is_some_and(|core| mask.has(CoreId(core)));
        text.push_number((0..32).filter(set).fold(0, |sum, at| sum | 1 << at), 16);
        if word > 0 {
            text.push(b",");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_platform::linux::cores;

    fn printed(print: impl Fn(&mut Text)) -> String {
        let mut text = Text::EMPTY;
        print(&mut text);
        String::from_utf8(text.whole().unwrap().to_vec()).unwrap()
    }

    proptest! {
        #[test]
        fn a_set_survives_being_printed(cores in prop::collection::btree_set(0u32..1024, 0..40)) {
            let mut mask = CoreMask::default();
            cores.iter().for_each(|core| mask.set(CoreId(*core), true));
            let list = printed(|text| print_list(&mask, text));
            prop_assert_eq!(parse_list(list.as_bytes()), Some(mask));
            let plain: Vec<u32> = cores::parse_list(&list).iter().map(|core| core.0).collect();
            prop_assert_eq!(plain, cores.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(CoreMask::parse(&printed(|text| print_words(&mask, 32, text))), Some(mask));
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
        let mut text = Text::EMPTY;
        print_list(&every_other, &mut text);
        assert_eq!(text.whole(), None);
    }
}
