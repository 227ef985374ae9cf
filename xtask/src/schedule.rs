//! Runs steps side by side: steps that wait for servers beside steps that keep the processors busy, and the setup
//! beside both.
//!
//! The output of a step stays together. The output of the step that began first is shown as it comes, and
//! that of the others when they end.

use std::io::Write as _;
use std::mem;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::counts::Counts;
use crate::run::Cmd;
use crate::setup::Need;
use crate::steps::Step;

/// How often the names of the running steps are printed.
const PROGRESS: Duration = Duration::from_secs(30);

/// How a step uses the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Cargo builds in the folder `target`, which only one command at a time can do.
    Builds,
    /// The step keeps processors busy.
    Computes,
    /// The step mostly waits for servers and clocks.
    Waits,
}

impl Load {
    /// Returns true if a step like this one may begin beside these: as many steps may wait as there are processors,
    /// and as many may be busy.
    fn may_begin_beside(self, others: &[Self]) -> bool {
        let most = thread::available_parallelism().map_or(1, NonZero::get);
        let waiting = others.iter().filter(|other| **other == Self::Waits);
        let waiting = waiting.count();
        match self {
            Self::Builds if others.contains(&Self::Builds) => false,
            Self::Builds | Self::Computes => others.len() - waiting < most,
            Self::Waits => waiting < most,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Running since this moment.
    Runs(Instant),
    Ended,
}

/// A message from a thread. Steps are named by their position.
enum Message {
    /// A step printed a line.
    Line(usize, String),
    Ended(usize, Result<()>, Counts),
    /// The setup installed a requirement, or found it installed; or it failed.
    SetUp(Need, Result<()>),
}

/// Runs the steps with these environment variables, each once `ensure` has installed its requirements. Returns the
/// names of those that failed. After a failure no further step begins, unless `keep_going`.
pub(crate) fn run_all(
    steps: &[&'static Step],
    env: &'static [(&'static str, &'static str)],
    ensure: fn(Need) -> Result<String>,
    keep_going: bool,
    counts: &mut Counts,
) -> Vec<&'static str> {
    let (sender, messages) = channel();
    let mut run = Run {
        env,
        steps: steps
            .iter()
            .map(|step| (*step, State::Ready, String::new()))
            .collect(),
        missing: needs(steps),
        shown: None,
    };
    let mut failed = Vec::new();
    let mut setup = run.missing.clone().into_iter();
    let mut setting_up = set_up(setup.next(), ensure, &sender);
    loop {
        while let Some(at) = run.next(keep_going || failed.is_empty()) {
            run.begin(at, &sender);
        }
        let Some(message) = run.receive(setting_up, &messages) else {
            return failed;
        };
        match message {
            Message::Line(at, line) => run.line(at, &line),
            Message::Ended(at, result, own) => {
                *counts += own;
                if !run.end(at, &result, own) {
                    failed.push(run.steps[at].0.name);
                }
            }
            Message::SetUp(need, result) => {
                run.missing.retain(|missing| *missing != need);
                if let Err(error) = result {
                    println!("== setup: FAILED: {error:#}");
                    failed.extend(run.give_up(need));
                }
                let next = setup.next().filter(|_| keep_going || failed.is_empty());
                setting_up = set_up(next, ensure, &sender);
            }
        }
    }
}

/// Returns the requirements of the steps, in the order in which steps need them. Downloads come last: they take long,
/// and a program that is missing should be reported at once.
fn needs(steps: &[&Step]) -> Vec<Need> {
    let mut needs = Vec::new();
    for &need in steps.iter().flat_map(|step| step.needs) {
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs.sort_by_key(|need| need.is_download());
    needs
}

/// Begins to install a requirement. Returns the time of the beginning.
fn set_up(
    need: Option<Need>,
    ensure: fn(Need) -> Result<String>,
    sender: &Sender<Message>,
) -> Option<Instant> {
    let (need, begin, sender) = (need?, Instant::now(), sender.clone());
    thread::spawn(move || {
        let result = ensure(need).map(|found| {
            println!("== setup: {found}, {:.1} s", begin.elapsed().as_secs_f64());
        });
        let _ = sender.send(Message::SetUp(need, result));
    });
    Some(begin)
}

struct Run {
    env: &'static [(&'static str, &'static str)],
    /// The steps, each with its state and its output that is not shown yet.
    steps: Vec<(&'static Step, State, String)>,
    /// The requirements that the setup has not tried yet.
    missing: Vec<Need>,
    /// The step whose output is shown as it comes.
    shown: Option<usize>,
}

impl Run {
    /// Returns a step that may begin now, if any. Programs are installed before all steps, downloads beside them.
    fn next(&self, may_begin: bool) -> Option<usize> {
        if !self.missing.iter().all(|need| need.is_download()) {
            return None;
        }
        let running = self.steps.iter();
        let running = running.filter(|(_, state, _)| matches!(state, State::Runs(_)));
        let running: Vec<_> = running.map(|(step, ..)| step.load).collect();
        let is_ready = |(step, state, _): &(&Step, State, String)| {
            let mut others = self.steps.iter();
            *state == State::Ready
                && !step.needs.iter().any(|need| self.missing.contains(need))
                && others.all(|(other, state, _)| {
                    *state == State::Ended || !step.after.contains(&other.name)
                })
                && step.load.may_begin_beside(&running)
        };
        self.steps.iter().position(is_ready).filter(|_| may_begin)
    }

    /// Ends the steps that cannot run without this requirement. Returns their names.
    fn give_up(&mut self, need: Need) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (step, state, _) in &mut self.steps {
            if *state == State::Ready && step.needs.contains(&need) {
                *state = State::Ended;
                println!("== {}: not run, a requirement is missing", step.name);
                names.push(step.name);
            }
        }
        names
    }

    fn begin(&mut self, at: usize, sender: &Sender<Message>) {
        let (step, state, printed) = &mut self.steps[at];
        *state = State::Runs(Instant::now());
        let cmd = step.cmd().with_envs(self.env);
        *printed = format!("== {}: {cmd}\n", step.name);
        let (step, sender) = (*step, sender.clone());
        thread::spawn(move || {
            let mut counts = Counts::default();
            // A step goes on even if the receiver is gone.
            let say = |message| drop(sender.send(message));
            let result = run(step, &cmd, &mut counts, |line| say(Message::Line(at, line)));
            say(Message::Ended(at, result, counts));
        });
        self.show_next();
    }

    /// Returns the next message, or `None` if neither a step nor the setup runs.
    fn receive(
        &self,
        setting_up: Option<Instant>,
        messages: &Receiver<Message>,
    ) -> Option<Message> {
        loop {
            let runs = self
                .steps
                .iter()
                .filter_map(|(step, state, _)| match state {
                    State::Runs(begin) => Some((step.name, *begin)),
                    _ => None,
                });
            let runs = runs.chain(setting_up.map(|begin| ("setup", begin)));
            let running: Vec<_> = runs
                .map(|(name, begin)| format!("{name} {} s", begin.elapsed().as_secs()))
                .collect();
            if running.is_empty() {
                return None;
            }
            match messages.recv_timeout(PROGRESS) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => println!("== running: {}", running.join(", ")),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn line(&mut self, at: usize, line: &str) {
        self.steps[at].2.push_str(line);
        if self.shown == Some(at) {
            self.flush(at);
        }
    }

    /// Shows the rest of a step's output and its result. Returns true if the step succeeded.
    fn end(&mut self, at: usize, result: &Result<()>, counts: Counts) -> bool {
        let (step, state, _) = &mut self.steps[at];
        let (name, seconds) = match mem::replace(state, State::Ended) {
            State::Runs(begin) => (step.name, begin.elapsed().as_secs_f64()),
            _ => (step.name, 0.0),
        };
        let tests = if step.tests {
            format!(", {counts}")
        } else {
            String::new()
        };
        self.flush(at);
        match result {
            Ok(()) => println!("== {name}: ok in {seconds:.1} s{tests}"),
            Err(error) => {
                println!("== {name}: FAILED after {seconds:.1} s{tests}: {error:#}");
                println!("== {name}: to run it alone: cargo xtask test --only {name}");
            }
        }
        if self.shown == Some(at) {
            self.shown = None;
            self.show_next();
        } else if let Some(shown) = self.shown {
            println!("== {}: goes on", self.steps[shown].0.name);
        }
        result.is_ok()
    }

    /// Shows the earliest of the running steps, unless a step is shown already.
    fn show_next(&mut self) {
        let begin = |(at, (_, state, _)): (usize, &(_, State, _))| match state {
            State::Runs(begin) => Some((*begin, at)),
            _ => None,
        };
        if self.shown.is_none()
            && let Some((_, at)) = self.steps.iter().enumerate().filter_map(begin).min()
        {
            self.shown = Some(at);
            self.flush(at);
        }
    }

    fn flush(&mut self, at: usize) {
        // `print!` is captured in tests. Otherwise the results that xtask's own tests print would count as
        // results of the run.
        print!("{}", mem::take(&mut self.steps[at].2));
        // A step does not fail because its output cannot be shown.
        let _ = std::io::stdout().flush();
    }
}

fn run(step: &Step, cmd: &Cmd, counts: &mut Counts, mut on_line: impl FnMut(String)) -> Result<()> {
    let read = |line: &str| {
        if step.tests
            && let Some(more) = Counts::parse(line)
        {
            *counts += more;
        }
        on_line(line.to_owned());
    };
    let result = cmd.run_and_read(read);
    if !step.tests {
        return result;
    }
    result.context("tests failed or could not be built")?;
    let failed = counts.failed;
    ensure!(
        failed == 0,
        "`{}` ended well although {failed} tests failed",
        step.line
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use anyhow::{Result, bail};

    use super::Load;
    use crate::counts::Counts;
    use crate::setup::Need;
    use crate::steps::{BARE, Step};

    fn run_all(
        steps: &[&'static Step],
        keep_going: bool,
        counts: &mut Counts,
    ) -> Vec<&'static str> {
        super::run_all(steps, &[], |_| Ok("all".to_owned()), keep_going, counts)
    }

    fn step(name: &'static str, load: Load, line: String, after: &'static [&'static str]) -> Step {
        let line = line.leak();
        Step {
            name,
            line,
            load,
            after,
            ..BARE
        }
    }

    /// Catches steps that run one after another although they may run together, and a step that does not wait
    /// for those it needs.
    #[test]
    fn steps_run_side_by_side_and_after_the_steps_they_need() {
        let file = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        let file = file.display();
        let look = "for i in $(seq 1000); do test -e \"$0\" && exit; sleep 0.01; done; exit 1";
        let steps = vec![
            step("waits", Load::Waits, format!("sh -c '{look}' {file}"), &[]),
            step("makes", Load::Computes, format!("touch {file}"), &[]),
            step(
                "ends",
                Load::Builds,
                format!("rm {file}"),
                &["waits", "makes"],
            ),
            step("gone", Load::Builds, format!("test -e {file}"), &["ends"]),
        ];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        assert_eq!(run_all(&steps, false, &mut Counts::default()), ["gone"]);
    }

    #[test]
    fn a_run_stops_at_the_first_failure_or_keeps_going() {
        let steps = vec![
            Step {
                name: "good",
                line: "true",
                tests: false,
                ..BARE
            },
            Step {
                name: "bad",
                line: "false",
                tests: false,
                ..BARE
            },
            Step {
                name: "worse",
                line: "sh -c 'exit 2'",
                tests: false,
                ..BARE
            },
        ];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        let mut counts = Counts::default();
        assert_eq!(run_all(&steps, false, &mut counts), ["bad"]);
        assert_eq!(run_all(&steps, true, &mut counts), ["bad", "worse"]);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn tests_of_failing_steps_are_counted() {
        let line = "sh -c 'echo \"test result: FAILED. 2 passed; 1 failed; 4 ignored\"; exit 101'";
        let steps = vec![Step {
            name: "tests",
            line,
            tests: true,
            ..BARE
        }];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        let mut counts = Counts::default();
        assert_eq!(run_all(&steps, false, &mut counts), ["tests"]);
        assert_eq!(
            counts,
            Counts {
                passed: 2,
                failed: 1,
                skipped: 4
            }
        );
    }

    /// Catches a step that begins before its requirement is installed, a setup that holds up other steps, and a
    /// requirement that cannot be had and keeps other steps from running.
    #[test]
    fn steps_wait_for_their_own_requirements() {
        fn ensure(need: Need) -> Result<String> {
            let file = std::env::temp_dir().join(format!("xtask-setup-{}", std::process::id()));
            match need {
                // The step without requirements runs meanwhile.
                Need::MdBook => {
                    for _ in 0..1_000 {
                        if file.exists() {
                            return Ok("mdbook".to_owned());
                        }
                        thread::sleep(Duration::from_millis(10));
                    }
                    bail!("no step ran beside the setup")
                }
                _ => bail!("it cannot be had"),
            }
        }
        let file = std::env::temp_dir().join(format!("xtask-setup-{}", std::process::id()));
        let file = file.display();
        let mut steps = vec![
            step("needs-mdbook", Load::Builds, format!("rm {file}"), &[]),
            step("bare", Load::Builds, format!("touch {file}"), &[]),
            step("needs-examples", Load::Builds, "true".to_owned(), &[]),
        ];
        steps[0].needs = &[Need::MdBook];
        steps[2].needs = &[Need::NodeExamples];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        let failed = super::run_all(&steps, &[], ensure, true, &mut Counts::default());
        assert_eq!(failed, ["needs-examples"]);
    }
}
