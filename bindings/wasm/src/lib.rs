//! The lock engine for JavaScript: the core's state machine behind a small synchronous surface; the same with
//! quorums; and its store in memory. Each is a module of its own, because few programs load the latter two.
//! The features `engine`, `quorum` and `memory` say which of them this is. It knows nothing of the protocol
//! that the core does not.
//!
//! Numbers and strings cross the border; what the engine wants is read from its memory. Times are milliseconds of the host's
//! monotonic clock; ids are numbers that the host chooses. What fails throws the error as a string,
//! its JSON, with the parts of its message; anything else that is thrown is a defect, after which the whole
//! instance is of no use any more.
//!
//! The host's contract is the core's: feed inputs, take the outputs by [`Engine::drain`], do what they
//! say, and come back when they say to.

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

/// Called by the glue once: a panic then throws its message, and not a bare `unreachable`.
#[wasm_bindgen(start)]
pub fn start() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| {
        wasm_bindgen::throw_str(&panic.to_string());
    }));
}
