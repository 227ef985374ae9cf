//! What the fence table looks like, and how it gets to look right.

use sqlx::Pool;

use super::failure::{Class, Failure};
use super::retry::Retry;
use super::{Database, detached};
use crate::error::{Error, ErrorKind};
use crate::limits;

/// More than others that do the same can make necessary.
const MOST_CHANGES: u32 = limits::count("tableChanges");

/// What is there under the name of the fence table.
#[derive(Debug)]
pub enum Shape {
    Missing,
    Current,
    /// A fence table whose columns hold too little; the statement that widens them.
    Older(&'static str),
    /// Not a fence table, and why.
    Alien(String),
}

impl Shape {
    /// By what `inspect.sql` says of a table that is there: what is wrong with it, what it has that one
    /// of ours has not, and the statement that widens its columns if they hold too little.
    pub(super) fn found(
        wrong: Option<String>,
        strange: Option<String>,
        migrate: Option<&'static str>,
    ) -> Self {
        match (wrong, strange, migrate) {
            (Some(wrong), _, _) => Self::Alien(wrong),
            (None, Some(what), _) => Self::strange(&what),
            (None, None, Some(migrate)) => Self::Older(migrate),
            (None, None, None) => Self::Current,
        }
    }

    /// Somebody else made it, or changed it: it may do more than it is asked for.
    fn strange(what: &str) -> Self {
        const MOST: usize = limits::count("shownCharacters") as usize;
        // As long as its owner, or a server, likes.
        let what: String = what.chars().take(MOST).collect();
        Self::Alien(format!("it {} ({ADVICE})", what.escape_debug()))
    }
}

const ADVICE: &str = "such a table may do with the rights of its users what its maker likes: find out who \
     made it, and take this away; or drop the table while nobody holds a lease, and have it made anew";

pub(super) async fn create<DB: Database>(pool: &Pool<DB>) -> Result<(), Error> {
    let mut retry = Retry::new();
    let mut changes = 0;
    loop {
        match detached::<DB, _>(attempt(pool.clone())).await {
            Ok(true) => return Ok(()),
            // Somebody else may have made another table of this name in between.
            Ok(false) if changes == MOST_CHANGES => {
                return Err(alien("it does not take the right shape"));
            }
            Ok(false) => changes += 1,
            Err(failure) if failure.class == Class::Race && retry.wait().await => {}
            Err(failure) => return Err(failure.error),
        }
    }
}

/// Looks at the table and changes it if it must be; whether all is well already. What it became
/// is for another transaction to see: in MySQL a change of a table ends this one.
async fn attempt<DB: Database>(pool: Pool<DB>) -> Result<bool, Failure> {
    let failure = Failure::new::<DB>;
    let mut tx = pool.begin_with(DB::BEGIN_FENCED).await.map_err(failure)?;
    DB::lock_fence_shape(&mut tx).await.map_err(failure)?;
    let statement = match DB::fence_shape(&mut tx).await.map_err(failure)? {
        Shape::Current => None,
        Shape::Missing => Some(DB::CREATE_FENCE),
        Shape::Older(statement) => Some(statement),
        Shape::Alien(why) => return Err(alien(&why).into()),
    };
    if let Some(statement) = statement {
        let changed = DB::change_fence_table(&mut tx, statement).await;
        changed.map_err(failure)?;
    }
    tx.commit().await.map_err(failure)?;
    Ok(statement.is_none())
}

fn alien(why: &str) -> Error {
    let message = format!("the table leasehold_fence is not a fence table: {why}");
    Error::new(ErrorKind::Config, message)
}
