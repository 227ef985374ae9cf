//! Creates the fence table, and refuses another table of its name.

use leasehold_engine::protocol::printable;
use leasehold_engine::{Error, ErrorKind};
use sqlx::Pool;

use super::failure::Failure;
use super::retry::while_raced;
use super::{Database, detached};

pub(super) async fn create<DB: Database>(pool: &Pool<DB>) -> Result<(), Error> {
    // The second pass checks the table that the first created, or that another program created faster.
    for _ in 0..2 {
        if while_raced(|| detached::<DB, _>(look_or_create(pool.clone()))).await? {
            return Ok(());
        }
    }
    let message = "the table leasehold_fence was dropped right after it was created: try again";
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns true if there is a fence table, and creates it otherwise. Only a later transaction can check the
/// new table: on MySQL `CREATE TABLE` ends this one.
async fn look_or_create<DB: Database>(pool: Pool<DB>) -> Result<bool, Failure> {
    let failure = Failure::new::<DB>;
    let mut tx = pool.begin_with(DB::BEGIN_FENCED).await.map_err(failure)?;
    let found = DB::fence_shape(&mut tx).await.map_err(failure)?;
    match found.first() {
        Some(None) => {}
        Some(Some(other)) => return Err(refused::<DB>(other).into()),
        None => {
            let created = DB::run_for_fence(&mut tx, DB::CREATE_FENCE).await;
            created.map_err(failure)?;
        }
    }
    tx.commit().await.map_err(failure)?;
    Ok(!found.is_empty())
}

fn refused<DB: Database>(found: &str) -> Error {
    // The description contains names that somebody else chose.
    let found = printable(found);
    let create = DB::CREATE_FENCE.replace('\n', " ");
    let message = format!(
        "the table leasehold_fence is not a fence table: the database has `{found}`; find out who made it, because its \
         triggers and defaults run with the rights of its users, drop it while nobody holds a lease, and call \
         create_table again, which runs: {create}"
    );
    Error::new(ErrorKind::Config, message)
}
