//! `punctual-zenoh-bridge`: writes puts of Zenoh to a store, node or balancer of punctual, as `TSET KEY VALUE AGE MS`.
//!
//! The age is the time of day less the put's timestamp, so it is as right as the clocks of both machines agree. Zenoh
//! drops puts without a notice where a queue of its own is full: those are not counted here.

mod mapping;
mod readings;
mod resp;

use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use zenoh::sample::{Sample, SampleKind};
use zenoh::time::Timestamp;
use zenoh::{Config, Session, Wait};

use mapping::Mapping;
use readings::{Reading, Readings};

/// The longest value in bytes: at most 64 MiB wait, of 1,024 objects.
const VALUE_MAX: usize = 64 << 10;
/// Size above which Zenoh drops a message before it is whole: otherwise it would collect a stranger's gigabyte.
const MESSAGE_MAX: usize = 1 << 20;
/// Interval of the line with counts.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Write puts of Zenoh to a store, node or balancer of punctual, as readings of temporal objects
///
/// Prints the outcomes of all puts on standard error every 10 s. Deletes change nothing.
#[derive(Debug, Parser)]
#[command(name = "punctual-zenoh-bridge", version)]
struct Arguments {
    /// Store, node or balancer that gets the readings
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    to: String,
    /// Puts that match KEYEXPR set OBJECT, in which $1 is the text that the first part with a wildcard stands for; may
    /// be repeated
    #[arg(long, value_name = "KEYEXPR=OBJECT", required = true)]
    subscribe: Vec<Mapping>,
    /// Router or robot of Zenoh, such as tcp/10.0.0.7:7447; may be repeated. Without it, the bridge looks for others by
    /// multicast
    #[arg(long, value_name = "LOCATOR", value_parser = locator)]
    connect: Vec<String>,
}

fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0) => Ok(text.to_owned()),
        _ => Err("expected a host and a port such as 127.0.0.1:6379".into()),
    }
}

fn locator(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some(("tcp" | "udp", host)) if address(host).is_ok() => Ok(text.to_owned()),
        _ => Err("expected tcp or udp, a host and a port, such as tcp/10.0.0.7:7447".into()),
    }
}

/// Zenoh's own message, without the position in its source (` at /FILE.rs:LINE.`).
fn reason(error: &zenoh::Error) -> String {
    error.to_string().split(" at /").next().unwrap_or_default().to_owned()
}

fn main() {
    let (arguments, readings) = (Arguments::parse(), Arc::new(Readings::default()));
    let _session = subscribed(&arguments, &readings).unwrap_or_else(|why| {
        eprintln!("punctual-zenoh-bridge: {why}");
        std::process::exit(2);
    });
    let counted = Arc::clone(&readings);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(REPORT_EVERY);
            eprintln!("{counted}");
        }
    });
    resp::write_all(&arguments.to, &readings);
}

/// Opens a session that leaves puts in `readings` until it is dropped. It looks for lost peers again by itself.
fn subscribed(arguments: &Arguments, readings: &Arc<Readings>) -> Result<Session, String> {
    let mut config = Config::default();
    let scouts = arguments.connect.is_empty().to_string();
    for (name, value) in [
        ("mode", "\"peer\""),
        ("connect/endpoints", &format!("{:?}", arguments.connect)),
        (
            "connect/retry",
            "{period_init_ms:100,period_max_ms:1000,period_increase_factor:2}",
        ),
        // Any machine that reached a listening bridge could set objects.
        ("listen/endpoints", "[]"),
        ("scouting/multicast/enabled", &scouts),
        ("scouting/gossip/enabled", &scouts),
        ("transport/link/rx/max_message_size", &MESSAGE_MAX.to_string()),
        // A timestamp added on arrival would hide a reading's age.
        ("timestamping/enabled", "false"),
    ] {
        let refused = |error| format!("Zenoh does not take {name} = {value}: {}", reason(&error));
        config.insert_json5(name, value).map_err(refused)?;
    }
    let session = zenoh::open(config).wait();
    let session = session.map_err(|error| format!("no session of Zenoh: {}; check --connect", reason(&error)))?;
    for mapping in &arguments.subscribe {
        let (mapping, readings) = (mapping.clone(), Arc::clone(readings));
        let subscriber = session.declare_subscriber(mapping.key.clone());
        let subscriber = subscriber
            .callback(move |put| take(&put, &mapping, &readings))
            .background();
        subscriber
            .wait()
            .map_err(|error| format!("no subscription: {}", reason(&error)))?;
    }
    Ok(session)
}

/// Takes a put, on a thread of Zenoh.
fn take(put: &Sample, mapping: &Mapping, readings: &Readings) {
    if put.kind() == SampleKind::Delete {
        return;
    }
    readings.count(|counts| counts.puts += 1);
    let (key, value) = (put.key_expr(), put.payload());
    match mapping.object(key) {
        None => readings.refuse(format_args!("{key} names no object: it has a wildcard, or is too long")),
        Some(_) if value.len() > VALUE_MAX => {
            readings.refuse(format_args!(
                "{key}: a value of {} bytes, at most {VALUE_MAX}",
                value.len()
            ));
        }
        Some(object) => {
            let (age, came, value) = (age(put.timestamp(), key), Instant::now(), value.to_bytes().into_owned());
            readings.offer(object, Reading { value, age, came });
        }
    }
}

/// Age of a put on arrival; 0 without a timestamp, or where that is in the future of this machine.
fn age(timestamp: Option<&Timestamp>, key: &str) -> Duration {
    static UNDATED: Once = Once::new();
    static AHEAD: Once = Once::new();
    let Some(timestamp) = timestamp else {
        UNDATED.call_once(|| eprintln!("{key}: no timestamp, so its age counts from here; routers of Zenoh add one"));
        return Duration::ZERO;
    };
    let since = SystemTime::now().duration_since(timestamp.get_time().to_system_time());
    since.unwrap_or_else(|ahead| {
        let by = ahead.duration();
        AHEAD.call_once(|| eprintln!("{key}: {by:?} ahead of this machine's clock, so ages are wrong by as much"));
        Duration::ZERO
    })
}
