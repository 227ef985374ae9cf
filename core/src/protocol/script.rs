//! The Lua script, in the form in which it is sent: put together from `lua/` and `ops/` when this
//! crate is compiled.

use super::limits;
use super::ops::{Lua, OPERATIONS};

/// The Lua script that executes a batch, for `EVAL` and `EVALSHA` on Redis 7.0 or newer; without the
/// comments of its source, which are a third of it.
pub const SCRIPT: &str = match str::from_utf8(&TEXT) {
    Ok(text) => text,
    Err(_) => panic!("the script is not UTF-8"),
};

/// The SHA-1 of [`SCRIPT`] in hexadecimal, for `EVALSHA`.
pub const SCRIPT_SHA: &str = "9fcdff14c16daa595c47df632628fd66b38ca2b0";

/// Whether an error of `EVALSHA` says that the server has not got the script, so that [`SCRIPT`] itself
/// is to be sent.
///
/// ```
/// assert!(leasehold::protocol::script_is_missing("NOSCRIPT No matching script. Please use EVAL."));
/// ```
pub fn script_is_missing(text: &str) -> bool {
    text.starts_with("NOSCRIPT")
}

const TEXT: [u8; LENGTH] = script().text;
const LENGTH: usize = script::<0>().length;

/// What the script consists of, in order.
const PIECES: &[Piece] = &[
    Piece::Lua(include_str!("lua/prelude.lua")),
    Piece::Lua(include_str!("lua/take.lua")),
    Piece::Lua("local function make_rest()"),
    Piece::Lua(include_str!("lua/rest/call.lua")),
    Piece::Lua(include_str!("lua/rest/token.lua")),
    Piece::Lua(include_str!("lua/rest/holder.lua")),
    Piece::Lua(include_str!("lua/rest/push.lua")),
    Piece::Lua(include_str!("lua/rest/line.lua")),
    Piece::Operations(Part::Rest),
    Piece::Lua(include_str!("lua/rest/find.lua")),
    Piece::Lua("end"),
    Piece::Operations(Part::Common),
    Piece::Lua(include_str!("lua/batch.lua")),
];

enum Piece {
    Lua(&'static str),
    /// That of every operation that has it.
    Operations(Part),
}

/// Which Lua of an operation: see [`Lua`].
#[derive(Copy, Clone)]
enum Part {
    Common,
    Rest,
}

impl Part {
    const fn of(self, lua: &Lua) -> Option<&'static str> {
        match self {
            Self::Common => lua.common,
            Self::Rest => lua.rest,
        }
    }
}

const fn script<const N: usize>() -> Script<N> {
    let mut script = Script {
        text: [0; N],
        length: 0,
    };
    let mut at = 0;
    while at < PIECES.len() {
        match PIECES[at] {
            Piece::Lua(source) => script.lua(source),
            Piece::Operations(part) => script.operations(part),
        }
        at += 1;
    }
    script
}

/// The script as far as it fits, and how long it is.
struct Script<const N: usize> {
    text: [u8; N],
    length: usize,
}

impl<const N: usize> Script<N> {
    /// Lua without indentation, empty lines and lines that are comments.
    const fn lua(&mut self, source: &str) {
        let mut source = source.as_bytes();
        while !source.is_empty() {
            let (line, rest) = source.split_at(line_length(source));
            source = rest;
            match line.trim_ascii() {
                [b'-', b'-', b'>', b' ', what @ ..] => self.generated(what),
                [] | [b'-', b'-', ..] => {}
                line => self.line(line),
            }
        }
    }

    /// A line with the limits in place of their names.
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

    /// What stands for an arrow in a comment.
    const fn generated(&mut self, what: &[u8]) {
        match what {
            b"operation, keys, args of the common operations" => self.dispatch(Part::Common),
            b"operation, keys, args of the other operations" => self.dispatch(Part::Rest),
            b"what the common operations leave to here" => self.exports(),
            _ => panic!("no lines are made for this arrow"),
        }
    }

    const fn operations(&mut self, part: Part) {
        let mut at = 0;
        while at < OPERATIONS.len() {
            if let Some(lua) = part.of(&OPERATIONS[at].1) {
                self.lua(lua);
            }
            at += 1;
        }
    }

    /// Finds an operation by its name, with how many keys and arguments it has.
    const fn dispatch(&mut self, part: Part) {
        let (mut at, mut word) = (0, "if");
        while at < OPERATIONS.len() {
            let (form, lua) = &OPERATIONS[at];
            at += 1;
            if matches!(part, Part::Common) != lua.common.is_some() {
                continue;
            }
            let name = form.name.as_bytes();
            self.bytes(word.as_bytes());
            self.bytes(b" name == '");
            self.bytes(name);
            self.bytes(b"' then\noperation, keys, args = ");
            self.bytes(name);
            self.bytes(b", ");
            self.number(form.keys.len() as u64);
            self.bytes(b", ");
            self.number(form.args as u64);
            self.bytes(b"\n");
            word = "elseif";
        }
        self.bytes(b"end\n");
    }

    /// The second parts of those operations that have two, as fields of a table.
    const fn exports(&mut self) {
        let mut at = 0;
        while at < OPERATIONS.len() {
            let (form, lua) = &OPERATIONS[at];
            if lua.common.is_some() && lua.rest.is_some() {
                self.bytes(form.name.as_bytes());
                self.bytes(b" = ");
                self.bytes(form.name.as_bytes());
                self.bytes(b",\n");
            }
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

/// The next line's, with its end.
const fn line_length(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != b'\n' {
        at += 1;
    }
    if at < text.len() { at + 1 } else { at }
}

/// That of the word that a text begins with; 0 if it begins with none.
const fn word_length(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && (text[at].is_ascii_alphanumeric() || text[at] == b'_') {
        at += 1;
    }
    at
}

/// It is of capitals, and has an underscore.
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
    panic!("the Lua names a limit that there is not")
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
    use super::*;
    use crate::protocol::ops::Form;

    /// Its source, which is made here in another way.
    #[test]
    fn the_script_is_its_source_without_comments_and_with_the_limits_in_place_of_their_names() {
        let mut expected = String::new();
        for piece in PIECES {
            match piece {
                Piece::Lua(source) => expected += &plain(source),
                Piece::Operations(part) => {
                    let own = OPERATIONS.iter().filter_map(|(_, lua)| part.of(lua));
                    expected.extend(own.map(plain));
                }
            }
        }
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

    fn generated(what: &str) -> String {
        let is_common = |(_, lua): &&(Form, Lua)| lua.common.is_some();
        let (common, others): (Vec<_>, Vec<_>) = OPERATIONS.iter().partition(is_common);
        if what == "what the common operations leave to here" {
            let both = common.iter().filter(|(_, lua)| lua.rest.is_some());
            let fields = both.flat_map(|(form, _)| [form.name, " = ", form.name, ",\n"]);
            return fields.collect();
        }
        let is_of_common = what.contains("the common");
        let asked = if is_of_common { common } else { others };
        let cases = asked.iter().map(|(Form { name, keys, args }, _)| {
            let keys = keys.len();
            format!("if name == '{name}' then\noperation, keys, args = {name}, {keys}, {args}\n")
        });
        cases.collect::<Vec<_>>().join("else") + "end\n"
    }

    /// Catches a list of keys that is not what the head of the Lua says, by which a reader goes.
    #[test]
    fn the_heads_say_which_keys_the_operations_have() {
        for (form, lua) in OPERATIONS {
            let lua = lua.common.or(lua.rest).expect("it has Lua");
            let suffixes: Vec<_> = form.keys.iter().map(|suffix| &suffix[1..]).collect();
            let keys = match &suffixes[..] {
                [] => "none".to_owned(),
                suffixes => suffixes.join(", "),
            };
            let said = format!("\n-- keys   {keys}\n");
            assert!(lua.contains(&said), "{} has {keys}", form.name);
        }
    }

    /// Catches a script that was changed without its hash: every call would send it whole.
    #[cfg(feature = "native")]
    #[test]
    fn the_hash_is_of_the_script() {
        let hash = fred::util::sha1_hash(SCRIPT);
        assert_eq!(SCRIPT_SHA, hash, "SCRIPT_SHA has to be {hash:?}");
    }
}
