//! `leasehold run` on a terminal: keys, job control, pipelines.

use leasehold_tests::{RedisServer, eventually};

use crate::program::{LIMIT, is_held};
use crate::pty::Shell;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[tokio::test]
async fn ctrl_c_is_the_commands_as_often_as_it_comes() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    // The script prints outside its trap, because bash may miss a signal that comes while a trap runs.
    shell.types(
        "$L run a -- bash -c 'n=0; m=0; trap \"n=\\$((n+1))\" INT; echo u''p; \
         while [ $m -lt 2 ]; do sleep 0.02; [ $n = $m ] || { m=$n; echo int:$n; }; done; exit 5'; echo code:$?\n",
    );
    shell.sees("up");
    shell.types(CTRL_C);
    shell.sees("int:1");
    shell.types(CTRL_C);
    shell.sees("int:2");
    shell.sees("code:5");
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn ctrl_c_ends_a_command_that_does_not_care_and_one_who_waits() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo u''p; exec sleep 60'; echo code:$?\n");
    shell.sees("up");
    shell.types(CTRL_C);
    shell.sees("code:130");
    let mut other = Shell::start(&server.url());
    other.types("$L run a -- sh -c 'echo u''p; exec sleep 60'; echo code:$?\n");
    other.sees("up");
    shell.types("$L run a -- true; echo code:$?\n");
    shell.sees("a is held: waiting, place 1 in line");
    shell.types(CTRL_C);
    shell.sees("code:130");
}

#[tokio::test]
async fn the_command_reads_the_terminal_and_the_shell_has_it_again() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo u''p; read x; echo got:$x'; echo code:$?\n");
    shell.sees("up");
    shell.types("hello\n");
    shell.sees("got:hello");
    shell.sees("code:0");
    shell.types("echo aga''in\n");
    shell.sees("again");
}

#[tokio::test]
async fn a_job_is_stopped_and_goes_on() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo u''p; read x; echo got:$x; read y; exit 6'\n");
    shell.sees("up");
    for word in ["one", "two"] {
        shell.types(CTRL_Z);
        shell.sees("Stopped");
        shell.types("echo she''ll\n");
        shell.sees("shell");
        assert!(is_held(&server, "a").await, "{word}");
        shell.types("fg\n");
        shell.sees("$L run a");
        shell.types(&format!("{word}\n"));
        if word == "one" {
            shell.sees("got:one");
        }
    }
    shell.types("echo code:$?\n");
    shell.sees("code:6");
}

#[tokio::test]
async fn a_job_that_was_stopped_past_its_lease_does_not_go_on() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a --ttl 1s -- sh -c 'echo u''p; read x; echo ra''n'; echo code:$?\n");
    shell.sees("up");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    eventually(LIMIT, "the expiry", async || !is_held(&server, "a").await).await;
    shell.types("fg; echo code:$?\n");
    shell.sees("was lost while the command ran");
    shell.sees("code:79");
}

#[tokio::test]
async fn in_a_pipeline_the_command_gets_the_terminal_when_it_asks() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo u''p; read x; echo got:$x' | sed s/got/seen/\n");
    // The typed line waits until the command is in the foreground and reads it.
    shell.types("hello\n");
    shell.sees("seen:hello");
    shell.types("echo code:${PIPESTATUS[0]}\n");
    shell.sees("code:0");
}

#[tokio::test]
async fn in_the_background_it_leaves_the_terminal_alone() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    // With `set -b` the shell reports at once that a job has stopped.
    shell.types("set -b; $L run a -- sh -c 'echo u''p; read x; echo got:$x' &\n");
    shell.sees("up");
    shell.sees("Stopped");
    shell.types("echo mi''ne\n");
    shell.sees("mine");
    shell.types("fg\n");
    shell.sees("$L run a");
    shell.types("hello\n");
    shell.sees("got:hello");
}

#[tokio::test]
async fn a_pipeline_is_stopped_and_goes_on_in_the_background() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    // The script pauses without starting a process: one that is stopped between fork and exec blocks its parent,
    // which then does not count as stopped. Ctrl-C ends sed, too, perhaps before the script writes to it.
    shell.types(
        "export S='trap \"\" PIPE; exec 9<> <(:); echo u''p; while :; do echo tick; read -t 0.02 -u 9; done'\n",
    );
    shell.types("$L run a -- bash -c \"$S\" | sed s/tick/to''ck/\n");
    shell.sees("up");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("bg\n");
    shell.sees("tock");
    shell.types("fg\n");
    shell.sees("| sed");
    shell.hands_over();
    shell.types(CTRL_C);
    shell.has_it_back();
    shell.types("echo code:${PIPESTATUS[0]}\n");
    shell.sees("code:130");
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn a_shell_with_jobs_of_its_own_under_a_lock() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- bash --norc --noediting -i; echo code:$?\n");
    shell.types("echo inn''er $LEASEHOLD_NAME\n");
    shell.sees("inner a");
    shell.types("sh -c 'echo u''p; exec sleep 60'\n");
    shell.sees("up");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("kill -9 %1; wait %1; echo stil''l\n");
    shell.sees("still");
    // bash sometimes drops input that was typed while it waited for a killed job.
    while !shell.sees_soon("code:8") {
        shell.types("exit 8\n");
    }
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn when_the_terminal_goes_away_a_stopped_job_ends_too() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo pi''d $PPID.; read x; read y'\n");
    shell.sees("pid ");
    let pid = shell.sees(".");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    drop(shell);
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    eventually(LIMIT, "the end of leasehold", async || !process.exists()).await;
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn when_the_terminal_goes_away_so_does_the_command() {
    let server = RedisServer::start().await;
    let mut shell = Shell::start(&server.url());
    shell.types("$L run a -- sh -c 'echo u''p; exec sleep 60'\n");
    shell.sees("up");
    assert!(is_held(&server, "a").await);
    drop(shell);
    eventually(LIMIT, "a free lock", async || !is_held(&server, "a").await).await;
}
