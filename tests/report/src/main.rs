//! Leasehold beside its peers: pairs, handoffs, held leases, losses, in one report as Markdown, JSON and
//! plots. `cargo xtask bench report` builds the peers, writes a plan and runs this.
//!
//! Each side is a program that is told what to do line by line (`tests/peers/README.md`), on a redis-server
//! of its own. Sides take turns in each round, so that a ratio is of neighbours in time.

#![allow(clippy::cast_precision_loss)]

mod measure;
mod peer;
mod plan;
mod plot;
mod results;
mod stats;
mod text;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use peer::Peer;
use plan::Plan;
use results::Results;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `report PLAN FOLDER`: writes the report into the folder.
async fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [plan, folder] = &args[..] else {
        return Err("report PLAN FOLDER: see `cargo xtask bench report`".into());
    };
    let mut plan: Plan = serde_json::from_slice(&fs::read(plan)?)?;
    let mut peers = Vec::new();
    for side in &plan.sides {
        match Peer::start(side).await {
            Ok(peer) => peers.push(peer),
            Err(error) => {
                eprintln!("!! NOT MEASURED: {}: {error}", side.name);
                plan.skipped.push(format!("{}, because {error}", side.name));
            }
        }
    }
    let mut results = Results::new(&peers);
    measure::pairs(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::handoff(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::held(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::loss(&mut peers, &mut results).await?;

    for (peer, measured) in peers.iter().zip(&mut results.sides) {
        measured.failed = !peer.failures.is_empty();
        plan.skipped.extend(peer.failures.iter().cloned());
    }
    let folder = Path::new(folder);
    fs::create_dir_all(folder)?;
    fs::write(
        folder.join("report.json"),
        serde_json::to_string_pretty(&results)?,
    )?;
    plot::all(&results, folder)?;
    fs::write(folder.join("report.md"), text::report(&plan, &results))?;
    fs::write(folder.join("readme.md"), text::readme(&plan, &results))?;
    println!("{}", text::report(&plan, &results));
    Ok(())
}

async fn revive(peers: &mut [Peer]) -> Result<()> {
    for peer in peers {
        peer.revive().await?;
    }
    Ok(())
}
