//! Texts of others, made safe to show, and texts that all observers share.

use leasehold::{SharedInfo, Sharing};

/// Returns a text of somebody else with its control characters and marks of direction escaped. So it cannot move a
/// terminal's cursor, or turn the text around it.
///
/// ```
/// assert_eq!(leasehold_observe::escaped("orders/42\u{1b}[2J"), r"orders/42\u{1b}[2J");
/// ```
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        let is_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || is_direction || matches!(c, '\u{2028}' | '\u{2029}') {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns a store's URL without user, password and parameters, fit to be shown.
///
/// ```
/// let url = "redis://me:secret@host:1/5?timeout=1";
/// assert_eq!(leasehold_observe::without_secrets(url), "redis://host:1/5");
/// ```
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    escaped(&format!("{scheme}://{rest}"))
}

/// Returns how much of a shared name is held, such as "2 of 3 slots", "1 writer" or "4 readers".
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
/// let shared = locker.inspect("licenses").await?.shared.expect("it is shared");
/// assert_eq!(leasehold_observe::summary(&shared), "1 of 3 slots");
/// # drop(permit);
/// # Ok(()) }
/// ```
pub fn summary(shared: &SharedInfo) -> String {
    let SharedInfo {
        used,
        held,
        capacity,
        ..
    } = shared;
    match shared.sharing {
        Sharing::Slots => format!("{used} of {capacity} slots"),
        Sharing::Units => format!("{used} of {capacity} units"),
        Sharing::Access if *held == 1 && used == capacity => "1 writer".to_owned(),
        Sharing::Access if *held == 1 => "1 reader".to_owned(),
        Sharing::Access => format!("{held} readers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_cannot_command_a_terminal() {
        assert_eq!(escaped("orders/42 – größer"), "orders/42 – größer");
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{202e}c"), r"a\u{1b}[2Jb\n\u{202e}c");
    }

    /// Catches a writer that is shown as a reader, and units that are shown as permits.
    #[tokio::test]
    async fn what_is_held_of_a_shared_name_is_told() {
        let locker = leasehold::Locker::in_memory();
        let told = async |name| {
            let shared = locker.inspect(name).await.expect("it replies").shared;
            summary(&shared.expect("it is shared"))
        };
        let memory = locker.quota("memory", 1_000).expect("valid");
        let _memory = memory.acquire_many(700).await.expect("free");
        assert_eq!(told("memory").await, "700 of 1000 units");
        let prices = locker.rw_lock("prices").expect("valid");
        let writer = prices.write().acquire().await.expect("free");
        assert_eq!(told("prices").await, "1 writer");
        writer.release().await.expect("held");
        let _one = prices.read().acquire().await.expect("free");
        assert_eq!(told("prices").await, "1 reader");
        let _two = prices.read().acquire().await.expect("free");
        assert_eq!(told("prices").await, "2 readers");
    }

    #[test]
    fn nothing_secret_is_shown() {
        for (url, says) in [
            ("redis://me:secret@host:1/5", "redis://host:1/5"),
            ("redis://:s%40@host?timeout=1", "redis://host"),
            (
                "unix://:secret@/run/redis.sock?db=1",
                "unix:///run/redis.sock",
            ),
            (
                "redis-sentinel://u:p@a,b:1/service?sentinelPassword=x",
                "redis-sentinel://a,b:1/service",
            ),
            ("rediss://host", "rediss://host"),
        ] {
            assert_eq!(without_secrets(url), says);
        }
    }
}
