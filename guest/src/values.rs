//! The values of which both of ClickHouse's binary formats that are read are made (`rowbinary`, `native`).

use crate::error::{Error, one_line};

/// A type that a column may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    NullableString,
    /// `Bool` and `UInt8`: one byte.
    Byte,
    /// `Int64` and `UInt64`: 8 bytes, the lowest first.
    Integer,
    /// `DateTime64`: 8 bytes like those, in units of which this many nanoseconds make one.
    Time(i64),
}

impl Type {
    /// The type `text` of the column `name`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Error> {
        Self::known(text).ok_or_else(|| {
            corrupt(&one_line(&format!(
                "its column `{name}` has the type {text}, which no state table has"
            )))
        })
    }

    fn known(text: &str) -> Option<Self> {
        Some(match text {
            "String" => Self::String,
            "Nullable(String)" => Self::NullableString,
            "Bool" | "UInt8" => Self::Byte,
            "Int64" | "UInt64" => Self::Integer,
            // `DateTime64(3)` or `DateTime64(3, 'Europe/Berlin')`: the zone is for people alone.
            time => {
                let inside = time.strip_prefix("DateTime64(")?.strip_suffix(')')?;
                let precision: u32 = inside.split(',').next()?.trim().parse().ok()?;
                Self::Time(10_i64.checked_pow(9_u32.checked_sub(precision)?)?)
            }
        })
    }
}

/// A value, borrowed from the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Text(&'a str),
    /// A number; a time as nanoseconds since 1970.
    Integer(i64),
}

/// The bytes of an answer that are not read yet. A length in them can't exceed what is there, so nothing is ever
/// allocated by a hostile one.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return Err(truncated());
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn value(&mut self, kind: Type) -> Result<Value<'a>, Error> {
        Ok(match kind {
            Type::String => Value::Text(self.text()?),
            Type::NullableString => match self.byte()? {
                0 => Value::Text(self.text()?),
                1 => Value::Null,
                _ => return Err(corrupt("a value is neither there nor NULL")),
            },
            Type::Byte => Value::Integer(self.byte()?.into()),
            Type::Integer => Value::Integer(self.integer()?),
            Type::Time(unit) => Value::Integer(self.integer()?.saturating_mul(unit)),
        })
    }

    fn integer(&mut self) -> Result<i64, Error> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(truncated());
        };
        self.rest = rest;
        Ok(i64::from_le_bytes(*bytes))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let Some((&byte, rest)) = self.rest.split_first() else {
            return Err(truncated());
        };
        self.rest = rest;
        Ok(byte)
    }

    /// An unsigned LEB128 number.
    pub(crate) fn length(&mut self) -> Result<usize, Error> {
        let mut length: u64 = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(length).map_err(|_| truncated());
            }
        }
        Err(corrupt("a length is absurd"))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.length()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| corrupt("a text is not valid UTF-8"))
    }
}

fn truncated() -> Error {
    corrupt("it ends in the middle of a row")
}

pub(crate) fn corrupt(fault: &str) -> Error {
    Error::Corrupt(format!(
        "ClickHouse's answer can't be read as states: {fault}; check that the settings `schema` and `table` name a state table"
    ))
}
