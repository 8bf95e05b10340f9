//! Finds the threads of tasks whose programs report nothing, and hands each over once it has begun a job.

use std::collections::BTreeSet;

use punctual_jobs::{JobSource, Reporter};
use punctual_platform::Observation;
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::observed::{ObservedThread, Tracepoints, threads};
use punctual_platform::linux::thread::{Tid, is_running};
use punctual_units::{Nanos, Time};

use super::reported::REPORTERS_MAX;

/// Interval between two looks at all threads of the machine.
const SEARCH_EVERY: Nanos = Nanos::from_secs(1);

/// Threads of a task that may match and are not taken yet: each has three descriptors and a ring.
const WATCHED_MAX: usize = 64;

/// The threads that match, until each has begun a job.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Threads that have begun no job, with the names of their tasks.
    watched: Vec<(String, ObservedThread)>,
    searched: Option<Time>,
    points: Option<Tracepoints>,
    notes: BTreeSet<String>,
}

impl Observer {
    /// Threads of these tasks that have begun their first job, but for those that are `known`; at most `free`.
    /// The last field of a task: whether it has a period.
    pub(super) fn look<'a>(
        &mut self,
        now: Time,
        tasks: impl Iterator<Item = (&'a str, &'a Observation, bool)> + Clone,
        known: &dyn Fn(&str, (i32, Tid)) -> bool,
        free: usize,
    ) -> Vec<Reporter> {
        let searches = self.searched.is_none_or(|last| now.since(last) >= SEARCH_EVERY);
        if searches && tasks.clone().next().is_some() {
            self.searched = Some(now);
            self.search(tasks.clone(), known);
        }
        let mut begun = Vec::new();
        for (name, mut thread) in std::mem::take(&mut self.watched) {
            let call = thread.begun();
            if call.is_some() && begun.len() == free {
                let more = format!("{name}: no more threads are taken: {REPORTERS_MAX} are at a time");
                self.notes.insert(more);
                thread.jobs(); // else they would be kept until a place is free
            }
            let Some((call, told)) = call.filter(|_| begun.len() < free) else {
                self.watched.push((name, thread));
                continue;
            };
            let has_period = tasks.clone().any(|(task, _, has_period)| task == name && has_period);
            let releases = match (told, has_period) {
                (true, _) => "",
                (false, true) => "; its releases are not told, and come from its period",
                (false, false) => {
                    "; its releases are not told: give it a period, or waiting before its begin is not seen"
                }
            };
            self.notes.insert(format!(
                "{name} is observed: a job ends when its thread calls {}, and begins when that returns{releases}",
                call.name()
            ));
            let (process, tid) = thread.thread();
            begun.push(Reporter {
                source: Box::new(thread),
                name,
                process,
                thread: Some(tid),
                thread_is_missing: false,
                deadline: None,
                period: None,
            });
        }
        begun
    }

    fn search<'a>(
        &mut self,
        tasks: impl Iterator<Item = (&'a str, &'a Observation, bool)>,
        known: &dyn Fn(&str, (i32, Tid)) -> bool,
    ) {
        let find = || Tracepoints::find(&KernelTree::default());
        let points = match self.points.map_or_else(find, Ok) {
            Ok(points) => *self.points.insert(points),
            Err(refusal) => {
                self.notes.insert(refusal.to_string());
                return;
            }
        };
        self.watched.retain(|(_, watched)| {
            let (process, thread) = watched.thread();
            is_running(process, Some(thread)) && !watched.has_ended() && !watched.is_closed()
        });
        let tasks: Vec<_> = tasks.collect();
        let selectors: Vec<_> = tasks.iter().map(|(_, observation, _)| &observation.threads).collect();
        for (task, found) in threads(&selectors) {
            let (name, observation, _) = tasks[task];
            let mut watched = { self.watched.iter() }.filter(|(task, _)| task == name);
            if known(name, found) || watched.clone().any(|(_, thread)| thread.thread() == found) {
                continue;
            }
            if watched.nth(WATCHED_MAX - 1).is_some() {
                let more = format!("{name}: more than {WATCHED_MAX} threads match, and have begun no job");
                self.notes.insert(more);
                continue;
            }
            match ObservedThread::of(&points, observation, found) {
                Ok(thread) => self.watched.push((name.to_owned(), thread)),
                Err(_) if !is_running(found.0, Some(found.1)) => {}
                Err(why) => {
                    self.notes.insert(format!("{name}: a thread cannot be observed: {why}"));
                }
            }
        }
    }

    /// Whether threads of a task match that have begun no job.
    pub(super) fn watches(&self, name: &str) -> bool {
        self.watched.iter().any(|(task, _)| task == name)
    }

    /// Whether the kernel lets threads be observed, as far as any was looked for.
    pub(super) fn may_observe(&self) -> bool {
        self.searched.is_none() || self.points.is_some()
    }

    /// Facts for the report.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().cloned()
    }
}
