//! Loss of the lease: the command's whole process group is gone before the lock expires at the server.

use std::time::Duration;

use leasehold_tests::{Admin, Direction, Mode, Proxy, RedisServer, Stopwatch, steady};
use nix::sys::signal::Signal;

use crate::program::{ProcessGroup, Program, expiry, is_held, key, leasehold, on, wall};

const TTL: &str = "3s";
/// The group's leader and a child, which only sleeps, ignore SIGTERM.
const STUBBORN: &str = "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo leader $$; \
                        while :; do sleep 1; done";
/// Reports SIGTERM and ends.
const WILLING: &str =
    "trap 'echo asked; exit 9' TERM; echo leader $$; while :; do sleep 0.05; done";

/// Starts a command, and waits for a renewal. The next renewal is then nearly a second away.
fn started(command: std::process::Command) -> (Program, ProcessGroup) {
    let program = Program::spawn(command);
    let group = ProcessGroup::of(&program.line("leader"));
    program.error_line(r#"{"type":"renewed""#);
    assert!(group.is_alive());
    (program, group)
}

fn args<'a>(on_loss: &'a str, script: &'a str) -> [&'a str; 11] {
    [
        "run",
        "a",
        "--json",
        "--ttl",
        TTL,
        "--on-loss",
        on_loss,
        "--",
        "sh",
        "-c",
        script,
    ]
}

/// Returns how many seconds before the expiry the group was gone; negative if it was gone later. The time for
/// which the machine stood still does not count, because nothing could act then.
async fn early(what: &str, group: ProcessGroup, expires: Duration) -> f64 {
    let watch = Stopwatch::start();
    let gone = group.gone_at().await;
    let early = expires.as_secs_f64() - gone.as_secs_f64();
    println!("{what}: gone {:.0} ms before the expiry", early * 1_000.0);
    early + watch.stalled().as_secs_f64()
}

#[tokio::test]
async fn a_server_that_stands_still() {
    steady(async || {
        let server = RedisServer::start().await;
        let (mut program, group) = started(on(&server, args("stop", STUBBORN)));
        let expires = expiry(&server, "a").await;
        server.pause();
        assert!(early("SIGSTOP of the server, SIGTERM ignored", group, expires).await > 0.0);
        server.resume();
        assert_eq!(program.code().await, Some(79));
    })
    .await;
}

#[tokio::test]
async fn a_willing_command_is_asked_by_the_grace_before() {
    steady(async || {
        let server = RedisServer::start().await;
        let (mut program, group) = started(on(&server, args("stop", WILLING)));
        let expires = expiry(&server, "a").await;
        server.pause();
        program.line("asked");
        let early = early("SIGSTOP of the server, SIGTERM obeyed", group, expires).await;
        // The grace period is a sixth of the time to live.
        assert!((0.3..1.0).contains(&early), "{early}");
        server.resume();
        assert_eq!(program.code().await, Some(79));
        let errors = program.unread_errors().join("\n");
        assert!(errors.contains(r#"{"type":"failed","exit":79"#), "{errors}");
    })
    .await;
}

// The proxy runs while this thread waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_black_hole() {
    steady(async || {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(server.port()).await;
        let mut command = leasehold(args("stop", STUBBORN));
        command.env("LEASEHOLD_URL", proxy.url());
        let (mut program, group) = started(command);
        let expires = expiry(&server, "a").await;
        proxy.set(Direction::Up, Mode::BlackHole);
        proxy.set(Direction::Down, Mode::BlackHole);
        assert!(early("black hole, SIGTERM ignored", group, expires).await > 0.0);
        assert_eq!(program.code().await, Some(79));
    })
    .await;
}

#[tokio::test]
async fn a_deleted_key() {
    steady(async || {
        let server = RedisServer::start().await;
        let (mut program, group) = started(on(&server, args("stop", WILLING)));
        let (expires, deleted) = (expiry(&server, "a").await, wall());
        Admin::connect(&server).await.int(&["DEL", &key("a")]).await;
        program.line("asked");
        let gone = group.gone_at().await;
        println!(
            "DEL, SIGTERM obeyed: gone {:?} after it",
            gone.saturating_sub(deleted)
        );
        assert!(gone < expires && gone.saturating_sub(deleted) < Duration::from_millis(700));
        assert_eq!(program.code().await, Some(79));
        program.error_line(r#"{"type":"lost","name":"a","#);
    })
    .await;
}

#[tokio::test]
async fn a_deleted_key_and_a_stubborn_command() {
    steady(async || {
        let server = RedisServer::start().await;
        let (mut program, group) = started(on(&server, args("stop", STUBBORN)));
        let (expires, deleted) = (expiry(&server, "a").await, wall());
        Admin::connect(&server).await.int(&["DEL", &key("a")]).await;
        let gone = group.gone_at().await;
        println!(
            "DEL, SIGTERM ignored: gone {:?} after it",
            gone.saturating_sub(deleted)
        );
        assert!(gone < expires);
        // The command had its grace period, a sixth of the time to live.
        assert!(
            gone.saturating_sub(deleted) >= Duration::from_millis(450),
            "{:?}",
            gone.saturating_sub(deleted)
        );
        assert_eq!(program.code().await, Some(79));
    })
    .await;
}

/// Catches an exit code 0 although another client may have held the lock while the command ran. Without pushes, only
/// the release finds that the key is gone.
#[tokio::test]
async fn a_loss_that_only_the_release_finds() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let user = "ACL SETUSER deaf on >pw ~* +@all -client|tracking -subscribe";
    admin.ok(&user.split(' ').collect::<Vec<_>>()).await;
    for (on_loss, code) in [("stop", 79), ("warn", 0)] {
        let args = ["run", "a", "--on-loss", on_loss, "--", "sh", "-c"];
        let mut command = leasehold(args.into_iter().chain(["echo runs; read -r x; exit 0"]));
        command.env(
            "LEASEHOLD_URL",
            format!("redis://deaf:pw@127.0.0.1:{}", server.port()),
        );
        let mut program = Program::spawn(command);
        program.line("runs");
        assert_eq!(admin.int(&["DEL", &key("a")]).await, 1);
        program.close_stdin();
        assert_eq!(program.code().await, Some(code), "--on-loss {on_loss}");
    }
}

/// The negative control: a group that is not killed is found alive past the expiry.
#[tokio::test]
async fn with_a_warning_only_the_command_goes_on() {
    let server = RedisServer::start().await;
    let (mut program, group) = started(on(&server, args("warn", STUBBORN)));
    let expires = expiry(&server, "a").await;
    server.pause();
    program.error_line(r#"{"type":"lost","name":"a","#);
    let past = leasehold_tests::eventually(crate::program::LIMIT, "the expiry", async || {
        wall() > expires + Duration::from_millis(50)
    });
    past.await;
    assert!(group.is_alive());
    server.resume();
    group.kill();
    assert_eq!(program.code().await, Some(137));
}

#[tokio::test]
async fn kill_9_of_leasehold_ends_the_whole_group() {
    steady(async || {
        let server = RedisServer::start().await;
        let (program, group) = started(on(&server, args("stop", STUBBORN)));
        let killed = wall();
        program.signal(Signal::SIGKILL);
        println!(
            "kill -9: gone {:?} after it",
            group.gone_at().await.saturating_sub(killed)
        );
        // The lock was not released: it ends with its time to live.
        assert!(is_held(&server, "a").await);
    })
    .await;
}

/// Without the guard the kernel still kills the command itself, though not its children.
#[tokio::test]
async fn kill_9_of_leasehold_and_its_guard_ends_the_command() {
    let server = RedisServer::start().await;
    let (program, group) = started(on(&server, args("stop", STUBBORN)));
    let guard = guard_of(program.pid());
    nix::sys::signal::kill(guard, Signal::SIGKILL).expect("it runs");
    assert!(group.is_alive());
    program.signal(Signal::SIGKILL);
    leasehold_tests::eventually(
        crate::program::LIMIT,
        "the end of the command",
        async || !group.has_leader(),
    )
    .await;
    assert!(group.is_alive(), "that is what the guard is for");
    group.kill();
}

/// Returns the guard of this process, by the name in the list of processes.
fn guard_of(leasehold: nix::unistd::Pid) -> nix::unistd::Pid {
    let children = format!("/proc/{leasehold}/task/{leasehold}/children");
    let children = std::fs::read_to_string(children).expect("this is Linux");
    let is_guard = |child: &&str| {
        let line = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
        line.is_ok_and(|line| line.starts_with("leasehold: guard\0a\0"))
    };
    let guard = children
        .split_whitespace()
        .find(is_guard)
        .expect("there is a guard");
    nix::unistd::Pid::from_raw(guard.parse().expect("an id"))
}

#[tokio::test]
async fn leasehold_that_stands_still_does_not_keep_the_command_alive() {
    steady(async || {
        let server = RedisServer::start().await;
        let (mut program, group) = started(on(&server, args("stop", STUBBORN)));
        program.signal(Signal::SIGSTOP);
        let expires = expiry(&server, "a").await;
        assert!(early("SIGSTOP of leasehold", group, expires).await > 0.0);
        program.signal(Signal::SIGCONT);
        assert_eq!(program.code().await, Some(79));
    })
    .await;
}

/// The documented limit: a process that leaves the process group is not killed.
#[tokio::test]
async fn a_daemon_that_left_the_group_lives_on() {
    let server = RedisServer::start().await;
    let script = "setsid sh -c 'echo daemon $$; exec >&- 2>&-; sleep 60' & wait $!; exit 4";
    let mut program = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", script]));
    let daemon = ProcessGroup::of(&program.line("daemon"));
    program.signal(Signal::SIGTERM);
    assert_eq!(program.code().await, Some(143));
    assert!(daemon.is_alive());
    daemon.kill();
}
