//! The scenario's own commands to the server.

use leasehold_tests::Resp;
use serde_json::Value;

use crate::acts::Met;
use crate::format::Given;
use crate::text::Kept;
use crate::world::World;

impl World {
    pub(crate) async fn subscribed(&mut self, count: usize) -> Met {
        let until = self.waiting();
        // In memory a locker is subscribed as soon as its first acquisition is done.
        while let Some(admin) = &mut self.admin {
            let channels = admin.command(&["PUBSUB", "CHANNELS", "leasehold:*"]).await;
            let subscribed = match &channels {
                Resp::Array(channels) => channels.len(),
                _ => 0,
            };
            if subscribed == count {
                break;
            }
            until
                .again(format!("{subscribed} lockers are subscribed"))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn redis(&mut self, command: &[String], expected: &Given<Value>) -> Met {
        const READS: [&str; 8] = [
            "EXISTS", "HGET", "HGETALL", "KEYS", "PTTL", "PUBSUB", "TYPE", "ZRANGE",
        ];
        let words: Result<Vec<_>, _> = command.iter().map(|word| self.kept.fill(word)).collect();
        let words = words?;
        let again = READS.contains(&words[0].as_str());
        let until = self.waiting();
        let admin = self.admin.as_mut().expect("the store is a server");
        loop {
            let mut reply = admin.command(&words).await;
            if let (Resp::Array(keys), "KEYS") = (&mut reply, words[0].as_str()) {
                keys.sort_by_key(Resp::as_string);
            }
            let met = match expected {
                Given::LeftOut => accepted(&reply),
                Given::Nothing => is(&mut self.kept, &reply, &Value::Null),
                Given::Is(expected) => is(&mut self.kept, &reply, expected),
            };
            match met {
                Err(mismatch) if again => until.again(mismatch).await?,
                met => return Ok(met?),
            }
        }
    }
}

/// Accepts any reply except an error.
fn accepted(reply: &Resp) -> Result<(), String> {
    match reply {
        Resp::Error(error) => Err(format!("the server refused: {error}")),
        _ => Ok(()),
    }
}

/// Checks that this is the reply that the scenario gives.
fn is(kept: &mut Kept, reply: &Resp, expected: &Value) -> Result<(), String> {
    let mismatch = || format!("the reply is {reply:?}, not {expected}");
    let met = match (expected, reply) {
        (Value::Null, Resp::Bulk(None)) => true,
        (Value::Number(number), Resp::Integer(is)) => number.as_i64() == Some(*is),
        (Value::String(pattern), _) => {
            let text = reply.as_string().ok_or_else(mismatch)?;
            return kept.matches(pattern, &text);
        }
        (Value::Array(expected), Resp::Array(items)) => {
            for (item, expected) in items.iter().zip(expected) {
                is(kept, item, expected)?;
            }
            expected.len() == items.len()
        }
        (Value::Object(fields), _) => match (&fields.get("range"), &fields.get("error"), reply) {
            (Some(Value::Array(bounds)), None, _) => {
                let bounds: Option<Vec<_>> = bounds.iter().map(Value::as_i64).collect();
                let (bounds, number) = (bounds.ok_or_else(mismatch)?, reply.as_int());
                number.is_some_and(|number| (bounds[0]..=bounds[1]).contains(&number))
            }
            (None, Some(Value::String(text)), Resp::Error(error)) => error.contains(text),
            _ => false,
        },
        _ => false,
    };
    if met { Ok(()) } else { Err(mismatch()) }
}
