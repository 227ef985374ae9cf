use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::error::Error as FredError;
use fred::types::{FromValue, Key, MultipleKeys, Value};
use fred::util::redis_keyslot;
use leasehold_engine::{Error, ErrorKind, FencingToken};

use super::FencedRedis;
use super::key::fence_key;
use super::script::{COMMAND, Script};

/// Writes to one resource under one token. Returned by [`FencedRedis::resource`].
///
/// Values are strings, bytes or numbers, as fred takes them, with either client.
///
/// Every call may fail with one of these errors:
///
/// - [`StaleToken`](ErrorKind::StaleToken) if a greater token was seen; nothing was written
/// - [`WrongType`](ErrorKind::WrongType) if a key has another type than the command needs, or the fence's key
///   does not hold a token
/// - [`Config`](ErrorKind::Config) if an argument is invalid or a key is on another cluster slot
/// - [`Timeout`](ErrorKind::Timeout) or [`Unavailable`](ErrorKind::Unavailable) if there was no reply; then
///   it is *unknown* whether the write happened
///
/// The [module](super#guarantees-and-limits) explains when you may repeat a call. The calls are not cancel
/// safe.
///
/// ```no_run
/// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let order = redis.resource("{orders/42}", lease.token())?;
/// order.set("{orders/42}:state", "paid").await?;
/// order.set_for("{orders/42}:receipt", "…", Duration::from_secs(3600)).await?;
/// order.hset("{orders/42}:item", "price", 1299).await?;
/// order.push("{orders/42}:log", "paid by Ada").await?;
/// if order.incr_by("{orders/42}:paid", 1299).await? > 5000 {
///     order.del("{orders/42}:cart").await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Fenced {
    pub(super) redis: FencedRedis,
    pub(super) resource: Arc<str>,
    pub(super) fence: Arc<str>,
    pub(super) token: FencingToken,
}

impl Fenced {
    pub(super) fn new(redis: FencedRedis, resource: &str, token: FencingToken) -> Self {
        Self {
            redis,
            resource: resource.into(),
            fence: fence_key(resource).into(),
            token,
        }
    }

    /// `SET`: sets a key to a value without an expiry.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// order.set("orders/42", "paid").await?;
    /// # Ok(()) }
    /// ```
    pub async fn set<V>(&self, key: impl Into<Key>, value: V) -> Result<(), Error>
    where
        V: TryInto<Value>,
        V::Error: Into<FredError>,
    {
        self.command(key, "SET", [scalar(value)?]).await
    }

    /// `SET` with `PX`: sets a key to a value that expires.
    ///
    /// The time to live is rounded up to whole milliseconds.
    ///
    /// Errors: [`Config`](ErrorKind::Config) also if the time to live is zero or longer than 2^53 ms.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// order.set_for("orders/42", "reserved", std::time::Duration::from_secs(600)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_for<V>(
        &self,
        key: impl Into<Key>,
        value: V,
        time_to_live: Duration,
    ) -> Result<(), Error>
    where
        V: TryInto<Value>,
        V::Error: Into<FredError>,
    {
        let expiry = milliseconds(time_to_live)?;
        let args = [scalar(value)?, Value::from_static_str("PX"), expiry.into()];
        self.command(key, "SET", args).await
    }

    /// `DEL`: deletes a key. Returns true if it existed.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// let existed = order.del("orders/42").await?;
    /// # Ok(()) }
    /// ```
    pub async fn del(&self, key: impl Into<Key>) -> Result<bool, Error> {
        let deleted: u64 = self.command(key, "DEL", []).await?;
        Ok(deleted > 0)
    }

    /// `HSET`: sets a field of a hash. Returns true if the field is new.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// let new = order.hset("orders/42", "price", 1299).await?;
    /// # Ok(()) }
    /// ```
    pub async fn hset<V>(
        &self,
        key: impl Into<Key>,
        field: impl Into<Key>,
        value: V,
    ) -> Result<bool, Error>
    where
        V: TryInto<Value>,
        V::Error: Into<FredError>,
    {
        let args = [field.into().into(), scalar(value)?];
        let added: u64 = self.command(key, "HSET", args).await?;
        Ok(added > 0)
    }

    /// `HDEL`: deletes a field of a hash. Returns true if it existed.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// let existed = order.hdel("orders/42", "price").await?;
    /// # Ok(()) }
    /// ```
    pub async fn hdel(&self, key: impl Into<Key>, field: impl Into<Key>) -> Result<bool, Error> {
        let deleted: u64 = self.command(key, "HDEL", [field.into().into()]).await?;
        Ok(deleted > 0)
    }

    /// `INCRBY`: adds to a number, which starts at 0, and returns the sum.
    ///
    /// If you repeat the call after a timeout it may add twice.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// let paid = order.incr_by("orders/42", 1299).await?;
    /// # Ok(()) }
    /// ```
    pub async fn incr_by(&self, key: impl Into<Key>, by: i64) -> Result<i64, Error> {
        self.command(key, "INCRBY", [by.into()]).await
    }

    /// `RPUSH`: appends a value to a list and returns the list's new length.
    ///
    /// If you repeat the call after a timeout it may append twice.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let order = redis.resource("orders/42", lease.token())?;
    /// let length = order.push("orders/42", "paid by Ada").await?;
    /// # Ok(()) }
    /// ```
    pub async fn push<V>(&self, key: impl Into<Key>, value: V) -> Result<u64, Error>
    where
        V: TryInto<Value>,
        V::Error: Into<FredError>,
    {
        self.command(key, "RPUSH", [scalar(value)?]).await
    }

    /// Runs a [`Script`] behind the check, in one call.
    ///
    /// It sends `EVALSHA`, and `EVAL` if the server does not have the script yet. Keys and arguments are a
    /// single value, several in a `Vec` or an array, or `()` for none; arguments may also be a tuple. The
    /// reply is anything that fred can convert from the script's result.
    ///
    /// Errors: besides those of [the type](Self), [`Config`](ErrorKind::Config) if the script does not
    /// compile, which changes nothing; the error's own kind, most often [`Store`](ErrorKind::Store), if the
    /// script fails; [`Store`](ErrorKind::Store) if the reply does not convert to the type. In the last case
    /// the script has run.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// let stock = redis.resource("stock/7", lease.token())?;
    /// let left: Option<i64> = stock
    ///     .script(
    ///         "local left = tonumber(redis.call('GET', KEYS[1]) or 0)
    ///          if left < tonumber(ARGV[1]) then
    ///              return false
    ///          end
    ///          return redis.call('DECRBY', KEYS[1], ARGV[1])",
    ///         "stock/7",
    ///         vec![3],
    ///     )
    ///     .await?;
    /// println!("{left:?} are left");
    /// # Ok(()) }
    /// ```
    pub async fn script<R, A>(
        &self,
        script: impl Into<Script>,
        keys: impl Into<MultipleKeys>,
        args: A,
    ) -> Result<R, Error>
    where
        R: FromValue,
        A: TryInto<Value>,
        A::Error: Into<FredError>,
    {
        let args = match value(args)? {
            Value::Array(args) => args.into_iter().map(scalar).collect::<Result<_, _>>()?,
            Value::Null => Vec::new(),
            single => vec![scalar(single)?],
        };
        self.call(&script.into(), keys.into().inner(), args).await
    }

    async fn command<R: FromValue, const N: usize>(
        &self,
        key: impl Into<Key>,
        name: &'static str,
        rest: [Value; N],
    ) -> Result<R, Error> {
        let args = [Value::from_static_str(name)].into_iter().chain(rest);
        let key = key.into();
        self.call(&COMMAND, vec![key], args.collect()).await
    }

    async fn call<R: FromValue>(
        &self,
        script: &Script,
        keys: Vec<Key>,
        args: Vec<Value>,
    ) -> Result<R, Error> {
        self.check_keys(&keys)?;
        let count = 1 + keys.len();
        let mut rest = Vec::with_capacity(3 + keys.len() + args.len());
        rest.push(Value::from(i64::try_from(count).unwrap_or(i64::MAX)));
        rest.push(Value::from(&*self.fence));
        rest.extend(keys.into_iter().map(Value::from));
        rest.push(self.token.to_string().into());
        rest.extend(args);
        let give_up = Instant::now() + self.redis.timeout;
        let answer = match self
            .run("EVALSHA", script.sha(), rest.clone(), give_up)
            .await
        {
            // Match the server's full text, so that an error that a script raises is not mistaken for it.
            Err(error) if error.details().starts_with("NOSCRIPT No matching script") => {
                self.run("EVAL", script.text(), rest, give_up).await
            }
            answer => answer,
        };
        let reply = answer.map_err(|error| self.failure(&error))?;
        R::from_value(reply).map_err(|error| {
            let resource = &*self.resource;
            let message = format!(
                "the guarded write to {resource:?} succeeded, but its reply could not be converted: {error}"
            );
            Error::with_source(ErrorKind::Store, message, error)
        })
    }

    async fn run(
        &self,
        command: &'static str,
        script: &str,
        mut rest: Vec<Value>,
        give_up: Instant,
    ) -> Result<Value, FredError> {
        rest.insert(0, script.into());
        let left = give_up.saturating_duration_since(Instant::now());
        // No retries here: the write may have happened. The fence's key comes first and so chooses a
        // cluster's node.
        self.redis.runner.run(command, rest, left).await
    }

    fn check_keys(&self, keys: &[Key]) -> Result<(), Error> {
        let (resource, fence) = (&*self.resource, self.fence.as_bytes());
        let shown = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
        if let Some(key) = keys.iter().find(|key| key.as_bytes() == fence) {
            let key = shown(key);
            let message = format!(
                "{key:?} is the fence key of the resource {resource:?}: write to another key"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        // A single server has no slots.
        if !self.redis.runner.is_clustered() {
            return Ok(());
        }
        let slot = redis_keyslot(fence);
        let elsewhere = |key: &&Key| redis_keyslot(key.as_bytes()) != slot;
        if let Some(key) = keys.iter().find(elsewhere) {
            let (key, fence) = (shown(key), &*self.fence);
            let message = format!(
                "the key {key:?} is not on the cluster slot of {fence:?}, the fence key of \
                 {resource:?}: give both the same hash tag"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(())
    }
}

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("resource", &self.resource)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

fn value<V>(value: V) -> Result<Value, Error>
where
    V: TryInto<Value>,
    V::Error: Into<FredError>,
{
    value.try_into().map_err(|error| {
        let error: FredError = error.into();
        let message = format!("a value cannot be written to Redis: {error}");
        Error::with_source(ErrorKind::Config, message, error)
    })
}

/// Converts to one argument of a command. Other values would be refused late, or break the connection.
fn scalar<V>(from: V) -> Result<Value, Error>
where
    V: TryInto<Value>,
    V::Error: Into<FredError>,
{
    let value = value(from)?;
    if matches!(
        value,
        Value::String(_)
            | Value::Bytes(_)
            | Value::Integer(_)
            | Value::Double(_)
            | Value::Boolean(_)
    ) {
        return Ok(value);
    }
    let message = "a value for Redis must be one string, byte string or number";
    Err(Error::new(ErrorKind::Config, message))
}

fn milliseconds(time_to_live: Duration) -> Result<i64, Error> {
    /// About 285,000 years. Redis adds the value to its clock.
    const MOST: i64 = 1 << 53;
    let milliseconds = i64::try_from(time_to_live.as_nanos().div_ceil(1_000_000));
    if let Ok(milliseconds @ 1..=MOST) = milliseconds {
        return Ok(milliseconds);
    }
    let message = format!("a time to live must be from 1 ms to 2^53 ms; got {time_to_live:?}");
    Err(Error::new(ErrorKind::Config, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_whole_milliseconds() {
        let read = |time: Duration| milliseconds(time).map_err(|error| error.kind());
        assert_eq!(read(Duration::from_nanos(1)), Ok(1));
        assert_eq!(read(Duration::from_micros(1_001)), Ok(2));
        assert_eq!(read(Duration::ZERO), Err(ErrorKind::Config));
        assert_eq!(read(Duration::MAX), Err(ErrorKind::Config));
    }

    #[test]
    fn a_value_is_one_value() {
        assert!(scalar("").is_ok());
        assert!(scalar(i64::MIN).is_ok());
        assert!(scalar(&[0xff_u8, 0][..]).is_ok());
        // Redis has no integer for it; fred refuses it.
        assert!(scalar(u64::MAX).is_err());
        for bad in [Value::Null, Value::Array(vec![1.into()])] {
            let error = scalar(bad).expect_err("it is not one value");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }
}
