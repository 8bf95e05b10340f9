//! Keys that all live views have: one table, and the part of a view's state that they change.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::panel;
use crate::terminal::STOPPING;

/// Keys and their effects, as the help names them.
pub type KeyTable<'k> = [(&'k str, &'k str)];

/// Keys of every view, before its own.
const COMMON: &KeyTable<'_> = &[
    ("?", "this help; any key closes it"),
    ("p, space", "pause the screen, and go on; the run does not wait"),
    ("up, down, Tab", "select a row"),
    ("PgUp, PgDn, Home, End", "ten rows up or down, the first, the last"),
];

/// Rows that PgUp and PgDn pass.
const PAGE: isize = 10;

/// Width of the names of keys in the help, in columns.
const KEY_WIDTH: usize = 23;

/// Limit of a typed text, in bytes.
const TEXT_MAX: usize = 60;

/// Width of a question besides its words and the text, in columns.
const ASKED_WIDTH: usize = 17;

/// State of a view that keys change; `T` is the content of the view.
#[derive(Clone, Debug)]
pub struct Keys<T> {
    /// Index of the selected row.
    pub row: usize,
    /// Whether the user ends the view.
    pub quits: bool,
    /// Content at the instant of the pause; `None` while the screen is live.
    pub paused: Option<Box<T>>,
    /// Key whose text is being typed, and the text so far. The screen is paused meanwhile.
    pub typed: Option<(char, String)>,
    /// Whether the screen goes on after the text: it was live before.
    pub resumes: bool,
    /// Whether the help covers the view.
    pub helps: bool,
    /// Whether the user asked to stop.
    pub stopping: bool,
}

impl<T> Default for Keys<T> {
    fn default() -> Keys<T> {
        Keys {
            row: 0,
            quits: false,
            paused: None,
            typed: None,
            resumes: false,
            helps: false,
            stopping: false,
        }
    }
}

impl<T: Clone> Keys<T> {
    /// Takes a key, in a view of `rows` rows with the content `live`. Returns a key of the view's own, and the text
    /// that was typed if it is one of those that `ask` for one.
    pub fn press(&mut self, key: &KeyEvent, rows: usize, live: &T, ask: &[char]) -> Option<(char, String)> {
        if !key.modifiers.difference(KeyModifiers::SHIFT).is_empty() || std::mem::take(&mut self.helps) {
            return None;
        }
        if let Some((asked, mut text)) = self.typed.take() {
            match key.code {
                KeyCode::Enter | KeyCode::Esc => {
                    self.paused.take_if(|_| self.resumes);
                    return (key.code == KeyCode::Enter).then_some((asked, text));
                }
                KeyCode::Backspace => drop(text.pop()),
                KeyCode::Char(typed) if text.len() < TEXT_MAX => text.push(typed),
                _ => {}
            }
            self.typed = Some((asked, text));
            return None;
        }
        let rows_down = match key.code {
            KeyCode::Up | KeyCode::BackTab => -1,
            KeyCode::Down | KeyCode::Tab => 1,
            KeyCode::PageUp => -PAGE,
            KeyCode::PageDown => PAGE,
            KeyCode::Home => isize::MIN,
            KeyCode::End => isize::MAX,
            _ => 0,
        };
        let last = rows.saturating_sub(1);
        self.row = self.row.min(last).saturating_add_signed(rows_down).min(last);
        match key.code {
            KeyCode::Char('q') => self.quits = true,
            KeyCode::Char('?') => self.helps = true,
            KeyCode::Char('p' | ' ') => self.paused = self.paused.is_none().then(|| Box::new(live.clone())),
            KeyCode::Char(key) if ask.contains(&key) => {
                self.resumes = self.paused.is_none();
                self.paused.get_or_insert_with(|| Box::new(live.clone()));
                self.typed = Some((key, String::new()));
            }
            KeyCode::Char(key) => return Some((key, String::new())),
            _ => {}
        }
        None
    }

    /// Ends pause, question and help, as another run begins or this one stops.
    pub fn close(&mut self) {
        (self.paused, self.typed, self.helps) = (None, None, false);
    }

    /// Closes all that is open, because the user asked to stop; returns whether this is the first call.
    pub fn stop(&mut self) -> bool {
        self.close();
        !std::mem::replace(&mut self.stopping, true)
    }

    /// Content to show: that of the pause, or else `live`.
    pub fn shown<'t>(&'t self, live: &'t T) -> &'t T {
        self.paused.as_deref().unwrap_or(live)
    }

    /// Draws the last line of a view: hints; or, while paused, `paused`, the question for a text or what has happened
    /// since; or that the run stops. Draws the help, with the view's `own` keys, over the view.
    pub fn draw(&self, frame: &mut Frame<'_>, area: Rect, own: &KeyTable<'_>, quit: &str, paused: &str) {
        let line = match (&self.typed, &self.paused) {
            _ if self.stopping => Line::from(format!(" {STOPPING}").yellow()),
            (Some((_, text)), _) => {
                // Of a long text its end, where the user types.
                let room = usize::from(area.width).saturating_sub(Span::raw(paused).width() + ASKED_WIDTH);
                let typed: Vec<char> = text.chars().collect();
                let end = String::from_iter(&typed[typed.len().saturating_sub(room)..]);
                Line::from(format!(" {paused} {end}█  Enter or Esc")).bold()
            }
            (None, Some(_)) => Line::from(vec![
                " paused ".black().on_yellow(),
                format!(" p goes on; the run went on: {paused}").into(),
            ]),
            (None, None) => {
                let hints = [("?", "help"), ("p", "pause"), ("q", quit)];
                let hints = hints.map(|(key, what)| [format!(" {key} ").bold(), format!("{what} ").dim()]);
                Line::from_iter(hints.into_iter().flatten())
            }
        };
        frame.render_widget(line, area);
        if self.helps {
            let keys = COMMON.iter().chain(own).copied().chain([("q", quit)]);
            let lines: Vec<_> = keys.map(|(key, what)| format!(" {key:KEY_WIDTH$}{what} ")).collect();
            let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            let [width, height] = [widest, lines.len()].map(|inside| Constraint::Length(inside as u16 + 2));
            let area = frame.area().centered(width, height);
            frame.render_widget(Clear, area);
            frame.render_widget(
                Paragraph::new(lines.join("\n")).block(panel(" keys ".bold().into())),
                area,
            );
        }
    }
}
