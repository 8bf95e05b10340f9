//! Figures of watched nodes as one HTML page.

use maud::{Markup, html};
use punctual_node::spans::SpanStage;

use super::columns::{COLUMNS, CURVES, WatchCurve, oldest};
use super::look::{Look, part};
use super::past::{Moment, Node, Past};
use punctual_report::page::chart::{
    BOTTOM, CLASSES, Chart, Curve, LANE, NAMES, RIGHT, TOP, WIDTH, drawing, px, seconds,
};
use punctual_report::page::{figure, framed, sheet, tiles, what};
use punctual_report::summary::count;

/// Class of a master's lane.
const MASTER: &str = "c";
/// Most late requests of a node that are shown.
const LATE_SHOWN: usize = 8;

/// The page; `command` is the command line that produced it.
pub fn page(past: &Past, command: &str) -> String {
    let balancers = past.nodes.iter().filter(|node| node.is_balancer()).count();
    let head = html! {
        b { "cluster" } " · " (past.nodes.len() - balancers) " nodes"
        @if balancers > 0 { ", " (balancers) " balancers" }
        " · " (format!("{:.1}", past.length())) " s"
    };
    let body = html! {
        p class="verdict plain" { (sentence(past)) }
        (tiles(&sums(past)))
        (figures(past))
        (nodes(past))
        (late(past))
    };
    framed("cluster", &head, &body, command)
}

fn looks(past: &Past) -> impl Iterator<Item = (&Node, &Look)> {
    past.nodes
        .iter()
        .filter_map(|node| Some((node, &node.last.as_ref()?.1)))
}

/// Sentence that lists the masters in order.
fn sentence(past: &Past) -> String {
    let reigns = past.nodes.iter().flat_map(|node| {
        let reigning = stretches(node, past.length())
            .into_iter()
            .filter(|(class, ..)| *class == MASTER);
        reigning.map(|(_, from, _)| (from, node.name()))
    });
    let mut reigns: Vec<(f64, String)> = reigns.collect();
    reigns.sort_by(|one, other| one.0.total_cmp(&other.0));
    let names: Vec<String> = reigns.into_iter().map(|(_, name)| name).collect();
    match names.len() {
        0 => "No node was the master".into(),
        1 => format!("The master was {}", names[0]),
        _ => format!("The masters were {}", names.join(", then ")),
    }
}

/// Sums over all nodes, each with its name.
fn sums(past: &Past) -> [(String, &'static str); 6] {
    // Requests through balancers are counted by balancers and by nodes; and a restarted node counts from 0.
    let has_balancers = looks(past).any(|(_, look)| look.is_balancer());
    let asked = |of: fn(&Look) -> u64| {
        let looks = looks(past).filter(|(_, look)| look.is_balancer() == has_balancers);
        looks.map(|(_, look)| of(look)).sum::<u64>()
    };
    let done = match has_balancers {
        true => "requests done, as balancers count",
        false => "requests done",
    };
    let sum = |of: fn(&Look) -> u64| looks(past).map(|(_, look)| of(look)).sum::<u64>();
    let age = looks(past).filter_map(|(_, look)| look.number("age_ms_max")).max();
    let late = asked(|look| look.not_done()[..3].iter().sum());
    [
        (count(asked(|look| look.requests("done"))), done),
        (count(late), "late: not executed"),
        (count(asked(|look| look.requests("unknown"))), "unknown"),
        (count(sum(|look| look.count("readings_set"))), "readings set"),
        (
            count(sum(|look| look.of_peers("readings_skipped"))),
            "readings superseded on the way",
        ),
        (oldest(age), "the oldest reading"),
    ]
}

fn figures(past: &Past) -> Markup {
    let keys = ["master", "replica or balancer", "silent"].map(str::to_owned);
    let keys: Vec<(String, &str)> = keys.into_iter().zip(["c", "f", "late"]).collect();
    html! {
        h2 { "Along the time" }
        div class="charts" {
            (figure("Roles", &what(""), &keys, &roles(past)))
            @for shown in &CURVES { (curves(past, shown)) }
        }
    }
}

fn class(number: usize) -> &'static str {
    CLASSES[number % CLASSES.len()]
}

fn curves(past: &Past, shown: &WatchCurve) -> Markup {
    let Some((title, about, unit, scale)) = &shown.chart else {
        return Markup::default();
    };
    let value = |node: &Node, moment: &Moment| Some(shown.value(node, moment).filter(|_| moment.is_there)? * scale);
    let curve = |(number, node): (usize, &Node)| Curve {
        name: node.name(),
        class: class(number),
        points: node.moments.iter().map(|it| (it.at, value(node, it))).collect(),
    };
    let nodes = past.nodes.iter().enumerate().filter(|(_, node)| shown.is_of(node));
    let chart = Chart {
        description: format!("{title}: {about}, of each node"),
        curves: nodes.map(curve).collect(),
        at_least: (0.0, 1.0),
        unit,
        length_s: past.length(),
        ..Chart::default()
    };
    figure(title, &what(about), &chart.keys(), &chart.svg())
}

/// A lane for each node, with its role at each moment.
fn roles(past: &Past) -> Markup {
    let (length, height) = (past.length().max(1.0), TOP + BOTTOM + LANE * past.nodes.len() as f64);
    let x = |at: f64| NAMES + (WIDTH - RIGHT - NAMES) * (at / length).clamp(0.0, 1.0);
    let inner = html! { @for (lane, node) in past.nodes.iter().enumerate() {
        @let top = TOP + LANE * lane as f64;
        text class="tick" x=(px(NAMES - 6.0)) y=(px(top + LANE - 5.0)) { (node.name()) }
        @for (class, from, to) in stretches(node, length) {
            @let width = px((x(to) - x(from)).max(0.5));
            rect class={ "bar " (class) } x=(px(x(from))) y=(px(top + 2.0)) width=(width) height=(px(LANE - 5.0)) {}
        }
    } };
    let what = "what each node was over time";
    drawing(what, NAMES, height, &[], &seconds(length), &inner)
}

/// Stretches of one class, with start and end in seconds.
fn stretches(node: &Node, end: f64) -> Vec<(&'static str, f64, f64)> {
    let class = |moment: &Moment| match (moment.is_there, moment.is_master) {
        (false, _) => "late",
        (true, true) => MASTER,
        (true, false) => "f",
    };
    let mut stretches: Vec<(&str, f64, f64)> = Vec::new();
    for (number, moment) in node.moments.iter().enumerate() {
        let until = node.moments.get(number + 1).map_or(end, |next| next.at);
        match stretches.last_mut() {
            Some((before, _, to)) if *before == class(moment) => *to = until,
            _ => stretches.push((class(moment), moment.at, until)),
        }
    }
    stretches
}

fn nodes(past: &Past) -> Markup {
    let columns = || COLUMNS.iter().filter(|column| column.page.is_some());
    let head = ["node", "address", "role"].into_iter();
    let head = head.chain(columns().map(|column| column.title));
    let mut rows = vec![head.map(str::to_owned).collect()];
    for node in &past.nodes {
        let mut row = vec![node.name(), node.address.to_string()];
        match (&node.last, node.moments.last()) {
            (Some((_, look)), Some(now)) => {
                let is_there = past.answered_to_the_end(node);
                row.push(if is_there { look.role() } else { "silent" }.into());
                row.extend(columns().map(|column| column.cell(look, now)));
            }
            _ => row.push(node.trouble.clone().unwrap_or_else(|| "no answer".into())),
        }
        rows.push(row);
    }
    let explained = columns().filter(|column| column.page.is_some_and(|help| !help.is_empty()));
    html! {
        h2 { "Nodes" }
        (sheet(&rows))
        p class="note" {
            @for column in explained { (column.title) ": " (column.page.unwrap_or_default()) ". " }
            "d is open where a node admits all."
        }
    }
}

/// Time of late requests per stage, as sums, and the late requests one by one.
fn late(past: &Past) -> Markup {
    let places = SpanStage::ALL.map(SpanStage::name);
    let head = places.map(|name| format!("{name}: were there, spent"));
    let mut sums: Vec<Vec<String>> = vec![std::iter::once("node".to_owned()).chain(head).collect()];
    let head = ["node", "what", "was", "at"].into_iter().chain(places);
    let mut ones: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for (node, look) in looks(past) {
        let spent = look.late_at().into_iter().zip(look.late_us());
        let spent = spent.map(|(count, us)| format!("{count}, {}", ms(us)));
        sums.push(std::iter::once(node.name()).chain(spent).collect());
        for line in look.late().take(LATE_SHOWN) {
            let words = ["kind", "told", "at"].map(|name| part(line, name).to_owned());
            let spent = places.map(|name| ms(part(line, &format!("{name}_us")).parse().unwrap_or(0)));
            ones.push({ [node.name()].into_iter() }.chain(words).chain(spent).collect());
        }
    }
    html! {
        h2 { "Where the time of late requests went" }
        (sheet(&sums))
        @if ones.len() > 1 { h2 { "The last late requests" } (sheet(&ones)) }
        p class="note" {
            "Queue: behind others, or waiting for a revision. Lock: before the store's writer or an executor was free. "
            "Network: passed on to another node. What a balancer took, only that balancer knows: to it, all that nodes "
            "took is the network."
        }
    }
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_page_is_whole_with_silent_nodes_and_without() {
        let mut past = Past::new(&[7, 8].map(|port| SocketAddr::from(([127, 0, 0, 1], port))));
        punctual_report::fixture::check_nesting(&page(&past, "punctual cluster watch"));
        let began = Instant::now();
        for step in 0..5 {
            let role = if step < 3 { "slave" } else { "master" };
            let text = format!(
                "federation:7\nnode:<0>\nrole:{role}\nstanding:serving\nqueries_done:{}\n\
                 late0:ago_ms=5,kind=query,told=expired,at=log,log_us=2500\n",
                10 * step
            );
            let look = Look::of(&text).unwrap();
            past.take((0, began + Duration::from_millis(250 * step), Ok(look)));
        }
        past.take((1, began, Err("refused".into())));
        let page = page(&past, "punctual cluster watch");
        punctual_report::fixture::check_nesting(&page);
        assert_eq!(page.matches("<svg").count(), 6);
        for part in ["The master was node &lt;0&gt;", "2.5 ms", "refused"] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(stretches(&past.nodes[0], 1.0).len(), 2, "a replica, then the master");
        // What a balancer passed on is told once.
        let balancer = Look::of("role:balancer\r\nfederation:7\r\nqueries_done:7777\r\n").unwrap();
        past.take((1, began + Duration::from_secs(2), Ok(balancer)));
        let page = super::page(&past, "punctual cluster watch");
        punctual_report::fixture::check_nesting(&page);
        for part in [
            "1 nodes, 1 balancers",
            "<b>7,777</b><span>requests done, as balancers count",
        ] {
            assert!(page.contains(part), "no {part}");
        }
    }
}
