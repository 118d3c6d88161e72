//! Reads an answer in ClickHouse's format `Native`: blocks of columns.
//!
//! The server writes it at once, where it starts threads for most other formats, which costs it a third of a
//! millisecond. So it serves for answers of a few rows. It has no header of its own: an answer without rows is empty.

use crate::error::Error;
use crate::values::{Input, Type, Value, corrupt};

/// More columns than any of our statements asks for: a guard against an absurd number.
const MAX_COLUMNS: usize = 64;

/// For so many rows room is made before they are read.
const MAX_RESERVED: usize = 1024;

/// The columns of one block.
#[derive(Debug)]
struct Block<'a> {
    columns: Vec<(&'a str, Type, Vec<Value<'a>>)>,
    rows: usize,
}

/// The rows of an answer, one after the other.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    input: Input<'a>,
    block: Block<'a>,
    /// The row of the block that is the next one.
    next: usize,
}

impl<'a> Rows<'a> {
    /// Reads the first block, so that its columns are known.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self, Error> {
        let mut input = Input::new(body);
        let block = match input.is_empty() {
            true => Block {
                columns: Vec::new(),
                rows: 0,
            },
            false => Block::read(&mut input)?,
        };
        Ok(Self {
            input,
            block,
            next: 0,
        })
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'a str, Type)> {
        self.block
            .columns
            .iter()
            .map(|(name, kind, _)| (*name, *kind))
    }

    /// Reads the next row into `row`, whose old values go. False where there is none.
    pub(crate) fn read(&mut self, row: &mut Vec<Value<'a>>) -> Result<bool, Error> {
        row.clear();
        while self.next == self.block.rows {
            if self.input.is_empty() {
                return Ok(false);
            }
            let block = Block::read(&mut self.input)?;
            if !self
                .columns()
                .eq(block.columns.iter().map(|(name, kind, _)| (*name, *kind)))
            {
                return Err(corrupt("its blocks have different columns"));
            }
            self.block = block;
            self.next = 0;
        }
        let values = self
            .block
            .columns
            .iter()
            .map(|(_, _, values)| values.get(self.next));
        row.extend(values.flatten());
        self.next += 1;
        Ok(true)
    }
}

impl<'a> Block<'a> {
    fn read(input: &mut Input<'a>) -> Result<Self, Error> {
        let columns = input.length()?;
        let rows = input.length()?;
        // Each value takes a byte at least; rows of no columns take none, and could be of any number.
        if columns > MAX_COLUMNS || rows > input.remaining() || (columns == 0 && rows > 0) {
            return Err(corrupt("its head is absurd"));
        }
        let mut block = Self {
            columns: Vec::with_capacity(columns),
            rows,
        };
        for _ in 0..columns {
            let name = input.text()?;
            let kind = Type::parse(name, input.text()?)?;
            block.columns.push((name, kind, values(input, kind, rows)?));
        }
        Ok(block)
    }
}

/// The values of one column. The marks of those that are NULL stand before all of them.
fn values<'a>(input: &mut Input<'a>, kind: Type, rows: usize) -> Result<Vec<Value<'a>>, Error> {
    // Nothing large is allocated by a hostile number: a value takes more room here than the byte that it may have there.
    let mut values = Vec::with_capacity(rows.min(MAX_RESERVED));
    match kind {
        Type::NullableString => {
            for mark in input.bytes(rows)? {
                let text = Value::Text("");
                values.push(if *mark == 0 { text } else { Value::Null });
            }
            // A NULL has an empty text too.
            for value in &mut values {
                let text = input.text()?;
                if *value != Value::Null {
                    *value = Value::Text(text);
                }
            }
        }
        _ => {
            for _ in 0..rows {
                values.push(input.value(kind)?);
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rowbinary::put_string;

    /// A block as the server writes it, of columns of a name, a type and the bytes of their values.
    pub(crate) fn block(rows: u8, columns: &[(&str, &str, &[u8])]) -> Vec<u8> {
        let mut body = vec![columns.len() as u8, rows];
        for (name, kind, values) in columns {
            put_string(&mut body, name);
            put_string(&mut body, kind);
            body.extend_from_slice(values);
        }
        body
    }

    fn read(body: &[u8]) -> Result<Vec<Vec<Value<'_>>>, Error> {
        let mut rows = Rows::new(body)?;
        let (mut all, mut row) = (Vec::new(), Vec::new());
        while rows.read(&mut row)? {
            all.push(row.clone());
        }
        Ok(all)
    }

    #[test]
    fn the_rows_of_all_blocks_follow_one_another() {
        let numbers = |from: i64| [from.to_le_bytes(), (from + 1).to_le_bytes()].concat();
        let two = |from| {
            block(
                2,
                &[
                    ("s", "String", b"\x01a\x00"),
                    ("n", "Nullable(String)", b"\x00\x01\x02{}\x00"),
                    ("v", "DateTime64(3)", &numbers(from)),
                    ("b", "Bool", b"\x01\x00"),
                ],
            )
        };
        let body = [two(7), two(9)].concat();
        let text = Value::Text;
        let row =
            |s, n, v: i64, b| vec![text(s), n, Value::Integer(v * 1_000_000), Value::Integer(b)];
        assert_eq!(
            read(&body).unwrap(),
            [
                row("a", text("{}"), 7, 1),
                row("", Value::Null, 8, 0),
                row("a", text("{}"), 9, 1),
                row("", Value::Null, 10, 0),
            ]
        );
    }

    #[test]
    fn an_answer_without_rows_is_empty() {
        assert_eq!(read(b"").unwrap().len(), 0);
        assert_eq!(read(&block(0, &[("s", "String", b"")])).unwrap().len(), 0);
    }

    #[test]
    fn an_answer_cut_anywhere_is_corrupt() {
        let body = block(
            1,
            &[
                ("s", "String", b"\x03abc"),
                ("n", "Nullable(String)", b"\x00\x01x"),
            ],
        );
        for end in 1..body.len() {
            assert!(
                matches!(read(&body[..end]), Err(Error::Corrupt(_))),
                "{end}"
            );
        }
    }

    #[test]
    fn absurd_numbers_and_other_columns_are_corrupt() {
        for body in [
            &b"\xff\xff\xff\x7f\x01"[..],
            b"\x01\xff\xff\xff\x7f",
            b"\x01\x01\x01s\x04JSON\x00",
            b"Code: 60. DB::Exception: x",
            // Rows of no columns, more of them than there are bytes.
            b"\x00\x04\x00\x02\x00\x00",
        ] {
            assert!(matches!(read(body), Err(Error::Corrupt(_))));
        }
        let body = [
            block(1, &[("s", "String", b"\x00")]),
            block(1, &[("t", "String", b"\x00")]),
        ]
        .concat();
        assert!(read(&body).is_err());
    }
}
