//! `leasehold list`, `inspect` and `release`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};

use futures::{StreamExt, TryStreamExt};
use leasehold::{FencingToken, HolderInfo, Inspection, Locker, Name};
use leasehold_observe::{ChangeKind, escaped, is_held};
use serde::Serialize;

use crate::args::{InspectArgs, ListArgs, ReleaseArgs};
use crate::exit::{DECLINED, Failure};
use crate::out;
use crate::say::Voice;
use crate::shared;
use crate::times::show;

/// How many locks are inspected together, to share round trips.
const TOGETHER: usize = 64;

/// A lock at the time of its inspection.
#[derive(Serialize)]
pub(crate) struct Seen<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) r#type: Option<&'static str>,
    pub(crate) name: &'a Name,
    #[serde(flatten)]
    pub(crate) found: &'a Inspection,
    /// The time of the inspection, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<u64>,
    /// How the last tenure ended, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<ChangeKind>,
}

impl<'a> Seen<'a> {
    /// Describes a lock without its history.
    fn now(name: &'a Name, found: &'a Inspection) -> Self {
        Self {
            r#type: None,
            name,
            found,
            time: None,
            reason: None,
        }
    }
}

#[derive(Serialize)]
struct Released<'a> {
    name: &'a str,
    released: &'a Option<HolderInfo>,
}

pub(crate) fn list(args: &ListArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let locker = args.store.connect(None, voice).await?;
        let names: BTreeSet<_> = locker.list(&args.pattern).try_collect().await?;
        let mut rows = Vec::new();
        let mut found = found(&locker, names);
        while let Some((name, found)) = found.next().await.transpose()? {
            // It was released after the scan.
            if !is_held(&found) {
                continue;
            }
            if args.json {
                out::json(&Seen::now(&name, &found))?;
                continue;
            }
            let [token, left, holder] = match (&found.holder, &found.shared) {
                (Some(holder), _) => [
                    holder.token.to_string(),
                    show(holder.remaining),
                    escaped(holder.owner.label()),
                ],
                (None, Some(shared)) => shared::row(shared),
                (None, None) => continue,
            };
            let waiting = found.waiting.to_string();
            rows.push([escaped(name.as_str()), token, left, waiting, holder]);
        }
        if !args.json {
            out::table(["NAME", "TOKEN", "LEFT", "WAITING", "OWNER"], &rows)?;
        }
        Ok(0)
    })
}

/// Inspects many locks, in the order of their names.
pub(crate) fn found(
    locker: &Locker,
    names: BTreeSet<Name>,
) -> impl futures::Stream<Item = Result<(Name, Inspection), leasehold::Error>> + Unpin {
    let looks = futures::stream::iter(names).map(move |name| async move {
        let found = locker.inspect(name.as_str()).await?;
        Ok((name, found))
    });
    Box::pin(looks.buffered(TOGETHER))
}

pub(crate) fn inspect(args: &InspectArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let name = Name::new(&args.name)?;
        let locker = args.store.connect(None, voice).await?;
        let found = locker.inspect(&args.name).await?;
        if args.json {
            return out::json(&Seen::now(&name, &found));
        }
        out::text(&told(&name, &found))
    })
}

fn told(name: &Name, found: &Inspection) -> String {
    let name = escaped(name.as_str());
    let mut lines = Vec::new();
    if let Some(shared) = &found.shared {
        lines.extend(shared::told(&name, shared));
    } else if let Some(holder) = &found.holder {
        lines.push(format!("{name} is held"));
        lines.push(format!("  by       {}", owner(holder)));
        lines.push(format!("  token    {}", holder.token));
        let left = show(holder.remaining);
        lines.push(format!("  expires  in {left}, if it is not renewed"));
    } else {
        lines.push(format!("{name} is free"));
        lines.extend(
            found
                .last_token
                .map(|token| format!("  last token {token}")),
        );
    }
    if let Some(wanted) = &found.wanted {
        let (by, left) = (escaped(&wanted.by), show(wanted.remaining));
        lines.push(format!("  wanted   by {by}, within {left}"));
    }
    if found.waiting > 0 {
        lines.push(format!("  waiting  {}", found.waiting));
    }
    for (place, waiter) in found.line.iter().enumerate() {
        let label = escaped(waiter.owner.label());
        lines.push(format!(
            "  {:>5}. {label}, for {}",
            place + 1,
            show(waiter.waited)
        ));
    }
    if found.line.len() < usize::try_from(found.waiting).unwrap_or(usize::MAX) {
        lines.push("      …".to_owned());
    }
    lines.join("\n") + "\n"
}

fn owner(holder: &HolderInfo) -> String {
    let label = escaped(holder.owner.label());
    if holder.owner.is_reclaimable() {
        format!("{label} (an owner, which may take the lock over)")
    } else {
        label
    }
}

pub(crate) fn release(args: &ReleaseArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let locker = args.store.connect(None, voice).await?;
        let token = if args.yes {
            args.token
        } else {
            meant(&locker, args).await?
        };
        let released = match token {
            Some(token) => locker.force_release_token(&args.name, token).await?,
            None if args.yes => locker.force_release(&args.name).await?,
            // The lock was free. The user did not confirm to take it from a holder that has come since.
            None => None,
        };
        if args.json {
            let (name, released) = (args.name.as_str(), &released);
            return out::json(&Released { name, released });
        }
        let name = escaped(&args.name);
        out::text(&match released {
            Some(holder) => {
                format!(
                    "{name} was released; {} had it with token {}\n",
                    owner(&holder),
                    holder.token
                )
            }
            None => match token.or(args.token) {
                Some(token) => format!("nobody has {name} with token {token}\n"),
                None => format!("{name} was free\n"),
            },
        })
    })
}

/// Asks whether to take the lock from this holder; `None` if there is no holder.
async fn meant(locker: &Locker, args: &ReleaseArgs) -> Result<Option<FencingToken>, Failure> {
    if !io::stdin().is_terminal() {
        return Err(
            Failure::usage("there is no terminal to ask for confirmation")
                .advise("give --yes, too"),
        );
    }
    let name = &args.name;
    let is_meant = |holder: &&HolderInfo| args.token.is_none_or(|token| token == holder.token);
    let found = locker.inspect(name).await?;
    let (by, token, left) = match found.holder.as_ref().filter(is_meant) {
        Some(holder) => (owner(holder), holder.token, holder.remaining),
        None => match shared::holding(&found, args.token)? {
            Some(permit) => (escaped(&permit.by), permit.token, permit.remaining),
            None => return Ok(None),
        },
    };
    let (name, left) = (escaped(name), show(left));
    let question = format!(
        "{name} is held by {by} with token {token}, for {left} or longer.\n\
         Its holder goes on until it notices. Release it? [y/N] "
    );
    let mut err = io::stderr().lock();
    let _ = err
        .write_all(question.as_bytes())
        .and_then(|()| err.flush());
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    let answer = answer.trim().to_ascii_lowercase();
    if read.is_err() || !matches!(&*answer, "y" | "yes") {
        return Err(Failure::new(DECLINED, "nothing was released"));
    }
    Ok(Some(token))
}
