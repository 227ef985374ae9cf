//! The Rust programs of the book's pages and of the README: `cargo test --doc -p leasehold-book`.
#![cfg(doctest)]

include!(concat!(env!("OUT_DIR"), "/pages.rs"));
