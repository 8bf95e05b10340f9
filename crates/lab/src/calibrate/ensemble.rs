//! The ensemble: machines that differ in the physics that the figures leave open.
//!
//! For each open question two members pin its parameter at opposite ends of what is plausible, and leave the rest to the
//! figures. What all members predict alike, the figures decide; where the two members of a question disagree, that
//! question decides.

use serde::Serialize;

use super::parameter::{Parameter, Point};

/// One machine to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name: the file is `qedb-NAME.toml`.
    pub name: &'static str,
    /// What it supposes, in a sentence.
    pub about: &'static str,
    /// Which of the open questions it answers.
    pub question: Question,
    /// The parameters that it does not leave to the figures.
    pub pinned: Vec<(Parameter, f64)>,
}

/// What the figures do not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How much of the memory's service follows the clock.
    Service,
    /// How soon the shared cache is polluted.
    Pollution,
    /// How much of an update falls on what the cores share.
    Update,
}

impl Question {
    /// All of them.
    pub const ALL: [Question; 3] = [Question::Service, Question::Pollution, Question::Update];

    /// The question in words.
    pub const fn words(self) -> &'static str {
        match self {
            Question::Service => "how much of the memory's service follows the clock",
            Question::Pollution => "how soon the shared cache is polluted",
            Question::Update => "how much of an update falls on what the cores share",
        }
    }
}

/// Where every search starts, beside what is pinned: points by hand, of the orders of magnitude of the machine's
/// documentation (see `machines/exynos5422-a15.toml`) and of earlier fits. They differ in who makes data slow: the first two
/// have cheaper updates and a larger working set, the third dearer updates and a smaller one.
fn starting_points() -> Vec<Point> {
    let by_hand = [
        (Parameter::Compute, [8.75, 8.5, 8.75]),
        (Parameter::Data, [1.5, 1.3, 1.0]),
        (Parameter::CachedShare, [0.3, 0.25, 0.3]),
        (Parameter::WorkingSet, [1536.0, 1792.0, 1024.0]),
        (Parameter::Locality, [1.0, 2.0, 1.5]),
        (Parameter::LinesPerMiss, [1.0, 1.0, 1.0]),
        (Parameter::SharedService, [0.6, 0.4, 0.4]),
        (Parameter::ClockedService, [0.5, 0.5, 0.7]),
        (Parameter::Update, [150.0, 200.0, 300.0]),
        (Parameter::UncachedShare, [0.2, 0.1, 0.1]),
    ];
    let start = |i: usize| {
        let values = by_hand.iter().map(|(parameter, values)| (*parameter, values[i]));
        values.fold(Point::middle(), |point, (parameter, value)| {
            point.with(parameter, value)
        })
    };
    (0..3).map(start).collect()
}

/// The six members; the two of a question stand together.
pub fn ensemble() -> Vec<Member> {
    use Parameter::{ClockedService, LinesPerMiss, Neighbours, UncachedShare};
    let member = |name, about, question, pinned: Vec<(Parameter, f64)>| {
        // Unless it is what the member supposes: the interferers' databases are as large as the job's.
        let supposes = |parameter| pinned.iter().any(|(other, _)| *other == parameter);
        let alike = (!supposes(Neighbours)).then_some((Neighbours, 1.0));
        Member {
            name,
            about,
            question,
            pinned: pinned.iter().copied().chain(alike).collect(),
        }
    };
    vec![
        member(
            "constant-memory",
            "most of the memory's service takes the same time at every clock",
            Question::Service,
            vec![(ClockedService, 0.2)],
        ),
        member(
            "clocked-memory",
            "most of the memory's service follows the cores' clock",
            Question::Service,
            vec![(ClockedService, 0.8)],
        ),
        member(
            "slow-pollution",
            "each interfering core ranges over little data: one pushes out little, three more",
            Question::Pollution,
            vec![(Neighbours, 0.3)],
        ),
        member(
            "fast-pollution",
            "a miss brings further lines along, as with a prefetcher: one core pushes out most already",
            Question::Pollution,
            vec![(LinesPerMiss, 3.0)],
        ),
        member(
            "cheap-updates",
            "an update works in the cache almost alone",
            Question::Update,
            vec![(UncachedShare, 0.05)],
        ),
        member(
            "dear-updates",
            "an update spends most of its time writing lines to the memory",
            Question::Update,
            vec![(UncachedShare, 0.6)],
        ),
    ]
}

impl Member {
    /// No machine of the ensemble: everything is left open.
    pub fn unpinned() -> Member {
        Member {
            name: "unpinned",
            about: "nothing is supposed",
            question: Question::Service,
            pinned: Vec::new(),
        }
    }

    /// The name of its machine file.
    pub fn file_name(&self) -> String {
        format!("qedb-{}.toml", self.name)
    }

    /// The parameters left to the figures.
    pub fn free(&self) -> Vec<Parameter> {
        let pinned = |parameter: &Parameter| self.pinned.iter().any(|(other, _)| other == parameter);
        Parameter::ALL
            .into_iter()
            .filter(|parameter| !pinned(parameter))
            .collect()
    }

    /// Where its searches start.
    pub fn starts(&self) -> Vec<Point> {
        starting_points().into_iter().map(|point| self.pin(point)).collect()
    }

    /// `point` with what is pinned.
    pub fn pin(&self, point: Point) -> Point {
        self.pinned
            .iter()
            .fold(point, |point, (parameter, value)| point.with(*parameter, *value))
    }

    /// `start` with the free parameters at these places of their ranges, 0 to 1.
    pub fn place(&self, start: &Point, free: &[Parameter], places: &[f64]) -> Point {
        free.iter()
            .zip(places)
            .fold(start.clone(), |point, (parameter, place)| {
                point.with(*parameter, parameter.description().value_at(*place))
            })
    }
}
