//! `punctual top`: a run of another process, in this terminal or in browsers; or nodes of a cluster.

use std::time::{Duration, Instant};

use punctual_files::failure::Failure;
use punctual_report::feed::{self, FeedView};
use punctual_report::page::live;
use punctual_report::terminal::say;
use punctual_report::view::{News, ViewState};
use punctual_report::watch::Watcher;
use punctual_scenario::WithoutEffect;
use punctual_server::metrics::{PageAnswer, PublishedFigures, STREAMS_MAX};

use super::{metrics, print};
use crate::args::{ServerAddress, Top};
use crate::cluster::watch;

/// Interval between the figures that browsers get.
const PAGE_EVERY: Duration = Duration::from_secs(1);

/// Carries out `punctual top`.
///
/// # Errors
/// [`Failure::Input`] if there is no such run or node, or if a run's process dies meanwhile.
pub fn top(arguments: &Top, command: &str) -> Result<(), Failure> {
    let refuse = |given: &[(&'static str, bool)], why: &'static str| {
        let given = given.iter().filter(|(_, given)| *given);
        Failure::refuse(given.map(|(option, _)| WithoutEffect::of(*option, why).to_string()))
    };
    let (nodes, runs): (Vec<&String>, Vec<&String>) = arguments.shown.iter().partition(|shown| shown.contains(':'));
    let (json, html, dialling) = (arguments.json.is_some(), arguments.html.is_some(), &arguments.dialling);
    match (&runs[..], &nodes[..]) {
        ([] | [_], []) => {
            let dials = dialling.authority.is_some() || dialling.user.is_some();
            let of_nodes = [("--json", json), ("--html", html), ("--authority or --user", dials)];
            refuse(&of_nodes, "it is for nodes; name their addresses, or leave it out")?;
            show(the_one(runs.first().copied())?, arguments)
        }
        ([], nodes) => {
            let serve = [("--serve", arguments.serve.is_some())];
            refuse(&serve, "it is for a run; nodes have --html")?;
            let address = |node: &&String| node.parse().map_err(|why| Failure::of(format!("{node}: {why}")));
            let addresses: Vec<ServerAddress> = nodes.iter().map(address).collect::<Result<_, _>>()?;
            watch::watch(&addresses, arguments, command)
        }
        _ => Err(Failure::of("name one run, or addresses HOST:PORT of nodes")),
    }
}

/// The only run, of that name or process if one is named.
fn the_one(named: Option<&String>) -> Result<FeedView, Failure> {
    let mut runs = feed::running();
    let told = |run: &Result<FeedView, String>| run.as_ref().map_or_else(String::clone, FeedView::to_string);
    let all: Vec<String> = runs.iter().map(told).collect();
    let is_named = |run: &FeedView, name: &String| *name == run.name || *name == run.process.to_string();
    runs.retain(|run| named.is_none_or(|name| run.as_ref().is_ok_and(|run| is_named(run, name))));
    let there = all.join(", ");
    let why = match (runs.pop(), named) {
        (Some(Ok(run)), _) if runs.is_empty() => return Ok(run),
        (None, _) if all.is_empty() => {
            "no run of this user: start one with `punctual run` or `punctual attach`; `punctual pipeline list` has \
             stages alone"
                .into()
        }
        (None, Some(name)) => format!("no run is \"{name}\"; there is {there}"),
        _ => format!("there is {there}; name one by its process"),
    };
    Err(Failure::of(why))
}

/// Shows a run until it ends, the user ends the view, or its duration is over.
fn show(mut run: FeedView, arguments: &Top) -> Result<(), Failure> {
    let page = metrics::bind("--serve", arguments.serve)?;
    let name = run.name.clone();
    let page = PublishedFigures::serve_pages(page, move |path, figures: Option<&String>| match path {
        "/" => PageAnswer::Document("text/html", live::document_of(&name, STREAMS_MAX)),
        "/events" => PageAnswer::Events(figures.cloned().unwrap_or_default()),
        _ => PageAnswer::Missing,
    });
    let page = page.map_err(|error| Failure::of(format!("--serve: no thread for the page: {error}")))?;
    if let Some(address) = page.address {
        print(&format!("{run} on http://{address}/\n"))?;
    }
    let watcher = Watcher::start(arguments.plain || page.address.is_some(), None)?;
    let (begun, mut published, mut state) = (Instant::now(), None::<Instant>, ViewState::default());
    let most = arguments.duration.map(Duration::from);
    let ended = loop {
        if watcher.stopped() || most.is_some_and(|most| begun.elapsed() >= most) {
            break Ok(None);
        }
        for request in watcher.requests() {
            if let Err(why) = run.ask(&request) {
                watcher.tell(News::Warning(format!("{run} does not take requests: {why}")));
            }
        }
        match run.news() {
            Ok(Some(News::Ended)) => break Ok(Some(format!("{run} has ended its run"))),
            Ok(Some(news)) => {
                if page.address.is_some() {
                    state.update(news.clone());
                }
                watcher.tell(news);
            }
            Ok(None) => {}
            Err(why) => break Err(Failure::of(format!("{run} has died, or writes no news: {why}"))),
        }
        if published.is_none_or(|at| at.elapsed() >= PAGE_EVERY) {
            published = Some(Instant::now());
            page.publish(|| live::figures_of(&state));
        }
    };
    page.publish(|| live::figures_of(&state));
    drop((page, watcher));
    ended.map(say)
}
