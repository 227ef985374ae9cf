//! Each example says what it does before it waits for anything.

#[path = "../../tests/silent_server/mod.rs"]
mod silent_server;

use silent_server::first_line;

#[test]
fn market_says_what_it_does_first() {
    assert!(first_line("market").starts_with("Sellers and buyers on a market"));
}

#[test]
fn oversell_sql_says_what_it_does_first() {
    assert!(first_line("oversell_sql").starts_with("8 buyers, 5 in stock."));
}

#[test]
fn paused_writer_says_what_it_does_first() {
    assert!(first_line("paused_writer").starts_with("Client 1 has a lease"));
}

#[test]
fn reward_says_what_it_does_first() {
    assert!(first_line("reward").starts_with("5 of one family want a reward."));
}
