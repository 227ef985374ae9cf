//! The script, and what a server says of itself.

use leasehold_engine::{Error, Finding, protocol};
use wasm_bindgen::prelude::wasm_bindgen;

/// Of errors: a string that is thrown.
pub(crate) type Thrown = String;

/// The Lua script that executes a batch.
#[wasm_bindgen]
pub fn script() -> String {
    protocol::SCRIPT.to_owned()
}

/// Its SHA-1 in hexadecimal, for `EVALSHA`.
#[wasm_bindgen(js_name = scriptSha)]
pub fn script_sha() -> String {
    protocol::SCRIPT_SHA.to_owned()
}

/// The script's only argument, without keys, for a batch of nothing: to see whether it may be run.
#[wasm_bindgen(js_name = emptyBatch)]
pub fn empty_batch() -> String {
    protocol::encode(&[]).args().collect()
}

/// Whether a server's refusal says that it has not got the script.
#[wasm_bindgen(js_name = scriptIsMissing)]
pub fn script_is_missing(text: &str) -> bool {
    protocol::script_is_missing(text)
}

/// Whether a server's refusal of `INFO` is let pass.
#[wasm_bindgen(js_name = infoIsWithheld)]
pub fn info_is_withheld(text: &str) -> bool {
    protocol::info_is_withheld(text)
}

/// Returns what a server's refusal means to the lockers of a namespace, as an error in JSON.
#[wasm_bindgen(js_name = serverError)]
pub fn server_error(text: &str, namespace: &str) -> String {
    json(&protocol::server_error_in(text, namespace))
}

/// Throws if a server cannot keep locks, by what its `INFO` says.
#[wasm_bindgen(js_name = checkServer)]
pub fn check_server(info: &str) -> Result<(), Thrown> {
    protocol::check_server(info).map_err(|error| thrown(&error))
}

/// The `maxmemory-policy` of a server that evicts keys, by what its `INFO` says; empty of another.
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
    // It does not fail: these values have string keys and finite numbers only.
    serde_json::to_string(value).unwrap_or_default()
}
