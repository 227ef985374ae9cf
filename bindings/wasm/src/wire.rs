//! Batches as bytes and texts that cross the border at once. Crossing it once per string would cost more.

use leasehold_engine::protocol::{SCRIPT_SHA, ScriptCall};

use crate::text::units;

/// Appends the joined texts of keys and arguments, and where each ends, in UTF-16 units.
pub(crate) fn texts(call: &ScriptCall, bytes: &mut Vec<u8>, ends: &mut Vec<f64>) {
    let mut end = 0;
    for part in call.keys().chain(call.args()) {
        bytes.extend_from_slice(part.as_bytes());
        end += units(part);
        ends.push(f64::from(end));
    }
}

/// Appends the complete `EVALSHA` as a Redis client sends it.
pub(crate) fn command(call: &ScriptCall, bytes: &mut Vec<u8>) {
    bytes.push(b'*');
    line(3 + call.parts().len(), bytes);
    string(b"EVALSHA", bytes);
    string(SCRIPT_SHA.as_bytes(), bytes);
    let mut count = Vec::new();
    digits(call.keys().len(), &mut count);
    string(&count, bytes);
    for part in call.parts() {
        string(part, bytes);
    }
}

fn string(text: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(b'$');
    line(text.len(), bytes);
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
}

fn line(number: usize, bytes: &mut Vec<u8>) {
    digits(number, bytes);
    bytes.extend_from_slice(b"\r\n");
}

fn digits(number: usize, bytes: &mut Vec<u8>) {
    if let Some(more @ 1..) = number.checked_div(10) {
        digits(more, bytes);
    }
    bytes.push(b"0123456789"[number % 10]);
}

#[cfg(test)]
mod tests {
    use leasehold_engine::protocol::encode;

    use super::*;

    /// Catches a count or length that does not match what follows.
    #[test]
    fn a_command_is_as_redis_reads_it() {
        let (call, mut bytes) = (encode(&[]), Vec::new());
        command(&call, &mut bytes);
        let args = call
            .args()
            .map(|arg| format!("${}\r\n{arg}\r\n", arg.len()));
        let expected = format!(
            "*{}\r\n$7\r\nEVALSHA\r\n$40\r\n{SCRIPT_SHA}\r\n$1\r\n0\r\n{}",
            3 + call.args().len(),
            args.collect::<String>()
        );
        assert_eq!(String::from_utf8(bytes), Ok(expected));
        let numbers = [0, 9, 10, 99, 100, 1_234_567_890];
        let written = numbers.map(|number| {
            let mut bytes = Vec::new();
            digits(number, &mut bytes);
            String::from_utf8(bytes)
        });
        assert_eq!(written, numbers.map(|number| Ok(number.to_string())));
    }
}
