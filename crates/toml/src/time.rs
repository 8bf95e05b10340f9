//! Times with units: "100ms", "1.5s", "50us".

use punctual_units::Nanos;

/// Units in nanoseconds. Longer names first, so that "ms" is not taken for "s".
const UNITS: [(&str, f64); 7] = [
    ("min", 60e9),
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("h", 3600e9),
];

/// Parses a time; the error says how to write it.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let text = text.trim();
    let hint = "write a number with its unit (ns, us, ms, s, min or h), such as \"100ms\"";
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let Some((unit, nanos)) = unit else {
        return match text.parse::<f64>() {
            Ok(_) => Err(format!("\"{text}\" has no unit; {hint}")),
            Err(_) => Err(format!("\"{text}\" is not a time; {hint}")),
        };
    };
    let number = text[..text.len() - unit.len()].trim_end();
    match number.parse::<f64>() {
        Ok(n) if n < 0.0 => Err(format!("\"{text}\" is negative; {hint}")),
        Ok(n) if n.is_finite() => Ok(Nanos((n * nanos).round() as u64)), // float-to-int casts saturate
        _ => Err(format!("\"{text}\" is not a time; {hint}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_carry_their_unit() {
        assert_eq!(parse_time("100ms"), Ok(Nanos::from_millis(100)));
        assert_eq!(parse_time("1.5 s"), Ok(Nanos::from_millis(1500)));
        assert_eq!(parse_time("50us"), Ok(Nanos::from_micros(50)));
        assert_eq!(parse_time("50µs"), Ok(Nanos::from_micros(50)));
        assert_eq!(parse_time("7ns"), Ok(Nanos(7)));
        assert_eq!(parse_time("2min"), Ok(Nanos::from_secs(120)));
        assert_eq!(parse_time("1h"), Ok(Nanos::from_secs(3600)));
        for (text, part) in [
            ("100", "has no unit"),
            ("-100ms", "is negative"),
            ("soon", "is not a time"),
            ("ms", "is not a time"),
            ("infs", "is not a time"),
            ("nans", "is not a time"),
            ("", "is not a time"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.contains(part) && error.contains("such as"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn the_milliseconds_of_a_day_come_back(ms in 0u64..=86_400_000) {
            prop_assert_eq!(parse_time(&format!("{ms}ms")), Ok(Nanos::from_millis(ms)));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}") {
            let _ = parse_time(&text);
        }
    }
}
