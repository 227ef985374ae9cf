//! Moves money between accounts that several callers want at once, in both directions. Each caller holds both accounts, and
//! a guard checks the token of each. With `LEASEHOLD_URL=redis://127.0.0.1:6379` the locks are on a server.

use std::error::Error;
use std::sync::{Arc, Mutex};

use leasehold::{Bundle, Locker, fence::Gate};
use tokio::task::JoinSet;

type Bank = Mutex<(Gate, [i64; 2])>; // The storage: a guard, and both balances behind it.
const NAMES: [&str; 2] = ["account/a", "account/b"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let locker = Locker::connect(url).await?;
    let bank = Arc::new(Mutex::new((Gate::new(), [100, 100])));
    let mut callers = JoinSet::new();
    for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0), (0, 1)] {
        // Some callers name the accounts the other way round, and still nobody waits in a circle.
        let (both, bank) = (locker.all([NAMES[from], NAMES[to]])?, bank.clone());
        callers.spawn(async move { both.using(async |it| pay(it, &bank, from, to)).await? });
    }
    while let Some(paid) = callers.join_next().await {
        paid??;
    }
    println!("balances: {:?}", bank.lock().expect("no panic").1);
    Ok(())
}

/// Moves 10, if no later holder of either account was here before.
fn pay(held: &Bundle, bank: &Bank, from: usize, to: usize) -> Result<(), leasehold::Error> {
    let (gate, balances) = &mut *bank.lock().expect("no panic");
    for (name, token) in held.tokens() {
        gate.check(name.as_str(), token)?;
    }
    balances[from] -= 10;
    balances[to] += 10;
    Ok(())
}
