//! A proxy in front of a real server that makes the network's faults: connections that break before or behind a
//! request, requests that come late or twice.

use crate::listening::{Listening, Open};
use crate::message::{Body, Head, copy_body};
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How long a connection can wait for its next request before it looks whether the server is still there.
const LOOK: Duration = Duration::from_millis(10);

/// Which faults a [`Proxy`] makes, as probabilities from 0 to 1 for each request.
///
/// The seed and a request's place in the order of arrival decide, so the same requests in the same order meet the
/// same faults. Several clients at once arrive in an order of their own.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Where the generator starts.
    pub seed: u64,
    /// The client's connection is reset before anything of the request reaches the server.
    pub before: f64,
    /// The server gets the request and gives its answer, but the client's connection is reset without a byte of it.
    pub after: f64,
    /// The request waits this long before the server gets it.
    pub delay: Option<(f64, Duration)>,
    /// The server gets the request again, on another connection, as soon as it has answered the first. The client
    /// gets the first answer, once both have come: so a test that has its answer knows that the second is over.
    pub duplicate: f64,
}

impl Faults {
    /// A proxy that only passes on, to name the faults that are wanted on top of.
    pub fn none(seed: u64) -> Faults {
        Faults {
            seed,
            before: 0.0,
            after: 0.0,
            delay: None,
            duplicate: 0.0,
        }
    }

    /// What the request with this number meets: it has the rolls 4n to 4n + 3 of the seed's sequence.
    fn fate(&self, number: u64) -> Fate {
        let mut dice = Dice(
            self.seed
                .wrapping_add(number.wrapping_mul(4).wrapping_mul(Dice::STEP)),
        );
        let (delayed, wait) = self.delay.unwrap_or_default();
        Fate {
            before: dice.falls(self.before),
            after: dice.falls(self.after),
            delay: dice.falls(delayed).then_some(wait),
            duplicate: dice.falls(self.duplicate),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    before: bool,
    after: bool,
    delay: Option<Duration>,
    duplicate: bool,
}

/// The generator splitmix64.
struct Dice(u64);

impl Dice {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    fn falls(&mut self, probability: f64) -> bool {
        self.0 = self.0.wrapping_add(Dice::STEP);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // 53 bits are what a float holds: from 0 to just below 1, so that 0 is never and 1 always.
        ((bits >> 11) as f64) / ((1_u64 << 53) as f64) < probability
    }
}

/// Listens on loopback until it is dropped, which closes all its connections. Each connection of a client has its own
/// to the server, with one request at a time; when the server closes that, the client's is closed too.
///
/// Requests are read whole before they are passed on; answers are passed on as they come.
///
/// ```
/// use harness::{Faults, Proxy, Stub};
/// let stub = Stub::start(|_| Some(Stub::ok(b"hello")))?;
/// let faults = Faults { after: 1.0, ..Faults::none(1) };
/// let proxy = Proxy::start(stub.address(), faults)?;
/// assert!(ureq::get(format!("http://{}/x", proxy.address())).call().is_err());
/// assert_eq!((stub.received().len(), proxy.count()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Proxy {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts one in front of a server. The server needn't be there yet.
    ///
    /// # Errors
    ///
    /// Where no port is free.
    pub fn start(upstream: SocketAddr, faults: Faults) -> io::Result<Proxy> {
        let shared = Arc::new(Shared {
            upstream,
            faults,
            requests: AtomicU64::new(0),
            made: AtomicUsize::new(0),
            open: Open::new(),
        });
        let listening = Listening::start(Arc::clone(&shared.open), {
            let shared = Arc::clone(&shared);
            move |stream| {
                let mut client = Client::new(stream);
                match serve(&shared, &mut client) {
                    Ok(End::Reset) => drop(client),
                    // Whatever else went wrong, the client sees its connection end.
                    Ok(End::Closed) | Err(_) => client.close(),
                }
            }
        })?;
        Ok(Proxy { listening, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// How many faults it has made. A request that meets two counts twice.
    pub fn count(&self) -> usize {
        self.shared.made.load(Ordering::SeqCst)
    }
}

/// What the proxy and its threads have in common.
struct Shared {
    upstream: SocketAddr,
    faults: Faults,
    requests: AtomicU64,
    made: AtomicUsize,
    open: Arc<Open>,
}

impl Shared {
    fn connect(&self) -> io::Result<Arc<TcpStream>> {
        self.open.hold(TcpStream::connect(self.upstream)?)
    }

    fn next_fate(&self) -> Fate {
        self.faults
            .fate(self.requests.fetch_add(1, Ordering::SeqCst))
    }

    fn count(&self) {
        self.made.fetch_add(1, Ordering::SeqCst);
    }
}

/// How a client's connection ends.
enum End {
    Reset,
    Closed,
}

fn serve(shared: &Shared, client: &mut Client) -> io::Result<End> {
    // There is none before the first request that gets through.
    let mut server: Option<Arc<TcpStream>> = None;
    while client.has_more(server.as_deref())? {
        let head = Head::read(client)?;
        let fate = shared.next_fate();
        if fate.before {
            shared.count();
            return Ok(End::Reset);
        }
        if head.value("expect").is_some() {
            client.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut request = head.bytes.clone();
        copy_body(client, &head.request_body()?, &mut request)?;
        if let Some(wait) = fate.delay {
            shared.count();
            thread::sleep(wait);
        }
        let server = match &server {
            Some(server) => server,
            None => server.insert(shared.connect()?),
        };
        let without_body = head.first_line().starts_with("HEAD ");
        if !fate.after && !fate.duplicate {
            let mut to_client = &*client.stream;
            exchange(server, &request, without_body, &mut to_client)?;
            continue;
        }
        let mut answer = Vec::new();
        let whole = exchange(server, &request, without_body, &mut answer);
        // The server's own faults go to the client as they are.
        if whole.is_ok() {
            if fate.duplicate {
                let second = shared
                    .connect()
                    .and_then(|server| exchange(&server, &request, without_body, &mut io::sink()));
                if second.is_ok() {
                    shared.count();
                }
            }
            if fate.after {
                shared.count();
                return Ok(End::Reset);
            }
        }
        client.write(&answer)?;
        whole?;
    }
    Ok(End::Closed)
}

/// Sends a request and passes its answer on. Both at once: a server may begin to answer before it has read it all, and
/// would stop reading if nobody took the answer.
fn exchange(
    server: &TcpStream,
    request: &[u8],
    without_body: bool,
    to: &mut dyn Write,
) -> io::Result<()> {
    thread::scope(|scope| {
        // A server that takes no more of the request may have answered nevertheless: the answer decides.
        scope.spawn(|| {
            let mut server = server;
            server.write_all(request)
        });
        let answer = copy_answer(server, without_body, to);
        if answer.is_err() {
            // The sender mustn't wait for a server that nobody listens to any more.
            let _ = server.shutdown(Shutdown::Both);
        }
        answer
    })
}

fn copy_answer(server: &TcpStream, without_body: bool, to: &mut dyn Write) -> io::Result<()> {
    // Nothing comes behind an answer before the next request, so a reader for each loses nothing.
    let mut server = BufReader::new(server);
    loop {
        let head = Head::read(&mut server)?;
        let status = head.first_line();
        let status = status.split(' ').nth(1).unwrap_or_default();
        if status == "100" {
            // The client has had ours.
            continue;
        }
        to.write_all(&head.bytes)?;
        if status.starts_with('1') {
            continue;
        }
        let body = match without_body || matches!(status, "204" | "304") {
            true => Body::Length(0),
            false => head.answer_body()?,
        };
        return copy_body(&mut server, &body, to);
    }
}

/// A client's connection, which can be reset at any time: the kernel does that where a connection is let go with
/// bytes that nobody read. So the last byte that has come stays with the kernel, though it is known here.
///
/// (Asking for it, by a linger of zero, takes a crate or unsafe code.)
struct Client {
    stream: Arc<TcpStream>,
    unread: Cursor<Vec<u8>>,
    /// Whether the last byte of `unread` is still with the kernel.
    kept: bool,
}

impl Client {
    fn new(stream: Arc<TcpStream>) -> Client {
        Client {
            stream,
            unread: Cursor::default(),
            kept: false,
        }
    }

    /// Waits for the next request. There is none if either side has closed its connection meanwhile.
    fn has_more(&mut self, server: Option<&TcpStream>) -> io::Result<bool> {
        let mut came = !self.unread.fill_buf()?.is_empty();
        if !came {
            self.take_kept()?;
            self.stream.set_read_timeout(Some(LOOK))?;
        }
        while !came {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return Ok(false),
                Ok(_) => came = true,
                Err(error) if is_wait(&error) => {
                    if has_left(server)? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.stream.set_read_timeout(None)?;
        Ok(!has_left(server)?)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = &*self.stream;
        stream.write_all(bytes)
    }

    /// Ends it without a reset, which could cost the client the last answer.
    fn close(mut self) {
        let _ = self.take_kept();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn take_kept(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.kept) {
            let mut stream = &*self.stream;
            stream.read_exact(&mut [0])?;
        }
        Ok(())
    }
}

impl BufRead for Client {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.unread.fill_buf()?.is_empty() {
            self.take_kept()?;
            let mut bytes = vec![0; 1 << 16];
            let length = self.stream.peek(&mut bytes)?;
            bytes.truncate(length);
            if let Some((_, others)) = bytes.split_last_mut() {
                let mut stream = &*self.stream;
                stream.read_exact(others)?;
                self.kept = true;
            }
            self.unread = Cursor::new(bytes);
        }
        self.unread.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.unread.consume(amount);
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let amount = self.fill_buf()?.read(buffer)?;
        self.consume(amount);
        Ok(amount)
    }
}

/// Whether a server that has nothing to say has closed its connection.
fn has_left(server: Option<&TcpStream>) -> io::Result<bool> {
    let Some(server) = server else {
        return Ok(false);
    };
    server.set_nonblocking(true)?;
    let peeked = server.peek(&mut [0]);
    server.set_nonblocking(false)?;
    Ok(!peeked.is_err_and(|error| is_wait(&error)))
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stub;
    use std::net::TcpListener;
    use std::thread::JoinHandle;
    use std::time::Instant;

    const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

    fn hello() -> Stub {
        Stub::start(|_| Some(Stub::ok(b"hello"))).unwrap()
    }

    fn client(proxy: &Proxy) -> TcpStream {
        let client = TcpStream::connect(proxy.address()).unwrap();
        // A proxy that hangs fails a test rather than to hang it.
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        client
    }

    fn answer(client: &mut TcpStream, request: &[u8], length: usize) -> io::Result<Vec<u8>> {
        client.write_all(request)?;
        let mut answer = vec![0; length];
        client.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// A server of one connection that compares each request with the one it waits for, byte by byte.
    fn expecting(exchanges: Vec<(Vec<u8>, Vec<u8>)>) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (request, answer) in exchanges {
                let mut got = vec![0; request.len()];
                stream.read_exact(&mut got).unwrap();
                assert!(got == request);
                stream.write_all(&answer).unwrap();
            }
            // Nothing else comes.
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        (address, server)
    }

    #[test]
    fn messages_pass_through_unchanged_on_one_connection_whichever_way_they_end() {
        let large = vec![b'x'; 3 << 20];
        let length = format!("content-length:{}\r\n\r\n", large.len());
        let exchanges: Vec<(Vec<u8>, Vec<u8>)> = vec![
            (GET.to_vec(), Stub::ok(b"hello")),
            (
                b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nt: u\r\n\r\n".to_vec(),
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0A\r\n0123456789\r\n0\r\n\r\n".to_vec(),
            ),
            (
                b"HEAD / HTTP/1.1\r\n\r\n".to_vec(),
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(),
            ),
            (
                b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\r\n".to_vec(),
                b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            ),
            (
                [b"POST / HTTP/1.1\r\n", length.as_bytes(), &large].concat(),
                [b"HTTP/1.1 500 No\r\n", length.as_bytes(), &large].concat(),
            ),
            (GET.to_vec(), Stub::ok(b"")),
        ];
        let (address, server) = expecting(exchanges.clone());
        let proxy = Proxy::start(address, Faults::none(1)).unwrap();
        let mut client = client(&proxy);
        for (request, expected) in exchanges {
            assert!(answer(&mut client, &request, expected.len()).unwrap() == expected);
        }
        drop(client);
        server.join().unwrap();
        assert_eq!(proxy.count(), 0);
    }

    #[test]
    fn requests_sent_at_once_are_answered_in_order() {
        let stub = Stub::start(|request| Some(Stub::ok(&request.body))).unwrap();
        let proxy = Proxy::start(stub.address(), Faults::none(1)).unwrap();
        let requests = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\naPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nb";
        let expected = [Stub::ok(b"a"), Stub::ok(b"b")].concat();
        let answers = answer(&mut client(&proxy), requests, expected.len()).unwrap();
        assert!(answers == expected);
    }

    #[test]
    fn a_client_that_waits_to_be_asked_for_its_body_is_asked_once() {
        let head = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
        let go = b"HTTP/1.1 100 Continue\r\n\r\n";
        let (address, _server) = expecting(vec![(
            [&head[..], b"a"].concat(),
            [&go[..], &Stub::ok(b"hello")].concat(),
        )]);
        let proxy = Proxy::start(address, Faults::none(1)).unwrap();
        let mut client = client(&proxy);
        assert!(answer(&mut client, head, go.len()).unwrap() == go);
        let expected = Stub::ok(b"hello");
        assert!(answer(&mut client, b"a", expected.len()).unwrap() == expected);
    }

    #[test]
    fn a_server_that_closes_closes_the_clients_connection_behind_all_it_said() {
        let silent = Stub::closing(|_| Some(Stub::ok(b"hello"))).unwrap();
        let unmeasured = b"HTTP/1.1 200 OK\r\n\r\nhello";
        let saying = Stub::closing(|_| Some(unmeasured.to_vec())).unwrap();
        let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7";
        let breaking = Stub::closing(|_| Some(cut.to_vec())).unwrap();
        for (stub, expected) in [
            (silent, &Stub::ok(b"hello")[..]),
            (saying, unmeasured),
            (breaking, cut),
        ] {
            for duplicate in [0.0, 1.0] {
                let faults = Faults {
                    duplicate,
                    ..Faults::none(1)
                };
                let proxy = Proxy::start(stub.address(), faults).unwrap();
                let mut client = client(&proxy);
                client.write_all(GET).unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                assert!(got == expected);
            }
        }
    }

    #[test]
    fn before_resets_the_connection_and_the_server_sees_nothing() {
        let stub = hello();
        let faults = Faults {
            before: 1.0,
            ..Faults::none(1)
        };
        let proxy = Proxy::start(stub.address(), faults).unwrap();
        for count in 1..=20 {
            let error = answer(&mut client(&proxy), GET, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(proxy.count(), count);
        }
        assert!(stub.received().is_empty());
    }

    #[test]
    fn after_resets_the_connection_when_the_server_has_answered() {
        let stub = hello();
        let faults = Faults {
            after: 1.0,
            ..Faults::none(1)
        };
        let proxy = Proxy::start(stub.address(), faults).unwrap();
        for count in 1..=20 {
            let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
            let error = answer(&mut client(&proxy), request, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!((stub.received().len(), proxy.count()), (count, count));
        }
        assert!(stub.received().iter().all(|request| request.body == b"abc"));
    }

    #[test]
    fn a_connection_that_was_fine_is_reset_as_well() {
        let fine = |fate: Fate| !fate.before && !fate.after;
        let faults = |seed| Faults {
            before: 0.3,
            after: 0.3,
            ..Faults::none(seed)
        };
        for end in [
            |fate: Fate| fate.before,
            |fate: Fate| fate.after && !fate.before,
        ] {
            let seed = (0..1000)
                .find(|seed| {
                    let fate = |number| faults(*seed).fate(number);
                    fine(fate(0)) && fine(fate(1)) && end(fate(2))
                })
                .unwrap();
            let stub = hello();
            let proxy = Proxy::start(stub.address(), faults(seed)).unwrap();
            let mut client = client(&proxy);
            let expected = Stub::ok(b"hello");
            for _ in 0..2 {
                assert!(answer(&mut client, GET, expected.len()).unwrap() == expected);
            }
            let error = answer(&mut client, GET, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(proxy.count(), 1);
        }
    }

    #[test]
    fn delay_holds_a_request_back() {
        let stub = hello();
        let wait = Duration::from_millis(100);
        let faults = Faults {
            delay: Some((1.0, wait)),
            ..Faults::none(1)
        };
        let proxy = Proxy::start(stub.address(), faults).unwrap();
        let start = Instant::now();
        let expected = Stub::ok(b"hello");
        let got = answer(&mut client(&proxy), GET, expected.len()).unwrap();
        assert!(got == expected && start.elapsed() >= wait);
        assert_eq!(proxy.count(), 1);
    }

    #[test]
    fn duplicate_gives_the_server_each_request_twice_and_the_client_the_first_answer() {
        let stub = Stub::start(|request| {
            Some(Stub::ok(match request.connection {
                0 => b"first",
                _ => b"later",
            }))
        })
        .unwrap();
        let faults = Faults {
            duplicate: 1.0,
            ..Faults::none(1)
        };
        let proxy = Proxy::start(stub.address(), faults).unwrap();
        let mut client = client(&proxy);
        let expected = Stub::ok(b"first");
        for count in 1..=2 {
            let request = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
            assert!(answer(&mut client, request, expected.len()).unwrap() == expected);
            assert_eq!(proxy.count(), count);
        }
        let received = stub.received();
        let connections: Vec<_> = received.iter().map(|request| request.connection).collect();
        assert_eq!(connections, [0, 1, 0, 2]);
        assert!(received.iter().all(|request| request.body == b"abc"));
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let outcomes = |seed| {
            let stub = hello();
            let faults = Faults {
                before: 0.2,
                after: 0.2,
                duplicate: 0.2,
                ..Faults::none(seed)
            };
            let proxy = Proxy::start(stub.address(), faults).unwrap();
            let outcomes: Vec<_> = (0..50)
                .map(|_| {
                    let answered = answer(&mut client(&proxy), GET, 1).is_ok();
                    (answered, stub.received().len(), proxy.count())
                })
                .collect();
            outcomes
        };
        let first = outcomes(1);
        assert_eq!(first, outcomes(1));
        assert_ne!(first, outcomes(2));
    }

    #[test]
    fn faults_are_as_frequent_as_asked_for_and_independent() {
        let faults = Faults {
            seed: 1,
            before: 0.1,
            after: 0.2,
            delay: Some((0.3, LOOK)),
            duplicate: 0.5,
        };
        let fates: Vec<_> = (0..10_000).map(|number| faults.fate(number)).collect();
        let share = |of: fn(&&Fate) -> bool| fates.iter().filter(of).count().div_ceil(100);
        assert!((9..=11).contains(&share(|fate| fate.before)));
        assert!((19..=21).contains(&share(|fate| fate.after)));
        assert!((29..=32).contains(&share(|fate| fate.delay.is_some())));
        assert!((48..=52).contains(&share(|fate| fate.duplicate)));
        assert!((9..=11).contains(&share(|fate| fate.after && fate.duplicate)));
    }

    #[test]
    fn a_dropped_proxy_has_closed_its_connections_and_its_port() {
        let stub = Stub::start(|_| {
            thread::sleep(Duration::from_secs(60));
            None
        })
        .unwrap();
        let proxy = Proxy::start(stub.address(), Faults::none(1)).unwrap();
        let address = proxy.address();
        let (mut idle, mut waiting) = (client(&proxy), client(&proxy));
        waiting.write_all(GET).unwrap();
        while stub.received().is_empty() {
            thread::sleep(LOOK);
        }
        drop(proxy);
        // A reset tells as much, for the connection that nobody had accepted yet.
        assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
        assert_eq!(waiting.read(&mut [0]).unwrap(), 0);
        assert!(TcpStream::connect(address).is_err());
    }
}
