//! The command `leasehold` as a program, on real servers.

mod bench;
mod codes;
mod docs;
mod doctor;
mod exclusion;
mod fence;
mod hold;
mod look;
mod loss;
mod program;
mod pty;
mod signals;
mod terminal;
