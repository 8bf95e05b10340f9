//! Keys of the view of a run.

use punctual_runtime::report::{RunMark, TaskReport, UserRequest};
use punctual_units::Share;
use punctual_workload::TaskGoal;
use ratatui::crossterm::event::KeyEvent;

use super::keys::{KeyTable, Keys};
use super::state::ViewState;
use super::{minutes, tasks::load};

/// Keys of this view. The last ones ([`REQUESTS`]) ask the run for something, which one that learns
/// refuses; `g` needs a task.
const OWN: &KeyTable<'_> = &[
    ("e", "explain the settings: since when, why, to what effect"),
    ("s", "sort the tasks: as given, late share, name, mean load"),
    ("g", "change the goal of the selected task"),
    ("m", "mark this instant in the report"),
];
const REQUESTS: [char; 2] = ['g', 'm'];

/// Names of the orders of tasks, of which the first is that of the run.
const ORDERS: [&str; 4] = ["", "by late share ", "by name ", "by mean load "];

/// State of the view of a run that keys change.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// State that every view has.
    pub keys: Keys<ViewState>,
    /// Index of the order of tasks.
    order: usize,
    /// Whether settings are shown in place of tasks and curves.
    pub(super) explains: bool,
    /// Time of the run at the key that asked for a text, in seconds.
    asked_s: f64,
}

impl Controls {
    /// Takes a key, at the state `live`; returns the user's request to the run, or what is wrong with it.
    pub fn press(&mut self, key: &KeyEvent, live: &ViewState) -> Option<Result<UserRequest, String>> {
        if self.keys.typed.is_none() {
            self.asked_s = live.elapsed_s();
        }
        let (selected, t_s) = (self.selected(live), self.asked_s);
        let takes = live.takes_requests() && !self.keys.stopping;
        let first = usize::from(selected.is_none());
        let asks = if takes { &REQUESTS[first..] } else { &[] };
        let rows = [live.tasks.len(), live.settings.len()][usize::from(self.explains)];
        Some(match self.keys.press(key, rows, live, asks)? {
            ('e', _) => {
                self.explains = !self.explains;
                return None;
            }
            ('s', _) => {
                self.order = (self.order + 1) % ORDERS.len();
                return None;
            }
            ('m', text) if takes => Ok(UserRequest::Mark(RunMark { t_s, text })),
            ('g', text) if takes => {
                let (task, _) = selected?;
                let percent = text.trim_end_matches(['%', ' ']).parse().ok();
                let share = percent.filter(|it: &f64| *it > 0.0 && *it < 100.0);
                let goal = share.map(|share| TaskGoal::Late(Share::clamped(share / 100.0)));
                let wrong = || {
                    format!("{text:?} is not a share of late jobs: type a number above 0 and below 100, such as 2.5")
                };
                goal.map(|goal| UserRequest::Goal(task, goal)).ok_or_else(wrong)
            }
            _ => return None,
        })
    }

    /// Name of the selected task, and its goal.
    fn selected(&self, live: &ViewState) -> Option<(String, TaskGoal)> {
        let (_, tasks) = self.ordered(self.keys.shown(live));
        let task = tasks.get(self.keys.row.min(tasks.len().saturating_sub(1)))?;
        Some((task.name.clone(), task.goal()))
    }

    /// Name of the order of tasks, and the tasks in it.
    pub(super) fn ordered<'t>(&self, state: &'t ViewState) -> (&'static str, Vec<&'t TaskReport>) {
        let mut tasks: Vec<&TaskReport> = state.tasks.iter().collect();
        let late = |task: &TaskReport| task.missed_share().unwrap_or(0.0);
        match self.order {
            1 => tasks.sort_by(|a, b| late(b).total_cmp(&late(a))),
            2 => tasks.sort_by(|a, b| a.name.cmp(&b.name)),
            3 => tasks.sort_by(|a, b| load(b, state).total_cmp(&load(a, state))),
            _ => {}
        }
        (ORDERS[self.order], tasks)
    }

    /// Keys of this view that are of use at `live`.
    pub(super) fn own(live: &ViewState) -> &'static KeyTable<'static> {
        &OWN[..OWN.len() - if live.takes_requests() { 0 } else { REQUESTS.len() }]
    }

    /// Question for the text that is being typed.
    pub(super) fn question(&self, live: &ViewState) -> Option<String> {
        match (self.keys.typed.as_ref()?.0, self.selected(live)) {
            ('g', Some((task, goal))) => Some(format!("{task} has goal {goal}; late jobs allowed, %:")),
            _ => Some(format!("mark at {}, text:", minutes(self.asked_s))),
        }
    }
}
