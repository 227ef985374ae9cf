//! The lock's script behind the smallest client whose callers share calls. It shows what a client can reach at most
//! whose callers are tasks of their own, as programs have them.
//!
//! Callers put their operation into a queue. Two tasks take turns at it: each takes all that is there, sends it as one
//! call of the script, and answers. There are no deadlines, events, waiters, renewals or retries, and nothing can be
//! cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fred::prelude::*;
use leasehold::{FencingToken, Name, Owner};
use leasehold_engine::protocol::{
    Acquire, Claim, ClientId, Command, Counter, LeaseId, LockKey, Op, Reclaim, Release, Reply,
    SCRIPT, SCRIPT_SHA, decode, encode,
};
use leasehold_engine::time::ServerTime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};

use crate::Result;

const AT_ONCE: usize = 2;
const MOST_PER_CALL: usize = 256;
const TTL: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(5);
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

struct Operation {
    command: Command,
    done: oneshot::Sender<Reply>,
}

#[derive(Clone)]
pub(crate) struct Batcher {
    operations: UnboundedSender<Operation>,
    leases: Arc<AtomicU64>,
    owner: Owner,
}

impl Batcher {
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let _: String = client.script_load(SCRIPT).await?;
        let (sender, operations) = unbounded_channel();
        let operations = Arc::new(Mutex::new(operations));
        for _ in 0..AT_ONCE {
            // It ends with the last sender, or with an error, which its callers then get.
            tokio::spawn(execute(client.clone(), operations.clone()));
        }
        Ok(Self {
            operations: sender,
            leases: Arc::default(),
            owner: Owner::labelled("a-host/4711")?,
        })
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&self, name: &str) -> Result<()> {
        let key = LockKey::new("batched", &Name::new(name)?)?;
        let counter = Counter::ClockFloor {
            retention: RETENTION,
        };
        let claim = Claim {
            lease: LeaseId(self.leases.fetch_add(1, Ordering::Relaxed).into()),
            client: ClientId(1),
            owner: self.owner.clone(),
            counter,
            ttl: TTL,
            window: WINDOW,
        };
        let acquire = Command::Acquire(Acquire {
            key: key.clone(),
            claim: claim.clone(),
            waits: true,
            reclaims: Reclaim::Ask,
        });
        let Reply::Held(grant) = self.ask(acquire).await? else {
            return Err("a free lock was not acquired".into());
        };
        let release = Command::Release(Release {
            key,
            claim,
            token: Some(grant.token),
            completes: false,
        });
        match self.ask(release).await? {
            Reply::Released => Ok(()),
            other => Err(format!("a held lock was not released: {other:?}").into()),
        }
    }

    async fn ask(&self, command: Command) -> Result<Reply> {
        let (done, answer) = oneshot::channel();
        self.operations.send(Operation { command, done })?;
        Ok(answer.await?)
    }
}

async fn execute(
    client: Client,
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
        let (mut batch, mut callers) = (Vec::new(), Vec::new());
        for Operation { command, done } in taken.drain(..) {
            let not_after = ServerTime::from_micros(FencingToken::MAX.get());
            batch.push(Op { command, not_after });
            callers.push(done);
        }
        let call = encode(&batch);
        let keys: Vec<_> = call.keys().map(Key::from).collect();
        let args: Vec<_> = call.args().map(Value::from).collect();
        let answer: Vec<String> = client.evalsha(SCRIPT_SHA, keys, args).await?;
        for (done, reply) in callers.into_iter().zip(decode(&batch, &answer)?.replies) {
            // A caller that no longer waits needs no answer.
            let _ = done.send(reply?);
        }
    }
    Ok(())
}
