//! The traces that a collector gets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use leasehold::LossReason;
use leasehold_tests::{Admin, RedisServer, eventually, within};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::{LIMIT, connect, held, in_line, lock, millis, served, subscribed};

type Fields = BTreeMap<&'static str, String>;

/// Collects the traces of this library.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    spans: Vec<(&'static str, Fields)>,
    events: Vec<Fields>,
}

struct Visitor<'a>(&'a mut Fields);

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Collector {
    fn with<T>(&self, work: impl FnOnce(&mut Collected) -> T) -> T {
        work(&mut self.0.lock().expect("not poisoned"))
    }

    /// Returns the fields of the first event with this message.
    fn event(&self, message: &str) -> Option<Fields> {
        let is_it = |fields: &&Fields| fields.get("message").is_some_and(|text| text == message);
        self.with(|collected| collected.events.iter().find(is_it).cloned())
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.with(|collected| {
            let mut fields = Fields::new();
            span.record(&mut Visitor(&mut fields));
            collected.spans.push((span.metadata().name(), fields));
            Id::from_u64(collected.spans.len() as u64)
        })
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.with(|collected| {
            let index = usize::try_from(span.into_u64()).expect("not that many") - 1;
            values.record(&mut Visitor(&mut collected.spans[index].1));
        });
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.with(|collected| {
            let mut fields = Fields::new();
            event.record(&mut Visitor(&mut fields));
            collected.events.push(fields);
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Everything runs on this thread, and only its traces are collected.
#[tokio::test(flavor = "current_thread")]
async fn spans_and_events_name_the_lock_and_the_token() {
    let collector = Collector::default();
    // If this dispatcher were the only one in the process, a call site that another test's thread reaches
    // first would be switched off for good, since that thread has no dispatcher.
    let _second = Dispatch::new(collector.clone());
    let _collecting = tracing::subscriber::set_default(collector.clone());
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let waits = lock(&locker, "x", "waits").ttl(millis(6_000));
    let waiting = crate::waiting(&waits);
    in_line(&mut admin, "x", 1).await;
    let told = async || collector.event("waiting in line");
    let waiting_in_line = eventually(LIMIT, "the place in line is traced", told).await;
    assert_eq!(waiting_in_line["name"], "x");
    assert!(waiting_in_line["position"].contains('1'));
    let former = holder.token();
    holder.release().await.expect("a held lock");
    let lease = served(waiting, LIMIT).await;
    let renewed = async || collector.event("lease renewed").is_some();
    eventually(LIMIT, "a renewal", renewed).await;
    subscribed(&mut admin, 1).await;
    locker.force_release("x").await.expect("an answer");
    let lost = within(LIMIT, lease.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason), Some(LossReason::Revoked));

    for (message, token) in [
        ("lease acquired", former),
        ("lease released", former),
        ("lease renewed", lease.token()),
        ("lease lost", lease.token()),
    ] {
        let fields = collector.event(message);
        let fields = fields.unwrap_or_else(|| panic!("no event {message:?}"));
        assert_eq!(fields["name"], "x", "{message}");
        assert_eq!(fields["token"], token.to_string(), "{message}");
    }
    let token = lease.token().to_string();
    let spans = collector.with(|collected| std::mem::take(&mut collected.spans));
    let of_lease = |span: &&(&str, Fields)| span.1.get("token") == Some(&token);
    let (name, fields) = spans.iter().find(of_lease).expect("a span of the call");
    assert_eq!(*name, "acquire");
    assert_eq!(fields["name"], "x");
    assert!(fields.contains_key("waited"), "{fields:?}");
}

/// Catches a field name that differs from OpenTelemetry's conventions.
#[tokio::test(flavor = "current_thread")]
async fn an_error_has_the_field_names_of_open_telemetry() {
    let collector = Collector::default();
    let _second = Dispatch::new(collector.clone());
    let _collecting = tracing::subscriber::set_default(collector.clone());
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let _lease = held(&lock(&locker, "x", "holder")).await;
    drop(server);
    let told = async || collector.event("lease at risk");
    let fields = eventually(LIMIT, "the risk is traced", told).await;
    assert_eq!(fields["error.type"], "\"unavailable\"");
    assert!(!fields["exception.message"].is_empty());
    assert_eq!(fields["name"], "x");
}
