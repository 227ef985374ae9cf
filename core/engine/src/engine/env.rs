//! What the parts work with that ask the store for something.

use super::ctx::Ctx;
use super::servers::Servers;
use super::settings::Settings;
use super::watch::Watch;

#[derive(Debug)]
pub(super) struct Env {
    pub(super) cx: Ctx,
    pub(super) servers: Servers,
    pub(super) watch: Watch,
}

impl Env {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            servers: Servers::new(&settings),
            cx: Ctx::new(settings),
            watch: Watch::default(),
        }
    }
}
