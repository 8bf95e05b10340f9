//! The cost of an item, learned from the times of finished requests.

use punctual_units::Nanos;

/// Requests over which the past fades to 1/e. Few enough to follow a node that slows down within seconds, many enough
/// that exponentially distributed costs leave an error of 1 / sqrt(2 * 512), 3 %.
const MEMORY_REQUESTS: f64 = 512.0;
/// Weight, in items, of the assumed cost before the first request has finished: one request or two.
const PRIOR_ITEMS: f64 = 100.0;

/// Time of one executor for one item.
///
/// A ratio of two sums that fade: a large request counts for more than a small one, as it does in the backlog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    seconds: f64,
    items: f64,
    /// The ratio, in seconds, stored because it is read more often than it changes.
    each: f64,
    /// Mean items of a request.
    size: f64,
}

impl Cost {
    pub(super) fn new(prior: Nanos) -> Cost {
        let each = prior.as_secs_f64();
        Cost {
            seconds: each * PRIOR_ITEMS,
            items: PRIOR_ITEMS,
            each,
            size: PRIOR_ITEMS,
        }
    }

    /// Learns that a request of `items` has taken an executor `seconds`.
    pub(super) fn learn(&mut self, items: u32, seconds: f64) {
        let kept = 1.0 - 1.0 / MEMORY_REQUESTS;
        let items = f64::from(items);
        self.seconds = self.seconds * kept + seconds;
        self.items = self.items * kept + items;
        self.size += (items - self.size) / MEMORY_REQUESTS;
        if self.items > 0.0 {
            self.each = self.seconds / self.items;
        }
    }

    /// Seconds of one executor for an item.
    pub(super) fn each(&self) -> f64 {
        self.each
    }

    /// Mean items of a request.
    pub(super) fn size(&self) -> f64 {
        self.size
    }

    /// Seconds of one executor for a request of mean size.
    pub(super) fn request(&self) -> f64 {
        self.each * self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_learned_whatever_was_supposed() {
        for prior in [Nanos::from_micros(1), Nanos::from_millis(50)] {
            let mut cost = Cost::new(prior);
            for request in 0..5000 {
                let items = 60 + request % 41;
                cost.learn(items, f64::from(items) * 2e-4);
            }
            assert!((cost.each() / 2e-4 - 1.0).abs() < 0.01, "{cost:?}");
            assert!((cost.request() / (80.0 * 2e-4) - 1.0).abs() < 0.02, "{cost:?}");
        }
    }
}
