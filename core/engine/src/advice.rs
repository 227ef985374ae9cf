//! Advice in errors.

use crate::every::{by_code, every};
use crate::protocol::rights;

/// The advice at the end of an error's message.
///
/// It is a separate part, so that a host whose users make settings in another way can reword it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// The credentials are wrong.
    CheckCredentials,
    /// The server demands credentials, and none were given.
    GiveCredentials,
    /// The server's user lacks rights, in a namespace that is not known.
    Rights,
    /// The selected database does not exist.
    Database,
    /// The server is a replica.
    Primary,
    /// Another program's key is where one of ours belongs.
    OtherName,
    /// Another program has written to a key of ours.
    ForeignKey,
    /// The server is one node of a cluster.
    Cluster,
    /// The server runs no scripts.
    Scripts,
}

impl Advice {
    const ALL: &'static [Self] = every!(Advice:
        CheckCredentials, GiveCredentials, Rights, Database, Primary, OtherName, ForeignKey,
        Cluster, Scripts,
    );

    /// Returns the advice with this [code](Self::code).
    pub(crate) const fn from_code(code: &str) -> Option<Self> {
        by_code!(Self::ALL, code)
    }

    /// Returns the name of the advice in tables and in the JSON of errors.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::CheckCredentials => "checkCredentials",
            Self::GiveCredentials => "giveCredentials",
            Self::Rights => "rights",
            Self::Database => "database",
            Self::Primary => "primary",
            Self::OtherName => "otherName",
            Self::ForeignKey => "foreignKey",
            Self::Cluster => "cluster",
            Self::Scripts => "scripts",
        }
    }

    /// Appends the advice, worded for users who connect by URL.
    pub(crate) fn write(self, into: &mut String) {
        into.push_str(match self {
            Self::CheckCredentials => "check the user and password in the URL",
            Self::GiveCredentials => "give the user and password in the URL",
            Self::Rights => return rights::advise(None, into),
            Self::Database => "the database in the URL does not exist on this server",
            Self::Primary => "connect to the primary",
            Self::OtherName => {
                "something other than leasehold wrote that key: use another name or namespace"
            }
            Self::ForeignKey => "something other than leasehold wrote that key",
            Self::Cluster => "connect to redis-cluster://, or give a connection to the cluster",
            Self::Scripts => "it may be a sentinel: connect to redis-sentinel://, or to a server that runs scripts",
        });
    }
}
