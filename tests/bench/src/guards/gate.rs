//! The cost of the gate and the HTTP layer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use axum::http::{Request, Response};
use leasehold::fence::Gate;
use leasehold::fence::http::{FENCING_TOKEN, FenceLayer};
use leasehold_guard_tests::conformance::token;
use tower::{Layer, Service};

use super::{Bench, micros};

/// The number of resources; the writes go to each in turn.
const RESOURCES: usize = 1_000;
/// How many writes are timed together: a single one takes hardly longer than reading the clock.
const WRITES: u32 = 1_000;

type Map = Mutex<HashMap<String, usize>>;

/// Measures guarded writes as a ratio to unguarded ones.
pub(super) async fn measure(bench: &Bench) {
    in_memory(bench).await;
    over_http(bench).await;
}

fn write(map: &Map, name: &str, value: usize) {
    let mut map = map.lock().expect("no writer panics");
    match map.get_mut(name) {
        Some(old) => *old = value,
        None => drop(map.insert(name.to_owned(), value)),
    }
}

fn names() -> Vec<String> {
    (0..RESOURCES)
        .map(|number| format!("/account/{number}"))
        .collect()
}

/// Returns the names of one batch, one after the other.
fn batch(names: &[String]) -> impl Iterator<Item = &String> {
    (0..WRITES).zip(names.iter().cycle()).map(|(_, name)| name)
}

async fn in_memory(bench: &Bench) {
    let (map, gate, names, token) = (Map::default(), Gate::new(), names(), token(34));
    let plain = async || {
        let writes = async {
            for (step, name) in batch(&names).enumerate() {
                write(black_box(&map), name, step);
            }
        };
        micros(writes).await / f64::from(WRITES)
    };
    let guarded = async || {
        let writes = async {
            for (step, name) in batch(&names).enumerate() {
                let written = gate.guard(name, token, || write(black_box(&map), name, step));
                written.expect("the token is the only one");
            }
        };
        micros(writes).await / f64::from(WRITES)
    };
    let what = "Gate::guard: a map behind a mutex";
    bench.compare(what, plain, guarded).await;
}

async fn over_http(bench: &Bench) {
    let map = Arc::new(Map::default());
    let service = tower::service_fn(move |request: Request<String>| {
        let map = map.clone();
        async move {
            write(&map, request.uri().path(), request.body().len());
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let layer = FenceLayer::by_path(Arc::new(Gate::new()));
    let (bare, fenced, names) = (service.clone(), layer.layer(service), names());
    let plain = async || calls(bare.clone(), &names).await;
    let guarded = async || calls(fenced.clone(), &names).await;
    let what = "FenceLayer: a service in process, no socket";
    bench.compare(what, plain, guarded).await;
}

async fn calls<S, B>(mut service: S, names: &[String]) -> f64
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
{
    let calls = async {
        for name in batch(names) {
            let request = Request::put(name).header(FENCING_TOKEN, token(34));
            let request = request.body(String::new()).expect("the request is valid");
            let Ok(answer) = service.call(request).await;
            assert!(answer.status().is_success(), "the token is the only one");
        }
    };
    micros(calls).await / f64::from(WRITES)
}
