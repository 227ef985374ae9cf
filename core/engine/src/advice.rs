//! What to do about an error.

use crate::every::{by_code, every};
use crate::protocol::rights;

/// The end of an error's message: what to do. It is a part of its own, because a host that has other
/// words for the place where a setting is made says it in those.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// The credentials are wrong.
    CheckCredentials,
    /// There are no credentials, and some are asked for.
    GiveCredentials,
    /// A user of the server is not allowed enough, in a namespace that is not known.
    Rights,
    /// The database that was asked for is not there.
    Database,
    /// The server is a replica.
    Primary,
    /// Somebody else's key stands where one of ours should.
    OtherName,
    /// Somebody else has written to a key of ours.
    ForeignKey,
}

impl Advice {
    const ALL: &'static [Self] = every!(Advice:
        CheckCredentials, GiveCredentials, Rights, Database, Primary, OtherName, ForeignKey,
    );

    /// The advice with this [code](Self::code).
    pub(crate) const fn from_code(code: &str) -> Option<Self> {
        by_code!(Self::ALL, code)
    }

    /// Its name in tables and in the JSON of errors.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::CheckCredentials => "checkCredentials",
            Self::GiveCredentials => "giveCredentials",
            Self::Rights => "rights",
            Self::Database => "database",
            Self::Primary => "primary",
            Self::OtherName => "otherName",
            Self::ForeignKey => "foreignKey",
        }
    }

    /// Writes the words for who gave a URL.
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
        });
    }
}
