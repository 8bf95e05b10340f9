//! Faults on the command line: `KIND:METER@FROM..UNTIL`, with `=VALUE` where the kind takes one.

use punctual_files::toml::parse_time;
use punctual_machine::{Failing, Fault};
use punctual_platform::MeterId;

const FORM: &str = "write KIND:METER@FROM..UNTIL[=VALUE], such as stuck:clock@10s..20s, late:response@10s..20s=500ms or \
                    lose:clock@10s..20s=0.3";

/// Parses one fault.
///
/// # Errors
/// The mistake, and the expected form.
pub fn parse(text: &str) -> Result<Fault, String> {
    let (spec, value) = text
        .split_once('=')
        .map_or((text, None), |(spec, value)| (spec, Some(value)));
    let (what, span) = spec.split_once('@').ok_or(FORM)?;
    let (kind, meter) = what.split_once(':').ok_or(FORM)?;
    let (from, until) = span.split_once("..").ok_or(FORM)?;
    let (from, until) = (parse_time(from)?, parse_time(until)?);
    if from >= until {
        return Err(format!("a fault ends after it begins: {from} is not before {until}"));
    }
    let failing = failing(kind, meter, value)?;
    Ok(Fault { failing, from, until })
}

fn failing(kind: &str, name: &str, value: Option<&str>) -> Result<Failing, String> {
    let meters = [MeterId::Clock, MeterId::Busy, MeterId::Energy, MeterId::Response];
    let meter = meters.into_iter().find(|meter| meter.name() == name);
    let meter = meter.ok_or_else(|| {
        format!("\"{name}\" is no meter of the simulated machine: write clock, busy, energy or response")
    })?;
    let number = |most: f64| {
        let number = value.and_then(|value| value.parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=most).contains(number));
        number.ok_or_else(|| format!("`{kind}` needs a number from 0 to {most} after `=`; {FORM}"))
    };
    match (kind, value) {
        ("stuck" | "refuse", _) if meter != MeterId::Clock => {
            Err(format!("only the clock can be turned: {kind}:clock"))
        }
        ("stuck", None) => Ok(Failing::StuckClock),
        ("refuse", None) => Ok(Failing::RefusedClock),
        ("freeze", None) => Ok(Failing::Frozen(meter)),
        ("late", Some(by)) => Ok(Failing::Late(meter, parse_time(by)?)),
        ("wrong", _) => Ok(Failing::Wrong(meter, number(1e6)?)),
        ("lose", _) => Ok(Failing::Lost(meter, number(1.0)?)),
        _ => Err(FORM.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_units::Nanos;

    #[test]
    fn each_kind_is_read() {
        let [from, until] = [10, 20].map(Nanos::from_secs);
        for (text, failing) in [
            ("stuck:clock@10s..20s", Failing::StuckClock),
            ("refuse:clock@10s..20s", Failing::RefusedClock),
            (
                "late:response@10s..20s=500ms",
                Failing::Late(MeterId::Response, Nanos::from_millis(500)),
            ),
            ("freeze:energy@10s..20s", Failing::Frozen(MeterId::Energy)),
            ("wrong:busy@10s..20s=0.5", Failing::Wrong(MeterId::Busy, 0.5)),
            ("lose:clock@10s..20s=0.3", Failing::Lost(MeterId::Clock, 0.3)),
        ] {
            assert_eq!(parse(text), Ok(Fault { failing, from, until }));
        }
    }

    #[test]
    fn what_is_no_fault_is_told() {
        for (text, part) in [
            ("stuck", "KIND:METER@FROM..UNTIL"),
            ("stuck:clock", "KIND:METER@FROM..UNTIL"),
            ("stuck:energy@1s..2s", "only the clock can be turned"),
            ("stuck:clock@2s..1s", "is not before"),
            ("lose:speed@1s..2s=1", "no meter"),
            ("lose:clock@1s..2s=1.5", "from 0 to 1"),
            ("lose:clock@1s..2s", "from 0 to 1"),
            ("wrong:clock@1s..2s=-1", "from 0 to 1000000"),
            ("late:clock@1s..2s", "KIND:METER@FROM..UNTIL"),
            ("late:clock@1s..2s=5", "unit"),
            ("melt:clock@1s..2s", "KIND:METER@FROM..UNTIL"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
