//! Lines for people, and for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use futures::StreamExt;
use leasehold::{FencingToken, LeaseEvent, LeaseEvents, Name};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Standard output; most lines begin with the time since the program's start. Each line is flushed at once,
/// as Rust does with standard output.
#[derive(Copy, Clone, Debug)]
pub struct Screen {
    start: Instant,
    colour: bool,
    json: bool,
}

impl Screen {
    /// Lines for people; in colour if they go to a terminal and `NO_COLOR` does not forbid it.
    pub fn new() -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            start: Instant::now(),
            colour: io::stdout().is_terminal() && !forbidden,
            json: false,
        }
    }

    /// Events as JSON, one object a line; all else goes to standard error.
    pub fn json() -> Self {
        Self {
            start: Instant::now(),
            colour: false,
            json: true,
        }
    }

    /// A heading.
    pub fn title(self, text: impl Display) -> io::Result<()> {
        let text = text.to_string();
        self.put(&format!("\n{}", self.painted(BOLD, &text)))
    }

    /// A line of explanation.
    pub fn say(self, text: impl Display) -> io::Result<()> {
        self.put(&text.to_string())
    }

    /// Something that the program did, in the columns of the events.
    pub fn step(
        self,
        who: &str,
        did: &str,
        token: Option<FencingToken>,
        details: impl Display,
    ) -> io::Result<()> {
        let line = self.row(who, BOLD, did, token, details);
        self.put(&line)
    }

    /// An event.
    pub fn event(self, event: &LeaseEvent) -> io::Result<()> {
        if self.json {
            return writeln!(io::stdout().lock(), "{}", serde_json::to_string(event)?);
        }
        let (what, colour, details) = describe(event);
        let name = event.name().map_or("", Name::as_str);
        let line = self.row(name, colour, what, event.token(), details);
        self.put(&line)
    }

    /// Shows every event as it happens until the stream ends, and returns them.
    pub async fn show(self, mut events: LeaseEvents) -> io::Result<Vec<LeaseEvent>> {
        let mut shown = Vec::new();
        while let Some(event) = events.next().await {
            self.event(&event)?;
            shown.push(event);
        }
        Ok(shown)
    }

    /// Lets the task that shows events run, so that lines come in the order in which things happened.
    pub async fn let_events_show(self) {
        tokio::task::yield_now().await;
    }

    fn row(
        self,
        subject: &str,
        colour: &str,
        what: &str,
        token: Option<FencingToken>,
        details: impl Display,
    ) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let time = self.painted(DIM, &format!("{seconds:8.3} s"));
        let what = self.painted(colour, &format!("{what:<8}"));
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        let line = format!("{time}  {subject:<9}  {what}  {token:>16}  {details}");
        line.trim_end().to_owned()
    }

    fn painted(self, colour: &str, text: &str) -> String {
        if self.colour && !colour.is_empty() {
            format!("{colour}{text}{PLAIN}")
        } else {
            text.to_owned()
        }
    }

    fn put(self, line: &str) -> io::Result<()> {
        if self.json {
            return writeln!(io::stderr().lock(), "{}", line.trim_start());
        }
        writeln!(io::stdout().lock(), "{line}")
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

/// The event's type, its colour, and what else it says.
fn describe(event: &LeaseEvent) -> (&'static str, &'static str, String) {
    match event {
        LeaseEvent::Waiting { position, .. } => {
            let place = position.map(|place| format!(", number {place} in line"));
            let place = place.unwrap_or_default();
            ("waiting", DIM, format!("somebody else holds it{place}"))
        }
        LeaseEvent::Acquired { remaining, .. } => ("acquired", GREEN, left(*remaining)),
        LeaseEvent::Renewed { remaining, .. } => ("renewed", GREEN, left(*remaining)),
        LeaseEvent::AtRisk {
            remaining, error, ..
        } => ("at risk", YELLOW, format!("{}; {error}", left(*remaining))),
        LeaseEvent::Lost { reason, .. } => ("lost", RED, reason.to_string()),
        LeaseEvent::Released { .. } => ("released", DIM, String::new()),
        LeaseEvent::Lagged { missed } => ("lagged", RED, format!("{missed} events were missed")),
        other => ("notice", YELLOW, other.to_string()),
    }
}

fn left(remaining: Duration) -> String {
    format!("{} left", time(remaining))
}

/// A duration for people: milliseconds up to a second, and from there on seconds.
pub fn time(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.2} s", duration.as_secs_f64())
    }
}
