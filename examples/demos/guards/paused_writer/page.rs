//! A page that says which client wrote it last, in storages that have a guard and one that has none.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use leasehold::fence::http::{FenceLayer, TokenLayer, refusal};
use leasehold::fence::object::FencedStore;
use leasehold::fence::redis::FencedRedis;
use leasehold::fence::{Gate, sql};
use leasehold::{FencingToken, Locker};
use leasehold_demos::Outcome;
use object_store::memory::InMemory;
use object_store::path::Path;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tower::{Layer, ServiceExt, service_fn};

/// The resource whose tokens the guards keep.
const RESOURCE: &str = "page";

/// The client that wrote last.
type Writer = Arc<AtomicU8>;

/// The page in one storage, with the guard that checks its writers' tokens.
pub(crate) enum Page {
    /// No guard.
    Unguarded(Writer),
    /// A service that owns its state.
    Gate(Gate, Writer),
    /// A layer around an HTTP service.
    Http(Arc<Gate>, Writer),
    /// A transaction.
    Sql(SqlitePool),
    /// A script.
    Redis(Client),
    /// A conditional put.
    Object(FencedStore),
}

impl Page {
    /// Makes a page in each storage, with nothing written.
    pub(crate) async fn all(redis: &str) -> Outcome<[Self; 6]> {
        // Each connection to memory would be a database of its own.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect("sqlite::memory:")
            .await?;
        sqlx::query("CREATE TABLE page (writer BIGINT NOT NULL)")
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO page VALUES (0)")
            .execute(&pool)
            .await?;
        sql::create_table(&pool).await?;
        let client = Locker::builder().fred_client(redis)?;
        client.init().await?;
        Ok([
            Self::Unguarded(Writer::default()),
            Self::Gate(Gate::new(), Writer::default()),
            Self::Http(Arc::new(Gate::new()), Writer::default()),
            Self::Sql(pool),
            Self::Redis(client),
            Self::Object(FencedStore::new(Arc::new(InMemory::new()))),
        ])
    }

    /// Names the storage and its guard, for people.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::Unguarded(_) => "memory, unguarded",
            Self::Gate(..) => "memory, Gate",
            Self::Http(..) => "HTTP, FenceLayer",
            Self::Sql(_) => "SQLite, sql::begin",
            Self::Redis(_) => "Redis, FencedRedis",
            Self::Object(_) => "objects, FencedStore",
        }
    }

    /// Returns whether there is a guard.
    pub(crate) fn is_guarded(&self) -> bool {
        !matches!(self, Self::Unguarded(_))
    }

    /// Writes a client's number under its token. A refusal is a [`leasehold::Error`].
    pub(crate) async fn write(&self, token: FencingToken, client: u8) -> Outcome {
        match self {
            Self::Unguarded(writer) => writer.store(client, SeqCst),
            Self::Gate(gate, writer) => {
                gate.guard(RESOURCE, token, || writer.store(client, SeqCst))?;
            }
            Self::Http(gate, writer) => put(gate, writer, token, client).await?,
            Self::Sql(pool) => {
                let mut tx = sql::begin(pool, RESOURCE, token).await?;
                let update = sqlx::query("UPDATE page SET writer = $1").bind(client);
                update.execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Self::Redis(redis) => {
                let page = FencedRedis::new(redis.clone()).resource(RESOURCE, token)?;
                page.set(RESOURCE, client.to_string()).await?;
            }
            Self::Object(store) => {
                store
                    .put(&Path::from(RESOURCE), token, client.to_string())
                    .await?;
            }
        }
        Ok(())
    }

    /// Reads which client wrote last. That takes no token.
    pub(crate) async fn read(&self) -> Outcome<u8> {
        Ok(match self {
            Self::Unguarded(writer) | Self::Gate(_, writer) | Self::Http(_, writer) => {
                writer.load(SeqCst)
            }
            Self::Sql(pool) => {
                sqlx::query_scalar("SELECT writer FROM page")
                    .fetch_one(pool)
                    .await?
            }
            Self::Redis(redis) => redis.get(RESOURCE).await?,
            Self::Object(store) => {
                let object = store.get(&Path::from(RESOURCE)).await?;
                std::str::from_utf8(&object.ok_or("there is no object")?.bytes)?.parse()?
            }
        })
    }
}

/// Sends a client's request to a service in this program. A real one would be behind a network.
async fn put(gate: &Arc<Gate>, writer: &Writer, token: FencingToken, client: u8) -> Outcome {
    let handler = service_fn(async |request: Request<u8>| {
        writer.store(request.into_body(), SeqCst);
        Ok::<_, Infallible>(Response::new(Full::default()))
    });
    let service = FenceLayer::by_path(gate.clone()).layer(handler);
    let browser = TokenLayer::new(token).layer(service);

    let response = browser.oneshot(Request::put("/page").body(client)?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match refusal(status, &body) {
        Some(error) => Err(error.into()),
        None if status.is_success() => Ok(()),
        None => Err(format!("the service answered {status}").into()),
    }
}
