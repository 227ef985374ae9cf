//! A recorder of what an adapter reports, for tests.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_engine::Error;

use super::{Hearing, Report, Sink};

#[derive(Default)]
pub(super) struct Reports(Mutex<Vec<String>>);

impl Reports {
    /// Returns a handle to report to, and its record.
    pub(super) fn hearing() -> (Hearing, Arc<Self>) {
        let reports = Arc::<Self>::default();
        (Hearing(reports.clone()), reports)
    }

    pub(super) fn all(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}

impl Sink for Reports {
    fn take(&self, report: Report<'_>) {
        let report = match report {
            Report::Message(message) => format!("Message({})", String::from_utf8_lossy(message)),
            report => format!("{report:?}"),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(report);
    }

    fn is_open(&self) -> bool {
        true
    }

    fn check(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_tracking_settled(&self) -> bool {
        true
    }
}
