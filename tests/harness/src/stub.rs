//! A server of canned answers. It is no ClickHouse: it stands for faults that a real one won't produce, and counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Received {
    /// The connection that it came on, counted from 0.
    pub connection: usize,
    /// For example `POST /?query=... HTTP/1.1`.
    pub line: String,
    /// `name: value`, the names in lower case.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Listens on loopback until the process ends. Each request is answered by the function it was started with,
/// which gives the raw bytes of the response; none closes the connection without one.
///
/// ```
/// let stub = harness::Stub::start(|_| Some(harness::Stub::ok(b"hello")))?;
/// let mut response = ureq::get(format!("http://{}/x", stub.address())).call()?;
/// assert_eq!(response.body_mut().read_to_string()?, "hello");
/// assert_eq!(stub.received().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stub {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Stub {
    /// Starts one that keeps connections open.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub fn start(
        answer: impl Fn(&Received) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> std::io::Result<Stub> {
        Stub::listen(answer, true)
    }

    /// Starts one that closes each connection behind its first answer, without having said so.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub fn closing(
        answer: impl Fn(&Received) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> std::io::Result<Stub> {
        Stub::listen(answer, false)
    }

    fn listen(
        answer: impl Fn(&Received) -> Option<Vec<u8>> + Send + Sync + 'static,
        keep_alive: bool,
    ) -> std::io::Result<Stub> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || {
                    // A client that goes away is no fault of the test.
                    let _ = stream
                        .and_then(|stream| serve(connection, stream, &log, &*answer, keep_alive));
                });
            }
        });
        Ok(Stub { address, received })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }

    /// A response of status 200 that keeps the connection open.
    pub fn ok(body: &[u8]) -> Vec<u8> {
        Stub::response("200 OK", &[], body)
    }

    /// A response with a status and more headers.
    pub fn response(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
        let mut response = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        for header in headers {
            response.push_str(header);
            response.push_str("\r\n");
        }
        response.push_str("\r\n");
        [response.as_bytes(), body].concat()
    }
}

fn serve(
    connection: usize,
    stream: TcpStream,
    log: &Mutex<Vec<Received>>,
    answer: &dyn Fn(&Received) -> Option<Vec<u8>>,
    keep_alive: bool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = read_request(connection, &mut reader)? {
        lock(log).push(request.clone());
        match answer(&request) {
            Some(response) => writer.write_all(&response)?,
            None => break,
        }
        if !keep_alive {
            break;
        }
    }
    Ok(())
}

fn read_request(connection: usize, reader: &mut impl BufRead) -> std::io::Result<Option<Received>> {
    let line = read_line(reader)?;
    if line.is_empty() {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let header = read_line(reader)?;
        match header.split_once(':') {
            Some((name, value)) => {
                headers.push(format!("{}: {}", name.to_lowercase(), value.trim()))
            }
            None => break,
        }
    }
    let body = read_body(&headers, reader)?;
    Ok(Some(Received {
        connection,
        line,
        headers,
        body,
    }))
}

/// By its length, or in chunks: a guest that names no length sends chunks.
fn read_body(headers: &[String], reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if !headers
        .iter()
        .any(|header| header == "transfer-encoding: chunked")
    {
        let length = headers
            .iter()
            .find_map(|header| header.strip_prefix("content-length: ")?.parse().ok())
            .unwrap_or(0);
        reader.take(length).read_to_end(&mut body)?;
        return Ok(body);
    }
    loop {
        let line = read_line(reader)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(std::io::Error::other)?;
        if size == 0 {
            break;
        }
        reader.by_ref().take(size).read_to_end(&mut body)?;
        read_line(reader)?;
    }
    // Trailers, which nobody asks for, up to the empty line.
    while !read_line(reader)?.is_empty() {}
    Ok(body)
}

fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_on_one_connection_are_told_apart_whichever_way_their_bodies_end() {
        let stub = Stub::start(|request| match request.line.contains("/last") {
            true => None,
            false => Some(Stub::ok(b"x")),
        })
        .unwrap();
        let mut client = TcpStream::connect(stub.address()).unwrap();
        client
            .write_all(
                b"POST /chunks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n\
                  POST /length HTTP/1.1\r\nContent-Length: 3\r\n\r\nfgh\
                  GET /last HTTP/1.1\r\n\r\n",
            )
            .unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        let received = stub.received();
        let bodies: Vec<_> = received.iter().map(|request| &*request.body).collect();
        assert_eq!(bodies, [&b"abcde"[..], b"fgh", b""]);
        assert!(received.iter().all(|request| request.connection == 0));
    }
}
