//! `punctual cluster run`: balancers and nodes as processes of this machine, until Ctrl-C.

pub mod processes;
pub mod settings;

use std::hash::{BuildHasher, RandomState};
use std::io::{PipeWriter, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use punctual_federation::ids::FederationId;
use punctual_logs::Local;
use punctual_logs::socket::{LogServer, SharedLog};
use punctual_os::{LinuxOs, claim_processor};
use signal_hook::flag;

use self::processes::Processes;
use super::member;
use super::node::FOLDER_PREFIX;
use super::watch::{self, Watching};
use crate::args::ClusterRun;
use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_files::local::LocalSettings;
use punctual_report::output::{OutputFile, apart};
use punctual_report::summary::counted;
use punctual_report::terminal::{Live, hang_up, is_live};

/// Interval between looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Carries out `punctual cluster run`; `command` is the command line as typed.
pub fn run(arguments: &ClusterRun, command: &str) -> Result<(), Failure> {
    let settings = settings::of(arguments)?;
    apart(&[
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
    ])?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let ends = ended_by_signals()?;
    let mut running = LocalCluster::start(&settings, &ends)?;
    let balancers = counted(u64::from(settings.balancers), "balancer");
    let nodes = counted(u64::from(settings.nodes), "node");
    let most = settings.duration.map(|most| format!("for {most}"));
    let most = most.unwrap_or_else(|| "Ctrl-C ends them".into());
    let head = format!("{balancers}, {nodes}, log: one file of this machine, not replicated; {most}\n");
    let announcement = Announcement {
        head: &head,
        to_standard_output: arguments.json.as_deref() != Some(Path::new("-")),
        plain: arguments.plain,
        watch: json.is_some() || html.is_some(),
        hint: "end the cluster",
    };
    let watching = announce(&running.processes, &announcement)?;
    let began = Instant::now();
    let is_over = |elapsed: Duration| settings.duration.is_some_and(|most| elapsed >= Duration::from(most));
    let mut went_on = Ok(());
    while went_on.is_ok() && !ends.load(Ordering::SeqCst) && !is_over(began.elapsed()) {
        went_on = running.listen();
    }
    let past = watching.map(Watching::end).transpose()?;
    running.processes.leave();
    // The report is written even if a node has ended by itself.
    let written = past.map(|past| {
        let json = json.map_or(Ok(()), |file| file.json(&past.document()));
        [
            json,
            html.map_or(Ok(()), |file| file.text(&watch::page(&past, command))),
        ]
    });
    Failure::all(std::iter::once(went_on).chain(written.into_iter().flatten()))
}

/// Text and view at the start of a cluster.
pub struct Announcement<'a> {
    /// Lines before the addresses.
    pub head: &'a str,
    /// Whether standard output takes the text and the live view; else standard error takes the text.
    pub to_standard_output: bool,
    /// Whether there is no live view, even on a terminal.
    pub plain: bool,
    /// Whether a report at the end needs the nodes' figures.
    pub watch: bool,
    /// Effect of `q` in the live view.
    pub hint: &'static str,
}

/// Nodes and balancers with their log, until this is dropped.
pub struct LocalCluster {
    // Dropped in this order: processes, their log, its folder.
    /// The processes; [`Processes::leave`] ends them in order.
    pub processes: Processes,
    log: SharedLog<Local>,
    _server: LogServer,
    _folder: Folder,
}

impl LocalCluster {
    /// Starts the log, the nodes and the balancers, and waits until one node is the master. `ends` gives this up.
    ///
    /// # Errors
    /// If one of them cannot start.
    pub fn start(settings: &LocalSettings, ends: &Arc<AtomicBool>) -> Result<LocalCluster, Failure> {
        let folder = Folder::new()?;
        let socket = folder.path().join("log.socket");
        let log = Local::open(&folder.path().join("log")).map_err(Failure::of)?;
        let log = SharedLog::new(log);
        let served = log.clone();
        // Inherited by the threads that answer nodes, and by nothing else of this process.
        let claimed = || {
            drop(claim_processor(&LinuxOs));
            LogServer::start(&socket, move || Some(served.clone()))
        };
        let server = thread::scope(|scope| scope.spawn(claimed).join());
        let server = server.unwrap_or_else(|panic| resume_unwind(panic));
        let server = server.map_err(Failure::of)?;
        let processes = Processes::start(random_id(), folder.path(), (socket, None), settings, None, ends)?;
        Ok(LocalCluster {
            processes,
            log,
            _server: server,
            _folder: folder,
        })
    }

    /// Client addresses of the nodes, by node number.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.processes.addresses(true)
    }

    /// Takes reports of the processes for a moment.
    ///
    /// # Errors
    /// If one has ended by itself, or the log's medium has failed.
    pub fn listen(&mut self) -> Result<(), Failure> {
        self.processes.listen(LOOK_EVERY)?;
        let failure = self.log.log().failure().map(str::to_owned);
        failure.map_or(Ok(()), |failure| Err(Failure::of(failure)))
    }
}

/// Identity of a cluster that lives as long as its command: random, because process ids repeat on other machines.
pub fn random_id() -> FederationId {
    FederationId(RandomState::new().hash_one(std::process::id()))
}

/// Flag that SIGINT, SIGTERM and SIGHUP set. A second SIGINT or SIGTERM ends this process at once ([`member::ends`]).
///
/// # Errors
/// Those of the system.
pub fn ended_by_signals() -> Result<Arc<AtomicBool>, Failure> {
    let ends = Arc::new(AtomicBool::new(false));
    member::ends(&ends).map_err(Failure::of)?;
    if let Some(signal) = hang_up() {
        flag::register(signal, Arc::clone(&ends)).map_err(Failure::of)?;
    }
    Ok(ends)
}

/// Prints the addresses for clients, and starts to watch the nodes for a live view or a report.
///
/// # Errors
/// If standard output is closed, or the terminal cannot be taken.
pub fn announce(processes: &Processes, announcement: &Announcement<'_>) -> Result<Option<Watching>, Failure> {
    let shown = |addresses: &[SocketAddr], between: &str| {
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        shown.join(between)
    };
    let (balancers, nodes) = (processes.addresses(false), processes.addresses(true));
    let line = format!(
        "{}redis-cli reaches the federation at {}, and each node alone at {} (replicas refuse writes there, and name \
         the master); `punctual cluster balance` reaches nodes at {}\n",
        announcement.head,
        shown(&balancers, ", "),
        shown(&nodes, ", "),
        shown(&processes.peers(), " "),
    );
    match announcement.to_standard_output {
        true => print(&line)?,
        // A closed standard error is no reason to stop.
        false => drop(std::io::stderr().write_all(line.as_bytes())),
    }
    let is_live = announcement.to_standard_output && is_live(announcement.plain);
    if !is_live && !announcement.watch {
        return Ok(None);
    }
    let live = is_live.then(Live::take).transpose()?;
    // The view covers the line above.
    let hint = format!("{}; redis-cli at {}", announcement.hint, shown(&balancers, ", "));
    let addresses = [balancers, nodes].concat();
    Ok(Some(Watching::start(&addresses, live, hint)))
}

/// Temporary folder of a cluster's files. It is removed at the end, also of a process that is killed.
pub struct Folder {
    folder: tempfile::TempDir,
    _sweeper: Sweeper,
}

impl Folder {
    /// Makes the folder, and starts the process that removes it after a kill.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> Result<Folder, Failure> {
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir();
        let folder = folder.map_err(|error| Failure::of(format!("a folder for the nodes' stores: {error}")))?;
        let sweeper = Sweeper::start(folder.path()).map_err(Failure::of)?;
        Ok(Folder {
            folder,
            _sweeper: sweeper,
        })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Process that removes the run's folder if this one is killed. It ends shortly after this process closes the other end
/// of its input.
struct Sweeper {
    child: Child,
    input: Option<PipeWriter>,
}

impl Sweeper {
    fn start(folder: &Path) -> std::io::Result<Sweeper> {
        let (output, input) = std::io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["process", "sweep"])
            .arg(folder)
            // Signals from a terminal to the run's processes (hang-up, Ctrl-\) must not end this one, which cleans up
            // after them.
            .process_group(0)
            .stdin(output)
            .stdout(Stdio::null());
        Ok(Sweeper {
            child: command.spawn()?,
            input: Some(input),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.input = None;
        drop(self.child.wait());
    }
}
