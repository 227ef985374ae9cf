//! Both judges refuse broken histories, and real clients under faults keep every promise.

mod judges;
mod shared;

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_faults::topology::Topology;
use leasehold_faults::usage::Use;
use leasehold_faults::{Options, Summary, run};

const SEED: u64 = 1;

async fn summary(topology: Topology, seconds: u64, guarded: bool) -> Summary {
    let options = Options {
        topologies: vec![topology],
        guarded,
        ..options(&format!("faults-{topology}-{guarded}"), seconds)
    };
    run(&options).await.expect("the round can be played")
}

/// Returns the options of a round with locks on one server.
fn options(folder: &str, seconds: u64) -> Options {
    Options {
        time: Duration::from_secs(seconds),
        seed: SEED,
        topologies: vec![Topology::One],
        usage: Use::Locks,
        guarded: true,
        divided: false,
        folder: folder_of(folder),
        program: PathBuf::from(env!("CARGO_BIN_EXE_leasehold-faults")),
    }
}

fn folder_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_is_kept_on_one_server() {
    let summary = summary(Topology::One, 20, true).await;
    assert!(summary.is_ok(), "{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_is_kept_on_a_quorum() {
    let summary = summary(Topology::Quorum, 20, true).await;
    assert!(summary.is_ok(), "{summary}");
}

/// Catches judges that find nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_judges_find_the_lost_writes_of_a_store_without_a_guard() {
    let summary = summary(Topology::One, 20, false).await;
    assert!(summary.stale_writes > 0, "{summary}");
    // A search that takes too long is no refusal.
    assert!(summary.refused_histories > 0, "{summary}");
}
