//! Eight processes want an article of which there are five, in an SQL table: without a lock (eight are
//! sold); with a lock and a buyer that is stopped past its lease, which still writes what it had read
//! before; and the same with a guard in the database, which refuses that buyer.
//!
//! It exits with 1 if the story ends otherwise.

mod buyer;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use leasehold::fence::sql;
use leasehold_demos::{Outcome, Server, log, print_table, promise, run};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const BUYERS: i64 = 8;
const STOCK: i64 = 5;
/// How long a buyer's lease lives unless it is renewed.
const TTL: Duration = Duration::from_secs(1);
/// How long a buyer may take to say anything.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a connection waits for other writers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The protection of the stock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Act {
    NoLock,
    Lock,
    Guard,
}

const ACTS: [(Act, &str); 3] = [
    (Act::NoLock, "Act 1: no lock"),
    (
        Act::Lock,
        "Act 2: a lock, and a buyer paused past its lease",
    ),
    (Act::Guard, "Act 3: the same, with a guard"),
];

#[tokio::main]
async fn main() -> ExitCode {
    let act = env::args()
        .nth(1)
        .and_then(|number| ACTS.get(number.parse::<usize>().ok()?));
    match act {
        Some((act, _)) => run(buyer::buy(*act)).await,
        None => run(play()).await,
    }
}

/// Opens the file of the stock.
async fn database(file: impl AsRef<Path>) -> Outcome<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true);
    Ok(SqlitePool::connect_with(options.busy_timeout(PATIENCE)).await?)
}

async fn play() -> Outcome {
    println!(
        "{BUYERS} buyers, {STOCK} in stock. Each buyer is a process, and the stock is in SQLite."
    );
    let server = Server::start().await?;
    let folder = Folder::new()?;
    let database = database(folder.file()).await?;
    sqlx::query("CREATE TABLE stock (amount BIGINT NOT NULL, sold BIGINT NOT NULL)")
        .execute(&database)
        .await?;
    sqlx::query("INSERT INTO stock VALUES (0, 0)")
        .execute(&database)
        .await?;
    sql::create_table(&database).await?;

    let headings = [
        "",
        "sold",
        "left, as the stock says",
        "the buyer that was paused",
    ];
    let mut table = vec![headings.map(str::to_owned)];
    for (at, (act, title)) in ACTS.into_iter().enumerate() {
        println!("\n{title}");
        sqlx::query("UPDATE stock SET amount = $1, sold = 0")
            .bind(STOCK)
            .execute(&database)
            .await?;
        let start = |number| Buyer::start(number, at, &server, &folder);
        let buyers = (1..=BUYERS).map(start);
        let paused = match act {
            Act::NoLock => all_at_once(buyers).await?,
            Act::Lock | Act::Guard => one_is_paused(buyers).await?,
        };
        let query = sqlx::query_as("SELECT sold, amount FROM stock");
        let (sold, left): (i64, i64) = query.fetch_one(&database).await?;
        println!("=> sold {sold} of {STOCK}, and {left} are left");
        let right = match act {
            Act::NoLock => sold == BUYERS,
            Act::Lock => sold > STOCK && left > 0 && paused.starts_with("bought"),
            Act::Guard => sold == STOCK && left == 0 && paused.starts_with("is refused"),
        };
        promise(right, format_args!("{title}: the story ended otherwise"))?;
        let paused = paused.split([',', ':']).next().unwrap_or_default();
        let (sold, left) = (format!("{sold} of {STOCK}"), left.to_string());
        table.push([title.to_owned(), sold, left, paused.to_owned()]);
    }
    println!("\nEverything went as expected");
    print_table(&table);
    Ok(())
}

/// Lets all read before any writes, which would happen by chance without that order.
async fn all_at_once(buyers: impl Iterator<Item = Outcome<Buyer>>) -> Outcome<String> {
    let mut buyers = buyers.collect::<Outcome<Vec<_>>>()?;
    for buyer in &mut buyers {
        buyer.says().await?;
    }
    for buyer in &mut buyers {
        buyer.go_on().await?;
    }
    for buyer in &mut buyers {
        buyer.says().await?;
    }
    Ok("-".to_owned())
}

/// Pauses the first buyer while the others buy, and returns its last line.
async fn one_is_paused(mut buyers: impl Iterator<Item = Outcome<Buyer>>) -> Outcome<String> {
    let mut paused = buyers.next().expect("there are eight")?;
    paused.says().await?;
    paused.signal(Signal::STOP)?;
    log(format_args!(
        "buyer 1 is stopped by SIGSTOP; its lease lives {TTL:?} longer at the most"
    ));
    let mut others = buyers.collect::<Outcome<Vec<_>>>()?;
    for buyer in &mut others {
        buyer.go_on().await?;
    }
    for buyer in &mut others {
        buyer.says().await?;
        buyer.says().await?;
    }
    log("buyer 1 resumes where it stopped");
    paused.go_on().await?;
    paused.signal(Signal::CONT)?;
    paused.says().await
}

/// A process of this program. Dropping it kills it.
struct Buyer {
    number: i64,
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Buyer {
    fn start(number: i64, act: usize, server: &Server, folder: &Folder) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg(act.to_string())
            .env("LEASEHOLD_URL", server.url())
            .env("STOCK", folder.file())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (orders, stdout) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .expect("both are piped");
        let lines = BufReader::new(stdout).lines();
        Ok(Self {
            number,
            child,
            orders,
            lines,
        })
    }

    /// Shows the next line that it says, and returns it.
    async fn says(&mut self) -> Outcome<String> {
        let number = self.number;
        let silent = |_| format!("buyer {number} says nothing for {LIMIT:?}");
        let line = timeout(LIMIT, self.lines.next_line())
            .await
            .map_err(silent)??;
        let line = line.ok_or(format!("buyer {number} ended by itself"))?;
        log(format_args!("buyer {number} {line}"));
        Ok(line)
    }

    /// Lets it write as soon as it has read.
    async fn go_on(&mut self) -> Outcome {
        Ok(self.orders.write_all(b"\n").await?)
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let pid = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(kill_process(pid.ok_or("it does not run")?, signal)?)
    }
}

/// A folder for the database's file. Dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Self> {
        let path = env::temp_dir().join(format!("leasehold-demo-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn file(&self) -> PathBuf {
        self.0.join("stock.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error is ignored: nobody needs what is in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
