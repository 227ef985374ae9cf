use leasehold_engine::engine::Settings;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{Engine, duration, settings};
use crate::server::{Thrown, thrown};

#[wasm_bindgen]
impl Engine {
    /// Makes an engine on this many independent servers, a majority of which decides. They have the numbers
    /// from 0. The other arguments are those of the constructor.
    // An object would cost more across the border.
    #[allow(clippy::too_many_arguments)]
    pub fn quorum(
        client_high: u32,
        client_low: u32,
        namespace: String,
        command_timeout: f64,
        patience: f64,
        drift_margin: f64,
        token_retention: f64,
        longest_ttl: f64,
        servers: usize,
        command: bool,
    ) -> Result<Self, Thrown> {
        let made = settings(
            (client_high, client_low),
            &namespace,
            [command_timeout, patience, drift_margin, token_retention],
        );
        let made = made.and_then(|(settings, counter)| {
            let client = settings.client;
            let longest_ttl = duration("longest_ttl", longest_ttl)?;
            let settings = Settings {
                longest_ttl,
                ..settings
            }
            .checked()?;
            let inner = leasehold_engine::engine::Engine::quorum(settings, servers)?;
            Ok(Self::of(
                inner,
                (client, namespace, counter),
                false,
                command,
            ))
        });
        made.map_err(|error| thrown(&error))
    }
}
