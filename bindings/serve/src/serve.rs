//! Serving the page: the tasks behind it, from the first connection to the end.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use leasehold::{ErrorKind, Locker};
use leasehold_observe::without_secrets;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::access::{Access, Session, random_id};
use crate::demo;
use crate::http::{self, About, Site};
use crate::listen;
use crate::options::{Error, Findings, Options};
use crate::poller::Poller;
use crate::scan;
use crate::state::State;
use crate::tracking;

/// How long the page waits for the store before it starts without it.
const FIRST_CONNECT: Duration = Duration::from_secs(2);
/// The pause between attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// How long an inspection may take before the store counts as away.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(2);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How often pages are sent what changed.
const SEND_CHANGES: Duration = Duration::from_millis(250);
/// The sums are sent once for this many sends of changes.
const SENDS_PER_SUM: u32 = 4;
/// How often the findings are renewed.
const EXAMINE: Duration = Duration::from_secs(60);
/// How many steps of the scan may wait for the poller.
const STEPS_BEHIND: usize = 4;

/// A page that is being served. Dropping it ends that.
pub struct Serving {
    url: String,
    locker: Arc<OnceLock<Locker>>,
    tasks: JoinSet<()>,
}

/// Starts to serve the page. It starts even if the store is down, shows that, and connects as soon as the store is
/// there.
///
/// Fails if an option is not valid, if the address is taken, or if the store refuses the connection. Dropping the call
/// starts nothing. Must be called on a tokio runtime with time and I/O enabled.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold_serve::Error> {
/// let mut options = leasehold_serve::Options::demo();
/// options.listen.set_port(0);
/// let serving = leasehold_serve::serve(options).await?;
/// assert!(serving.url().starts_with("http://127.0.0.1:"));
/// # Ok(()) }
/// ```
pub async fn serve(mut options: Options) -> Result<Serving, Error> {
    options.check()?;
    let mut query = String::new();
    if options.needs_made_token() {
        let token = random_id()?;
        query = format!("?token={token}");
        options.token = Some(token);
    }
    let state = Arc::new(State::new());
    let locker = Arc::new(first_connect(&options, &state).await?);
    let failed = |error| Error::Listen {
        address: options.listen,
        error,
    };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(send(state.clone()));
    if options.demo {
        demo::play(&options, &mut tasks).await?;
    }
    let urls: Vec<_> = options
        .urls
        .iter()
        .map(|url| without_secrets(url))
        .collect();
    let site = Site {
        state: state.clone(),
        locker: locker.clone(),
        access: Access {
            token: options.token.take(),
            session: Session::new(random_id()?, &random_id()?),
            hosts: options.hosts.clone(),
        },
        about: About {
            store: urls.join(", "),
            namespace: options.namespace.clone(),
            version: env!("CARGO_PKG_VERSION"),
            demo: options.demo,
            release: options.allow_release,
            findings: options.findings.is_some(),
        },
    };
    tasks.spawn(listen::serve(listener, http::router(Arc::new(site))));
    tasks.spawn(watch(options, locker.clone(), state));
    Ok(Serving {
        url: format!("http://{address}/{query}"),
        locker,
        tasks,
    })
}

impl Serving {
    /// Returns the URL of the page, with the token if [`serve`] made one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves the page until `stop` is ready, and returns its output.
    ///
    /// # Panics
    ///
    /// If one of the tasks behind the page panics.
    pub async fn run_until<T>(self, stop: impl Future<Output = T>) -> T {
        let stopped = match select(pin!(stop), pin!(self.tasks.join_all())).await {
            Either::Left((stopped, _)) => stopped,
            Either::Right((_, stop)) => stop.await,
        };
        if let Some(locker) = self.locker.get() {
            let _ = timeout(SHUTDOWN_TIMEOUT, locker.shutdown()).await;
        }
        stopped
    }
}

/// Tries to connect. Returns an empty cell if the store is down, and an error if it refuses.
async fn first_connect(options: &Options, state: &State) -> Result<OnceLock<Locker>, Error> {
    match timeout(FIRST_CONNECT, connect(options)).await {
        Ok(Ok(locker)) => return Ok(locker.into()),
        Ok(Err(error)) if !error.is_transient() && error.kind() != ErrorKind::Store => {
            return Err(error.into());
        }
        Ok(Err(error)) => state.table().away(&error.to_string()),
        Err(_) => state
            .table()
            .away("there is no connection to the store yet"),
    }
    Ok(OnceLock::new())
}

async fn connect(options: &Options) -> Result<Locker, leasehold::Error> {
    let builder = options.builder().patience(INSPECTION_TIMEOUT);
    let builder = builder.command_timeout(INSPECTION_TIMEOUT);
    match &options.urls[..] {
        [url] => builder.connect(url).await,
        urls => builder.quorum(urls).await,
    }
}

/// Connects, if that is not done, and observes the locks from then on.
async fn watch(options: Options, connection: Arc<OnceLock<Locker>>, state: Arc<State>) {
    let locker = match connection.get() {
        Some(locker) => locker.clone(),
        None => loop {
            match connect(&options).await {
                Ok(locker) => break connection.get_or_init(|| locker).clone(),
                // An operator may correct what the store refuses.
                Err(error) => state.table().away(&error.to_string()),
            }
            sleep(RECONNECT_PAUSE).await;
        },
    };
    state.table().back();
    let mut tasks = JoinSet::new();
    let (steps, scanned) = mpsc::channel(STEPS_BEHIND);
    let free = options.is_in_memory();
    let poller = Poller::new(locker.clone(), state.clone(), options.looks, free);
    tasks.spawn(poller.run(scanned));
    tasks.spawn(scan::scan(locker.clone(), state.clone(), steps));
    // Each server of a quorum reports other changes, so a quorum is only polled.
    if let ([url], false, false) = (&options.urls[..], free, options.poll_only) {
        tasks.spawn(tracking::track(
            url.clone(),
            options.namespace,
            state.clone(),
        ));
    }
    if let Some(findings) = options.findings {
        tasks.spawn(examine(findings, locker, state));
    }
    tasks.join_all().await;
}

/// Sends the pages what changed, and the sums.
async fn send(state: Arc<State>) {
    let mut ticks = interval(SEND_CHANGES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in (0_u32..).cycle() {
        ticks.tick().await;
        state.send_changes(Instant::now());
        if tick % SENDS_PER_SUM == 0 {
            state.send_sum(Instant::now());
        }
    }
}

/// Renews the findings at an interval.
async fn examine(findings: Findings, locker: Locker, state: Arc<State>) {
    loop {
        let found = findings(locker.clone()).await;
        if found.is_array() {
            state.set_findings(found.to_string());
        }
        sleep(EXAMINE).await;
    }
}
