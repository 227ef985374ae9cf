//! The Lua script as it is sent to the server, assembled at compile time from the files in `lua/` and `ops/`.

use super::limits;
use super::ops::{Form, OPERATIONS};

/// The Lua script that executes a batch, for `EVAL` and `EVALSHA` on Redis 7.0 or newer. Comments, which make
/// up a third of the source, are stripped.
pub const SCRIPT: &str = match str::from_utf8(TEXT) {
    Ok(text) => text,
    Err(_) => panic!("the script is not UTF-8"),
};

/// The SHA-1 of [`SCRIPT`] in hexadecimal, for `EVALSHA`.
pub const SCRIPT_SHA: &str = "0f77069dcc9970c93a2ac4b411fc299d85e05f63";

/// The [`SCRIPT`] for a batch that spans several cluster slots of one node. Its `KEYS` holds only the first
/// key of the [`ScriptCall`](super::ScriptCall). Its `ARGV` holds the number of keys, the other keys, and the
/// arguments.
pub const NODE_SCRIPT: &str = match str::from_utf8(NODE_TEXT) {
    Ok(text) => text,
    Err(_) => panic!("the script is not UTF-8"),
};

/// The SHA-1 of [`NODE_SCRIPT`] in hexadecimal.
pub const NODE_SCRIPT_SHA: &str = "5480b8bcd133adee4eedcce816620a5058a83333";

/// Returns true if an error of `EVALSHA` says that the server has not cached the script, so the host must
/// send [`SCRIPT`] itself.
///
/// ```
/// assert!(leasehold_engine::protocol::script_is_missing("NOSCRIPT No matching script. Please use EVAL."));
/// ```
pub fn script_is_missing(text: &str) -> bool {
    text.starts_with("NOSCRIPT")
}

const TEXT: &[u8; LENGTH] = &script(PIECES).text;
const LENGTH: usize = script::<0>(PIECES).length;

const NODE_TEXT: &[u8; NODE_LENGTH] = &script(NODE_PIECES).text;
const NODE_LENGTH: usize = script::<0>(NODE_PIECES).length;

/// The sources of [`SCRIPT`], in order.
const PIECES: &[&str] = &[
    include_str!("lua/prelude.lua"),
    include_str!("lua/batch.lua"),
];

/// The sources of [`NODE_SCRIPT`]: a prologue that moves keys from `ARGV` to `KEYS`, then [`PIECES`].
const NODE_PIECES: &[&str] = &[include_str!("lua/node.lua"), PIECES[0], PIECES[1]];

/// The lines that replace each `--> name` comment in the sources.
const ARROWS: &[(&str, Made)] = &[
    ("the time", Made::Of(&[include_str!("lua/time.lua")])),
    ("the expiry", Made::Of(&[include_str!("lua/expiry.lua")])),
    (
        "the proposal",
        Made::Of(&[include_str!("lua/proposal.lua")]),
    ),
    ("waiting", Made::Of(&[include_str!("lua/waiting.lua")])),
    ("serving", Made::Of(&[include_str!("lua/serving.lua")])),
    ("the common operations", Made::Common),
    (
        "the rest",
        Made::Of(&[
            include_str!("lua/rest/call.lua"),
            include_str!("lua/rest/lock.lua"),
            include_str!("lua/rest/push.lua"),
            include_str!("lua/rest/line.lua"),
            include_str!("lua/rest/share.lua"),
            "--> the other operations",
            include_str!("lua/rest/perform.lua"),
        ]),
    ),
    ("the other operations", Made::Others),
    ("operation, keys of each letter", Made::Dispatch),
];

enum Made {
    Of(&'static [&'static str]),
    /// The common case of each operation, each behind a test for its letter.
    Common,
    /// The Lua functions of all operations.
    Others,
    /// An `if` chain that maps a letter to its operation and that operation's number of keys.
    Dispatch,
}

const fn script<const N: usize>(pieces: &[&str]) -> Script<N> {
    let mut script = Script {
        text: [0; N],
        length: 0,
    };
    script.pieces(pieces);
    script
}

/// The text of the script, up to `N` bytes, and its full length. A first pass with `N = 0` only measures.
struct Script<const N: usize> {
    text: [u8; N],
    length: usize,
}

impl<const N: usize> Script<N> {
    /// Appends Lua source without indentation, empty lines and comments, and expands `-->` lines.
    const fn lua(&mut self, source: &str) {
        let mut source = source.as_bytes();
        while !source.is_empty() {
            let (line, rest) = source.split_at(line_length(source));
            source = rest;
            match line.trim_ascii() {
                [b'-', b'-', b'>', b' ', name @ ..] => self.arrow(name),
                [] | [b'-', b'-', ..] => {}
                line => self.line(line),
            }
        }
    }

    /// Appends a line, with each limit's number in place of its name.
    const fn line(&mut self, mut line: &[u8]) {
        while !line.is_empty() {
            let length = word_length(line);
            let (word, rest) = line.split_at(if length == 0 { 1 } else { length });
            line = rest;
            if is_name_of_limit(word) {
                self.number(limit(word));
            } else {
                self.bytes(word);
            }
        }
        self.bytes(b"\n");
    }

    const fn pieces(&mut self, pieces: &[&str]) {
        let mut at = 0;
        while at < pieces.len() {
            self.lua(pieces[at]);
            at += 1;
        }
    }

    const fn arrow(&mut self, name: &[u8]) {
        let mut at = 0;
        while !is_same(ARROWS[at].0.as_bytes(), name) {
            at += 1;
            assert!(at < ARROWS.len(), "the Lua source has an unknown arrow");
        }
        match ARROWS[at].1 {
            Made::Of(pieces) => self.pieces(pieces),
            Made::Common => self.common(),
            Made::Others => self.others(),
            Made::Dispatch => self.dispatch(),
        }
    }

    const fn others(&mut self) {
        let mut at = 0;
        while at < OPERATIONS.len() {
            self.lua(OPERATIONS[at].1.rest);
            at += 1;
        }
    }

    const fn common(&mut self) {
        let (mut at, mut word) = (0, "if");
        while at < OPERATIONS.len() {
            let (form, lua) = &OPERATIONS[at];
            at += 1;
            if let Some(common) = lua.common {
                self.asks_for(word, form, false);
                self.texts(&["keys = "]);
                self.number(form.keys.len() as u64);
                self.texts(&["\n"]);
                self.lua(common);
                word = "elseif";
            }
        }
    }

    const fn dispatch(&mut self) {
        let (mut at, mut word) = (0, "if");
        while at < OPERATIONS.len() {
            let form = &OPERATIONS[at].0;
            at += 1;
            self.asks_for(word, form, true);
            self.texts(&["operation, keys = ", form.name, ", "]);
            self.number(form.keys.len() as u64);
            self.texts(&["\n"]);
            word = "elseif";
        }
        self.texts(&["end\n"]);
    }

    /// Appends `if letter == …` for an operation's letters: lower case means the common case, and `capital`
    /// adds the upper-case ones.
    const fn asks_for(&mut self, word: &str, form: &Form, capital: bool) {
        let (mut at, mut word) = (0, word);
        while at < form.letters.len() {
            if capital {
                self.texts(&[word, " letter == '"]);
                self.bytes(&[form.letters[at]]);
                self.texts(&["'"]);
                word = " or";
            }
            self.texts(&[word, " letter == '"]);
            self.bytes(&[form.letters[at].to_ascii_lowercase()]);
            self.texts(&["'"]);
            word = " or";
            at += 1;
        }
        self.texts(&[" then\n"]);
    }

    const fn texts(&mut self, texts: &[&str]) {
        let mut at = 0;
        while at < texts.len() {
            self.bytes(texts[at].as_bytes());
            at += 1;
        }
    }

    const fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.bytes(&[b'0' + (number % 10).to_le_bytes()[0]]);
    }

    const fn bytes(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            if self.length < N {
                self.text[self.length] = bytes[at];
            }
            self.length += 1;
            at += 1;
        }
    }
}

/// Returns the length of the text's first line, including its line break.
const fn line_length(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != b'\n' {
        at += 1;
    }
    if at < text.len() { at + 1 } else { at }
}

/// Returns the length of the word at the start of the text, or 0 if it does not start with a word.
const fn word_length(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && (text[at].is_ascii_alphanumeric() || text[at] == b'_') {
        at += 1;
    }
    at
}

/// Returns true if a word names a limit: it has only capitals and underscores, and at least one of each.
const fn is_name_of_limit(word: &[u8]) -> bool {
    let (mut at, mut underscores) = (0, 0);
    while at < word.len() {
        if word[at] == b'_' {
            underscores += 1;
        } else if !word[at].is_ascii_uppercase() {
            return false;
        }
        at += 1;
    }
    underscores > 0 && underscores < word.len()
}

const fn limit(name: &[u8]) -> u64 {
    let mut at = 0;
    while at < limits::ALL.len() {
        let (own, number) = limits::ALL[at];
        if is_same(own.as_bytes(), name) {
            return number;
        }
        at += 1;
    }
    panic!("the Lua source names an unknown limit")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::sha1::{Digest, Sha1};

    use super::*;

    /// Compares against an expansion of the same sources that is written in a different way.
    #[test]
    fn the_script_is_its_source_without_comments_and_with_the_limits_in_place_of_their_names() {
        let expected: String = PIECES.iter().map(|piece| plain(piece)).collect();
        assert_eq!(SCRIPT, expected);
        let hidden = limits::ALL.iter().filter(|(name, _)| SCRIPT.contains(name));
        assert_eq!(hidden.count(), 0);
    }

    fn plain(source: &str) -> String {
        let lines = source.lines().map(str::trim);
        let kept = lines.filter(|line| !line.is_empty());
        kept.map(|line| match line.strip_prefix("-->") {
            Some(what) => generated(what.trim()),
            None if line.starts_with("--") => String::new(),
            None => limits::ALL
                .iter()
                .fold(line.to_owned() + "\n", |line, (name, number)| {
                    line.replace(name, &number.to_string())
                }),
        })
        .collect()
    }

    fn generated(name: &str) -> String {
        let (_, made) = ARROWS
            .iter()
            .find(|(arrow, _)| *arrow == name)
            .expect("every arrow in the source has an entry");
        let is_it = |letters: Vec<u8>| {
            let is = |letter: u8| format!("letter == '{}'", char::from(letter));
            let are: Vec<_> = letters.into_iter().map(is).collect();
            are.join(" or ")
        };
        let common = OPERATIONS.iter().filter_map(|(form, lua)| {
            let (is_it, keys) = (is_it(form.letters.to_ascii_lowercase()), form.keys.len());
            let case = |lua| format!("if {is_it} then\nkeys = {keys}\n{}", plain(lua));
            lua.common.map(case)
        });
        let dispatch = OPERATIONS.iter().map(|(form, _)| {
            let both = |letter: &u8| [*letter, letter.to_ascii_lowercase()];
            let is_it = is_it(form.letters.iter().flat_map(both).collect());
            let (name, keys) = (form.name, form.keys.len());
            format!("if {is_it} then\noperation, keys = {name}, {keys}\n")
        });
        match made {
            Made::Of(pieces) => pieces.iter().map(|piece| plain(piece)).collect(),
            Made::Others => OPERATIONS.iter().map(|(_, lua)| plain(lua.rest)).collect(),
            Made::Common => common.collect::<Vec<_>>().join("else"),
            Made::Dispatch => dispatch.collect::<Vec<_>>().join("else") + "end\n",
        }
    }

    /// Catches a list of keys that differs from the header of the Lua file, which readers rely on.
    #[test]
    fn lua_headers_list_the_keys_of_their_operations() {
        let names = BTreeMap::from([("", "lock"), (":line", "line"), (":holders", "holders")]);
        for (form, lua) in OPERATIONS {
            let keys: Vec<_> = form.keys.iter().map(|suffix| names[suffix]).collect();
            let keys = match &keys[..] {
                [] => "none".to_owned(),
                keys => keys.join(", "),
            };
            let said = format!("\n-- keys   {keys}\n");
            let head = lua.common.unwrap_or(lua.rest);
            assert!(head.contains(&said), "{} has {keys}", form.name);
        }
    }

    /// Catches a script that changed without its hash: hosts would send the whole script with every call.
    #[test]
    fn the_hash_matches_the_script() {
        let hash = format!("{:x}", Sha1::digest(SCRIPT));
        assert_eq!(SCRIPT_SHA, hash, "SCRIPT_SHA has to be {hash:?}");
        let hash = format!("{:x}", Sha1::digest(NODE_SCRIPT));
        assert_eq!(NODE_SCRIPT_SHA, hash, "NODE_SCRIPT_SHA has to be {hash:?}");
        assert!(NODE_SCRIPT.ends_with(SCRIPT) && !NODE_SCRIPT.starts_with("#!"));
    }
}
