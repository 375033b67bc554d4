//! Decodes the fields of a JSON document that a rule reads. The decoder skips all other fields and builds no value for them.
//!
//! A tree of values takes up to a hundred times the memory of its text: `{"":0}` has 7 bytes, and `serde_json` allocates 640 bytes
//! for this map. A user who may create one object chooses most of its text, so a tree of the whole object could use up the memory
//! of the process that decodes it.

mod any;
mod field;

use field::Field;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer};
use serde_json::Value;

/// The most entries of a list, and of a map with any keys.
pub const ENTRIES: usize = 100;
/// The most bytes of JSON that one call of [`Fields::decode`] keeps.
pub const BYTES: usize = 64 << 10;
/// The most bytes of a string of a named field: a reserve of 64 resources with names of usual length fits. A longer string is cut and
/// gets an ellipsis, so that the string equals no valid value.
pub const STRING: usize = 2 << 10;

/// The fields of a document, or of a part of it, that a rule reads. A value of another type than expected keeps its type: a list
/// or an object becomes empty, and a scalar stays.
#[derive(Debug)]
pub enum Fields {
    /// A string, a number or a boolean.
    Scalar,
    /// A scalar that the decoder keeps even after the limit of bytes. A list must not have such entries: they would exceed the limit.
    Always,
    /// An object with these members.
    Object(&'static [(&'static str, Fields)]),
    /// A list.
    List(&'static Fields),
    /// A list. Only the entries that match are kept and counted.
    Matching(&'static Fields, fn(&Value) -> bool),
    /// A value of any form.
    Any,
}

/// The decoded fields of a document.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// The fields. A field over a limit is absent.
    pub value: Value,
    /// The name of a field that is absent because the field is over a limit.
    pub over_limit: Option<&'static str>,
}

impl Fields {
    /// Decodes these fields of a document.
    ///
    /// # Errors
    /// The document is no JSON, or a value that is kept is nested too deeply.
    pub fn decode<'de, D: Deserializer<'de>>(&'static self, from: D) -> Result<Decoded, D::Error> {
        self.decode_within(BYTES, from)
    }

    /// Decodes these fields of a document, and keeps at most this many bytes of JSON.
    ///
    /// # Errors
    /// As for [`Fields::decode`].
    pub fn decode_within<'de, D>(&'static self, bytes: usize, from: D) -> Result<Decoded, D::Error>
    where
        D: Deserializer<'de>,
    {
        let mut kept = Kept {
            left: bytes,
            over_limit: None,
        };
        let value = Field::new(self, "", &mut kept).deserialize(from)?;
        Ok(Decoded {
            value: value.unwrap_or_default(),
            over_limit: kept.over_limit,
        })
    }

    /// Decodes these fields as a type. A value that does not have this type counts as absent.
    ///
    /// # Errors
    /// As for [`Fields::decode`].
    pub fn decode_as<'de, T, D>(&'static self, bytes: usize, from: D) -> Result<T, D::Error>
    where
        T: DeserializeOwned + Default,
        D: Deserializer<'de>,
    {
        let decoded = self.decode_within(bytes, from)?;
        Ok(T::deserialize(decoded.value).unwrap_or_default())
    }

    fn member(&'static self, name: &str) -> Option<(&'static str, &'static Self)> {
        let Self::Object(members) = self else {
            return None;
        };
        let mut members = members.iter();
        members
            .find(|(known, _)| *known == name)
            .map(|(name, fields)| (*name, fields))
    }
}

/// What one call of [`Fields::decode`] has kept so far.
struct Kept {
    /// The bytes that may still be kept.
    left: usize,
    over_limit: Option<&'static str>,
}

impl Kept {
    /// Takes room for this many bytes. Returns `false` if there is less.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests;
