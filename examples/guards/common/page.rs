//! A page with one line of text, in storages that have a guard and one that has none.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use fred::clients::Client;
use fred::interfaces::KeysInterface;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use leasehold::fence::Gate;
use leasehold::fence::http::{FenceLayer, TokenLayer, refusal};
use leasehold::fence::object::FencedStore;
use leasehold::fence::redis::FencedRedis;
use leasehold::{Error, FencingToken};
use leasehold_examples::cli::Outcome;
use object_store::memory::InMemory;
use object_store::path::Path;
use tower::{Layer, ServiceExt, service_fn};

use crate::database::Database;

/// What the guards keep the tokens of.
const RESOURCE: &str = "page";

type Text = Arc<Mutex<String>>;

/// The page, and what checks the tokens of those who write it.
pub enum Page {
    /// Nothing does.
    Unguarded(Text),
    /// A service that owns its state.
    Gate(Gate, Text),
    /// A layer around an HTTP service.
    Http(Arc<Gate>, Text),
    /// A transaction.
    Sql(SqlPage),
    /// A script.
    Redis(RedisPage),
    /// A conditional put.
    Object(FencedStore),
}

/// A page in a table of its own.
pub struct SqlPage {
    database: Database,
    table: String,
    resource: String,
}

/// A page in a key of its own.
pub struct RedisPage {
    client: Client,
    key: String,
}

impl Page {
    /// In memory, for anyone to write.
    pub fn unguarded() -> Self {
        Self::Unguarded(Text::default())
    }

    /// In memory.
    pub fn gate() -> Self {
        Self::Gate(Gate::new(), Text::default())
    }

    /// In the memory of a service.
    pub fn http() -> Self {
        Self::Http(Arc::new(Gate::new()), Text::default())
    }

    /// In a table. Nothing is written yet.
    pub fn sql(database: Database, namespace: &str) -> Self {
        let run = namespace.rsplit('/').next().unwrap_or_default();
        Self::Sql(SqlPage {
            database,
            table: format!("leasehold_example_page_{}", run.replace('-', "_")),
            resource: format!("{namespace}/{RESOURCE}"),
        })
    }

    /// In a key.
    pub fn redis(client: Client, namespace: &str) -> Self {
        let key = format!("{namespace}/{RESOURCE}");
        Self::Redis(RedisPage { client, key })
    }

    /// In an object, in memory.
    pub fn object() -> Self {
        Self::Object(FencedStore::new(Arc::new(InMemory::new())))
    }

    /// The storage and its guard, for people.
    pub fn title(&self) -> String {
        let title = match self {
            Self::Unguarded(_) => "memory, unguarded",
            Self::Gate(..) => "memory, Gate",
            Self::Http(..) => "HTTP, FenceLayer",
            Self::Sql(page) => return format!("{}, sql::begin", page.database.shown()),
            Self::Redis(_) => "Redis, FencedRedis",
            Self::Object(_) => "objects, FencedStore",
        };
        title.to_owned()
    }

    /// Whether there is a guard at all.
    pub fn is_guarded(&self) -> bool {
        !matches!(self, Self::Unguarded(_))
    }

    /// Makes the table, where there is one.
    pub async fn prepare(&self) -> Outcome {
        let Self::Sql(SqlPage {
            database, table, ..
        }) = self
        else {
            return Ok(());
        };
        database.prepare_guard().await?;
        let create = format!("CREATE TABLE {table} (writer BIGINT NOT NULL)");
        let insert = format!("INSERT INTO {table} VALUES (0)");
        database.write(None, &[create]).await?;
        database.write(None, &[insert]).await
    }

    /// Writes a client's number under its token. A refusal is a [`leasehold::Error`].
    pub async fn write(&self, token: FencingToken, client: u8) -> Outcome {
        match self {
            Self::Unguarded(text) => set(text, client),
            Self::Gate(gate, text) => gate.guard(RESOURCE, token, || set(text, client))?,
            Self::Http(gate, text) => put(gate, text, token, client).await?,
            Self::Sql(page) => {
                let write = format!("UPDATE {} SET writer = {client}", page.table);
                let fence = (page.resource.as_str(), token);
                page.database.write(Some(fence), &[write]).await?;
            }
            Self::Redis(RedisPage { client: fred, key }) => {
                let page = FencedRedis::new(fred.clone()).resource(key, token)?;
                page.set(key.as_str(), client.to_string()).await?;
            }
            Self::Object(store) => {
                let path = Path::from(RESOURCE);
                store.put(&path, token, client.to_string()).await?;
            }
        }
        Ok(())
    }

    /// Reads which client wrote last. That takes no token.
    pub async fn read(&self) -> Outcome<u8> {
        let text = match self {
            Self::Unguarded(text) | Self::Gate(_, text) | Self::Http(_, text) => {
                text.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            Self::Sql(page) => {
                let query = format!("SELECT writer FROM {}", page.table);
                page.database.read(None, query).await?.to_string()
            }
            Self::Redis(page) => page.client.get(&page.key).await?,
            Self::Object(store) => {
                let object = store.get(&Path::from(RESOURCE)).await?;
                let bytes = object.ok_or("there is no object")?.bytes;
                String::from_utf8(bytes.to_vec())?
            }
        };
        Ok(text.parse()?)
    }

    /// Removes what would be left on a server: the table, or the key and its fence.
    pub async fn remove(&self) -> Outcome {
        match self {
            Self::Sql(page) => {
                page.database.settled().await;
                let drop = format!("DROP TABLE IF EXISTS {}", page.table);
                page.database.write(None, &[drop]).await?;
                page.database.forget(&page.resource).await
            }
            Self::Redis(RedisPage { client, key }) => {
                let keys = vec![key.clone(), format!("{{{key}}}:fence")];
                Ok(client.unlink(keys).await?)
            }
            _ => Ok(()),
        }
    }
}

fn set(text: &Text, client: u8) {
    *text.lock().unwrap_or_else(PoisonError::into_inner) = client.to_string();
}

/// A request of a client to a service in this program; between them could as well be a network.
async fn put(gate: &Arc<Gate>, text: &Text, token: FencingToken, client: u8) -> Outcome {
    let handler = service_fn(async |request: Request<String>| {
        *text.lock().unwrap_or_else(PoisonError::into_inner) = request.into_body();
        Ok::<_, Infallible>(Response::new(Full::default()))
    });
    let service = FenceLayer::by_path(gate.clone()).layer(handler);
    let browser = TokenLayer::new(token).layer(service);

    let request = Request::put("/page").body(client.to_string())?;
    let response = browser.oneshot(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match refusal(status, &body) {
        Some(error) => Err(error.into()),
        None if status.is_success() => Ok(()),
        None => Err(format!("the service answered {status}").into()),
    }
}

/// What the guard said, if it was that; any other error stays one.
pub fn refused(written: Outcome) -> Outcome<Option<Error>> {
    match written {
        Ok(()) => Ok(None),
        Err(error) => match error.downcast::<Error>() {
            Ok(error) if error.stale_token().is_some() => Ok(Some(*error)),
            Ok(error) => Err(error),
            Err(error) => Err(error),
        },
    }
}
