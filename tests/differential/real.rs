//! The script on a real server, through a plain connection.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_engine::protocol::{self, BatchReply, ClientId, Op, Push};
use leasehold_engine::time::ServerTime;
use leasehold_tests::{Admin, RedisServer, Resp};

use crate::samples::NAMESPACE;

/// Reads every key with its value and expiry, and the time, at one moment. A sorted set's value is its scores
/// and members in order. A hash's value is its fields and values without the two that flag possible waiters;
/// the hash counts as flagged if both are there.
const DUMP: &str = "
  local fields = {}
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local value
    local kind = redis.call('TYPE', key).ok
    local flag = 'no'
    if kind == 'string' then
      value = redis.call('GET', key)
    elseif kind == 'hash' then
      local names, lines = redis.call('HKEYS', key), {}
      table.sort(names)
      for _, name in ipairs(names) do
        if name ~= 'w' and name ~= 'x' then
          lines[#lines + 1] = name .. ' ' .. redis.call('HGET', key, name) .. '\\n'
        end
      end
      value = table.concat(lines)
      flag = redis.call('HMGET', key, 'w', 'x')
      flag = flag[1] and flag[2] and 'yes' or 'no'
    elseif kind == 'zset' then
      local lines, set = {}, redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      for i = 1, #set, 2 do
        lines[#lines + 1] = string.format('%.0f ', tonumber(set[i + 1])) .. set[i] .. '\\n'
      end
      value = table.concat(lines)
    else
      value = 'a ' .. kind
    end
    fields[#fields + 1] = key
    fields[#fields + 1] = value
    fields[#fields + 1] = string.format('%.0f', redis.call('PEXPIRETIME', key))
    fields[#fields + 1] = flag
  end
  local clock = redis.call('TIME')
  fields[#fields + 1] = clock[1] .. string.format('%06d', clock[2])
  return fields";

/// A server with the script, and a connection to it.
pub(crate) struct Real {
    pub(crate) server: RedisServer,
    pub(crate) admin: Admin,
    hash: String,
    dump_hash: String,
}

/// The contents of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dump {
    /// When the contents were read.
    pub(crate) time: ServerTime,
    pub(crate) keys: BTreeMap<String, Entry>,
    /// The hashes that flag possible waiters.
    pub(crate) flagged: BTreeSet<String>,
}

/// The content of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) value: String,
    /// When the key expires, in milliseconds; `None` if it never does.
    pub(crate) expires: Option<u64>,
}

impl Real {
    pub(crate) async fn start() -> Self {
        Self::on(RedisServer::start().await).await
    }

    pub(crate) async fn on(server: RedisServer) -> Self {
        let mut admin = Admin::connect(&server).await;
        let hash = load(&mut admin, protocol::SCRIPT).await;
        let dump_hash = load(&mut admin, DUMP).await;
        Self {
            server,
            admin,
            hash,
            dump_hash,
        }
    }

    /// Runs a batch by EVALSHA, and by EVAL if the server does not know the script. About every other batch
    /// goes in the form for a cluster node with several slots.
    pub(crate) async fn run(&mut self, batch: &[Op]) -> Result<BatchReply, String> {
        let call = protocol::encode(batch);
        let mut parts: Vec<_> = call.keys().chain(call.args()).map(str::to_owned).collect();
        let (keys, length) = (
            call.keys().len(),
            parts.iter().map(String::len).sum::<usize>(),
        );
        let answer = if keys > 0 && length % 2 == 0 {
            parts.insert(1, keys.to_string());
            let hash = protocol::NODE_SCRIPT_SHA;
            self.eval(hash, protocol::NODE_SCRIPT, 1, &parts).await
        } else {
            self.script(keys, &parts).await
        };
        let fields = strings(answer)?;
        protocol::decode(batch, &fields)
            .map_err(|error| format!("{error}; the fields were {:?}", Lossy(&fields)))
    }

    /// Returns the script's answer to these keys and arguments.
    pub(crate) async fn script(&mut self, keys: usize, parts: &[String]) -> Resp {
        let hash = self.hash.clone();
        self.eval(&hash, protocol::SCRIPT, keys, parts).await
    }

    /// Returns what the server has now.
    pub(crate) async fn dump(&mut self) -> Dump {
        let hash = self.dump_hash.clone();
        let fields = strings(self.eval(&hash, DUMP, 0, &[]).await).expect("a dump has no errors");
        let mut fields: Vec<String> = fields
            .into_iter()
            .map(|field| String::from_utf8_lossy(&field).into_owned())
            .collect();
        let time = fields.pop().expect("a dump ends with the time");
        let time = ServerTime::from_micros(time.parse().expect("the time is a number"));
        let entry = |fields: &[String]| {
            let value = fields[1].clone();
            let expires = fields[2].parse().ok();
            (fields[0].clone(), Entry { value, expires })
        };
        let rows = fields.chunks_exact(4);
        let flagged = rows.clone().filter(|fields| fields[3] == "yes");
        Dump {
            time,
            flagged: flagged.map(|fields| fields[0].clone()).collect(),
            keys: rows.map(entry).collect(),
        }
    }

    /// Returns the server's time.
    pub(crate) async fn time(&mut self) -> ServerTime {
        let parts = strings(self.admin.command(&["TIME"]).await).expect("TIME has no errors");
        let number = |part: &[u8]| -> u64 {
            let digits = std::str::from_utf8(part).expect("TIME answers with digits");
            digits.parse().expect("TIME answers with numbers")
        };
        ServerTime::from_micros(number(&parts[0]) * 1_000_000 + number(&parts[1]))
    }

    async fn eval(&mut self, hash: &str, body: &str, keys: usize, parts: &[String]) -> Resp {
        let count = keys.to_string();
        let with = |verb: &'static str, script: &str| -> Vec<String> {
            let head = [verb.to_owned(), script.to_owned(), count.clone()];
            head.into_iter().chain(parts.iter().cloned()).collect()
        };
        match self.admin.command(&with("EVALSHA", hash)).await {
            Resp::Error(error) if error.starts_with("NOSCRIPT") => {
                self.admin.command(&with("EVAL", body)).await
            }
            answer => answer,
        }
    }
}

/// A connection that may subscribe to a client's channel.
pub(crate) struct Listener {
    admin: Admin,
    channel: String,
}

impl Listener {
    pub(crate) async fn connect(server: &RedisServer, client: ClientId) -> Self {
        Self {
            admin: Admin::connect(server).await,
            channel: protocol::channel(NAMESPACE, client),
        }
    }

    /// Subscribes or unsubscribes; the connection may be in that state already. No message may have been
    /// published since [`Self::pushes`].
    pub(crate) async fn listen(&mut self, on: bool) {
        let command = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let channel = self.channel.clone();
        let expected = Resp::Array(vec![
            Resp::Bulk(Some(command.to_lowercase().into_bytes())),
            Resp::Bulk(Some(channel.clone().into_bytes())),
            Resp::Integer(i64::from(on)),
        ]);
        let reply = self.admin.command(&[command, &channel]).await;
        // Valkey refuses to end a subscription that does not exist.
        let refused = matches!(&reply, Resp::Error(error) if error.starts_with("NOSUB"));
        assert!(reply == expected || refused && !on, "{reply:?}");
    }

    /// Returns the messages since the last call.
    pub(crate) async fn pushes(&mut self) -> Result<Vec<Push>, String> {
        const MARK: &str = "all before this was published before it";
        let mut pushes = Vec::new();
        // The server answers PING after the messages that it published before.
        let mut value = self.admin.command(&["PING", MARK]).await;
        loop {
            if matches!(value, Resp::Bulk(_)) {
                return Ok(pushes); // The reply of PING to an unsubscribed connection.
            }
            let parts = strings(value)?;
            match &parts[..] {
                [pong, mark] if pong == b"pong" && mark == MARK.as_bytes() => return Ok(pushes),
                [message, channel, text]
                    if message == b"message" && channel == self.channel.as_bytes() =>
                {
                    let push = protocol::decode_push(text);
                    pushes.push(push.map_err(|error| format!("{error}: {:?}", Lossy(&parts)))?);
                }
                _ => {
                    return Err(format!(
                        "expected a message of its channel, got {:?}",
                        Lossy(&parts)
                    ));
                }
            }
            let next = self.admin.next_value().await;
            value = next.expect("the server answers");
        }
    }
}

async fn load(admin: &mut Admin, script: &str) -> String {
    let hash = admin.string(&["SCRIPT", "LOAD", script]).await;
    hash.expect("SCRIPT LOAD answers with the hash")
}

fn strings(answer: Resp) -> Result<Vec<Vec<u8>>, String> {
    let items = match answer {
        Resp::Array(items) => items,
        // The reply of an empty batch is the time alone.
        text @ Resp::Bulk(Some(_)) => vec![text],
        other => return Err(format!("expected an array or a string, got {other:?}")),
    };
    let string = |item| match item {
        Resp::Bulk(Some(bytes)) => Ok(bytes),
        other => Err(format!("expected a string in the array, got {other:?}")),
    };
    items.into_iter().map(string).collect()
}

struct Lossy<'a>(&'a [Vec<u8>]);

impl std::fmt::Debug for Lossy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts = self.0.iter().map(|field| String::from_utf8_lossy(field));
        f.debug_list().entries(texts).finish()
    }
}
