//! Reduces the samples of a run to the columns that formulas use.

use std::collections::BTreeMap;

use punctual_runtime::report::Sample;

/// Columns of every run: tardiness and its parts `data` and `compute`, the data response ratio (`drr`), admitted and
/// fresh shares, clock (MHz), power (W), and the share of jobs that missed their deadline.
pub const SERIES: [&str; 9] = [
    "tardiness",
    "drr",
    "data",
    "compute",
    "admitted",
    "fresh",
    "clock",
    "power",
    "misses",
];

/// The columns of [`SERIES`], one value per sample.
pub fn columns(samples: &[Sample]) -> BTreeMap<String, Vec<Option<f64>>> {
    let column = |value: &dyn Fn(&Sample) -> Option<f64>| samples.iter().map(value).collect::<Vec<_>>();
    let data = |sample: &Sample| sample.tardiness.zip(sample.drr).map(|(tardiness, drr)| tardiness * drr);
    let compute = |sample: &Sample| {
        sample
            .tardiness
            .zip(data(sample))
            .map(|(tardiness, data)| tardiness - data)
    };
    let columns: [Vec<Option<f64>>; SERIES.len()] = [
        column(&|sample| sample.tardiness),
        column(&|sample| sample.drr),
        column(&data),
        column(&compute),
        column(&|sample| Some(sample.admitted_share)),
        column(&|sample| Some(sample.fresh_share)),
        column(&|sample| sample.clock_hz.map(|hz| hz as f64 * 1e-6)),
        power(samples),
        column(&|sample| (sample.jobs > 0).then(|| f64::from(sample.misses) / f64::from(sample.jobs))),
    ];
    SERIES.into_iter().map(String::from).zip(columns).collect()
}

/// Mean power: the energy of each window divided by its length, which is the difference of two samples' times.
fn power(samples: &[Sample]) -> Vec<Option<f64>> {
    let mut before = 0.0;
    let watts = |sample: &Sample| {
        let length = sample.t_s - std::mem::replace(&mut before, sample.t_s);
        sample.energy_j.filter(|_| length > 0.0).map(|joules| joules / length)
    };
    samples.iter().map(watts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_what_their_names_say() {
        let sample = |t_s, tardiness| Sample {
            t_s,
            tardiness,
            drr: tardiness.map(|_| 0.25),
            energy_j: Some(3.0),
            clock_hz: Some(800_000_000),
            jobs: u32::from(tardiness.is_some()) * 4,
            misses: 1,
            ..Sample::default()
        };
        let columns = columns(&[sample(1.0, Some(0.8)), sample(3.0, None)]);
        assert_eq!(columns["data"], [Some(0.2), None]);
        assert_eq!(columns["compute"][0].map(|c| (c * 10.0).round()), Some(6.0));
        assert_eq!(columns["power"], [Some(3.0), Some(1.5)]);
        assert_eq!(columns["clock"], [Some(800.0); 2]);
        assert_eq!(columns["misses"], [Some(0.25), None]);
        assert!(SERIES.iter().all(|name| columns[*name].len() == 2));
    }
}
