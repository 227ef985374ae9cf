//! Binds a token to an SQL statement, and reads it from a row, as a `BIGINT`.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Encode, Type};

use super::FencingToken;

impl FencingToken {
    fn to_bigint(self) -> i64 {
        i64::try_from(self.get()).expect("a token is less than 2^53")
    }
}

/// A token binds as a `BIGINT`: `query.bind(lease.token())`.
impl<DB: Database> Type<DB> for FencingToken
where
    i64: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <i64 as Type<DB>>::type_info()
    }

    fn compatible(info: &DB::TypeInfo) -> bool {
        <i64 as Type<DB>>::compatible(info)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for FencingToken
where
    i64: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.to_bigint().encode(buffer)
    }
}

/// Fails if the number in the row is not a token, such as 0.
impl<'r, DB: Database> Decode<'r, DB> for FencingToken
where
    i64: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        let number = i64::decode(value)?;
        Ok(Self::new(u64::try_from(number)?)?)
    }
}
