//! Just enough of HTTP/1.1 to see where a message ends.

use std::io::{self, BufRead, ErrorKind, Read, Write};

/// Where a body ends.
pub(crate) enum Body {
    Length(u64),
    Chunks,
    /// With the connection.
    Rest,
}

/// The first line and the headers, up to the empty line and with it.
pub(crate) struct Head {
    pub(crate) bytes: Vec<u8>,
}

impl Head {
    pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Head> {
        let mut bytes = Vec::new();
        while !is_empty(read_line(reader, &mut bytes)?) {}
        Ok(Head { bytes })
    }

    pub(crate) fn first_line(&self) -> String {
        let line = self.bytes.split(|byte| *byte == b'\n').next();
        String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
    }

    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.bytes);
        head.lines().skip(1).find_map(|line| {
            let (other, value) = line.split_once(':')?;
            let found = other.eq_ignore_ascii_case(name);
            found.then(|| value.trim().to_lowercase())
        })
    }

    pub(crate) fn request_body(&self) -> io::Result<Body> {
        Ok(self.body()?.unwrap_or(Body::Length(0)))
    }

    pub(crate) fn answer_body(&self) -> io::Result<Body> {
        Ok(self.body()?.unwrap_or(Body::Rest))
    }

    fn body(&self) -> io::Result<Option<Body>> {
        if self
            .value("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"))
        {
            return Ok(Some(Body::Chunks));
        }
        self.value("content-length")
            .map(|length| length.parse().map(Body::Length).map_err(malformed))
            .transpose()
    }
}

/// The bytes stay as they are, with the chunks that they came in.
pub(crate) fn copy_body(
    reader: &mut impl BufRead,
    body: &Body,
    to: &mut dyn Write,
) -> io::Result<()> {
    match body {
        Body::Length(length) => copy_exactly(reader, *length, to),
        Body::Chunks => loop {
            let mut line = Vec::new();
            let read = read_line(reader, &mut line).map(drop);
            to.write_all(&line)?;
            read?;
            let size = String::from_utf8_lossy(&line);
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(malformed)?;
            if size == 0 {
                // Trailers, up to the empty line.
                let mut trailers = Vec::new();
                while !is_empty(read_line(reader, &mut trailers)?) {}
                return to.write_all(&trailers);
            }
            // With the end of line behind it.
            copy_exactly(reader, size.saturating_add(2), to)?;
        },
        Body::Rest => io::copy(reader, to).map(drop),
    }
}

fn copy_exactly(reader: &mut impl BufRead, length: u64, to: &mut dyn Write) -> io::Result<()> {
    match io::copy(&mut reader.take(length), to)? == length {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Puts the next line behind the bytes, with its end, and gives it.
fn read_line<'a>(reader: &mut impl BufRead, bytes: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    let start = bytes.len();
    reader.read_until(b'\n', bytes)?;
    match bytes.get(start..) {
        Some(line) if line.ends_with(b"\n") => Ok(line),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn is_empty(line: &[u8]) -> bool {
    matches!(line, b"\r\n" | b"\n")
}

fn malformed(error: std::num::ParseIntError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
