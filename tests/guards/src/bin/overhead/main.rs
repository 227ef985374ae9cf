//! What the guards cost: guarded writes as a ratio to the same writes without a guard, in turn, on
//! the same store: medians over several rounds. `cargo xtask bench guards`.

mod gate;
mod object;
mod redis;
mod sql;

/// One line of the table: what was written, and the medians of both in microseconds.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) plain: f64,
    pub(crate) guarded: f64,
}

pub(crate) type Rows = Vec<Row>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut rows = Rows::new();
    gate::measure(&mut rows).await;
    redis::measure(&mut rows).await;
    sql::measure(&mut rows).await;
    object::measure(&mut rows).await;
    println!(
        "{:<44} {:>12} {:>12} {:>7}",
        "median of a write", "plain, µs", "guarded, µs", "ratio"
    );
    for Row {
        what,
        plain,
        guarded,
    } in rows
    {
        println!(
            "{what:<44} {plain:>12.3} {guarded:>12.3} {:>7.2}",
            guarded / plain
        );
    }
}
