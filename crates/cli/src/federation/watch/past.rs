//! What nodes and balancers have told so far.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::{Value, json};

use super::look::{Look, WHY};
use super::{PATIENCE, Told};
use crate::summary::count;

/// The most moments that are kept of a node: beyond, every other one is let go, and from then on as many are left out.
const KEPT_MAX: usize = 2400;

/// What a node was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Seconds from the beginning.
    pub at: f64,
    /// Whether it answered.
    pub is_there: bool,
    /// Whether it was the master.
    pub is_master: bool,
    /// Requests done a second since the moment before.
    pub done: f64,
    /// Requests late a second, by time, backlog or want of a master; and unknown.
    pub late: f64,
    /// Entries that it lacked.
    pub lag: f64,
    /// d; none where it admits everything.
    pub bound: Option<f64>,
    /// Readings a second, of its clients and from its peers.
    pub readings: f64,
    /// The age of the oldest reading, in milliseconds.
    pub age_ms: Option<f64>,
}

/// One node, or a balancer.
#[derive(Debug)]
pub struct Node {
    /// Its place among all that are watched.
    place: usize,
    /// Where it is.
    pub address: SocketAddr,
    /// The last that it told, and when.
    pub last: Option<(Instant, Box<Look>)>,
    /// The last thing that went wrong, if that was later.
    pub trouble: Option<String>,
    /// What it was.
    pub moments: Vec<Moment>,
    /// One of so many is kept, and so many were left out since.
    stride: (usize, usize),
}

/// All that was told.
#[derive(Debug)]
pub struct Past {
    began: Instant,
    /// By node.
    pub nodes: Vec<Node>,
}

impl Past {
    /// Nothing yet.
    pub fn new(addresses: &[SocketAddr]) -> Past {
        let node = |(place, address): (usize, &SocketAddr)| Node {
            place,
            address: *address,
            last: None,
            trouble: None,
            moments: Vec::new(),
            stride: (1, 0),
        };
        Past {
            began: Instant::now(),
            nodes: addresses.iter().enumerate().map(node).collect(),
        }
    }

    /// Seconds from the beginning to the last moment.
    pub fn length(&self) -> f64 {
        let last = self.nodes.iter().filter_map(|node| node.moments.last());
        last.map(|moment| moment.at).fold(0.0, f64::max)
    }

    /// Takes what a node told.
    pub fn take(&mut self, (number, at, looked): Told) {
        let began = self.began;
        if let Some(node) = self.nodes.get_mut(number) {
            node.take(at.saturating_duration_since(began).as_secs_f64(), at, looked);
        }
    }

    /// Whether it answered as late as any other one, or nearly: at the end of a run all leave.
    pub fn answered_to_the_end(&self, node: &Node) -> bool {
        let told = |node: &Node| Some(node.last.as_ref()?.0);
        let newest = self.nodes.iter().filter_map(told).max();
        told(node)
            .zip(newest)
            .is_some_and(|(at, newest)| newest.saturating_duration_since(at) < 2 * PATIENCE)
    }

    /// Whether any node ever answered.
    pub fn was_told(&self) -> bool {
        self.nodes.iter().any(|node| node.last.is_some())
    }

    /// Why none did.
    pub fn complaints(&self) -> Vec<String> {
        let why = |node: &Node| node.trouble.clone().unwrap_or_else(|| "no answer".into());
        let line = |node: &Node| format!("{}: {}", node.address, why(node));
        self.nodes.iter().map(line).collect()
    }

    /// A line for each node, as it is now.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let (Some((_, look)), Some(now)) = (&node.last, node.moments.last().filter(|_| node.answers())) else {
                let why = node.trouble.as_deref().unwrap_or("no answer yet");
                let _ = writeln!(text, "{:7.1} s  {}: {why}", self.length(), node.address);
                continue;
            };
            if look.is_balancer() {
                let _ = writeln!(
                    text,
                    "{:7.1} s  {} under way {} done {:.0}/s late {:.0}/s",
                    now.at,
                    node.name(),
                    look.waiting,
                    now.done,
                    now.late
                );
                continue;
            }
            let age = look.age_ms.map_or("-".into(), age);
            let tasks = look.jobs;
            let tasks = tasks.map_or(String::new(), |(jobs, late)| format!(" jobs {jobs} late jobs {late}"));
            let zenoh = look.zenoh.map_or(String::new(), |set| format!(" from zenoh {set}"));
            let _ = writeln!(
                text,
                "{:7.1} s  node {} {} {} epoch {} applied {} lag {} d {} done {:.0}/s late {:.0}/s readings {:.0}/s \
                 oldest {age} datagrams missing {}{tasks}{zenoh}",
                now.at,
                look.node,
                look.role,
                look.standing,
                look.epoch,
                look.applied,
                look.lag,
                bound(look.bound),
                now.done,
                now.late,
                now.readings,
                look.missing,
            );
        }
        text
    }

    /// All of it.
    pub fn document(&self) -> Value {
        let moment = |moment: &Moment| {
            json!({
                "at_s": moment.at,
                "answered": moment.is_there,
                "master": moment.is_master,
                "done_per_s": moment.done,
                "late_per_s": moment.late,
                "lag_entries": moment.lag,
                "bound_items": moment.bound,
                "readings_per_s": moment.readings,
                "oldest_reading_ms": moment.age_ms,
            })
        };
        let node = |node: &Node| {
            json!({
                "address": node.address.to_string(),
                "figures": node.last.as_ref().map(|(_, look)| &look.all),
                "trouble": node.trouble,
                "moments": node.moments.iter().map(moment).collect::<Vec<_>>(),
            })
        };
        json!({
            "watched_s": self.length(),
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }
}

/// An age in milliseconds, as people read it.
pub fn age(ms: u64) -> String {
    match ms {
        ..10_000 => format!("{} ms", count(ms)),
        _ => format!("{:.1} s", ms as f64 / 1e3),
    }
}

/// d, as people read it.
pub fn bound(bound: f64) -> String {
    match bound {
        bound if bound.is_finite() && bound < 1e9 => count(bound as u64),
        _ => "open".into(),
    }
}

impl Node {
    /// Whether its last answer is of now.
    pub fn answers(&self) -> bool {
        self.trouble.is_none() && self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < 2 * PATIENCE)
    }

    /// Whether it is a balancer, as far as it has told.
    pub fn is_balancer(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, look)| look.is_balancer())
    }

    /// What it is called: its number, once that is known. A balancer has none: it is called by its place among all
    /// that are watched.
    pub fn name(&self) -> String {
        match &self.last {
            Some((_, look)) if look.is_balancer() => format!("balancer {}", self.place),
            Some((_, look)) => format!("node {}", look.node),
            None => self.address.to_string(),
        }
    }

    fn take(&mut self, at_s: f64, at: Instant, looked: Result<Box<Look>, String>) {
        match looked {
            Ok(look) => {
                let moment = match self.last.take() {
                    Some((before_at, before)) => moment(
                        &look,
                        &before,
                        at_s,
                        at.saturating_duration_since(before_at).as_secs_f64(),
                    ),
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

/// What a node was, by what it told now and before. A node that has started again counts from 0.
fn moment(look: &Look, before: &Look, at: f64, span: f64) -> Moment {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / span.max(1e-3);
    let late = |look: &Look| look.not_done[..4].iter().sum::<u64>();
    Moment {
        at,
        is_there: true,
        is_master: look.role == "master",
        done: rate(look.done, before.done),
        late: rate(late(look), late(before)),
        lag: look.lag as f64,
        bound: Some(look.bound).filter(|bound| bound.is_finite()),
        readings: rate(look.set + look.taken, before.set + before.taken),
        age_ms: look.age_ms.map(|age| age as f64),
    }
}

/// Why requests were not done, by the last that a node told: those that there were.
pub fn why(look: &Look) -> Vec<(&'static str, u64)> {
    let all = WHY.iter().zip(look.not_done).map(|((_, name), count)| (*name, count));
    all.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn look(done: u64, late: u64) -> Box<Look> {
        Box::new(Look {
            node: "0".into(),
            role: "master".into(),
            done,
            not_done: [late, 0, 0, 0, 9],
            bound: f64::INFINITY,
            ..Look::default()
        })
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
        past.take((0, began + at(1500), Ok(Box::new(balancer))));
        assert!(
            past.lines().contains("balancer 0 under way 3 done 0/s"),
            "{}",
            past.lines()
        );
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
