//! Errors as JSON.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::{Error, Inner};

/// Serializes as `{"code": "timeout", "message": "…"}`.
///
/// A message of several parts adds these parts, so that a host can reword some of them: `subject`, what is
/// not valid, mostly a setting by its name; `what`; and `advice`, a code.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Inner {
            subject,
            what,
            advice,
            ..
        } = &*self.0;
        let mut fields = serializer.serialize_struct("Error", 5)?;
        fields.serialize_field("code", self.kind().code())?;
        fields.serialize_field("message", &self.message())?;
        if subject.is_some() || advice.is_some() {
            fields.serialize_field("what", &**what)?;
        }
        if let Some(subject) = subject {
            fields.serialize_field("subject", *subject)?;
        }
        if let Some(advice) = advice {
            fields.serialize_field("advice", advice.code())?;
        }
        fields.end()
    }
}

impl Error {
    /// Serializes with `code` and `message` only, as in events.
    pub(crate) fn in_event<S: Serializer>(error: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::new(error.kind(), error.message()).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Advice;
    use crate::error::ErrorKind;

    #[test]
    fn the_parts_of_a_message_are_told() {
        let json = |error: &Error| serde_json::to_string(error).expect("an error serializes");
        let error = Error::bad_option("patience", "is short");
        assert_eq!(
            json(&error),
            r#"{"code":"config","message":"patience is short","what":"is short","subject":"patience"}"#
        );
        let error = Error::advised(ErrorKind::ReadOnly, "no", Some(Advice::Primary));
        assert_eq!(
            json(&error),
            r#"{"code":"readOnly","message":"no; connect to the primary","what":"no","advice":"primary"}"#
        );
        let error = Error::advised(ErrorKind::Store, "no", None);
        assert_eq!(json(&error), r#"{"code":"store","message":"no"}"#);
    }
}
