//! The contents of a lock's keys.

use std::time::Duration;

use crate::{Admin, Resp};

/// The holder of a lock, or the last holder until its lease expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// The lease ID as hexadecimal digits.
    pub lease: String,
    /// The fencing token, which guards compare.
    pub token: u64,
    /// The expiry by the server's clock, since 1970.
    pub expires: Duration,
    /// The client ID as hexadecimal digits.
    pub client: String,
    /// The label, or the owner.
    pub label: String,
}

impl Admin {
    /// Returns the holder of this key's lock, or `None` if the lock is free.
    ///
    /// # Panics
    ///
    /// If the key is a hash that is not a lock's.
    pub async fn tenure(&mut self, key: &str) -> Option<Tenure> {
        let tenure = self.stored(key).await.1?;
        let now = self.time().await;
        (tenure.expires >= now).then_some(tenure)
    }

    /// Returns the last token that a lock's key remembers.
    ///
    /// # Panics
    ///
    /// If the key is a hash that is not a lock's.
    pub async fn last_token(&mut self, key: &str) -> Option<u64> {
        self.stored(key).await.0
    }

    /// Returns the keys of held locks and of lines that have waiters, sorted.
    ///
    /// # Panics
    ///
    /// If one of them is a hash that is not a lock's.
    pub async fn in_use(&mut self) -> Vec<String> {
        let mut keys = self.keys("*}:line").await;
        for key in self.keys("*}").await {
            if self.tenure(&key).await.is_some() {
                keys.push(key);
            }
        }
        keys.sort();
        keys
    }

    /// Returns the server's clock in whole milliseconds, as it counts expiries.
    async fn time(&mut self) -> Duration {
        let Resp::Array(time) = self.command(&["TIME"]).await else {
            panic!("TIME answers with an array");
        };
        let mut numbers = time.iter().filter_map(Resp::as_int);
        let mut next = || numbers.next().and_then(|number| u64::try_from(number).ok());
        let parts = next().zip(next());
        let (seconds, micros) = parts.expect("TIME answers with two numbers");
        Duration::from_millis(seconds * 1_000 + micros / 1_000)
    }

    async fn stored(&mut self, key: &str) -> (Option<u64>, Option<Tenure>) {
        let hash = match self.command(&["HGETALL", key]).await {
            Resp::Array(hash) => hash,
            // The key is no hash.
            Resp::Error(error) if error.starts_with("WRONGTYPE") => Vec::new(),
            reply => panic!("{key} has {reply:?}"),
        };
        let texts: Vec<_> = hash.iter().filter_map(Resp::as_string).collect();
        let (mut last, mut tenure) = (None, None);
        for pair in texts.chunks(2) {
            match &*pair[0] {
                "t" => last = pair[1].trim_end_matches('+').parse().ok(),
                "d" | "w" | "x" | "y" => {}
                field => {
                    let parsed = Tenure::parse(field, &pair[1]);
                    tenure = Some(parsed.unwrap_or_else(|| panic!("{pair:?} in {key}")));
                }
            }
        }
        (last, tenure)
    }
}

impl Tenure {
    fn parse(field: &str, value: &str) -> Option<Self> {
        Some(Self {
            lease: field.get(..32)?.to_owned(),
            token: field.get(32..48)?.parse().ok()?,
            expires: Duration::from_millis(value.get(..13)?.parse().ok()?),
            client: value.get(13..29)?.to_owned(),
            label: value.get(30..)?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[tokio::test]
    async fn the_holder_of_a_lock_is_read_from_its_key() {
        let server = RedisServer::start().await;
        let mut admin = Admin::connect(&server).await;
        let key = "{ns:a}";
        assert_eq!(admin.tenure(key).await, None);
        assert_eq!(admin.last_token(key).await, None);
        let (lease, client) = ("a".repeat(32), "b".repeat(16));
        let field = format!("{lease}0000000000000007");
        let mut put = async |expires: &str| {
            let value = format!("{expires}{client}ljob:7");
            admin.int(&["HSET", key, "t", "7+", &field, &value]).await;
            let found = admin.tenure(key).await;
            (found, admin.last_token(key).await, admin.in_use().await)
        };
        let (found, last, in_use) = put("9000000000000").await;
        let found = found.expect("it is held");
        let ids = (found.lease.clone(), found.client.clone());
        assert_eq!(ids, (lease.clone(), client.clone()));
        assert_eq!((found.token, &*found.label), (7, "job:7"));
        assert_eq!(found.expires, Duration::from_secs(9_000_000_000));
        assert_eq!((last, in_use), (Some(7), vec![key.to_owned()]));
        // An expired lease has no holder.
        assert_eq!(put("1000000000000").await, (None, Some(7), Vec::new()));
    }
}
