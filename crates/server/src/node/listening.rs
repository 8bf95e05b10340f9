//! Start and end of a server: its options, its listening socket, and the handle of a running one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual_os::Os;
use punctual_store::engine::{Durability, Engine};
use punctual_store::{Store, StoreError};
use punctual_units::{Nanos, Time};

use super::{BYTES_MAX, EventLoop, PoolBackend};
use crate::door::{DoorOptions, MemoryLimits};
use crate::listening::{Listening, ServeError};
use crate::metrics::{Page, PublishedFigures};
use crate::net::{FIRST, Socket, Waker};
use crate::pool::{PoolOptions, PoolState};
use crate::session::{Limits, ServerSettings};
use crate::stream::Stream;
use crate::tasks::Tasks;
use crate::tls::Tls;
use crate::users::Users;
use crate::work::Temporal;
use crate::{figures, info};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads that call the store; at least 1. With 1, reads wait while a commit reaches the medium.
    pub threads: usize,
    /// The most connections at a time.
    pub connections_max: usize,
    /// The most jobs that wait for a thread, at most one for each connection. Requests beyond get the reply `LATE
    /// reason=backlog`.
    pub queue_max: usize,
    /// Time for which a client may be silent in the middle of a request, or leave replies without reading any.
    pub stalled_max: Nanos,
    /// Time for which begun requests may go on and replies be sent once the server is to end.
    pub drain_max: Nanos,
    /// Limit of the memory of all connections together, in bytes: requests, replies, watched records, subscriptions.
    /// Jobs whose connections have ended may take as much again.
    pub bytes_max: usize,
    /// Users and their rights. Without users, any program of this machine may do everything.
    pub users: Arc<Users>,
    /// Certificates for TLS; if given, connections speak nothing else.
    pub tls: Option<Arc<Tls>>,
    /// How long a value set by TSET counts as fresh, for objects that the store does not know yet.
    pub validity: Nanos,
    /// Length of the longest value of such an object, in bytes.
    pub temporal_len_max: usize,
    /// Keys of the temporal objects that the store has, for figures of their ages.
    pub objects: Vec<Vec<u8>>,
    /// Figures of tasks in this process, if there are any; shown with the server's own.
    pub tasks: Option<Arc<Tasks>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 16)),
            connections_max: 10_000,
            queue_max: 10_000,
            stalled_max: Nanos::from_secs(10),
            drain_max: Nanos::from_secs(5),
            bytes_max: BYTES_MAX,
            users: Arc::default(),
            tls: None,
            validity: Nanos::from_secs(1),
            temporal_len_max: 256,
            objects: Vec::new(),
            tasks: None,
        }
    }
}

impl Options {
    /// Whether connections speak TLS.
    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Makes the stream of a new connection: TLS, if the options say so.
    fn stream(&self, socket: Box<dyn Socket>) -> Option<Stream> {
        if let Some(tls) = &self.tls {
            return Some(Stream::accepted(tls.begin().ok()?, socket));
        }
        Some(Stream::Plain(socket))
    }
}

impl Listening {
    /// Serves `store` on threads of its own, until [`RunningServer::stop`]. The page, if any, shows its figures to
    /// Prometheus.
    ///
    /// # Errors
    /// [`ServeError`] if the system refuses a thread, or strangers reach the address.
    pub fn serve<E: Engine + 'static, O: Os>(
        self,
        store: Arc<Store<E, O>>,
        options: &Options,
        page: Option<Page>,
    ) -> Result<RunningServer<E, O>, ServeError> {
        let address = self.address();
        let waker = self.waker();
        let event_loop = self.event_loop(Arc::clone(&store), options, page)?;
        let stop = Arc::clone(&event_loop.stop);
        let thread = std::thread::Builder::new().name("serve-loop".into());
        let thread = thread
            .spawn(move || event_loop.run())
            .map_err(ServeError::of("the event loop"))?;
        Ok(RunningServer {
            address,
            store,
            stop,
            waker,
            thread,
        })
    }

    /// Makes the event loop, before its first turn, and the threads that call the store.
    ///
    /// # Errors
    /// As of [`serve`](Listening::serve).
    pub fn event_loop<E: Engine + 'static, O: Os>(
        self,
        store: Arc<Store<E, O>>,
        options: &Options,
        page: Option<Page>,
    ) -> Result<EventLoop<E, O>, ServeError> {
        let address = self.address();
        if !address.ip().is_loopback() && options.users.is_empty() {
            return Err(ServeError::not_loopback(address));
        }
        let pool_options = PoolOptions {
            threads: options.threads.max(1),
            queue_max: options.queue_max.max(1),
            temporal: Temporal {
                validity: options.validity,
                max_len: options.temporal_len_max,
            },
            objects: options.objects.clone(),
        };
        let (shared, pool) = PoolState::start(Arc::clone(&store), &pool_options, self.waker())
            .map_err(ServeError::of("the pool of threads"))?;
        let space = store.engine().space().ok();
        let bytes_max = space.and_then(|space| space.quota).unwrap_or(0);
        let streams = options.clone();
        let door = DoorOptions {
            connections_max: options.connections_max,
            first_token: FIRST,
            stalled_max: options.stalled_max,
            memory: MemoryLimits {
                all: options.bytes_max,
                ..MemoryLimits::NONE
            },
            settings: settings(options, store.durability(), address, bytes_max),
            users: Arc::clone(&options.users),
            stream: Box::new(move |socket| streams.stream(socket)),
        };
        let (served, of) = (Arc::clone(&shared), options.clone());
        let page = PublishedFigures::serve(page, move |state| {
            let mut figures = info::figures(&served, &of, address, state);
            figures.extend(info::ages(&served));
            figures::prometheus("", &figures)
        });
        let now = shared.os.now();
        let (door, net) = self.open(door, &shared.os)?;
        let mut event_loop = EventLoop {
            net,
            ready: Vec::new(),
            door,
            backend: PoolBackend {
                shared,
                options: options.clone(),
                address,
                jobs: Vec::new(),
                done: Vec::new(),
                reads_until: Time::ZERO,
            },
            looked: now,
            page: page.map_err(ServeError::of("the thread for figures"))?,
            stop: Arc::new(AtomicBool::new(false)),
            pool,
            end: None,
        };
        event_loop.look(now);
        Ok(event_loop)
    }
}

/// Handle of a server that runs.
pub struct RunningServer<E: Engine, O: Os> {
    address: SocketAddr,
    store: Arc<Store<E, O>>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: JoinHandle<()>,
}

impl<E: Engine, O: Os> RunningServer<E, O> {
    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the server has ended by itself, which is a defect: one of its threads panicked, say.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the server in order: no further request begins, begun ones are answered, and the store is flushed.
    ///
    /// # Errors
    /// [`StoreError`] if the flush failed; records acknowledged as committed are still there.
    pub fn stop(self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::SeqCst);
        (self.waker)();
        drop(self.thread.join());
        match self.store.durability() {
            Durability::Volatile => self.store.commit_group().map(drop),
            _ => self.store.flush().map(drop),
        }
    }
}

/// Settings of a store that is served alone; `bytes_max`: the limit of its records, 0 without.
fn settings(options: &Options, durability: Durability, address: SocketAddr, bytes_max: u64) -> ServerSettings {
    let appends = if durability == Durability::Volatile {
        "no"
    } else {
        "yes"
    };
    let config = [
        ("appendonly", appends.to_owned()),
        ("bind", address.ip().to_string()),
        ("durability", info::durability(durability).into()),
        ("maxmemory", bytes_max.to_string()),
        ("maxclients", options.connections_max.to_string()),
        ("port", address.port().to_string()),
        ("store-threads", options.threads.to_string()),
    ];
    ServerSettings::of(Limits::ALONE, config)
}
