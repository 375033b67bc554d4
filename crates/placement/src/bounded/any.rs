//! Decodes a value of any form, within the limits.

use super::{ENTRIES, Kept};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The bytes of an entry beside its key and its scalars: brackets, a comma and a colon.
const PUNCTUATION: usize = 4;

/// A value of any form; `None` if a part of the value is over a limit.
pub(super) struct AnyValue<'a>(pub(super) &'a mut Kept);

impl AnyValue<'_> {
    fn scalar(self, value: impl Into<Value>) -> Option<Value> {
        self.0.take(PUNCTUATION).then(|| value.into())
    }
}

impl<'de> DeserializeSeed<'de> for AnyValue<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let has_room = entries.len() < ENTRIES && self.0.take(key.len() + PUNCTUATION);
            let value = if has_room {
                map.next_value_seed(AnyValue(self.0))?
            } else {
                map.next_value::<IgnoredAny>()?;
                None
            };
            let Some(value) = value else {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(None);
            };
            entries.insert(key, value);
        }
        Ok(Some(Value::Object(entries)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element_seed(AnyValue(self.0))? {
            match entry {
                Some(entry) if entries.len() < ENTRIES && self.0.take(PUNCTUATION) => entries.push(entry),
                Some(_) | None => {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(None);
                }
            }
        }
        Ok(Some(Value::Array(entries)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.take(text.len()).then(|| text.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Value::Null))
    }
}
