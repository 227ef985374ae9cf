//! The lock engine for JavaScript: the core's state machine behind a small synchronous interface.
//!
//! The features `engine`, `quorum` and `memory` choose what is compiled: the engine, the same engine with
//! quorums, or the in-memory store. Each becomes a module of its own, because few programs load the latter
//! two. This crate knows nothing of the protocol that the core does not.
//!
//! Numbers and strings cross the border, and the host reads the engine's outputs from its memory. Times are
//! milliseconds of the host's monotonic clock; ids are numbers that the host chooses. An error is thrown as a
//! string: its JSON, with the parts of its message. Anything else that is thrown is a defect, after which the
//! whole instance is unusable.
//!
//! The host's contract is the core's: feed inputs, take the outputs with [`Engine::drain`], do what they say,
//! and come back when they say.

#[cfg(feature = "engine")]
mod convert;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "engine")]
pub mod server;
mod text;
#[cfg(feature = "engine")]
mod wire;

#[cfg(feature = "engine")]
pub use engine::Engine;
#[cfg(feature = "memory")]
pub use memory::MemoryStore;

use wasm_bindgen::prelude::wasm_bindgen;

#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// Makes a panic throw its message, instead of a bare `unreachable`. The glue calls this once.
#[wasm_bindgen(start)]
pub fn start() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| {
        wasm_bindgen::throw_str(&panic.to_string());
    }));
}
