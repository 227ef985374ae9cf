//! Events and tenures.

use futures::StreamExt;
use leasehold::LeaseEvent;
use serde_json::Value;
use tokio::time::timeout;

use crate::acts::Met;
use crate::format::{Act, EventSpec};
use crate::handles::Held;
use crate::world::{World, expect};

impl World {
    pub(crate) async fn stream(&mut self, act: &Act) -> Met {
        match act {
            Act::Events { lock, locker, r#as } => {
                let reader = match (lock, locker) {
                    (Some(lock), None) => self.locks.get(lock)?.events()?,
                    (None, Some(locker)) => self.lockers.get(locker)?.events(),
                    _ => return Err("events need a lock or a locker".to_owned().into()),
                };
                self.readers.add(r#as, reader);
                Ok(())
            }
            Act::Told {
                events,
                expect,
                ends,
            } => Ok(self.told(events, expect, *ends).await?),
            Act::Hold { lock, r#as } => {
                let tenures = self.locks.get(lock)?.lock()?.hold();
                self.tenures.add(r#as, tenures);
                Ok(())
            }
            Act::Next {
                tenures,
                r#as,
                ends,
            } => {
                let next = timeout(self.limit, self.tenures.get_mut(tenures)?.next()).await;
                let next = next.map_err(|_| "there was no next lease".to_owned())?;
                expect("whether it ends", &next.is_none(), ends)?;
                if let Some(lease) = next.transpose()? {
                    self.keep(r#as.as_ref(), Held::Lease(lease));
                }
                Ok(())
            }
            _ => unreachable!("the act is about a stream"),
        }
    }

    async fn told(
        &mut self,
        reader: &str,
        expected: &[EventSpec],
        ends: bool,
    ) -> Result<(), String> {
        for expected in expected {
            let event = self.next_event(reader, &expected.r#type).await?;
            let event =
                event.ok_or_else(|| format!("the stream ended without {:?}", expected.r#type))?;
            self.is_event(&event, expected)?;
        }
        if ends && let Some(event) = self.next_event(reader, "").await? {
            return Err(format!("the stream does not end: {event}"));
        }
        Ok(())
    }

    /// Returns the next event as JSON. Events that may come at any time are left out unless one is expected.
    async fn next_event(&mut self, reader: &str, expected: &str) -> Result<Option<Value>, String> {
        let events = self.readers.get_mut(reader)?;
        let next = async {
            loop {
                match events.next().await {
                    Some(LeaseEvent::Renewed { .. }) if expected != "renewed" => {}
                    Some(LeaseEvent::AtRisk { .. }) if expected != "atRisk" => {}
                    event => return event,
                }
            }
        };
        let event = timeout(self.limit, next).await;
        let event = event.map_err(|_| "no event came".to_owned())?;
        Ok(event.map(|event| serde_json::to_value(event).expect("events are JSON")))
    }

    fn is_event(&self, event: &Value, expected: &EventSpec) -> Result<(), String> {
        let token = expected
            .token
            .as_ref()
            .map(|lease| self.kept.token(lease))
            .transpose()?;
        let fields = [
            ("/type", Some(Value::from(expected.r#type.as_str()))),
            ("/name", expected.name.as_deref().map(Value::from)),
            ("/token", token.map(Value::from)),
            ("/reason", expected.reason.as_deref().map(Value::from)),
            ("/position", expected.position.map(Value::from)),
            ("/by", expected.by.as_deref().map(Value::from)),
            ("/error/code", expected.code.as_deref().map(Value::from)),
            ("/capacity", expected.capacity.map(Value::from)),
            ("/wanted", expected.wanted.map(Value::from)),
        ];
        for (field, value) in fields {
            if value.is_some() {
                expect(
                    format!("{field} of {event}"),
                    &event.pointer(field),
                    &value.as_ref(),
                )?;
            }
        }
        Ok(())
    }
}
