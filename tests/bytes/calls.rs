//! The script's calls and answers.

use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, AskYield, Claim, ClientId, Command, Counter, Enter, ForceRelease, Incarnation,
    Inspect, LeaseId, List, LockKey, Op, Pattern, Reclaim, Release, Renew, Retire, Terms, decode,
    encode,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, MemoryServer, Name, Owner};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::changes::of_fields;
use crate::for_all;

const NOW: ServerTime = ServerTime::from_millis(1_764_230_000_000);
const TTL: Duration = Duration::from_secs(30);

/// Returns an operation of each kind on one of two names, by one of three leases.
fn op() -> impl Strategy<Value = Op> {
    let kinds = (0..10_u8, select(&["a", "b}"][..]), 1..4_u8);
    kinds.prop_map(|(kind, name, lease)| {
        let name = Name::new(name).expect("a valid name");
        let key = LockKey::new("leasehold", &name).expect("a valid namespace");
        Op {
            command: command(kind, key, lease),
            not_after: NOW + TTL,
        }
    })
}

fn command(kind: u8, key: LockKey, lease: u8) -> Command {
    let token = FencingToken::new(1).expect("a token");
    let (counter, ttl) = (Counter::Dense, TTL);
    let claim = Claim {
        lease: LeaseId(lease.into()),
        client: ClientId(lease.into()),
        owner: Owner::reclaimable(format!("owner {}", lease % 2)).expect("a valid owner"),
        counter,
        ttl,
        window: TTL,
    };
    let (lease, by) = (claim.lease, claim.owner.clone());
    match kind {
        0..3 => {
            let (waits, reclaims) = (kind < 2, Reclaim::Ask);
            Command::Acquire(Acquire {
                key,
                claim,
                waits,
                reclaims,
            })
        }
        3 => {
            let floor = None;
            Command::Renew(Renew {
                key,
                lease,
                token,
                counter,
                ttl,
                floor,
            })
        }
        4 => {
            let (token, completes) = (Some(token), false);
            Command::Release(Release {
                key,
                claim,
                token,
                completes,
            })
        }
        5 => Command::ForceRelease(ForceRelease { key, token }),
        6 => Command::AskYield(AskYield {
            key,
            token,
            within: ttl,
            by,
        }),
        7 => Command::Retire(Retire {
            key,
            lease,
            token,
            counter,
            ttl,
        }),
        8 => Command::List(List {
            pattern: Pattern::new("leasehold", "*").expect("a valid pattern"),
            cursor: 0,
        }),
        _ => Command::Inspect(Inspect { key }),
    }
}

/// Catches an answer that panics, that is read for another number of operations, or that fills memory.
#[test]
fn an_answer_is_read_or_refused() {
    let inputs = (vec(op(), 0..6), vec(op(), 1..6), of_fields());
    for_all(inputs, |(before, batch, change)| {
        let mut server = MemoryServer::new();
        server.execute(NOW, &before);
        let call = encode(&batch);
        let answer = server.call(NOW, call.keys(), call.args()).expect("a call");
        let plain = decode(&batch, &answer).expect("the answer of a server");
        assert_eq!(plain.replies.len(), batch.len());
        if let Ok(read) = decode(&batch, &change.apply(&answer)) {
            assert_eq!(read.replies.len(), batch.len());
        }
    });
}

/// Catches a call that panics in the server in memory, which runs in the program.
#[test]
fn a_call_is_executed_or_refused() {
    let inputs = (vec(op(), 1..6), of_fields(), of_fields());
    for_all(inputs, |(batch, of_keys, of_args)| {
        let call = encode(&batch);
        let texts = |parts: Vec<Vec<u8>>| {
            let parts = parts.into_iter();
            let texts = parts.map(|part| String::from_utf8_lossy(&part).into_owned());
            texts.collect::<Vec<_>>()
        };
        let owned =
            |parts: &mut dyn Iterator<Item = &str>| parts.map(str::to_owned).collect::<Vec<_>>();
        let keys = texts(of_keys.apply(&owned(&mut call.keys())));
        let args = texts(of_args.apply(&owned(&mut call.args())));
        let mut server = MemoryServer::new();
        let (keys, args) = (
            keys.iter().map(String::as_str),
            args.iter().map(String::as_str),
        );
        let _ = server.call(NOW, keys, args);
    });
}

/// A mark of a quorum's member, told of others.
#[test]
fn a_mark_takes_any_incarnations() {
    let incarnations = vec(any::<u128>().prop_map(Incarnation), 0..20);
    let inputs = (any::<u128>(), incarnations.clone(), incarnations);
    for_all(inputs, |(own, told, watch)| {
        let name = Name::new("x").expect("a valid name");
        let key = LockKey::new("leasehold", &name).expect("a valid namespace");
        let terms = Terms {
            longest: TTL,
            remember: told,
            watch,
            forget: Vec::new(),
        };
        let command = Command::Enter(Enter {
            key: key.mark(),
            incarnation: Incarnation(own),
            terms: Some(terms),
        });
        let batch = [Op {
            command,
            not_after: NOW + TTL,
        }];
        let call = encode(&batch);
        let mut server = MemoryServer::new();
        let answer = server.call(NOW, call.keys(), call.args()).expect("a call");
        let read = decode(&batch, &answer).expect("the answer of a server");
        assert_eq!(read.replies.len(), 1);
    });
}
