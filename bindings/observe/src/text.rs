//! Texts of others, made safe to show.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_cannot_command_a_terminal() {
        assert_eq!(escaped("orders/42 – größer"), "orders/42 – größer");
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{202e}c"), r"a\u{1b}[2Jb\n\u{202e}c");
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
