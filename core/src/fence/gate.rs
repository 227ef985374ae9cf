use super::{check_resource, stale};
use crate::error::Error;
use crate::token::FencingToken;

/// To be written.
#[derive(Debug, Default)]
pub struct Gate(std::sync::Mutex<std::collections::BTreeMap<String, FencingToken>>);

impl Gate {
    /// An open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks.
    pub fn check(&self, resource: &str, token: FencingToken) -> Result<(), Error> {
        check_resource(resource)?;
        let mut seen = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match seen.get(resource) {
            Some(highest) if *highest > token => Err(stale(resource, token, *highest)),
            _ => {
                seen.insert(resource.to_owned(), token);
                Ok(())
            }
        }
    }
}
