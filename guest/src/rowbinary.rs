//! ClickHouse's formats `RowBinary`, in which rows are written, and `RowBinaryWithNamesAndTypes`, in which pages are read.
//!
//! Documents pass as they are: a length and the bytes. The types in the header make sure that a
//! table which someone made by hand is understood or refused, never misread.
//! What the columns mean is `rows`' business.

use crate::error::Error;
use crate::values::{Input, Type, Value, corrupt};

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

/// Reads an answer in the format `RowBinaryWithNamesAndTypes`, row after row.
pub(crate) struct Reader<'a> {
    input: Input<'a>,
    columns: Vec<(&'a str, Type)>,
}

/// More columns than any of our statements asks for: a guard against an absurd header.
const MAX_COLUMNS: usize = 64;

impl<'a> Reader<'a> {
    /// Reads the header.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self, Error> {
        let mut input = Input::new(body);
        let count = input.length()?;
        // Rows of no columns would never come to an end.
        if count == 0 {
            return Err(corrupt("its header names no column"));
        }
        if count > MAX_COLUMNS {
            return Err(corrupt("its header names too many columns"));
        }
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(input.text()?);
        }
        let mut columns = Vec::with_capacity(count);
        for name in names {
            columns.push((name, Type::parse(name, input.text()?)?));
        }
        Ok(Self { input, columns })
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'a str, Type)> {
        self.columns.iter().copied()
    }

    /// Reads the next row into `row`, whose old values go. False where there is none.
    pub(crate) fn read(&mut self, row: &mut Vec<Value<'a>>) -> Result<bool, Error> {
        row.clear();
        if self.input.is_empty() {
            return Ok(false);
        }
        for (_, kind) in &self.columns {
            row.push(self.input.value(*kind)?);
        }
        Ok(true)
    }
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
        let mut row = Vec::new();
        while reader.read(&mut row)? {
            rows.push(row.clone());
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
    fn an_answer_without_columns_is_corrupt() {
        for body in [&b"\0"[..], b"\0x"] {
            assert!(matches!(read(body), Err(Error::Corrupt(_))));
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
