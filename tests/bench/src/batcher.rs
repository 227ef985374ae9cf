//! The smallest lock whose callers share calls: it shows what a lock can reach at most whose callers are tasks of
//! their own, as programs have them.
//!
//! Callers put their operation into a queue. Two tasks take turns at it: each takes all that is there, sends it as one
//! script call, and answers. The script reads the time, and sets or deletes a field per operation. There are no
//! tokens, no waiters, no deadlines, no events and no retries.

use std::sync::Arc;

use fred::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};

use crate::Result;

const SCRIPT: &str = "local now = redis.call('TIME')
    for at = 1, #KEYS do
        if ARGV[at] == '1' then redis.call('HSET', KEYS[at], 'field', now[1])
        else redis.call('HDEL', KEYS[at], 'field') end
    end
    return now[1]";
const AT_ONCE: usize = 2;
const MOST_PER_CALL: usize = 256;

struct Operation {
    key: String,
    acquires: bool,
    done: oneshot::Sender<()>,
}

#[derive(Clone)]
pub(crate) struct Batcher(UnboundedSender<Operation>);

impl Batcher {
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let script: String = client.script_load(SCRIPT).await?;
        let (sender, operations) = unbounded_channel();
        let operations = Arc::new(Mutex::new(operations));
        for _ in 0..AT_ONCE {
            let work = execute(client.clone(), script.clone(), operations.clone());
            // It ends with the last sender, or with an error, which its callers then get.
            tokio::spawn(work);
        }
        Ok(Self(sender))
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&self, key: &str) -> Result<()> {
        for acquires in [true, false] {
            let (done, answer) = oneshot::channel();
            let key = key.to_owned();
            self.0.send(Operation {
                key,
                acquires,
                done,
            })?;
            answer.await?;
        }
        Ok(())
    }
}

async fn execute(
    client: Client,
    script: String,
    operations: Arc<Mutex<UnboundedReceiver<Operation>>>,
) -> Result<()> {
    let mut taken = Vec::new();
    while operations
        .lock()
        .await
        .recv_many(&mut taken, MOST_PER_CALL)
        .await
        > 0
    {
        let (mut keys, mut args, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for operation in taken.drain(..) {
            keys.push(operation.key);
            args.push(i64::from(operation.acquires));
            done.push(operation.done);
        }
        client.evalsha::<(), _, _, _>(&script, keys, args).await?;
        for done in done {
            // A caller that no longer waits needs no answer.
            let _ = done.send(());
        }
    }
    Ok(())
}
