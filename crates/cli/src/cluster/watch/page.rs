//! Figures of watched nodes as one HTML page.

use std::fmt::Write;

use punctual_node::spans::SpanStage;

use super::columns::{COLUMNS, CURVES, WatchCurve, oldest};
use super::look::{Look, part};
use super::past::{Moment, Node, Past};
use crate::pipeline::page::{drawing, figure};
use punctual_report::page::chart::{BOTTOM, Chart, Curve, RIGHT, TOP, WIDTH, label, ticks};
use punctual_report::page::{escape, framed, sheet};
use punctual_report::summary::count;

/// Classes of the style sheet, by node.
const CLASSES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Height of a node's lane, and width of its name, in pixels.
const LANE: f64 = 17.0;
const NAMES: f64 = 84.0;
/// Class of a master's lane.
const MASTER: &str = "c";
/// Most late requests of a node that are shown.
const LATE_SHOWN: usize = 8;

/// The page; `command` is the command line that produced it.
pub fn page(past: &Past, command: &str) -> String {
    let mut body = String::new();
    let _ = writeln!(body, "<p class=\"verdict plain\">{}</p>", escape(&sentence(past)));
    tiles(&mut body, past);
    figures(&mut body, past);
    nodes(&mut body, past);
    late(&mut body, past);
    let balancers = past.nodes.iter().filter(|node| node.is_balancer()).count();
    let also = match balancers {
        0 => String::new(),
        _ => format!(", {balancers} balancers"),
    };
    let head = format!(
        "<b>federation</b> · {} nodes{also} · {:.1} s",
        past.nodes.len() - balancers,
        past.length()
    );
    framed("federation", &head, &body, command)
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

fn tiles(body: &mut String, past: &Past) {
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
    let tiles = [
        (count(asked(|look| look.requests("done"))), done),
        (count(late), "late: not executed"),
        (count(asked(|look| look.requests("unknown"))), "unknown"),
        (count(sum(|look| look.count("readings_set"))), "readings set"),
        (
            count(sum(|look| look.of_peers("readings_skipped"))),
            "readings superseded on the way",
        ),
        (oldest(age), "the oldest reading"),
    ];
    *body += "<div class=\"tiles\">\n";
    for (figure, what) in tiles {
        let _ = writeln!(body, "<div class=\"tile\"><b>{figure}</b><span>{what}</span></div>");
    }
    *body += "</div>\n";
}

fn figures(body: &mut String, past: &Past) {
    *body += "<h2>Along the time</h2>\n<div class=\"charts\">\n";
    let keys = ["master", "replica or balancer", "silent"]
        .map(str::to_owned)
        .into_iter()
        .zip(["c", "f", "late"]);
    figure(body, "Roles", "", &keys.collect::<Vec<_>>(), &roles(past));
    CURVES.iter().for_each(|figure| curves(body, past, figure));
    *body += "</div>\n";
}

fn class(number: usize) -> &'static str {
    CLASSES[number % CLASSES.len()]
}

fn curves(body: &mut String, past: &Past, shown: &WatchCurve) {
    let WatchCurve(_, Some((title, what, unit, scale)), is_of_balancers, value) = shown else {
        return;
    };
    let value = |moment: &Moment| Some(value(moment).filter(|_| moment.is_there)? * scale);
    let curve = |(number, node): (usize, &Node)| Curve {
        name: node.name(),
        class: class(number),
        points: node.moments.iter().map(|it| (it.at, value(it))).collect(),
    };
    let nodes = past
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| *is_of_balancers || !node.is_balancer());
    let curves: Vec<Curve> = nodes.map(curve).collect();
    let keys: Vec<(String, &str)> = curves.iter().map(|it| (it.name.clone(), it.class)).collect();
    let chart = Chart {
        description: format!("{title}: {what}, of each node"),
        curves,
        at_least: (0.0, 1.0),
        unit,
        length_s: past.length(),
        ..Chart::default()
    };
    figure(body, title, what, &keys, &chart.svg());
}

/// A lane for each node, with its role at each moment.
fn roles(past: &Past) -> String {
    let (length, height) = (past.length().max(1.0), TOP + BOTTOM + LANE * past.nodes.len() as f64);
    let x = |at: f64| NAMES + (WIDTH - RIGHT - NAMES) * (at / length).clamp(0.0, 1.0);
    let mut inner = String::new();
    for (lane, node) in past.nodes.iter().enumerate() {
        let top = TOP + LANE * lane as f64;
        let _ = writeln!(
            inner,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 6.0,
            top + LANE - 5.0,
            escape(&node.name())
        );
        for (class, from, to) in stretches(node, length) {
            let _ = writeln!(
                inner,
                "<rect class=\"bar {class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                x(from),
                top + 2.0,
                (x(to) - x(from)).max(0.5),
                LANE - 5.0
            );
        }
    }
    let along: Vec<(f64, String)> = ticks(0.0, length)
        .into_iter()
        .map(|at| (at / length, format!("{} s", label(at, length))))
        .collect();
    drawing("what each node was over time", NAMES, height, &[], &along, &inner)
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

fn nodes(body: &mut String, past: &Past) {
    *body += "<h2>Nodes</h2>\n";
    let columns = || COLUMNS.iter().filter(|column| column.2);
    let head = ["node", "address", "role"].into_iter();
    let mut rows = vec![
        head.chain(columns().map(|column| column.0))
            .map(str::to_owned)
            .collect(),
    ];
    for node in &past.nodes {
        let mut row = vec![node.name(), node.address.to_string()];
        match (&node.last, node.moments.last()) {
            (Some((_, look)), Some(now)) => {
                let is_there = past.answered_to_the_end(node);
                row.push(if is_there { look.word("role") } else { "silent" }.into());
                row.extend(columns().map(|column| column.cell(look, now)));
            }
            _ => row.push(node.trouble.clone().unwrap_or_else(|| "no answer".into())),
        }
        rows.push(row);
    }
    sheet(body, &rows);
    let explained = columns().filter(|column| !column.4.is_empty());
    let notes: String = explained
        .map(|column| format!("{}: {}. ", column.0, column.4))
        .collect();
    let _ = writeln!(
        body,
        "<p class=\"note\">{}d is open where a node admits all.</p>",
        escape(&notes)
    );
}

/// Time of late requests per stage, as sums, and the late requests one by one.
fn late(body: &mut String, past: &Past) {
    *body += "<h2>Where the time of late requests went</h2>\n";
    let mut rows = vec![vec!["node".to_owned()]];
    rows[0].extend(
        SpanStage::ALL
            .iter()
            .map(|place| format!("{}: were there, spent", place.name())),
    );
    for (node, look) in looks(past) {
        let cell = |(count, us): (&u64, &u64)| format!("{count}, {}", ms(*us));
        let mut row = vec![node.name()];
        row.extend(look.late_at().iter().zip(&look.late_us()).map(cell));
        rows.push(row);
    }
    sheet(body, &rows);
    let mut rows = vec![vec!["node".to_owned(), "what".into(), "was".into(), "at".into()]];
    rows[0].extend(SpanStage::ALL.iter().map(|place| place.name().to_owned()));
    for (node, look) in looks(past) {
        for line in look.late().take(LATE_SHOWN) {
            let mut row = vec![node.name()];
            row.extend(["kind", "told", "at"].map(|name| part(line, name).to_owned()));
            let us = |place: SpanStage| part(line, &format!("{}_us", place.name())).parse().unwrap_or(0);
            row.extend(SpanStage::ALL.map(|place| ms(us(place))));
            rows.push(row);
        }
    }
    if rows.len() > 1 {
        *body += "<h2>The last late requests</h2>\n";
        sheet(body, &rows);
    }
    *body += "<p class=\"note\">Queue: behind others, or waiting for a revision. Lock: before the store's writer or an \
              executor was free. Network: passed on to another node. What a balancer took, only that balancer knows: to it, all that \
              nodes took is the network.</p>\n";
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
        assert_eq!(stretches(&past.nodes[0], 1.0).len(), 2, "a slave, then the master");
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
