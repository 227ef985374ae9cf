//! The command line.
#![expect(
    clippy::doc_markdown,
    reason = "these are the texts of --help, which are no markdown"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold::FencingToken;

use crate::connect::StoreArgs;
use crate::exit;
use crate::times;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Distributed locks on Redis, for shells, cron jobs and people who look.
#[derive(Parser, Debug)]
#[command(name = "leasehold", version, styles = STYLES, after_help = exit::TABLE)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Task {
    /// Run a command while a lock is held
    ///
    /// Waits for the lock, runs COMMAND, and releases the lock when COMMAND has ended. Its exit code is that
    /// of COMMAND. Signals are handed on, and the terminal is COMMAND's.
    ///
    /// If the lease is lost, or its end comes near because the store cannot be reached, the whole process
    /// group of COMMAND gets SIGTERM, and SIGKILL after the grace. So it is gone before the lock expires and
    /// somebody else gets it. If the lock is taken away before that, because its key is deleted or it is
    /// force-released, somebody else may have it during the grace: let what COMMAND writes to check
    /// LEASEHOLD_TOKEN.
    ///
    /// COMMAND has in its environment LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_DEADLINE (when the lease
    /// ends if it is not renewed, as known at the start, in milliseconds since 1970) and
    /// LEASEHOLD_EVENTS_FD: a file descriptor from which it may read what happens to the lease, one JSON
    /// object a line.
    ///
    /// What COMMAND leaves running in its process group is ended, too, before the lock is released. If
    /// `leasehold` itself is killed, even by SIGKILL, or stands still past the deadline, a second process
    /// kills the group; then the lock ends by its time to live.
    #[command(after_help = with_codes("\
Examples:
  leasehold run backup -- ./backup.sh              one at a time: a second one waits for the first
  leasehold run backup --no-wait -- ./backup.sh    a second one ends at once, with code 75
  leasehold run deploy --wait 5m -- make deploy    or after 5 minutes"))]
    Run(RunArgs),
    /// Lead: run a command for as long as a lock is held, again and again
    ///
    /// Of all who hold one name one leads, that is, runs COMMAND; the others wait in line. At a loss COMMAND
    /// is ended as by `leasehold run`, and this process waits in line again, also while the store cannot be
    /// reached. If COMMAND ends by itself, another one gets its turn.
    ///
    /// It ends when it is asked to, by SIGTERM, SIGINT, SIGHUP or SIGQUIT, with the code of COMMAND; and
    /// with 126 or 127 if COMMAND cannot be run. What COMMAND has in its environment, and the rest, is as of
    /// `leasehold run`.
    #[command(after_help = with_codes("\
Examples:
  leasehold hold scheduler -- ./scheduler          on each machine: it runs on one of them"))]
    Hold(HoldArgs),
    /// List the locks that are held
    ///
    /// The store is asked in small steps, so that it does other work meanwhile.
    List(ListArgs),
    /// Show who has a lock, and who waits for it
    Inspect(InspectArgs),
    /// Free a lock, whoever has it
    ///
    /// The first in line gets it. Its holder hears of it at once if it is connected, else at its next
    /// renewal, and until then may go on: its writes are refused wherever its token is checked. Asks first,
    /// on a terminal, and ends with 1 if the answer is not yes.
    Release(ReleaseArgs),
    /// Show what happens to locks, as it happens
    ///
    /// Says `held` when somebody new has a lock, `free` when nobody has it any more, and `line` when those
    /// who wait have changed. It looks again and again, so what begins and ends between two looks is only
    /// seen by its token. It goes on while the store cannot be reached, and ends by Ctrl-C.
    Watch(WatchArgs),
    #[cfg(feature = "serve")]
    /// Show the locks on a live page, for a browser
    ///
    /// Who has which lock, for how long still, and who waits; what happens, as it happens; and how often. It
    /// only looks, unless --allow-release is given. It starts and goes on even if the store cannot be reached, and
    /// ends by Ctrl-C.
    ///
    /// The page is there for this machine alone, unless --listen names another address; then a token is
    /// needed, too. It is made and printed, or taken from --token-file or LEASEHOLD_SERVE_TOKEN. A browser
    /// opens /?token=TOKEN once; other programs send Authorization: Bearer TOKEN. Everybody on this machine can
    /// open the page: give a token here as well, if not all of them may see it, or release locks.
    ///
    /// /api/locks has the table as JSON, and /metrics numbers for Prometheus.
    ///
    /// The store has to do --looks inspections a second at the most, and 4 SCANs of 1,000 keys, however many
    /// locks there are and however many look at the page. With many locks those that are on somebody's screen
    /// are looked at first, the others less often. If this user may use CLIENT TRACKING (+client|tracking), the
    /// server says what changes, as long as that is little, and there is less to do.
    ///
    /// For a quorum the page shows what a majority says of each lock; `leasehold doctor` says which servers vote.
    #[command(after_help = "\
Examples:
  leasehold serve --demo                      something to see, with nothing installed
  leasehold serve --url redis://10.0.0.1      the locks there, at http://127.0.0.1:8420/
  leasehold serve --listen 0.0.0.0:8420       for others, who need the token that it prints")]
    Serve(ServeArgs),
    /// Guard a file: refuse a token that is stale
    ///
    /// Beside FILE stands FILE.fence with the greatest token that was seen. A smaller one is refused with
    /// code 65; an equal one passes, because a holder writes many times. Compared and remembered under a lock
    /// of the file system (flock), which has to be a local one.
    #[command(
        subcommand,
        after_help = "\
Examples:
  leasehold run report -- sh -c \\
    './report > new.$LEASEHOLD_TOKEN && leasehold fence write report.csv < new.$LEASEHOLD_TOKEN'

Not behind a pipe: a report that fails halfway would replace FILE by its first half."
    )]
    Fence(FenceTask),
    /// Look at a store: what is wrong with it, what follows, and what to do
    ///
    /// Tries what locks need: reachable, how fast, which version; each right of this user, in ways that change
    /// nothing (what is refused is in the server's ACL log afterwards); eviction, memory, persistence,
    /// replicas, scripts; its clock; messages; a lock of its own. And counts the locks.
    ///
    /// For a quorum it looks at each server, and says which one each finding is about. Then it takes a lock at a
    /// majority, and says which servers vote.
    ///
    /// Ends with 0 if there is nothing worse than a note, with 1 after a warning, and with 2 if locks cannot
    /// be kept or may be lost; with another code if it cannot connect.
    Doctor(DoctorArgs),
    /// Print completions for a shell
    ///
    /// For example: leasehold completions bash > /etc/bash_completion.d/leasehold
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man {
        /// Where to
        folder: PathBuf,
    },
}

fn with_codes(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::TABLE)
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// What is locked: 1 to 512 bytes
    pub(crate) name: String,

    /// How long to wait for the lock, such as 500ms, 1.5s or 1m30s; for ever without this
    ///
    /// The time counts from the start, also while the store does not reply. A time of 0 is --no-wait.
    #[arg(long, short, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: end with code 75 if somebody else has the lock
    #[arg(long, short)]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// What to do at a loss
    #[arg(long, value_enum, default_value_t = OnLoss::Stop)]
    pub(crate) on_loss: OnLoss,

    /// Write what happens on the standard error, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

impl RunArgs {
    /// Returns how long to wait for the lock, if that has a limit; `--no-wait` is a limit of zero.
    pub(crate) fn limit(&self) -> Option<Duration> {
        if self.no_wait {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// What is locked: 1 to 512 bytes
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// How long to stay out of the line when COMMAND has ended by itself
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "1s")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) pause: Duration,

    /// Write what happens on the standard error, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Which names: * stands for any characters, \* for a star, \\ for a backslash
    #[arg(default_value = "*")]
    pub(crate) pattern: String,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Which lock
    pub(crate) name: String,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// Says that somebody else's lock is meant; needed, because there is no other kind
    #[arg(long, required = true)]
    pub(crate) force: bool,

    /// Which lock
    pub(crate) name: String,

    /// Only if it is still held with this token, as `leasehold inspect` shows it
    #[arg(long)]
    pub(crate) token: Option<FencingToken>,

    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print one JSON object: who had it
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Names, or patterns as for `leasehold list`; without any, all locks
    #[arg(value_name = "NAME|PATTERN")]
    pub(crate) names: Vec<String>,

    /// How often to look
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "500ms")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[cfg(feature = "serve")]
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch")]
pub(crate) struct ServeArgs {
    /// Where the page is: an address of this machine and a port; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8420")]
    pub(crate) listen: std::net::SocketAddr,

    /// A file whose first line is the token that one needs; or set LEASEHOLD_SERVE_TOKEN
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A name by which browsers find the page, such as that of a proxy; addresses and localhost are known
    ///
    /// May be given several times. Requests by any other name are refused, because another site could make it
    /// lead here.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,

    /// Let the page release locks by force: it asks first; needs a token (--token-file)
    #[arg(long)]
    pub(crate) allow_release: bool,

    /// Show a few invented contenders, in memory; no store is needed
    #[arg(long)]
    pub(crate) demo: bool,

    /// How many locks to look at in a second, at the most
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    pub(crate) looks: u32,

    /// Do not have the server say what changes (CLIENT TRACKING): only look
    #[arg(long)]
    pub(crate) poll_only: bool,

    /// Print where the page is as a JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum FenceTask {
    /// Refuse the token if a greater one was seen; else remember it
    ///
    /// Show the token so before you read what you are going to change.
    Check(FenceArgs),
    /// Replace FILE by the standard input, unless the token is stale
    ///
    /// All of the input is read first. FILE is replaced by a rename, so that nobody sees a part of it, and
    /// keeps its rights.
    Write(FenceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct FenceArgs {
    /// The file that is guarded
    pub(crate) file: PathBuf,

    /// The lease's token; `leasehold run` puts it into the environment
    #[arg(long, env = "LEASEHOLD_TOKEN")]
    pub(crate) token: FencingToken,

    /// Say what is wrong as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// What the lease is like.
#[derive(Args, Debug)]
pub(crate) struct LeaseArgs {
    /// How long the lease lives unless it is renewed: 1s or more
    ///
    /// It is renewed at each third of that time. If this machine dies, others wait for so long.
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "30s")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// An identity that outlives this process: it takes over a lock that has the same owner
    ///
    /// Never give one to two that run at the same time.
    #[arg(long)]
    pub(crate) owner: Option<String>,

    /// How long COMMAND has from SIGTERM to SIGKILL at a loss: up to a third of --ttl
    ///
    /// By default a sixth of --ttl, but no more than 10s. If the store cannot be reached, SIGTERM comes so
    /// long before the lease ends.
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLoss {
    /// End the command
    Stop,
    /// Warn, and let the command go on without the lock
    Warn,
}
