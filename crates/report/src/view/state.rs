//! State of the live view: takes news, and draws nothing.

use std::collections::VecDeque;

use punctual_runtime::report::{Progress, RunHeader, RunMark, Sample, SettingReport, TaskReport};
use serde::{Deserialize, Deserializer, Serialize};

use crate::protection::told;
use crate::tasks::late;
use crate::verdict::Standing;

/// Most samples kept for the curves: more than a wide terminal has columns of dots.
pub const SAMPLES_MAX: usize = 2000;
/// Most warnings and marks kept, the newest of each; all warnings are counted.
pub const KEPT_MAX: usize = 100;
/// Seconds that the curves show at once; a longer run scrolls.
pub const SPAN_S: f64 = 120.0;

/// News for views, in this process and in others ([`crate::feed`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum News {
    /// The next run begins; its length in seconds.
    Run(#[serde(deserialize_with = "seconds")] f64),
    /// The announced run learns a model. Its report is not kept, so it takes no requests of the user.
    Learning,
    /// A stage before or after the run proper.
    Stage(String),
    /// The run proper begins.
    Started(Box<RunHeader>),
    /// Sample of a step of the loop.
    Sample(Box<Sample>),
    /// The samples before, for a view that begins late.
    Samples(Vec<Sample>),
    /// Figures of each task so far.
    Tasks(Vec<TaskReport>),
    /// Settings so far, in place of those before.
    Settings(Vec<SettingReport>),
    /// Counts at the sinks of the scenario's stages so far, as text.
    Sinks(String),
    /// The user has marked an instant.
    Mark(RunMark),
    /// A warning of the run.
    Warning(String),
    /// The process shows no more.
    Ended,
}

/// Reads a length in seconds; JSON has no infinity, which is that of a run without an end.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

impl News {
    /// Whether newer ones make up for these.
    pub fn is_frequent(&self) -> bool {
        matches!(
            self,
            News::Sample(_) | News::Tasks(_) | News::Settings(_) | News::Sinks(_)
        )
    }

    /// News of a progress report; `None` if it has none to show.
    pub fn of(progress: Progress<'_>) -> Option<News> {
        Some(match progress {
            Progress::Stage(stage) => News::Stage(stage.into()),
            Progress::Started(header) => News::Started(Box::new(header.clone())),
            Progress::Sample(sample) => News::Sample(Box::new(sample.clone())),
            Progress::Tasks(tasks) => News::Tasks(tasks.to_vec()),
            Progress::Settings(settings) => News::Settings(settings.to_vec()),
            Progress::Note(note) => News::Warning(note.into()),
            Progress::Waiting | Progress::Requests(_) => return None,
        })
    }
}

/// Appends `entry`; beyond the limit, the oldest one goes.
fn push_bounded(entries: &mut VecDeque<RunMark>, entry: RunMark) {
    if entries.len() == KEPT_MAX {
        entries.pop_front();
    }
    entries.push_back(entry);
}

/// Conditions of a task that raise a warning.
fn conditions(task: &TaskReport) -> [Option<String>; 3] {
    let missed =
        (Standing::of(task) == Standing::Missed).then(|| format!("goal {} missed: {}", task.goal(), late(task)));
    let failed = task.first_failure.as_ref().map(|why| format!("a job failed: {why}"));
    [missed, failed, task.ended.as_ref().map(|how| format!("ended: {how}"))]
}

/// Content of the live view.
#[derive(Clone, Debug, Default)]
pub struct ViewState {
    /// Planned length of the run, in seconds.
    pub duration_s: f64,
    /// Stages so far; the last one is in progress until the run has started.
    pub stages: Vec<String>,
    /// Header of the run; `None` before it starts.
    pub header: Option<RunHeader>,
    /// The latest samples, oldest first.
    pub samples: VecDeque<Sample>,
    /// Figures of each task so far; empty before the first report.
    pub tasks: Vec<TaskReport>,
    /// Settings so far; empty before the first report.
    pub settings: Vec<SettingReport>,
    /// Counts at the sinks of the scenario's stages so far; empty without stages.
    pub sinks: String,
    /// Marks of the user.
    pub marks: VecDeque<RunMark>,
    /// Number of warnings, and the newest, each as a mark.
    pub warnings: (u64, VecDeque<RunMark>),
    /// Kinds of conditions that have raised a warning, by task.
    pub(crate) warned: Vec<[bool; 3]>,
    /// Whether this is a view of another process' run.
    pub is_visitor: bool,
    /// Whether the run learns a model.
    pub is_learning: bool,
}

impl ViewState {
    /// State for a run of `duration_s` seconds before its first news.
    pub fn new(duration_s: f64) -> ViewState {
        ViewState {
            duration_s,
            ..ViewState::default()
        }
    }

    /// Updates the state by an item of news.
    pub fn update(&mut self, news: News) {
        match news {
            News::Run(duration_s) => {
                self.is_learning = false;
                self.restart(duration_s, None);
            }
            News::Learning => self.is_learning = true,
            News::Stage(stage) => self.stages.push(stage),
            News::Started(header) => {
                self.restart(self.duration_s, Some((*header).clone()));
                let refused = told(&header.protection).into_iter();
                let refused = refused.filter_map(|line| Some((line.what.join(", "), line.refused?)));
                self.warn(refused.map(|(what, (why, remedy))| format!("{what}: {why}; {remedy}")));
            }
            News::Sample(sample) => self.push(*sample),
            News::Samples(samples) => samples.into_iter().for_each(|sample| self.push(sample)),
            News::Tasks(tasks) => {
                self.warned.resize(tasks.len(), [false; 3]);
                for (number, task) in tasks.iter().enumerate() {
                    let is_new_goal = self.tasks.get(number).is_some_and(|it| it.goal() != task.goal());
                    let warned = &mut self.warned[number];
                    warned[0] &= !is_new_goal;
                    let new = conditions(task).into_iter().zip(warned);
                    let new = new.filter_map(|(text, warned)| text.filter(|_| !std::mem::replace(warned, true)));
                    let new: Vec<String> = new.map(|text| format!("{}: {text}", task.name)).collect();
                    self.warn(new);
                }
                self.tasks = tasks;
            }
            News::Settings(settings) => self.settings = settings,
            News::Sinks(sinks) => self.sinks = sinks,
            News::Mark(mark) => push_bounded(&mut self.marks, mark),
            News::Warning(text) => self.warn([text]),
            News::Ended => {}
        }
    }

    fn restart(&mut self, duration_s: f64, header: Option<RunHeader>) {
        *self = ViewState {
            header,
            is_visitor: self.is_visitor,
            is_learning: self.is_learning,
            ..ViewState::new(duration_s)
        };
    }

    /// Adds warnings at this instant of the run.
    pub fn warn(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.warnings.0 += 1;
            let t_s = self.elapsed_s();
            push_bounded(&mut self.warnings.1, RunMark { t_s, text });
        }
    }

    fn push(&mut self, sample: Sample) {
        let was_in_fallback = self.last().is_some_and(|last| last.fallback.is_some());
        let fallback = sample.fallback.as_ref().filter(|_| !was_in_fallback);
        let fallback = fallback.map(|reason| format!("fallback: {reason}"));
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.warn(fallback);
    }

    /// News that lead to this state.
    pub fn so_far(&self) -> Vec<News> {
        let mut news = vec![News::Run(self.duration_s)];
        news.extend(self.is_learning.then_some(News::Learning));
        news.extend(self.header.clone().map(|header| News::Started(Box::new(header))));
        news.extend(self.stages.iter().cloned().map(News::Stage));
        news.push(News::Samples(self.samples.iter().cloned().collect()));
        news.push(News::Tasks(self.tasks.clone()));
        news.push(News::Settings(self.settings.clone()));
        news.push(News::Sinks(self.sinks.clone()));
        news.extend(self.marks.iter().cloned().map(News::Mark));
        news
    }

    /// Whether the run takes requests of this view's user.
    pub(super) fn takes_requests(&self) -> bool {
        !self.is_learning
    }

    /// Jobs of all tasks after the start-up so far, and those of them that were late.
    pub fn jobs(&self) -> [u64; 2] {
        let sum = |of: fn(&TaskReport) -> u64| self.tasks.iter().map(of).sum();
        [sum(|task| task.jobs), sum(|task| task.late)]
    }

    /// The latest sample; `None` before the first.
    pub fn last(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// Seconds of the run that have passed.
    pub fn elapsed_s(&self) -> f64 {
        self.last().map_or(0.0, |last| last.t_s)
    }

    /// Range of seconds that the curves show.
    pub fn span(&self) -> [f64; 2] {
        let length = self.duration_s.clamp(1.0, SPAN_S);
        let end = self.elapsed_s().max(length);
        [end - length, end]
    }

    /// Curve of a figure of the samples, without missing values.
    pub fn curve(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
        let [from, to] = self.span();
        let within = self.samples.iter().filter(|sample| (from..=to).contains(&sample.t_s));
        let points = within.filter_map(|sample| Some((sample.t_s, figure(sample)?)));
        points.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn running(samples: u64) -> ViewState {
        let mut state = ViewState::new(60.0);
        state.update(News::Stage("calibrating".into()));
        state.update(News::Started(Box::new(fixture::header())));
        (0..samples).for_each(|k| state.update(News::Sample(Box::new(fixture::sample(k)))));
        state
    }

    #[test]
    fn news_add_up() {
        let state = running(100);
        assert!((state.elapsed_s() - 20.0).abs() < 1e-9);
        assert_eq!(state.span(), [0.0, 60.0]);
        assert_eq!(
            state.curve(|sample| sample.tardiness).len(),
            99,
            "one window had no jobs"
        );
        assert!(state.stages.is_empty(), "stages before the start are done with");
    }

    #[test]
    fn a_state_is_told_by_news_that_other_processes_read() {
        let mut told = running(3);
        told.update(News::Tasks(fixture::tasks()));
        told.duration_s = f64::INFINITY;
        let mut heard = ViewState::default();
        for news in told.so_far() {
            let line = serde_json::to_string(&news).unwrap();
            heard.update(serde_json::from_str(&line).unwrap());
        }
        assert_eq!(format!("{heard:?}"), format!("{told:?}"));
    }

    #[test]
    fn a_condition_raises_one_warning_until_the_goal_changes() {
        let (mut state, before) = (running(3), running(3).warnings.0);
        let held = fixture::tasks();
        let mut late = held.clone();
        (late[1].late, late[1].late_share) = (530, Some(0.1));
        for tasks in [&late, &held, &late, &held, &late] {
            state.update(News::Tasks(tasks.clone()));
        }
        assert_eq!(state.warnings.0, before + 1);
        late[1].goal_late = Some(0.02);
        state.update(News::Tasks(late));
        assert_eq!(state.warnings.0, before + 2);
    }

    #[test]
    fn a_long_run_scrolls_within_its_bound() {
        let mut state = running(3000);
        state.duration_s = 3600.0;
        assert_eq!(state.samples.len(), SAMPLES_MAX);
        let [from, to] = state.span();
        assert!((from - 480.0).abs() < 1e-6 && (to - 600.0).abs() < 1e-6);
        assert!(state.curve(|sample| sample.clock_hz.map(|hz| hz as f64)).len() <= 601);
    }
}
