//! What the parts work with that ask the store for something.

use super::ctx::Ctx;
use super::servers::Servers;
use super::settings::Settings;

#[derive(Debug)]
pub(super) struct Env {
    pub(super) cx: Ctx,
    pub(super) servers: Servers,
}

impl Env {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            servers: Servers::new(&settings),
            cx: Ctx::new(settings),
        }
    }
}
