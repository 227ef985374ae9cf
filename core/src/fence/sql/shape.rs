//! What the fence table looks like, and how it gets to look right.

use std::borrow::Cow;

use sqlx::Pool;

use super::Database;
use super::failure::{Class, Failure};
use super::retry::Retry;
use crate::error::{Error, ErrorKind};

/// What is there under the name of the fence table.
#[derive(Debug)]
pub enum Shape {
    Missing,
    Current,
    /// A fence table whose columns hold too little; the statement that widens them.
    Older(Cow<'static, str>),
    /// Not a fence table, and why.
    Alien(String),
}

impl Shape {
    pub(super) fn alien(why: &str) -> Self {
        Self::Alien(why.to_owned())
    }

    pub(super) fn column(name: &str, wanted: &str, found: &str) -> Self {
        Self::Alien(match found {
            "" => format!("it has no column {name} {wanted}"),
            _ => format!("its column {name} is {found}, not {wanted}"),
        })
    }
}

pub(super) async fn create<DB: Database>(pool: &Pool<DB>) -> Result<(), Error> {
    // A user who may not change tables can still find that all is well.
    let mut connection = pool.acquire().await.map_err(failed::<DB>)?;
    let shape = DB::fence_shape(&mut connection)
        .await
        .map_err(failed::<DB>)?;
    drop(connection);
    if is_current(&shape)? {
        return Ok(());
    }
    let mut retry = Retry::new();
    loop {
        match attempt(pool).await {
            Err(failure) if failure.class == Class::Race && retry.wait().await => {}
            result => return result.map_err(|failure| failure.error),
        }
    }
}

async fn attempt<DB: Database>(pool: &Pool<DB>) -> Result<(), Failure> {
    let failure = Failure::new::<DB>;
    let mut tx = super::open(pool, DB::BEGIN_FENCED.into())
        .await
        .map_err(failure)?;
    DB::lock_fence_shape(&mut tx).await.map_err(failure)?;
    let statement = match DB::fence_shape(&mut tx).await.map_err(failure)? {
        Shape::Missing => Some(DB::CREATE_FENCE.into()),
        Shape::Older(statement) => Some(statement),
        shape => {
            is_current(&shape)?;
            None
        }
    };
    if let Some(statement) = statement {
        DB::change_fence_table(&mut tx, &statement)
            .await
            .map_err(failure)?;
        // Somebody else may have made another table of this name in between.
        let shape = DB::fence_shape(&mut tx).await.map_err(failure)?;
        if !is_current(&shape)? {
            return Err(alien("it did not take the right shape").into());
        }
    }
    tx.commit().await.map_err(failure)
}

fn is_current(shape: &Shape) -> Result<bool, Error> {
    match shape {
        Shape::Current => Ok(true),
        Shape::Missing | Shape::Older(_) => Ok(false),
        Shape::Alien(why) => Err(alien(why)),
    }
}

fn alien(why: &str) -> Error {
    let message = format!("the table leasehold_fence is not a fence table: {why}");
    Error::new(ErrorKind::Config, message)
}

fn failed<DB: Database>(error: sqlx::Error) -> Error {
    Failure::new::<DB>(error).error
}
