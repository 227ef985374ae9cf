//! Text tables that Rust and TypeScript share.
//!
//! Each line is a row, with fields separated by `|`. Empty lines and comments, which begin with `#`, are
//! skipped. The compiler reads the tables, so a mistake in one does not compile, and nothing is parsed at run
//! time.

/// Returns the number of rows in a table.
pub const fn count(table: &str) -> usize {
    let (mut rest, mut count) = (table, 0);
    while !rest.is_empty() {
        let (line, next) = cut(rest, b'\n');
        count += is_row(line) as usize;
        rest = next;
    }
    count
}

/// Returns the rows. Fields that a row omits at its end are empty.
pub const fn rows<const ROWS: usize, const FIELDS: usize>(
    table: &'static str,
) -> [[&'static str; FIELDS]; ROWS] {
    let mut rows = [[""; FIELDS]; ROWS];
    let (mut rest, mut row) = (table, 0);
    while !rest.is_empty() {
        let (line, next) = cut(rest, b'\n');
        rest = next;
        if is_row(line) {
            let (mut fields, mut field) = (line, 0);
            while !fields.is_empty() {
                (rows[row][field], fields) = cut(fields, b'|');
                field += 1;
            }
            row += 1;
        }
    }
    rows
}

/// Returns true if two texts are equal. A `const` replacement for `==`.
pub const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn is_row(line: &str) -> bool {
    !line.is_empty() && line.as_bytes()[0] != b'#'
}

/// Splits a text at the first such byte. Trims the part before it.
pub const fn cut(text: &str, byte: u8) -> (&str, &str) {
    let mut at = 0;
    while at < text.len() && text.as_bytes()[at] != byte {
        at += 1;
    }
    let (before, after) = text.split_at(at);
    let after = if after.is_empty() {
        ""
    } else {
        after.split_at(1).1
    };
    (before.trim_ascii(), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# a | comment\n\n one | two words |three\n\tfour\n";

    #[test]
    fn rows_have_the_fields_that_are_asked_for() {
        const ROWS: [[&str; 3]; count(TABLE)] = rows(TABLE);
        assert_eq!(ROWS, [["one", "two words", "three"], ["four", "", ""]]);
    }

    #[test]
    fn texts_are_compared_to_their_end() {
        assert!(same("", "") && same("ab", "ab"));
        assert!(!same("ab", "a") && !same("a", "ab") && !same("a", "b"));
    }
}
