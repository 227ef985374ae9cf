//! Texts with placeholders, such as `<token first>`.

use std::collections::HashMap;

/// The values that texts may refer to.
#[derive(Default)]
pub(crate) struct Kept {
    /// The tokens of all leases so far, by the lease's name in the scenario.
    pub(crate) tokens: HashMap<String, u64>,
    texts: HashMap<String, String>,
}

impl Kept {
    pub(crate) fn token(&self, lease: &str) -> Result<u64, String> {
        let token = self.tokens.get(lease);
        token
            .copied()
            .ok_or_else(|| format!("there was no lease {lease:?}"))
    }

    /// Returns the text with every placeholder replaced.
    pub(crate) fn fill(&self, pattern: &str) -> Result<String, String> {
        let mut text = String::new();
        for piece in pieces(pattern)? {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Item(item) => text.push_str(&self.value(item)?),
            }
        }
        Ok(text)
    }

    /// Checks that the text matches the pattern, and keeps the parts that the pattern names.
    pub(crate) fn matches(&mut self, pattern: &str, text: &str) -> Result<(), String> {
        let mismatch = || format!("{text:?} is not {pattern:?}");
        let mut rest = text;
        for piece in pieces(pattern)? {
            let (length, name) = self.measure(&piece, rest)?;
            let (found, after) = rest.split_at(length.ok_or_else(mismatch)?);
            if let Some(name) = name {
                self.texts.insert(name.to_owned(), found.to_owned());
            }
            rest = after;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(mismatch())
        }
    }

    /// Returns how much of the text the piece matches, and the name under which to keep that; `None` if it
    /// does not match.
    fn measure<'a>(&self, piece: &Piece<'a>, text: &str) -> Result<Measured<'a>, String> {
        let literal = |literal: &str| text.starts_with(literal).then_some(literal.len());
        let item = match piece {
            Piece::Literal(text) => return Ok((literal(text), None)),
            Piece::Item("digits") => return Ok((run(text, |digit| digit.is_ascii_digit()), None)),
            Piece::Item("text") => return Ok((Some(text.len()), None)),
            Piece::Item(item) => *item,
        };
        let (kind, length) = item.split_once(' ').unwrap_or((item, ""));
        let is_digit = match kind {
            "hex" => |digit| matches!(digit, '0'..='9' | 'a'..='f'),
            "digits" => |digit: char| digit.is_ascii_digit(),
            _ => return Ok((literal(&self.value(item)?), None)),
        };
        let (length, name) = match length.split_once(" as ") {
            Some((length, name)) => (length, Some(name)),
            None => (length, None),
        };
        let length: usize = length
            .parse()
            .map_err(|_| format!("<{item}> is no placeholder"))?;
        let text = text.get(..length).unwrap_or("");
        let digits = run(text, is_digit);
        Ok((digits.filter(|digits| *digits == length), name))
    }

    fn value(&self, item: &str) -> Result<String, String> {
        match item.strip_prefix("token ") {
            Some(lease) => Ok(self.token(lease)?.to_string()),
            None => self
                .texts
                .get(item)
                .cloned()
                .ok_or_else(|| format!("there is no <{item}>")),
        }
    }
}

type Measured<'a> = (Option<usize>, Option<&'a str>);

enum Piece<'a> {
    Literal(&'a str),
    Item(&'a str),
}

fn pieces(pattern: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), pattern);
    while let Some((literal, after)) = rest.split_once('<') {
        let (item, after) = after
            .split_once('>')
            .ok_or_else(|| format!("{pattern:?} has no >"))?;
        pieces.extend([Piece::Literal(literal), Piece::Item(item)]);
        rest = after;
    }
    pieces.push(Piece::Literal(rest));
    Ok(pieces)
}

/// Returns how many such characters the text begins with; `None` if it begins with another.
fn run(text: &str, is: impl Fn(char) -> bool) -> Option<usize> {
    let length = text.find(|character| !is(character)).unwrap_or(text.len());
    (length > 0).then_some(length)
}
