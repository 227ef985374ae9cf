//! `leasehold yield`.

use leasehold_observe::escaped;
use serde::Serialize;

use crate::args::YieldArgs;
use crate::exit::{Failure, NOT_ACQUIRED};
use crate::out;
use crate::say::Voice;
use crate::times::show;

#[derive(Serialize)]
struct Yielded<'a> {
    name: &'a str,
    yielded: bool,
}

pub(crate) fn main(args: &YieldArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let locker = args.store.connect(None, voice).await?;
        let request = locker.request_yield(&args.name, args.within);
        let yielded = if args.force {
            request.force().await?
        } else {
            request.await?
        };
        if args.json {
            let name = args.name.as_str();
            out::json(&Yielded { name, yielded })?;
        } else {
            let (name, within) = (escaped(&args.name), show(args.within));
            out::text(&if yielded {
                format!("the holder of {name} is gone\n")
            } else {
                format!("{name} is still held after {within}\n")
            })?;
        }
        Ok(if yielded { 0 } else { NOT_ACQUIRED })
    })
}
