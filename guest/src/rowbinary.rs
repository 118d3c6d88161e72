//! ClickHouse's formats `RowBinary` (written) and `RowBinaryWithNamesAndTypes` (read).
//!
//! Documents pass as they are: a length and the bytes. The types in the header make sure that a
//! table which someone made by hand is understood or refused, never misread.
//! What the columns mean is `rows`' business.

use crate::error::Error;

/// Appends a value of type `String`.
pub(crate) fn put_string(buffer: &mut Vec<u8>, text: &str) {
    put_length(buffer, text.len());
    buffer.extend_from_slice(text.as_bytes());
}

/// Appends a value of type `Nullable(String)`.
pub(crate) fn put_nullable_string(buffer: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => buffer.push(1),
        Some(text) => {
            buffer.push(0);
            put_string(buffer, text);
        }
    }
}

/// An unsigned LEB128 number, 7 bits in a byte, the lowest first.
fn put_length(buffer: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        buffer.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    buffer.push(length as u8);
}

/// A type that a column may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
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
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "String" | "LowCardinality(String)" => Self::String,
            "Nullable(String)" | "LowCardinality(Nullable(String))" => Self::NullableString,
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

/// Reads an answer in the format `RowBinaryWithNamesAndTypes`, row after row.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    columns: Vec<(&'a str, Type)>,
}

/// More columns than any of our statements asks for: a guard against an absurd header.
const MAX_COLUMNS: usize = 64;

impl<'a> Reader<'a> {
    /// Reads the header.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Self {
            rest: body,
            columns: Vec::new(),
        };
        let count = reader.length()?;
        if count > MAX_COLUMNS {
            return Err(corrupt("its header names too many columns"));
        }
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(reader.text()?);
        }
        for name in names {
            let text = reader.text()?;
            let Some(kind) = Type::parse(text) else {
                let message =
                    format!("its column `{name}` has the type {text}, which no state table has");
                return Err(corrupt(&crate::error::one_line(&message)));
            };
            reader.columns.push((name, kind));
        }
        Ok(reader)
    }

    /// The place of the column `name`.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(known, _)| *known == name)
    }

    /// Whether the column `name` is a time in nanoseconds.
    pub(crate) fn is_in_nanoseconds(&self, name: &str) -> bool {
        self.columns.contains(&(name, Type::Time(1)))
    }

    /// Whether another row follows.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Reads the next row into `row`, whose old values go.
    pub(crate) fn read(&mut self, row: &mut Vec<Value<'a>>) -> Result<(), Error> {
        row.clear();
        for index in 0..self.columns.len() {
            let Some(&(_, kind)) = self.columns.get(index) else {
                break;
            };
            row.push(self.value(kind)?);
        }
        Ok(())
    }

    fn value(&mut self, kind: Type) -> Result<Value<'a>, Error> {
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

    /// A length can't exceed what is there, so nothing is ever allocated by a hostile one.
    fn length(&mut self) -> Result<usize, Error> {
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

    fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.length()?;
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(truncated());
        };
        self.rest = rest;
        std::str::from_utf8(bytes).map_err(|_| corrupt("a text is not valid UTF-8"))
    }
}

fn truncated() -> Error {
    corrupt("it ends in the middle of a row")
}

fn corrupt(fault: &str) -> Error {
    Error::Corrupt(format!(
        "ClickHouse's answer can't be read as states: {fault}; check that the settings `schema` and `table` name a state table"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(columns: &[(&str, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        put_length(&mut body, columns.len());
        for (name, _) in columns {
            put_string(&mut body, name);
        }
        for (_, kind) in columns {
            put_string(&mut body, kind);
        }
        body
    }

    fn read(body: &[u8]) -> Result<Vec<Vec<Value<'_>>>, Error> {
        let mut reader = Reader::new(body)?;
        let mut rows = Vec::new();
        while reader.has_more() {
            let mut row = Vec::new();
            reader.read(&mut row)?;
            rows.push(row);
        }
        Ok(rows)
    }

    const COLUMNS: [(&str, &str); 4] = [
        ("s", "String"),
        ("n", "Nullable(String)"),
        ("b", "Bool"),
        ("v", "Int64"),
    ];

    #[test]
    fn rows_come_back_as_they_were_written() {
        let long = "ä".repeat(100_000);
        let mut body = header(&COLUMNS);
        for (text, nullable) in [("", None), (long.as_str(), Some("x\0\n")), ("a", Some(""))] {
            put_string(&mut body, text);
            put_nullable_string(&mut body, nullable);
            body.push(1);
            body.extend_from_slice(&(-5_i64).to_le_bytes());
        }
        let rows = read(&body).unwrap();
        let numbers = [Value::Integer(1), Value::Integer(-5)];
        assert_eq!(
            rows[0],
            [&[Value::Text(""), Value::Null], &numbers[..]].concat()
        );
        assert_eq!(
            rows[1],
            [&[Value::Text(&long), Value::Text("x\0\n")], &numbers[..]].concat()
        );
        assert_eq!(
            rows[2],
            [&[Value::Text("a"), Value::Text("")], &numbers[..]].concat()
        );
    }

    #[test]
    fn an_answer_cut_anywhere_is_corrupt() {
        let mut body = header(&COLUMNS);
        let start = body.len();
        put_string(&mut body, "text");
        put_nullable_string(&mut body, Some("more"));
        body.push(0);
        body.extend_from_slice(&7_i64.to_le_bytes());
        for end in (0..body.len()).filter(|end| *end != start) {
            assert!(
                matches!(read(&body[..end]), Err(Error::Corrupt(_))),
                "{end}"
            );
        }
        assert_eq!(read(&body[..start]).unwrap().len(), 0);
        assert_eq!(read(&body).unwrap().len(), 1);
    }

    #[test]
    fn a_time_of_any_precision_is_nanoseconds() {
        for (kind, unit) in [
            ("DateTime64(9)", 1),
            ("DateTime64(3)", 1_000_000),
            ("DateTime64(0, 'Europe/Berlin')", 1_000_000_000),
        ] {
            let mut body = header(&[("t", kind)]);
            body.extend_from_slice(&7_i64.to_le_bytes());
            assert_eq!(read(&body).unwrap(), [[Value::Integer(7 * unit)]], "{kind}");
        }
        for kind in [
            "DateTime64(10)",
            "DateTime64()",
            "DateTime64(-1)",
            "DateTime",
        ] {
            assert!(read(&header(&[("t", kind)])).is_err(), "{kind}");
        }
    }

    #[test]
    fn hostile_lengths_are_corrupt() {
        for length in [
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
            &[0xff; 20],
            &[0xff, 0xff, 0xff, 0x7f],
        ] {
            let mut body = header(&[("s", "String")]);
            body.extend_from_slice(length);
            assert!(matches!(read(&body), Err(Error::Corrupt(_))));
            assert!(matches!(read(length), Err(Error::Corrupt(_))));
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_corrupt() {
        let mut body = header(&[("s", "String")]);
        body.extend_from_slice(&[1, 0xff]);
        assert!(matches!(read(&body), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_column_of_a_foreign_type_is_named() {
        let Err(Error::Corrupt(message)) = read(&header(&[("partial_state", "JSON")])) else {
            panic!()
        };
        assert!(
            message.contains("`partial_state`") && message.contains("JSON"),
            "{message}"
        );
    }
}
