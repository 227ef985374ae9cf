//! The script, and checks of a server.

use leasehold_engine::{Error, Finding, Ticket, protocol};
use wasm_bindgen::prelude::wasm_bindgen;

/// An error that is thrown to JavaScript, as a string of JSON.
pub(crate) type Thrown = String;

/// Returns the name, token and time to live in milliseconds of a ticket, as JSON.
#[wasm_bindgen(js_name = readTicket)]
pub fn read_ticket(text: &str) -> Result<String, Thrown> {
    let ticket: Ticket = text.parse().map_err(|error: Error| thrown(&error))?;
    // A whole number, because code that prints floats is long.
    let ttl = ticket.ttl().as_secs() * 1_000 + u64::from(ticket.ttl().subsec_millis());
    Ok(json(&(ticket.name(), ticket.token(), ttl)))
}

/// Returns the Lua script that executes a batch.
#[wasm_bindgen]
pub fn script() -> String {
    protocol::SCRIPT.to_owned()
}

/// Returns the script's SHA-1 in hexadecimal, for `EVALSHA`.
#[wasm_bindgen(js_name = scriptSha)]
pub fn script_sha() -> String {
    protocol::SCRIPT_SHA.to_owned()
}

/// Returns the script's only argument, without keys, for an empty batch. It tests whether this user may run
/// the script.
#[wasm_bindgen(js_name = emptyBatch)]
pub fn empty_batch() -> String {
    protocol::encode(&[]).args().collect()
}

/// Returns true if a server's refusal says that it does not have the script.
#[wasm_bindgen(js_name = scriptIsMissing)]
pub fn script_is_missing(text: &str) -> bool {
    protocol::script_is_missing(text)
}

/// Returns true if this refusal of `INFO` is acceptable.
#[wasm_bindgen(js_name = infoIsWithheld)]
pub fn info_is_withheld(text: &str) -> bool {
    protocol::info_is_withheld(text)
}

/// Returns the meaning of a server's refusal for the lockers of a namespace, as an error in JSON.
#[wasm_bindgen(js_name = serverError)]
pub fn server_error(text: &str, namespace: &str) -> String {
    json(&protocol::server_error_in(text, namespace))
}

/// Throws an error if this `INFO` shows that the server cannot keep locks.
#[wasm_bindgen(js_name = checkServer)]
pub fn check_server(info: &str, knows_clusters: bool) -> Result<(), Thrown> {
    protocol::check_server(info, knows_clusters).map_err(|error| thrown(&error))
}

/// Returns the `maxmemory-policy` of a server that evicts keys, from its `INFO`; an empty string for any
/// other server.
#[wasm_bindgen(js_name = evictionPolicy)]
pub fn eviction_policy(info: &str) -> String {
    match Finding::all(info).pop() {
        Some(Finding::Eviction { policy }) => policy,
        _ => String::new(),
    }
}

pub(crate) fn thrown(error: &Error) -> Thrown {
    json(error)
}

pub(crate) fn json(value: &impl serde::Serialize) -> String {
    // It cannot fail, because these values have only string keys and finite numbers.
    serde_json::to_string(value).unwrap_or_default()
}
