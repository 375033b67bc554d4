//! Decodes a field of known form.

use super::any::AnyValue;
use super::{ENTRIES, Fields, Kept, STRING};
use crate::text::shortened;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The form of a field, and its name. The decoded value is `None` if the field is over a limit.
pub(super) struct Field<'a> {
    fields: &'static Fields,
    name: &'static str,
    kept: &'a mut Kept,
}

impl<'a> Field<'a> {
    pub(super) fn new(fields: &'static Fields, name: &'static str, kept: &'a mut Kept) -> Self {
        Self { fields, name, kept }
    }

    /// Notes the name of a field that is over a limit.
    fn checked(self, value: Option<Value>) -> Option<Value> {
        if value.is_none() {
            self.kept.over_limit = Some(self.name);
        }
        value
    }

    /// A list with the entries that match.
    fn list<'de, A: SeqAccess<'de>>(
        self,
        mut list: A,
        of: &'static Fields,
        matches: fn(&Value) -> bool,
    ) -> Result<Option<Value>, A::Error> {
        let mut entries = Vec::new();
        loop {
            let left = self.kept.left;
            match list.next_element_seed(Field::new(of, self.name, self.kept))? {
                None => return Ok(Some(Value::Array(entries))),
                Some(Some(entry)) if !matches(&entry) => self.kept.left = left,
                Some(Some(entry)) if entries.len() < ENTRIES => entries.push(entry),
                Some(Some(_) | None) => {
                    skip_rest(list)?;
                    return Ok(self.checked(None));
                }
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if matches!(self.fields, Fields::Any) {
            let value = AnyValue(self.kept).deserialize(from)?;
            return Ok(self.checked(value));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(member) = map.next_key_seed(Name(self.fields))? {
            let Some((name, fields)) = member else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            match map.next_value_seed(Field::new(fields, name, self.kept))? {
                Some(value) => members.insert(name.to_owned(), value),
                None => members.remove(name),
            };
        }
        Ok(Some(Value::Object(members)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        match self.fields {
            Fields::List(of) => self.list(list, of, |_| true),
            Fields::Matching(of, matches) => self.list(list, of, *matches),
            Fields::Scalar | Fields::Always | Fields::Object(_) | Fields::Any => {
                skip_rest(list)?;
                Ok(Some(Value::Array(Vec::new())))
            }
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let text = shortened(text, STRING);
        let has_room = matches!(self.fields, Fields::Always) || self.kept.take(text.len());
        Ok(self.checked(has_room.then(|| text.into())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Value::Null))
    }
}

fn skip_rest<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// A key of an object. The result is the member with this name; `None` if no rule reads the member.
struct Name(&'static Fields);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<(&'static str, &'static Fields)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<(&'static str, &'static Fields)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.member(key))
    }
}
