//! The command `leasehold` as a program, on real servers.

mod ages;
mod browser;
mod codes;
mod docs;
mod doctor;
mod exclusion;
mod fence;
mod hold;
mod job;
mod look;
mod loss;
mod page;
mod program;
mod pty;
mod quorum;
mod serve;
mod several;
mod shared;
mod signals;
mod terminal;
