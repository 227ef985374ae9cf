//! Steps that inspect, list, force a release and shut down.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{FencingToken, HolderInfo, Name, SharedInfo};
use serde_json::Value;
use tokio::time::timeout;

use crate::acts::{Met, within};
use crate::format::{Act, Given, HolderSpec, SharedSpec};
use crate::world::{World, expect};

/// Checks that the numbers match; those that are not named do not matter.
fn has(stats: &Value, expected: &Value) -> Result<(), String> {
    let Value::Object(fields) = expected else {
        return expect("the number", stats, expected);
    };
    fields.iter().try_for_each(|(name, expected)| {
        let field = stats.get(name);
        let field = field.ok_or_else(|| format!("there is no {name:?} in {stats}"))?;
        has(field, expected).map_err(|mismatch| format!("{name}: {mismatch}"))
    })
}

fn is_shared(is: Option<&SharedInfo>, expected: &Given<SharedSpec>) -> Result<(), String> {
    let (is, expected) = match (is, expected) {
        (_, Given::LeftOut) | (None, Given::Nothing) => return Ok(()),
        (Some(is), Given::Is(expected)) => (is, expected),
        (Some(is), Given::Nothing) => return Err(format!("the name is shared: {is:?}")),
        (None, Given::Is(_)) => return Err("the name is not shared".into()),
    };
    let capacity = expected.capacity.unwrap_or(is.capacity);
    expect("the capacity", &is.capacity, &capacity)?;
    expect("what is held", &is.used, &expected.used.unwrap_or(is.used))?;
    let mut labels: Vec<_> = is.holders.iter().map(|permit| permit.by.clone()).collect();
    labels.sort_unstable();
    expect(
        "the holders",
        &labels,
        expected.by.as_ref().unwrap_or(&labels),
    )
}

impl World {
    pub(crate) async fn manage(&mut self, act: &Act) -> Met {
        match act {
            Act::Inspect { .. } => self.inspect(act).await,
            Act::List {
                locker,
                pattern,
                names,
            } => {
                let listed: Vec<_> = self
                    .lockers
                    .get(locker)?
                    .list(pattern)
                    .try_collect()
                    .await?;
                let mut listed: Vec<_> = listed.iter().map(Name::as_str).collect();
                let mut names: Vec<_> = names.iter().map(String::as_str).collect();
                listed.sort_unstable();
                listed.dedup();
                names.sort_unstable();
                Ok(expect("what is listed", &listed, &names)?)
            }
            Act::ForceRelease {
                locker,
                name,
                holder,
            } => {
                let freed = self.lockers.get(locker)?.force_release(name).await?;
                Ok(self.holder(freed.as_ref(), holder)?)
            }
            Act::RequestYield {
                locker,
                name,
                within,
                force,
                r#as,
            } => {
                let locker = self.lockers.get(locker)?;
                let request = locker.request_yield(name, Duration::from_millis(*within));
                let request = if *force { request.force() } else { request };
                self.requests.add(r#as, tokio::spawn(request.into_future()));
                Ok(())
            }
            Act::Yielded { request, is } => {
                let waiting = timeout(self.limit, self.requests.take(request)?).await;
                let over = waiting.map_err(|_| format!("{request} goes on"))?;
                let yielded = over.map_err(|error| error.to_string())??;
                Ok(expect("whether it yielded", &yielded, is)?)
            }
            Act::Stats { locker, is } => {
                let until = self.waiting();
                loop {
                    let stats = serde_json::to_value(self.lockers.get(locker)?.stats());
                    let stats = stats.map_err(|error| error.to_string())?;
                    match has(&stats, is) {
                        Ok(()) => return Ok(()),
                        Err(mismatch) => until.again(mismatch).await?,
                    }
                }
            }
            Act::Shutdown { locker } => {
                self.lockers.get(locker)?.shutdown().await;
                Ok(())
            }
            _ => unreachable!("the act has another handler"),
        }
    }

    async fn inspect(&self, act: &Act) -> Met {
        let Act::Inspect {
            locker,
            name,
            holder,
            last_token,
            waiting,
            line,
            wanted,
            shared,
        } = act
        else {
            unreachable!("the act is an inspection");
        };
        let until = self.waiting();
        loop {
            let seen = self.lockers.get(locker)?.inspect(name).await?;
            let compared = || {
                self.holder(seen.holder.as_ref(), holder)?;
                let last = seen.last_token.map(FencingToken::get);
                match last_token {
                    Given::LeftOut => {}
                    Given::Nothing => expect("the last token", &last, &None)?,
                    Given::Is(lease) => {
                        expect("the last token", &last, &Some(self.kept.token(lease)?))?;
                    }
                }
                let by = seen.wanted.as_ref().map(|wanted| &wanted.by);
                match wanted {
                    Given::LeftOut => {}
                    Given::Nothing => expect("who wants it", &by, &None)?,
                    Given::Is(label) => expect("who wants it", &by, &Some(label))?,
                }
                is_shared(seen.shared.as_deref(), shared)?;
                if let Some(waiting) = waiting {
                    expect("how many wait", &seen.waiting, waiting)?;
                }
                if let Some(line) = line {
                    let labels: Vec<_> = seen
                        .line
                        .iter()
                        .map(|waiter| waiter.owner.label())
                        .collect();
                    expect(
                        "the line",
                        &labels,
                        &line.iter().map(String::as_str).collect(),
                    )?;
                }
                Ok(())
            };
            match compared() {
                Ok(()) => return Ok(()),
                Err(mismatch) => until.again(mismatch).await?,
            }
        }
    }

    fn holder(&self, is: Option<&HolderInfo>, expected: &Given<HolderSpec>) -> Result<(), String> {
        let (is, expected) = match (is, expected) {
            (_, Given::LeftOut) | (None, Given::Nothing) => return Ok(()),
            (Some(is), Given::Is(expected)) => (is, expected),
            (Some(is), Given::Nothing) => return Err(format!("the lock is held: {is:?}")),
            (None, Given::Is(_)) => return Err("the lock is free".into()),
        };
        if let Some(lease) = &expected.token {
            expect(
                "the holder's token",
                &is.token.get(),
                &self.kept.token(lease)?,
            )?;
        }
        if let Some(label) = &expected.label {
            expect("the holder's label", is.owner.label(), label.as_str())?;
        }
        if let Some(reclaimable) = expected.reclaimable {
            expect(
                "whether the owner is reclaimable",
                &is.owner.is_reclaimable(),
                &reclaimable,
            )?;
        }
        match expected.remaining {
            None => Ok(()),
            Some(range) => within("what remains", Some(is.remaining), range),
        }
    }
}
