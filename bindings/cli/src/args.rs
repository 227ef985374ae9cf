//! The command line.
#![expect(
    clippy::doc_markdown,
    reason = "these texts are printed by --help, as plain text"
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

/// Distributed locks on Redis for shells and cron jobs.
#[derive(Parser, Debug)]
#[command(name = "leasehold", version, styles = STYLES, after_help = exit::TABLE)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Task {
    /// Run a command while holding a lock
    ///
    /// Waits for the lock, runs COMMAND, and releases the lock when COMMAND ends. The exit code is that of
    /// COMMAND. COMMAND gets all signals and the terminal.
    ///
    /// If the lease is lost, or is about to end because the store cannot be reached, the whole process group
    /// of COMMAND gets SIGTERM, and SIGKILL after the grace period. So COMMAND ends before the lock expires and
    /// somebody else gets it. If somebody deletes the lock's key or releases the lock by force, the next holder
    /// may start during the grace period: the storage that COMMAND writes to should check LEASEHOLD_TOKEN.
    ///
    /// The environment of COMMAND has LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_DEADLINE (the end of the lease
    /// unless it is renewed, as known at the start, in milliseconds since 1970) and LEASEHOLD_EVENTS_FD (a file
    /// descriptor with the events of the lease, one JSON object per line). With --slots it has LEASEHOLD_SLOT,
    /// LEASEHOLD_SLOTS (all its slots) and LEASEHOLD_RESOURCE (NAME#SLOT), and with --read or --write
    /// LEASEHOLD_GENERATION (the last writer's token). With several names it has LEASEHOLD_TOKENS, their tokens in the
    /// order of the command line with spaces between them, and neither LEASEHOLD_NAME nor LEASEHOLD_TOKEN.
    ///
    /// When COMMAND ends, processes that it leaves in its process group are ended too, before the lock is
    /// released. If `leasehold` itself is killed, even by SIGKILL, or is stopped past the deadline, a second
    /// process kills the group. The lock then ends after its time to live.
    #[command(after_help = with_codes("\
Examples:
  leasehold run backup -- ./backup.sh              one at a time: a second run waits for the first
  leasehold run backup --no-wait -- ./backup.sh    a second run ends at once, with code 75
  leasehold run deploy --wait 5m -- make deploy    a second run ends after 5 minutes
  leasehold run refresh --every 15m -- ./report    once per 15 minutes, on one machine
  leasehold run import --once 20261127 -- ./import once for this number
  leasehold run render --slots 3 -- ./render       three at a time, each with a slot
  leasehold run prices --read -- ./report          together with other readers
  leasehold run from to -- ./transfer              both locks, without a deadlock"))]
    Run(RunArgs),
    /// Run a command as the leader, whenever this process holds the lock
    ///
    /// One of the processes on a name is the leader and runs COMMAND; with --slots, as many as there are slots.
    /// The others wait in line. If the lease is lost, COMMAND is ended as by `leasehold run`, and this process waits
    /// in line again, even while the store cannot be reached. If COMMAND ends by itself, the next process gets its
    /// turn.
    ///
    /// SIGTERM, SIGINT, SIGHUP or SIGQUIT end it, with the exit code of COMMAND. It also ends, with 126 or 127,
    /// if COMMAND cannot be run. The environment of COMMAND and everything else is as for `leasehold run`.
    #[command(after_help = with_codes("\
Examples:
  leasehold hold scheduler -- ./scheduler          start it on every machine: it runs on one of them
  leasehold hold consumer --slots 3 -- ./consumer  on every machine: it runs on three of them"))]
    Hold(HoldArgs),
    /// Run a command once per tick of a schedule, on one of many machines
    ///
    /// Start it on every machine. Whenever a tick is due, by the server's clock, one of them runs COMMAND. If COMMAND
    /// ends with 0, the tick is completed, and nobody runs it again. If it fails, or its machine dies, another machine
    /// runs the same tick.
    ///
    /// The environment of COMMAND is as for `leasehold run`, and has LEASEHOLD_TICK (when the tick was due, in
    /// milliseconds since 1970) and LEASEHOLD_MISSED (how many ticks before it nobody completed).
    ///
    /// SIGTERM, SIGINT, SIGHUP or SIGQUIT end it. A tick that runs then goes to another machine, unless COMMAND ends
    /// with 0. It also ends, with 126 or 127, if COMMAND cannot be run.
    #[command(after_help = with_codes("\
Examples:
  leasehold cron report '*/15 * * * *' -- ./report
  leasehold cron report '0 6 * * MON-FRI' --time-zone Europe/Berlin -- ./report
  leasehold cron poll '@every 10s' -- ./poll"))]
    // A job refuses them.
    #[command(mut_arg("owner", |arg| arg.hide(true)), mut_arg("at_least", |arg| arg.hide(true)))]
    Cron(CronArgs),
    /// List the locks that are held
    ///
    /// Scans the store in small steps, so that it can serve others meanwhile.
    List(ListArgs),
    /// Show the holder of a lock and its waiters
    Inspect(InspectArgs),
    /// Free a lock by force, whoever holds it
    ///
    /// The first waiter gets the lock. The holder is notified at once if it is connected, and otherwise finds
    /// out at its next renewal. Until then it may go on: its writes are refused wherever its token is checked.
    /// On a terminal this asks first, and ends with 1 unless the answer is yes.
    Release(ReleaseArgs),
    /// Ask the holder of a lock to release it, and wait until it has
    ///
    /// The holder is notified at once if it is connected, and otherwise at its next renewal: with a `wanted` event,
    /// which COMMAND of `leasehold run` and `hold` can read. Ends with 0 once that holder is gone, and at once if the
    /// lock is free. Ends with 75 if it still holds the lock when the time is over; with --force the lock is then freed
    /// by force.
    #[command(after_help = with_codes("\
Examples:
  leasehold yield scheduler --within 30s            the leader hands over at a good point
  leasehold yield scheduler --within 30s --force    at the latest after 30 seconds"))]
    Yield(YieldArgs),
    /// Change how many slots or units a semaphore or quota has
    ///
    /// No holder loses its permit. If more is held than the new capacity, nobody is admitted until enough is released.
    #[command(after_help = with_codes("\
Examples:
  leasehold resize render 5      five at a time from now on"))]
    Resize(ResizeArgs),
    /// Show changes of locks as they happen
    ///
    /// Prints `held` for a new holder, `free` when a lock becomes free, and `line` when its waiters change. It
    /// polls the store, so a tenure that begins and ends between two inspections shows only as a gap in the tokens.
    /// It goes on while the store cannot be reached. Ctrl-C ends it.
    Watch(WatchArgs),
    #[cfg(feature = "serve")]
    /// Show the locks on a live web page
    ///
    /// The page shows the holder of each lock, its remaining time, its waiters, and events as they happen. It
    /// changes nothing unless --allow-release is given. It starts and stays up even if the store cannot be
    /// reached. Ctrl-C ends it.
    ///
    /// By default only this machine can open the page. If --listen names another address, a token is required:
    /// `leasehold` makes and prints one, or takes it from --token-file or LEASEHOLD_SERVE_TOKEN. A browser opens
    /// /?token=TOKEN once; other programs send Authorization: Bearer TOKEN. Every user of this machine can open
    /// the page: give a token if not all of them may see it or release locks.
    ///
    /// /api/locks has the table as JSON, and /metrics has figures for Prometheus.
    ///
    /// The load on the store is bounded: --looks inspections and 4 SCANs of 1,000 keys per second, however many
    /// locks and viewers there are. Locks on somebody's screen are inspected first. If the user may use CLIENT
    /// TRACKING (+client|tracking), the server reports changes while they are few, which needs fewer inspections.
    ///
    /// For a quorum the page shows what a majority says about each lock. `leasehold doctor` shows which servers
    /// vote.
    #[command(after_help = "\
Examples:
  leasehold serve --demo                      invented locks, with nothing installed
  leasehold serve --url redis://10.0.0.1      the locks there, at http://127.0.0.1:8420/
  leasehold serve --listen 0.0.0.0:8420       for other machines, with the token that it prints")]
    Serve(ServeArgs),
    /// Guard a file: refuse a stale token
    ///
    /// FILE.fence, beside FILE, stores the greatest token seen. A smaller token is refused with code 65; an
    /// equal one passes, because a holder may write many times. The check holds a lock of the file system
    /// (flock), so the file system must be local.
    #[command(
        subcommand,
        after_help = "\
Examples:
  leasehold run report -- sh -c \\
    './report > new.$LEASEHOLD_TOKEN && leasehold fence write report.csv < new.$LEASEHOLD_TOKEN'

Do not write from a pipe: a report that fails halfway would replace FILE by its first half."
    )]
    Fence(FenceTask),
    /// Check a store: what is wrong, what follows from it, and what to do
    ///
    /// Checks that the server answers, its speed and version; each right of this user, without changing
    /// anything (the server's ACL log then shows the refusals); eviction, memory, persistence, replicas and
    /// scripts; its clock; messages; and a lock of its own. It also counts the locks.
    ///
    /// For a quorum it checks each server and names it in each finding. It then takes a lock at a majority and
    /// shows which servers vote.
    ///
    /// Ends with 0 if nothing is worse than a note, with 1 after a warning, with 2 if locks cannot be kept or
    /// may be lost, and with another code if it cannot connect.
    Doctor(DoctorArgs),
    /// Print completions for a shell
    ///
    /// For example: leasehold completions bash > /etc/bash_completion.d/leasehold
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages to a folder
    #[command(hide = true)]
    Man {
        /// The folder
        folder: PathBuf,
    },
}

fn with_codes(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::TABLE)
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The name of the lock, 1 to 512 bytes; or up to 64 names, all of which are held while COMMAND runs
    ///
    /// Several names are taken in the order of their bytes, whatever their order here, so that no two runs wait for
    /// each other. Those taken first are held while the next one is awaited.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// How long to wait for the lock, such as 500ms, 1.5s or 1m30s; without it, forever
    ///
    /// The time counts from the start of the program, even while the store does not reply. 0 means --no-wait.
    #[arg(long, short, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: end with code 75 if somebody else holds the lock
    #[arg(long, short)]
    pub(crate) no_wait: bool,

    /// Run once for this tick, a number from 1 to 2^53-1: end with code 76 if it was completed before
    ///
    /// The tick is completed if COMMAND ends with 0; otherwise the next run of the same tick tries again. Ticks below
    /// a completed one count as completed. NAME is then a job's: it cannot be a lock's.
    #[arg(long, value_name = "TICK", conflicts_with_all = ["every", "slots", "read", "write"])]
    pub(crate) once: Option<u64>,

    /// Run once per period, such as 15m: end with code 76 if this period's run is completed
    ///
    /// For machines whose own cron starts this. The server's clock decides which period it is.
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["slots", "read", "write"])]
    pub(crate) every: Option<Duration>,

    #[command(flatten)]
    pub(crate) part: PartArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// The action when the lease is lost
    #[arg(long, value_enum, default_value_t = OnLoss::Stop)]
    pub(crate) on_loss: OnLoss,

    /// Write events to standard error, one JSON object per line
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
pub(crate) struct CronArgs {
    /// The name of the job, 1 to 512 bytes
    pub(crate) name: String,

    /// When it is due: a cron text of five fields, or six with seconds first, or @every and a time
    pub(crate) schedule: String,

    /// The time zone of a cron text: a name such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: String,

    /// The ticks that nobody ran: skip them, run the latest, or run up to a number, such as all:10
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    pub(crate) missed: String,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Write events to standard error, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// The name of the lock, 1 to 512 bytes
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) part: PartArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// How long to stay out of the line after COMMAND ends by itself
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "1s")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) pause: Duration,

    /// Write events to standard error, one JSON object per line
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
    /// The names to list: * matches any characters, \* a star, \\ a backslash
    #[arg(default_value = "*")]
    pub(crate) pattern: String,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// The name of the lock
    pub(crate) name: String,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// Confirms that the lock may be somebody else's; always required
    #[arg(long, required = true)]
    pub(crate) force: bool,

    /// The name of the lock
    pub(crate) name: String,

    /// Release only if the lock is still held with this token, as shown by `leasehold inspect`
    #[arg(long)]
    pub(crate) token: Option<FencingToken>,

    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Print one JSON object with the former holder
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct YieldArgs {
    /// The name of the lock
    pub(crate) name: String,

    /// How long the holder has, such as 500ms, 1.5s or 1m30s
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    pub(crate) within: Duration,

    /// Free the lock by force if it is still held after that time
    #[arg(long)]
    pub(crate) force: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// The name of the semaphore or quota
    pub(crate) name: String,

    /// The new capacity
    pub(crate) capacity: u32,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Names or patterns, as for `leasehold list`; all locks by default
    #[arg(value_name = "NAME|PATTERN")]
    pub(crate) names: Vec<String>,

    /// The time between two inspections
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "500ms")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[cfg(feature = "serve")]
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch")]
pub(crate) struct ServeArgs {
    /// The address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8420")]
    pub(crate) listen: std::net::SocketAddr,

    /// A file whose first line is the access token; or set LEASEHOLD_SERVE_TOKEN
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A host name under which browsers open the page, such as a proxy's; IP addresses and localhost always work
    ///
    /// May be given several times. Requests with any other host name are refused, because another site could
    /// point that name here.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,

    /// Let the page release locks by force, after a confirmation; needs a token (--token-file)
    #[arg(long)]
    pub(crate) allow_release: bool,

    /// Show invented locks in memory; needs no store
    #[arg(long)]
    pub(crate) demo: bool,

    /// The most inspections of locks per second
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    pub(crate) looks: u32,

    /// Poll only: do not have the server report changes (CLIENT TRACKING)
    #[arg(long)]
    pub(crate) poll_only: bool,

    /// Print the address of the page as a JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum FenceTask {
    /// Refuse the token if a greater one was seen; otherwise remember it
    ///
    /// Run this before you read the data that you are going to change.
    Check(FenceArgs),
    /// Replace FILE with standard input, unless the token is stale
    ///
    /// Reads all of the input first, then replaces FILE by a rename, so that nobody sees a part of it. FILE keeps
    /// its permissions.
    Write(FenceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct FenceArgs {
    /// The guarded file
    pub(crate) file: PathBuf,

    /// The token of the lease; `leasehold run` sets it in the environment
    #[arg(long, env = "LEASEHOLD_TOKEN")]
    pub(crate) token: FencingToken,

    /// Print errors as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// The part of a shared name to hold.
#[derive(Args, Debug)]
pub(crate) struct PartArgs {
    /// Let this many run at once: each has a slot with a number, and tokens of that slot
    ///
    /// The first run sets the capacity of NAME, and `leasehold resize` changes it. NAME is then a semaphore's: it
    /// cannot be a lock's. With --slots, --read and --write, --owner is only a label, and takes nothing over.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["read", "write"])]
    pub(crate) slots: Option<u32>,

    /// Take this many of the slots, up to 64; one by default
    #[arg(long, value_name = "COUNT", requires = "slots")]
    pub(crate) weight: Option<u32>,

    /// Hold NAME for reading, together with other readers and without a writer
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,

    /// Hold NAME for writing, without readers and other writers
    #[arg(long)]
    pub(crate) write: bool,
}

impl PartArgs {
    /// Returns true if NAME is a shared name.
    pub(crate) fn is_given(&self) -> bool {
        self.slots.is_some() || self.read || self.write
    }
}

/// Options of the lease.
#[derive(Args, Debug)]
pub(crate) struct LeaseArgs {
    /// The time to live of the lease unless it is renewed: 1s or more
    ///
    /// The lease is renewed at every third of this time. If this machine crashes, others wait this long.
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "30s")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// An identity that outlives this process: it takes over a lock held under the same owner
    ///
    /// Never use one owner for two processes that run at the same time.
    #[arg(long)]
    pub(crate) owner: Option<String>,

    /// The longest time that the lease may be held, however often it is renewed: at least --ttl
    ///
    /// COMMAND gets SIGTERM the grace period before, and the next waiter gets the lock when it has ended.
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    pub(crate) at_most: Option<Duration>,

    /// Keep the name taken until the lease has this age, even if COMMAND ends sooner
    ///
    /// A machine whose clock is a little behind then does not run a cron job again. Only if COMMAND ends by
    /// itself: after a loss or a crash the name is free when the time to live is over. Not with --slots, --read or --write.
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    pub(crate) at_least: Option<Duration>,

    /// The grace period from SIGTERM to SIGKILL after a loss: up to a third of --ttl
    ///
    /// The default is a sixth of --ttl, at most 10s. If the store cannot be reached, COMMAND gets SIGTERM this
    /// long before the lease ends.
    #[arg(long, value_name = "TIME", value_parser = times::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLoss {
    /// End the command
    Stop,
    /// Warn, and let the command run on without the lock
    Warn,
}
