//! CRC32C of a record, in as few instructions as the processor allows: every read pays for them.
//!
//! **Problem.** One instruction of x86 takes 8 bytes, and has a latency of 3 cycles: one dependent chain leaves two
//! thirds of the processor idle. The crate `crc32c` computes three parts at a time in blocks of 768 bytes, and the rest
//! in one chain.
//!
//! **Method** (Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011). The
//! bytes are cut into three lanes of whole words, equal in length. Each lane has a remainder of its own. A remainder
//! c(x) followed by m bits is c(x) x^m mod P(x), and a carry-less product with x^(m - 33) mod P(x), fed to the
//! instruction as a word, computes that: the instruction multiplies by x^32, and the product of two reflected words is
//! shifted by one more. A table has these factors for each length of a lane.
//!
//! Where the processor lacks the instructions, the crate `crc32c` computes the same.

/// CRC32C of `key` followed by `value`.
#[inline]
pub(super) fn of(key: &[u8], value: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if lanes::are_there() {
        // SAFETY: the processor has the instructions that the function is compiled for.
        return unsafe { lanes::of(key, value) };
    }
    by_crate(key, value)
}

/// CRC32C by the crate of that name. Not inlined: its calls would make the caller's fast path save registers.
#[inline(never)]
fn by_crate(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

#[cfg(target_arch = "x86_64")]
mod lanes {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128,
    };

    /// The polynomial 0x1EDC6F41, reflected: the highest power is the lowest bit.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    /// Longest lane, in words: three of them are 1536 bytes; longer values are taken in parts of that.
    const WORDS_MAX: usize = 64;
    /// Shortest lane, in words: shorter ones cost more at their ends than they save.
    const WORDS_MIN: usize = 4;

    /// For lanes of N words, at index N: the factors that move a remainder over one lane, and over two.
    static FACTORS: [[u64; 2]; WORDS_MAX + 1] = factors();

    const fn factors() -> [[u64; 2]; WORDS_MAX + 1] {
        let mut factors = [[0; 2]; WORDS_MAX + 1];
        let mut power = 1 << 31; // x^0
        let mut exponent = 0;
        while exponent + 33 <= 128 * WORDS_MAX {
            let bits = exponent + 33;
            if bits.is_multiple_of(64) && bits / 64 <= WORDS_MAX {
                factors[bits / 64][0] = power as u64;
            }
            if bits.is_multiple_of(128) {
                factors[bits / 128][1] = power as u64;
            }
            power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
            exponent += 1;
        }
        factors
    }

    #[inline]
    pub(super) fn are_there() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn of(key: &[u8], value: &[u8]) -> u32 {
        let register = in_a_row(u64::from(u32::MAX), key);
        !(over(register, value) as u32)
    }

    /// The CRC register after `bytes`, in blocks of three lanes.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn over(mut register: u64, mut bytes: &[u8]) -> u64 {
        loop {
            let words = (bytes.len() / (3 * size_of::<u64>())).min(WORDS_MAX);
            if words < WORDS_MIN {
                return in_a_row(register, bytes);
            }
            let (block, rest) = bytes.split_at(words * 3 * size_of::<u64>());
            register = three(register, block, words);
            bytes = rest;
        }
    }

    /// The CRC register after a block of three lanes of `words` words each.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn three(register: u64, block: &[u8], words: usize) -> u64 {
        let lane = words * size_of::<u64>();
        assert_eq!(block.len(), 3 * lane);
        let mut registers = [register, 0, 0];
        let mut at = block.as_ptr();
        // In powers of two, each without a loop: counting the words would cost as much as a word.
        // SAFETY: the powers add up to `words`, so that each lane is read to its end and not beyond.
        unsafe {
            if words & 64 != 0 {
                (registers, at) = unrolled::<64>(registers, at, lane);
            }
            if words & 32 != 0 {
                (registers, at) = unrolled::<32>(registers, at, lane);
            }
            if words & 16 != 0 {
                (registers, at) = unrolled::<16>(registers, at, lane);
            }
            if words & 8 != 0 {
                (registers, at) = unrolled::<8>(registers, at, lane);
            }
            if words & 4 != 0 {
                (registers, at) = unrolled::<4>(registers, at, lane);
            }
            if words & 2 != 0 {
                (registers, at) = unrolled::<2>(registers, at, lane);
            }
            if words & 1 != 0 {
                (registers, _) = unrolled::<1>(registers, at, lane);
            }
        }
        let [one, two] = FACTORS[words];
        let factors = _mm_set_epi64x(two as i64, one as i64);
        let word = |register: u64| -> __m128i { _mm_cvtsi64_si128(register as i64) };
        let first = _mm_clmulepi64_si128::<0x10>(word(registers[0]), factors);
        let second = _mm_clmulepi64_si128::<0x00>(word(registers[1]), factors);
        let moved = _mm_cvtsi128_si64(_mm_xor_si128(first, second)) as u64;
        _mm_crc32_u64(0, moved) ^ registers[2]
    }

    /// Extends the registers of the three lanes by `WORDS` words, from `at` in the first lane; also returns the next
    /// `at`.
    ///
    /// # Safety
    /// `WORDS` words of each lane must be readable.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn unrolled<const WORDS: usize>(
        [mut first, mut second, mut third]: [u64; 3],
        at: *const u8,
        lane: usize,
    ) -> ([u64; 3], *const u8) {
        // SAFETY: the caller's promise.
        let word = |at: *const u8, next: usize| unsafe { at.cast::<u64>().add(next).read_unaligned() };
        let (second_at, third_at) = (at.wrapping_add(lane), at.wrapping_add(2 * lane));
        for next in 0..WORDS {
            first = _mm_crc32_u64(first, word(at, next));
            second = _mm_crc32_u64(second, word(second_at, next));
            third = _mm_crc32_u64(third, word(third_at, next));
        }
        ([first, second, third], at.wrapping_add(WORDS * size_of::<u64>()))
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn in_a_row(mut register: u64, bytes: &[u8]) -> u64 {
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let (first, second) = (
                u128::from_le_bytes(*pair) as u64,
                (u128::from_le_bytes(*pair) >> 64) as u64,
            );
            register = _mm_crc32_u64(_mm_crc32_u64(register, first), second);
        }
        let (word, rest) = rest.as_chunks();
        if let [word] = word {
            register = _mm_crc32_u64(register, u64::from_le_bytes(*word));
        }
        let (half, rest) = rest.as_chunks();
        if let [half] = half {
            register = u64::from(_mm_crc32_u32(register as u32, u32::from_le_bytes(*half)));
        }
        for byte in rest {
            register = u64::from(_mm_crc32_u8(register as u32, *byte));
        }
        register
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::of;

    /// Bit by bit, as the polynomial says.
    fn by_definition(bytes: &[u8]) -> u32 {
        let step = |register: u32, byte: &u8| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                (register >> 1) ^ if register & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        };
        !bytes.iter().fold(u32::MAX, step)
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(of(b"123", b"456789"), 0xE306_9283); // RFC 3720, appendix B.4: the polynomial's usual check
        assert_eq!(of(b"", b""), 0);
    }

    /// Every length of lanes, every rest, and one part more.
    #[test]
    fn every_length_is_what_the_polynomial_says() {
        let bytes: Vec<u8> = (0..3300_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for len in 0..bytes.len() {
            let (key, value) = bytes[..len].split_at(len.min(5));
            assert_eq!(of(key, value), by_definition(&bytes[..len]), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_record_is_what_the_polynomial_says(
            key in prop::collection::vec(any::<u8>(), 0..600), value in prop::collection::vec(any::<u8>(), 0..9000),
        ) {
            let record = [key.as_slice(), &value].concat();
            prop_assert_eq!(of(&key, &value), by_definition(&record));
            prop_assert_eq!(of(&key, &value), crc32c::crc32c(&record));
        }
    }
}
