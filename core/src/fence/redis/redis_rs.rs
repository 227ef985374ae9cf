//! Runs guarded writes on a connection of redis-rs, with fred's types for values and errors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use fred::types::Value as FredValue;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};

use crate::adapter::{CallError, failure};

#[derive(Clone)]
pub(super) struct Connection(Arc<dyn Sends>);

type Sending<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// An object-safe view of any connection that can be cloned.
trait Sends: Send + Sync {
    fn send(&self, command: Cmd) -> Sending<'_>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Sends for C {
    fn send(&self, command: Cmd) -> Sending<'_> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(&command).await })
    }
}

impl Connection {
    pub(super) fn new<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(connection))
    }

    pub(super) async fn run(
        &self,
        name: &'static str,
        args: Vec<FredValue>,
        left: Duration,
    ) -> Result<FredValue, FredError> {
        let mut command = redis::cmd(name);
        for arg in args {
            match arg {
                FredValue::Bytes(bytes) => command.arg(&*bytes),
                // Format numbers as fred does.
                arg => command.arg(arg.as_string().unwrap_or_default()),
            };
        }
        let late = |_| FredError::new(FredErrorKind::Timeout, "no reply");
        let reply = tokio::time::timeout(left, self.0.send(command)).await;
        let reply = reply.map_err(late)?.and_then(Value::extract_error);
        reply.map(value).map_err(|error| match failure(&error) {
            CallError::Refused(said) => FredError::new(FredErrorKind::Unknown, said),
            CallError::TimedOut => FredError::new(FredErrorKind::Timeout, "no reply"),
            CallError::Unreachable(why) => FredError::new(FredErrorKind::IO, why),
            CallError::Known(_, error) => FredError::new(FredErrorKind::IO, error.to_string()),
            CallError::Unreadable(why) => FredError::new(FredErrorKind::Protocol, why),
        })
    }
}

fn value(from: Value) -> FredValue {
    match from {
        Value::Nil => FredValue::Null,
        Value::Int(number) => number.into(),
        Value::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(error) => FredValue::Bytes(error.into_bytes().into()),
        },
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.into(),
        Value::Okay => FredValue::from_static_str("OK"),
        Value::Double(number) => number.into(),
        Value::Boolean(is) => is.into(),
        Value::BigNumber(number) => number.to_string().into(),
        Value::Array(values) | Value::Set(values) => list(values),
        Value::Map(pairs) => list(pairs.into_iter().flat_map(|(key, value)| [key, value])),
        Value::Attribute { data, .. } => value(*data),
        Value::Push { data, .. } => list(data),
        // An error inside a list. `extract_error` has removed one at the top level.
        error => format!("{error:?}").into(),
    }
}

fn list(values: impl IntoIterator<Item = Value>) -> FredValue {
    FredValue::Array(values.into_iter().map(value).collect())
}
