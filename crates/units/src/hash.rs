//! Hashes that are the same on every machine and in every version, unlike those of `std::hash`: they are kept in files
//! and sent to others. They guard against mix-ups; a value that collides is easily made.

/// Fowler, Noll and Vo's FNV-1a of `bytes`, 64 bits wide: <http://www.isthe.com/chongo/tech/comp/fnv/>.
#[inline]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    fnv1a_from(OFFSET_BASIS, bytes)
}

/// [`fnv1a`] of the bytes that have the hash `before`, and of those that follow.
#[inline]
pub fn fnv1a_from(before: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.into_iter().fold(before, step)
}

/// Step between the states of SplitMix64, whose numbers are the [mixed](mix) states: 2^64 over the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014):
/// a bijection that leaves no arithmetic relation between successive numbers. Not for secrets.
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vectors of FNV-1a, 64 bits.
    #[test]
    fn fnv1a_agrees_with_the_published_vectors_in_one_piece_or_two() {
        let vectors = [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ];
        for (text, hash) in vectors {
            assert_eq!(fnv1a(text.bytes()), hash);
            let (first, rest) = text.split_at(text.len() / 2);
            assert_eq!(fnv1a_from(fnv1a(first.bytes()), rest.bytes()), hash);
        }
    }

    /// The first numbers of SplitMix64 from the seed 1234567, as its authors' program prints them.
    #[test]
    fn split_mix_agrees_with_its_authors() {
        let numbers = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        let state = |step: u64| 1_234_567u64.wrapping_add(step.wrapping_mul(GOLDEN_GAMMA));
        assert_eq!([1, 2, 3].map(|step| mix(state(step))), numbers);
    }
}
