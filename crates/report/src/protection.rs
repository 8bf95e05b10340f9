//! Protections that a run obtained, as text; a right that was refused to many threads is printed once.

use punctual_platform::Refusal;
use punctual_runtime::report::Protection;

/// Line on requested protections with the same answer; for a refusal, with reason and remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtectionLine<'p> {
    /// All requests with this answer, in order.
    pub what: Vec<&'p str>,
    /// Reason of the refusal, and its remedy; `None` if obtained.
    pub refused: Option<(&'p str, &'p str)>,
}

/// A line for each obtained protection, and one for each reason of refusal, in the order of the requests.
pub fn told(protections: &[Protection]) -> Vec<ProtectionLine<'_>> {
    let mut told: Vec<ProtectionLine<'_>> = Vec::new();
    for protection in protections {
        let what = protection.what.as_str();
        let refusal = protection.refused.as_ref();
        let refused = refusal.map(|refusal| (refusal.why.as_str(), refusal.remedy.as_str()));
        match told
            .iter_mut()
            .find(|line| line.refused.is_some() && line.refused == refused)
        {
            Some(line) => line.what.push(what),
            None => told.push(ProtectionLine {
                what: vec![what],
                refused,
            }),
        }
    }
    told
}

/// Why tasks run without real-time scheduling; `None` if no task was refused it.
pub fn no_real_time(protections: &[Protection]) -> Option<&Refusal> {
    let mut asked = protections.iter().filter(|it| it.what.contains("SCHED_FIFO"));
    asked.find_map(|it| it.refused.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_is_refused_to_many_is_told_once() {
        let protection = |what: &str, why: Option<&str>| Protection {
            what: what.into(),
            refused: why.map(|why| Refusal {
                what: format!("real-time scheduling of {what}"),
                why: why.into(),
                remedy: "run as root".into(),
            }),
            stays: Vec::new(),
        };
        let asked = [
            protection("a: SCHED_FIFO 80", Some("not permitted")),
            protection("a: on core 1", None),
            protection("b: SCHED_FIFO 79", Some("not permitted")),
            protection("b: on core 1", None),
            protection("b: on core 9", Some("no such core")),
        ];
        let line = |what: &[&'static str], why: Option<&'static str>| ProtectionLine {
            what: what.to_vec(),
            refused: why.map(|why| (why, "run as root")),
        };
        let expected = [
            line(&["a: SCHED_FIFO 80", "b: SCHED_FIFO 79"], Some("not permitted")),
            line(&["a: on core 1"], None),
            line(&["b: on core 1"], None),
            line(&["b: on core 9"], Some("no such core")),
        ];
        assert_eq!(told(&asked), expected);
    }
}
