//! RESP2 values: parsing and encoding.

/// A RESP2 value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resp {
    /// `+OK`
    Simple(String),
    /// `-ERR …`, without the `-`
    Error(String),
    /// `:42`
    Integer(i64),
    /// A byte string, or nil.
    Bulk(Option<Vec<u8>>),
    /// An array; the nil array reads as an empty one.
    Array(Vec<Resp>),
}

impl Resp {
    /// Reads one value from the start of `input`. Returns the value and its length in bytes, or `None` if it
    /// is not complete yet. Panics if the input is not RESP2.
    pub fn parse(input: &[u8]) -> Option<(Self, usize)> {
        let line_end = input.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&input[1..line_end]).expect("a RESP line is UTF-8");
        let number = || -> i64 {
            line.parse()
                .unwrap_or_else(|_| panic!("not a RESP number: {line:?}"))
        };
        let start = line_end + 2;
        match input[0] {
            b'+' => Some((Self::Simple(line.to_owned()), start)),
            b'-' => Some((Self::Error(line.to_owned()), start)),
            b':' => Some((Self::Integer(number()), start)),
            b'$' => match usize::try_from(number()) {
                Err(_) => Some((Self::Bulk(None), start)),
                Ok(length) => {
                    let bytes = input.get(start..start + length)?;
                    let end = start + length + 2;
                    (input.len() >= end).then(|| (Self::Bulk(Some(bytes.to_vec())), end))
                }
            },
            b'*' => {
                let mut end = start;
                let mut items = Vec::new();
                for _ in 0..number().max(0) {
                    let (item, length) = Self::parse(&input[end..])?;
                    items.push(item);
                    end += length;
                }
                Some((Self::Array(items), end))
            }
            other => panic!(
                "not RESP2: a value that starts with {:?}",
                char::from(other)
            ),
        }
    }

    /// Returns the number of an integer or of a bulk string of digits.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => self.as_string()?.parse().ok(),
        }
    }

    /// Returns the text of a simple or bulk string. Panics if it is not UTF-8.
    pub fn as_string(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(Some(bytes)) => {
                Some(String::from_utf8(bytes.clone()).expect("the reply is UTF-8"))
            }
            _ => None,
        }
    }
}

/// Encodes a command as clients send it.
pub(super) fn encode_command<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_parsed_only_when_complete() {
        let input = b"*4\r\n:-7\r\n$3\r\n\r\nx\r\n*2\r\n$-1\r\n+OK\r\n-ERR no\r\n:9\r\n";
        let (value, length) = Resp::parse(input).expect("complete");
        assert_eq!(length, input.len() - 4);
        let nested = Resp::Array(vec![Resp::Bulk(None), Resp::Simple("OK".into())]);
        assert_eq!(
            value,
            Resp::Array(vec![
                Resp::Integer(-7),
                Resp::Bulk(Some(b"\r\nx".to_vec())),
                nested,
                Resp::Error("ERR no".into()),
            ])
        );
        for end in 0..length {
            assert_eq!(Resp::parse(&input[..end]), None, "of {end} bytes");
        }
    }

    #[test]
    fn commands_are_binary_safe() {
        let bytes = encode_command(&[b"SET".as_slice(), b"\xff\r\n", b""]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\n\xff\r\n\r\n$0\r\n\r\n");
    }
}
