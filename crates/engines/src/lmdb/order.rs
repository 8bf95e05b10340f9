//! The order of keys, compared in place.
//!
//! **Problem.** A search in a tree of 10,000 records compares 13 keys. LMDB's own comparison of two keys calls the C
//! library's `memcmp`, which spends more on the length than on the few bytes that differ.
//!
//! **Method.** Keys are compared word by word, as big-endian numbers; the last word that both keys have is compared
//! last and may overlap the one before. No function is called, so no registers are saved. The order is LMDB's own, so
//! that any program reads the file.

use std::cmp::Ordering;

use heed::Comparator;

/// Compares keys by bytes; a key comes before all longer keys that begin with it.
pub(super) enum Bytewise {}

const WORD: usize = size_of::<u64>();

impl Comparator for Bytewise {
    #[inline]
    fn compare(a: &[u8], b: &[u8]) -> Ordering {
        let both = a.len().min(b.len());
        if both < WORD {
            let differ = a.iter().zip(b).find(|(a, b)| a != b);
            return differ.map_or(a.len().cmp(&b.len()), |(a, b)| a.cmp(b));
        }
        let word = |key: &[u8], at: usize| {
            // SAFETY: each caller's word ends at `both` or before.
            unsafe { key.as_ptr().add(at).cast::<u64>().read_unaligned() }
        };
        let (a_word, b_word) = (word(a, 0), word(b, 0));
        if a_word != b_word {
            return by_value(a_word, b_word);
        }
        // Most comparisons end here, or after one more word.
        let mut at = WORD;
        while at + WORD <= both {
            let (a_word, b_word) = (word(a, at), word(b, at));
            if a_word != b_word {
                return by_value(a_word, b_word);
            }
            at += WORD;
        }
        let (a_word, b_word) = (word(a, both - WORD), word(b, both - WORD));
        if a_word != b_word {
            return by_value(a_word, b_word);
        }
        a.len().cmp(&b.len())
    }
}

#[inline]
fn by_value(a: u64, b: u64) -> Ordering {
    u64::from_be(a).cmp(&u64::from_be(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff)];
        // Long common beginnings, too.
        (0usize..40, prop::collection::vec(byte, 0..12)).prop_map(|(same, rest)| [vec![7; same], rest].concat())
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_bytes(a in key(), b in key()) {
            prop_assert_eq!(Bytewise::compare(&a, &b), a.cmp(&b));
            prop_assert_eq!(Bytewise::compare(&a, &a), Ordering::Equal);
        }
    }
}
