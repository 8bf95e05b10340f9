//! Sizes of caches and files in binary units.

/// Units and their powers of two, as in `lscpu` and data sheets.
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

/// Formats a size with its unit.
pub fn shown(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_they_fill() {
        let all = [0, 1_023, 1_024, 1_536, 5 << 20, 3 << 29].map(shown);
        assert_eq!(all, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "1.50 GiB"]);
    }

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
