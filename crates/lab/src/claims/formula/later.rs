//! The same formula, begun later: a placebo for what is said to happen after an instant.

use super::{Aggregate, Formula, Node, Query};

impl Formula {
    /// The formula with every window begun so many samples later, where all it asks for is settling and `room` samples are left
    /// before each window's end; none of any other formula.
    pub fn begun_later(&self, by: usize, room: usize) -> Option<Formula> {
        let queries = self.queries();
        let has_room = |query: &&Query| match (query.aggregate, query.from, query.to) {
            (Aggregate::Settling, Some(from), Some(to)) => from + by + room <= to,
            _ => false,
        };
        if queries.is_empty() || !queries.iter().all(has_room) {
            return None;
        }
        let mut later = self.clone();
        later.root.begin_later(by);
        later.text = format!("{}, begun {by} samples later", self.text);
        Some(later)
    }
}

impl Node {
    fn begin_later(&mut self, by: usize) {
        match self {
            Node::Number(_) => {}
            Node::Negated(inner) => inner.begin_later(by),
            Node::Two(_, left, right) => {
                left.begin_later(by);
                right.begin_later(by);
            }
            Node::Function(_, arguments) => arguments.iter_mut().for_each(|argument| argument.begin_later(by)),
            Node::Samples(query) => query.from = query.from.map(|from| from + by),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Run, labels};

    #[test]
    fn what_is_begun_later_sees_what_comes_later() {
        let run = Run {
            labels: labels([("a", "b")]),
            settled_from: 0,
            series: [("x".to_string(), [9.0, 9.0, 1.0, 1.0, 1.0, 1.0].map(Some).to_vec())].into(),
        };
        let formula = Formula::parse("settling(x, a=b, from=0, to=6, goal=1, band=0.1) <= 1").unwrap();
        assert_eq!(formula.evaluate(std::slice::from_ref(&run)), Ok(0.0));
        let later = formula.begun_later(2, 4).unwrap();
        assert_eq!(later.evaluate(&[run]), Ok(1.0));
        assert_eq!(formula.begun_later(3, 4), None, "no room");
    }

    #[test]
    fn only_settling_can_begin_later() {
        for text in [
            "mean(x, a=b, from=0, to=9) < 1",
            "1 < 2",
            "settling(x, a=b, from=0, goal=1, band=0.1) <= 1",
        ] {
            assert_eq!(Formula::parse(text).unwrap().begun_later(1, 1), None, "{text}");
        }
    }
}
