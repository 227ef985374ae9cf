//! The kinds of faults, and the list of those that were injected.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::topology::Topology;
use crate::usage::Use;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Kills a client, and starts it again later.
    KillClient,
    /// Stops a client for a while.
    StopClient,
    /// Delays the requests of a client to the guarded store, and the answers.
    HoldStoreLink,
    /// Cuts the connections of a client to a server.
    CutLink,
    /// Loses what a client and a server send to each other.
    BlackHole,
    /// Loses the answers of a server to a client.
    LoseAnswers,
    /// Keeps what a client and a server send, and delivers it late.
    HoldLink,
    /// Slows a link down.
    SlowLink,
    /// Stops a server for a while.
    StopServer,
    /// Kills a server, and starts it later with the data that it has on disk.
    RestartServer,
    /// Kills a server, and starts it without data.
    WipeServer,
    /// Deletes all keys of a server.
    FlushAll,
    /// Deletes the key of a lock.
    Del,
    /// Releases a lock by force.
    ForceRelease,
    /// Makes a server forget its scripts.
    ScriptFlush,
    /// Closes the connections of all clients of a server.
    ClientKill,
    /// Makes a server answer nobody for a while.
    ClientPause,
    /// Makes a server refuse writes for want of memory.
    FillMemory,
    /// Makes a server evict keys.
    Evict,
    /// Sets the clock of a server ahead.
    StepClock,
    /// Makes the clock of a server run faster for a while, within the drift margin.
    SlewClock,
    /// Makes a replica take over.
    FailOver,
    /// Moves the slot of a lock to another master.
    MoveSlot,
    /// Changes the capacity of a semaphore.
    Resize,
}

impl Fault {
    /// Returns its name in histories.
    pub fn name(self) -> String {
        let text = serde_json::to_value(self).unwrap_or_default();
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Returns the faults that a deployment may have. Those that appear twice are twice as likely.
    ///
    /// A cluster moves slots with even seeds, and fails over with odd ones: slots move between the first masters.
    pub(crate) fn of(topology: Topology, clocks: bool, seed: u64) -> Vec<Self> {
        let mut faults = vec![
            Self::KillClient,
            Self::StopClient,
            Self::StopClient,
            Self::HoldStoreLink,
            Self::StopServer,
            Self::RestartServer,
            Self::WipeServer,
            Self::FlushAll,
            Self::Del,
            Self::ForceRelease,
            Self::ScriptFlush,
            Self::ClientKill,
            Self::ClientPause,
            Self::FillMemory,
            Self::Evict,
        ];
        if topology.fails_over() {
            faults.push(Self::FailOver);
        } else {
            faults.extend([Self::CutLink, Self::BlackHole, Self::LoseAnswers]);
            faults.extend([Self::HoldLink, Self::SlowLink, Self::CutLink]);
            faults.extend([Self::StopServer, Self::RestartServer]);
            if clocks {
                faults.extend([Self::StepClock, Self::SlewClock]);
            }
        }
        match topology {
            Topology::Cluster if seed.is_multiple_of(2) => {
                let fails_over = [Self::FailOver, Self::StopServer, Self::RestartServer];
                faults.retain(|fault| !fails_over.contains(fault));
                faults.extend([Self::MoveSlot; 3]);
            }
            Topology::Quorum => {
                faults.extend([Self::WipeServer, Self::FlushAll, Self::RestartServer]);
            }
            Topology::One | Topology::Sentinel | Topology::Cluster => {}
        }
        faults
    }

    /// Returns the faults of one server whose names are shared.
    pub(crate) fn of_shared(usage: Use) -> Vec<Self> {
        // While the server is away, nobody holds or waits: so that is rare.
        let mut faults = vec![
            Self::HoldStoreLink,
            Self::CutLink,
            Self::LoseAnswers,
            Self::RestartServer,
            Self::ScriptFlush,
            Self::ClientKill,
        ];
        faults.extend(Self::first_of_shared(usage).repeat(3));
        faults
    }

    /// Returns the faults that matter most for shared names, with which even a short round begins.
    pub(crate) fn first_of_shared(usage: Use) -> Vec<Self> {
        let mut faults = vec![Self::KillClient, Self::StopClient, Self::FlushAll];
        if usage == Use::Semaphore {
            faults.extend([Self::Resize; 2]);
        }
        faults
    }

    /// Returns true if a lone server forgets all names.
    pub fn forgets(self) -> bool {
        matches!(self, Self::FlushAll | Self::WipeServer)
    }

    /// Returns true if leases may overlap after it: the server forgets one, or ends it early. The guard alone protects
    /// against that.
    pub fn ends_exclusion(self, topology: Topology) -> bool {
        match self {
            Self::Del | Self::ForceRelease | Self::Evict | Self::StepClock | Self::FailOver => true,
            // A server of a quorum that forgot does not vote until all leases are over.
            Self::FlushAll | Self::WipeServer => topology != Topology::Quorum,
            // A replica may take over that has not heard of the lease.
            Self::StopServer | Self::RestartServer => topology.fails_over(),
            _ => false,
        }
    }
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Injected {
    /// Its kind.
    pub kind: Fault,
    /// The client, server or lock.
    pub target: String,
    /// The lock, if it concerns only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new capacity of a semaphore, if it changes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// When it began, by the clock of histories.
    pub at: u64,
    /// When it ended. A change of the capacity without an answer may happen until the end of the round.
    pub until: u64,
}

/// Writes faults as JSON lines.
pub fn write(path: &Path, faults: &[Injected]) -> io::Result<()> {
    let lines = faults
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<Vec<_>, _>>()?;
    std::fs::write(path, lines.join("\n") + "\n")
}
