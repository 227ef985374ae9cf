//! Buyers, each a process of its own; or a task of this process, if there is no server for the locks.

use std::collections::BTreeMap;
use std::future::Future;

use leasehold_examples::cli::Outcome;
use leasehold_examples::processes::{Processes, orders, tell};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const UNREAD_LIMIT: usize = 64;

/// What a member has of the crowd: it says lines to it, and takes orders.
#[derive(Debug)]
pub struct Member {
    /// Only for a task; a process prints its lines.
    lines: Option<(u16, mpsc::Sender<(u16, String)>)>,
    orders: mpsc::Receiver<()>,
}

impl Member {
    /// For this process, which the crowd's process started.
    pub fn of_this_process() -> Self {
        let (lines, orders) = (None, orders());
        Self { lines, orders }
    }

    /// Says a line to the crowd's owner.
    pub async fn tell(&self, line: &str) {
        match &self.lines {
            // It fails only if nobody listens any more; then the orders end too.
            Some((number, lines)) => drop(lines.send((*number, line.to_owned())).await),
            None => tell(line),
        }
    }

    /// Waits for an order; `None` is the order to end.
    pub async fn order(&mut self) -> Option<()> {
        self.orders.recv().await
    }

    /// Whether this is a process of its own, which can be stopped by a signal.
    pub fn is_process(&self) -> bool {
        self.lines.is_none()
    }
}

/// All members. Dropping it ends them.
#[derive(Debug)]
pub enum Crowd {
    /// Processes of this program, and the process id of each.
    Processes(Processes, BTreeMap<u16, u32>),
    /// Tasks of this process.
    Tasks(Tasks),
}

/// The tasks of a [`Crowd`].
#[derive(Debug)]
pub struct Tasks {
    running: BTreeMap<u16, (mpsc::Sender<()>, JoinHandle<Outcome>)>,
    lines: mpsc::Sender<(u16, String)>,
    heard: mpsc::Receiver<(u16, String)>,
}

impl Crowd {
    /// Nobody yet; all who come will be processes, or tasks.
    pub fn new(processes: bool) -> Self {
        if processes {
            return Self::Processes(Processes::new(), BTreeMap::new());
        }
        let (lines, heard) = mpsc::channel(UNREAD_LIMIT);
        Self::Tasks(Tasks {
            running: BTreeMap::new(),
            lines,
            heard,
        })
    }

    /// Another crowd of the same kind.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(matches!(self, Self::Processes(..)))
    }

    /// Starts a member: this program with these arguments, or else this work.
    pub fn start<W>(&mut self, number: u16, args: &[&str], work: impl Fn(Member) -> W) -> Outcome
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        match self {
            Self::Processes(processes, ids) => {
                let id = processes.start(number, args)?;
                ids.insert(number, id);
            }
            Self::Tasks(tasks) => {
                let (sender, orders) = mpsc::channel(1);
                let lines = Some((number, tasks.lines.clone()));
                let work = work(Member { lines, orders });
                let lines = tasks.lines.clone();
                let task = tokio::spawn(async move {
                    let outcome = work.await;
                    if let Err(error) = &outcome {
                        // At the end nobody listens any more.
                        let _ = lines.send((number, format!("failed - {error}"))).await;
                    }
                    outcome
                });
                tasks.running.insert(number, (sender, task));
            }
        }
        Ok(())
    }

    /// The next line of any of them. If a task fails, its line is `failed` and why; a process just ends.
    pub async fn hear(&mut self) -> Outcome<(u16, String)> {
        match self {
            Self::Processes(processes, _) => processes.hear().await,
            Self::Tasks(tasks) => Ok(tasks.heard.recv().await.expect("this has a sender too")),
        }
    }

    /// Gives an order to one.
    pub async fn order(&mut self, number: u16) -> Outcome {
        match self {
            Self::Processes(processes, _) => processes.order(number).await,
            Self::Tasks(tasks) => {
                let task = tasks.running.get(&number);
                let (orders, _) = task.ok_or("it does not run")?;
                Ok(orders.send(()).await?)
            }
        }
    }

    /// Stops a process in the middle of whatever it does. A task is paused by getting no orders.
    pub fn pause(&mut self, number: u16) -> Outcome {
        self.signal(number, Signal::STOP)
    }

    /// Lets it go on.
    pub fn go_on(&mut self, number: u16) -> Outcome {
        self.signal(number, Signal::CONT)
    }

    /// Makes all end, and waits until they have.
    pub async fn end(&mut self) -> Outcome {
        match self {
            Self::Processes(processes, ids) => {
                for number in processes.running() {
                    // A paused one would not notice.
                    if let Some(pid) = pid(ids.get(&number)) {
                        kill_process(pid, Signal::CONT)?;
                    }
                    processes.end(number).await?;
                }
            }
            Self::Tasks(tasks) => {
                while let Some((_, (orders, task))) = tasks.running.pop_first() {
                    drop(orders);
                    task.await??;
                }
            }
        }
        Ok(())
    }

    fn signal(&mut self, number: u16, signal: Signal) -> Outcome {
        if let Self::Processes(_, ids) = self {
            let pid = pid(ids.get(&number)).ok_or("it does not run")?;
            kill_process(pid, signal)?;
        }
        Ok(())
    }
}

fn pid(id: Option<&u32>) -> Option<Pid> {
    Pid::from_raw(i32::try_from(*id?).ok()?)
}
