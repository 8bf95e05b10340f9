//! Figures of nodes and balancers so far.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::columns::{COLUMNS, CURVES};
use super::look::Look;
use super::{NodeAnswer, PATIENCE, SILENCE_MAX};

/// Most moments kept of a node: beyond, every other one is dropped, and only every second later one is taken.
const KEPT_MAX: usize = 2400;

/// Figures of a node at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Seconds since the watch began.
    pub at: f64,
    /// Whether the node answered.
    pub is_there: bool,
    /// Whether the node was the master.
    pub is_master: bool,
    /// Requests done a second since the moment before.
    pub done: f64,
    /// Requests late a second (deadline, backlog or no master), and of unknown outcome.
    pub late: f64,
    /// Log entries not yet applied.
    pub lag: f64,
    /// Bound d in items; `None` where every query is admitted.
    pub bound: Option<f64>,
    /// Readings a second, from its clients and its peers.
    pub readings: f64,
    /// Age of the oldest reading in milliseconds.
    pub age_ms: Option<f64>,
}

/// A watched node or balancer.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index among all that are watched.
    place: usize,
    /// Address for clients, which is asked.
    pub address: SocketAddr,
    /// Last answer, and its instant.
    pub last: Option<(Instant, Look)>,
    /// Last error, if that was later.
    pub trouble: Option<String>,
    /// Figures along the watch, oldest first.
    pub moments: Vec<Moment>,
    /// Stride between kept moments, and the number left out since the last kept one.
    stride: (usize, usize),
}

/// Figures of all nodes since the watch began.
#[derive(Clone, Debug)]
pub struct Past {
    began: Instant,
    /// Instant of the last answer or error of any node; a paused picture keeps it.
    seen: Instant,
    /// By node, in the order of the addresses.
    pub nodes: Vec<Node>,
}

impl Past {
    /// A watch without figures yet.
    pub fn new(addresses: &[SocketAddr]) -> Past {
        let node = |(place, address): (usize, &SocketAddr)| Node {
            place,
            address: *address,
            last: None,
            trouble: None,
            moments: Vec::new(),
            stride: (1, 0),
        };
        let began = Instant::now();
        Past {
            began,
            seen: began,
            nodes: addresses.iter().enumerate().map(node).collect(),
        }
    }

    /// Seconds from the beginning to the last moment.
    pub fn length(&self) -> f64 {
        let last = self.nodes.iter().filter_map(|node| node.moments.last());
        last.map(|moment| moment.at).fold(0.0, f64::max)
    }

    /// Takes the answer of a node.
    pub fn take(&mut self, (number, at, looked): NodeAnswer) {
        self.seen = self.seen.max(at);
        if let Some(node) = self.nodes.get_mut(number) {
            node.take(at.saturating_duration_since(self.began).as_secs_f64(), at, looked);
        }
    }

    /// Whether the node's last answer is nearly as new as the newest of any node: at the end of a run all leave.
    pub fn answered_to_the_end(&self, node: &Node) -> bool {
        let told = |node: &Node| Some(node.last.as_ref()?.0);
        let newest = self.nodes.iter().filter_map(told).max();
        let both = told(node).zip(newest);
        both.is_some_and(|(at, newest)| newest.saturating_duration_since(at) < 2 * PATIENCE)
    }

    /// Last answer and figures of a node, if it answers at present.
    pub fn present<'n>(&self, node: &'n Node) -> Option<(&'n Look, &'n Moment)> {
        let (at, look) = node.last.as_ref().filter(|_| node.trouble.is_none())?;
        let is_new = self.seen.saturating_duration_since(*at) < 2 * PATIENCE;
        node.moments.last().filter(|_| is_new).map(|moment| (look, moment))
    }

    /// Number of nodes that answer at present.
    pub fn present_count(&self) -> usize {
        self.nodes.iter().filter(|node| self.present(node).is_some()).count()
    }

    /// Whether any node ever answered.
    pub fn was_told(&self) -> bool {
        self.nodes.iter().any(|node| node.last.is_some())
    }

    /// Whether no node has answered after a time in which any node answers.
    pub fn is_silent(&self, elapsed: Duration) -> bool {
        !self.was_told() && elapsed >= SILENCE_MAX
    }

    /// For each node, the reason why it did not answer.
    pub fn complaints(&self) -> Vec<String> {
        let why = |node: &Node| node.trouble.clone().unwrap_or_else(|| "no answer".into());
        let line = |node: &Node| format!("{}: {}", node.address, why(node));
        self.nodes.iter().map(line).collect()
    }

    /// A line for each node, with its present figures.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let Some((look, now)) = self.present(node) else {
                let why = node.trouble.as_deref().unwrap_or("no answer yet");
                let _ = writeln!(text, "{:7.1} s  {}: {why}", self.length(), node.address);
                continue;
            };
            let _ = write!(text, "{:7.1} s  {}", now.at, node.name());
            if !look.is_balancer() {
                let _ = write!(text, " {}", look.role());
            }
            let columns = COLUMNS.iter().filter(|column| column.live.is_some());
            for column in columns.filter(|column| column.is_of(look)) {
                let _ = write!(text, " {} {}", column.title, (column.value)(look, now));
            }
            text.push('\n');
        }
        text
    }

    /// All figures as a JSON object.
    pub fn document(&self) -> Value {
        let moment = |node: &Node, moment: &Moment| {
            let mut all = json!({ "at_s": moment.at, "answered": moment.is_there, "master": moment.is_master });
            for curve in &CURVES {
                all[curve.key] = curve.value(node, moment).into();
            }
            all
        };
        let node = |node: &Node| {
            json!({
                "address": node.address.to_string(),
                "figures": node.last.as_ref().map(|(_, look)| &look.all),
                "trouble": node.trouble,
                "moments": node.moments.iter().map(|at| moment(node, at)).collect::<Vec<_>>(),
            })
        };
        json!({
            "watched_s": self.length(),
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }
}

impl Node {
    /// Whether it is a balancer, according to its last answer.
    pub fn is_balancer(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, look)| look.is_balancer())
    }

    /// Name for display: the node's number, once known; a balancer's index among all that are watched.
    pub fn name(&self) -> String {
        match &self.last {
            Some((_, look)) if look.is_balancer() => format!("balancer {}", self.place),
            Some((_, look)) => format!("node {}", look.word("node")),
            None => self.address.to_string(),
        }
    }

    fn take(&mut self, at_s: f64, at: Instant, looked: Result<Look, String>) {
        match looked {
            Ok(look) => {
                let moment = match self.last.take() {
                    Some((before_at, before)) => {
                        let span = at.saturating_duration_since(before_at).as_secs_f64();
                        moment(&look, &before, at_s, span)
                    }
                    None => moment(&look, &look, at_s, 1.0),
                };
                self.keep(moment);
                (self.last, self.trouble) = (Some((at, look)), None);
            }
            Err(why) => {
                self.trouble = Some(why);
                self.keep(Moment {
                    at: at_s,
                    ..Moment::default()
                });
            }
        }
    }

    fn keep(&mut self, moment: Moment) {
        let (every, left) = &mut self.stride;
        *left += 1;
        if *left < *every {
            return;
        }
        *left = 0;
        self.moments.push(moment);
        if self.moments.len() > KEPT_MAX {
            *every *= 2;
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
    }
}

/// Figures of a node, from the differences between two answers. A restarted node counts from 0.
fn moment(look: &Look, before: &Look, at: f64, span: f64) -> Moment {
    let rate = |of: fn(&Look) -> u64| of(look).saturating_sub(of(before)) as f64 / span.max(1e-3);
    Moment {
        at,
        is_there: true,
        is_master: look.is_master(),
        done: rate(|look| look.requests("done")),
        late: rate(|look| look.not_done()[..4].iter().sum()),
        lag: look.count("lag_entries") as f64,
        bound: Some(look.bound()).filter(|bound| bound.is_finite()),
        readings: rate(Look::readings),
        age_ms: look.number("age_ms_max").map(|age| age as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(done: u64, late: u64) -> Look {
        let text = format!(
            "federation:7\nnode:0\nrole:master\nstanding:serving\nqueries_done:{done}\nqueries_late_backlog:{late}\n\
             queries_refused:9\nbound_items:inf\n"
        );
        Look::of(&text).unwrap()
    }

    fn past() -> Past {
        Past::new(&[SocketAddr::from(([127, 0, 0, 1], 7))])
    }

    #[test]
    fn rates_are_of_the_time_between_and_a_start_begins_anew() {
        let mut past = past();
        let at = |ms| past_at(ms);
        fn past_at(ms: u64) -> Duration {
            Duration::from_millis(ms)
        }
        let began = past.began;
        for (ms, done, late) in [(0, 100, 1), (500, 150, 3), (1000, 10, 0)] {
            past.take((0, began + at(ms), Ok(look(done, late))));
        }
        past.take((0, began + at(1250), Err("gone".into())));
        let moments = &past.nodes[0].moments;
        let rates: Vec<_> = moments
            .iter()
            .map(|moment| (moment.is_there, moment.done, moment.late))
            .collect();
        assert_eq!(
            rates,
            [
                (true, 0.0, 0.0),
                (true, 100.0, 4.0),
                (true, 0.0, 0.0),
                (false, 0.0, 0.0)
            ]
        );
        assert_eq!((past.length(), past.was_told()), (1.25, true));
        assert!(past.lines().contains("127.0.0.1:7: gone"), "{}", past.lines());
        assert_eq!(past.document()["nodes"][0]["moments"][1]["done_per_s"], 100.0);
        let balancer = Look::of("role:balancer\r\nfederation:7\r\nunder_way:3\r\n").unwrap();
        past.take((0, began + at(1500), Ok(balancer)));
        assert!(
            past.lines().contains("balancer 0 waits 3 done/s 0 late/s 0"),
            "{}",
            past.lines()
        );
        let last = &past.document()["nodes"][0]["moments"][4];
        assert_eq!(
            (&last["done_per_s"], &last["lag_entries"], &last["readings_per_s"]),
            (&json!(0.0), &Value::Null, &Value::Null)
        );
    }

    #[test]
    fn a_watch_is_silent_once_it_has_waited_long_enough_without_any_answer() {
        let mut past = past();
        let began = past.began;
        past.take((0, began, Err("refused".into())));
        let least = Duration::from_nanos(1);
        assert!(!past.is_silent(SILENCE_MAX - least) && past.is_silent(SILENCE_MAX));
        past.take((0, began + SILENCE_MAX, Ok(look(1, 0))));
        past.take((0, began + 2 * SILENCE_MAX, Err("gone".into())));
        assert!(!past.is_silent(3 * SILENCE_MAX));
    }

    #[test]
    fn however_long_it_is_watched_so_many_moments_are_kept() {
        let mut past = past();
        let began = past.began;
        for number in 0..10 * KEPT_MAX as u64 {
            past.take((0, began + Duration::from_millis(number), Ok(look(number, 0))));
        }
        let moments = &past.nodes[0].moments;
        assert!((KEPT_MAX / 2..=KEPT_MAX).contains(&moments.len()));
        assert!(moments.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
