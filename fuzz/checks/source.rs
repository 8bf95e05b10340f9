//! Takes the bytes of a case apart, from the front.

/// The bytes that are left; what is missing behind them counts as zero.
pub struct Source<'b>(pub &'b [u8]);

impl<'b> Source<'b> {
    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().map_or((0, self.0), |(byte, rest)| (*byte, rest));
        self.0 = rest;
        byte
    }

    /// Two bytes, little-endian.
    pub fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// One byte, if it is odd.
    pub fn is_so(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// At most 15 of what `each` takes; their count comes first.
    pub fn list<T>(&mut self, each: impl Fn(&mut Source<'b>) -> T) -> Vec<T> {
        (0..self.byte() % 16).map(|_| each(self)).collect()
    }

    /// So many bytes, or what is left.
    pub fn take(&mut self, len: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }
}

/// `bytes` in pieces, cut at these places.
pub fn pieces<'b>(bytes: &'b [u8], cuts: &[u16]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// Changes bytes: where, and which bits of them.
pub fn change(bytes: &mut [u8], changes: &[(u16, u8)]) {
    for (at, bits) in changes {
        if !bytes.is_empty() {
            let at = usize::from(*at) % bytes.len();
            bytes[at] ^= bits;
        }
    }
}
