//! What the gate and the HTTP layer costs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::http::{Request, Response};
use leasehold::fence::Gate;
use leasehold::fence::http::{FENCING_TOKEN, FenceLayer};
use leasehold_guard_tests::conformance::token;
use tower::{Layer, Service};

use crate::{Row, Rows};

const ROUNDS: usize = 21;
const WRITES: usize = 20_000;
const RESOURCES: usize = 1_000;

type Map = Mutex<HashMap<String, usize>>;

/// Guarded writes as a ratio to unguarded ones.
pub(crate) async fn measure(rows: &mut Rows) {
    rows.push(in_memory());
    rows.push(over_http().await);
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

fn in_memory() -> Row {
    let (map, gate, names, token) = (Map::default(), Gate::new(), names(), token(34));
    let (mut plain, mut guarded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for (step, name) in (0..WRITES).zip(names.iter().cycle()) {
            write(black_box(&map), name, step);
        }
        plain.push(per_write(began));
        let began = Instant::now();
        for (step, name) in (0..WRITES).zip(names.iter().cycle()) {
            let written = gate.guard(name, token, || write(black_box(&map), name, step));
            written.expect("the token is the only one");
        }
        guarded.push(per_write(began));
    }
    Row {
        what: "Gate::guard: a map behind a mutex".to_owned(),
        plain: median(plain),
        guarded: median(guarded),
    }
}

async fn over_http() -> Row {
    let map = Arc::new(Map::default());
    let service = tower::service_fn(move |request: Request<String>| {
        let map = map.clone();
        async move {
            // As a handler that has to wait for something.
            tokio::task::yield_now().await;
            write(&map, request.uri().path(), request.body().len());
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let layer = FenceLayer::by_path(Arc::new(Gate::new()));
    let (mut bare, mut fenced) = (service.clone(), layer.layer(service));
    let (names, mut plain, mut guarded) = (names(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(calls(&mut bare, &names).await);
        guarded.push(calls(&mut fenced, &names).await);
    }
    Row {
        what: "FenceLayer: a service in process, no socket".to_owned(),
        plain: median(plain),
        guarded: median(guarded),
    }
}

async fn calls<S, B>(service: &mut S, names: &[String]) -> f64
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
{
    let began = Instant::now();
    for name in names.iter().cycle().take(WRITES) {
        let request = Request::put(name).header(FENCING_TOKEN, token(34));
        let request = request.body(String::new()).expect("it is a request");
        let Ok(answer) = service.call(request).await;
        assert!(answer.status().is_success(), "the token is the only one");
    }
    per_write(began)
}

fn per_write(began: Instant) -> f64 {
    let writes = u32::try_from(WRITES).expect("they are few");
    began.elapsed().as_secs_f64() * 1e6 / f64::from(writes)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
