//! Each example says what it does before it waits for anything.

mod silent_server;

use silent_server::first_line;

#[test]
fn oversell_says_what_it_does_first() {
    assert!(first_line("oversell").starts_with("10 buyers, 5 in stock."));
}

#[test]
fn five_callers_says_what_it_does_first() {
    assert!(first_line("five_callers").starts_with("5 callers ask at once"));
}

#[test]
fn events_says_what_it_does_first() {
    assert!(first_line("events").starts_with("It holds a lock"));
}

#[test]
fn adapter_says_what_it_does_first() {
    assert!(first_line("adapter").starts_with("One locker holds a lock"));
}

#[test]
fn leader_says_what_it_does_first() {
    assert!(first_line("leader").starts_with("One of 3 processes leads"));
}
