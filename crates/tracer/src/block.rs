//! A block of instructions in one word.

/// Bits for the number of lines and for the number of instructions; the rest is the first line.
const LINES_BITS: u32 = 9;
const INSTRUCTIONS_BITS: u32 = 10;

/// Straight-line code: its number of instructions, and the lines that they lie in.
///
/// Packed into a word, because the emulator stores a word with each block and passes it back: nothing is allocated that
/// would have to be freed when the emulator discards translations. An address of 48 bits leaves 42 for the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u64);

impl Block {
    /// Bound on the instructions of a block that the emulator reports; QEMU's own bound is 512.
    pub const INSTRUCTIONS_MAX: u64 = (1 << INSTRUCTIONS_BITS) - 1;
    /// Bound on the lines of a block; QEMU's blocks end at the second page they touch, 128 lines.
    pub const LINES_MAX: u64 = (1 << LINES_BITS) - 1;

    /// Makes a block of `instructions` in `lines` lines from `first_line` on; both are cut to their bounds.
    pub fn new(first_line: u64, lines: u64, instructions: u64) -> Block {
        Block(
            first_line << (LINES_BITS + INSTRUCTIONS_BITS)
                | lines.min(Self::LINES_MAX) << INSTRUCTIONS_BITS
                | instructions.min(Self::INSTRUCTIONS_MAX),
        )
    }

    /// The word that `Block::from_bits` reads.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Restores a block from [`Block::to_bits`].
    pub const fn from_bits(bits: u64) -> Block {
        Block(bits)
    }

    /// Number of instructions, at most `Block::INSTRUCTIONS_MAX`.
    pub const fn instructions(self) -> u64 {
        self.0 & Self::INSTRUCTIONS_MAX
    }

    /// Numbers of the lines, in order.
    pub const fn lines(self) -> std::ops::Range<u64> {
        let first = self.0 >> (LINES_BITS + INSTRUCTIONS_BITS);
        first..first + (self.0 >> INSTRUCTIONS_BITS & Self::LINES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_is_what_it_was_made_of(
            first in 0_u64..1 << 42, lines in 1..=Block::LINES_MAX, instructions in 1..=Block::INSTRUCTIONS_MAX
        ) {
            let block = Block::from_bits(Block::new(first, lines, instructions).to_bits());
            prop_assert_eq!(block.instructions(), instructions);
            prop_assert_eq!(block.lines(), first..first + lines);
        }
    }
}
