//! Sizes of caches, as people write them.

/// Units, as `lscpu` and the data sheets mean them.
const UNITS: [(&str, u32); 7] = [
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("K", 10),
    ("M", 20),
    ("G", 30),
    ("B", 0),
];

/// Bytes of a size such as 64KiB, 2MiB or 2048.
///
/// # Errors
/// A sentence for the command line.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    let number: Option<u64> = digits.trim_end().parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "write a whole number of bytes, KiB, MiB or GiB, such as 64KiB".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse("2048"), Ok(2048));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse("2 MiB"), Ok(2 << 20));
        assert_eq!(parse("1G"), Ok(1 << 30));
        assert_eq!(parse("0"), Ok(0));
        for wrong in ["", "KiB", "-1", "1.5MiB", "1TiB", "99999999999GiB", "64kib"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
