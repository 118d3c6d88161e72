//! A server that is no ClickHouse and means harm, or is badly broken: it answers late, for ever, or wrongly.

use crate::listening::{Listening, Open};
use crate::message::{Head, copy_body};
use flate2::{Compression, Crc, write::DeflateEncoder};
use rustix::net::{listen, sockopt::set_socket_linger};
use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

/// The headers by which a client takes an answer for one of ClickHouse.
const CLICKHOUSE: &str = "X-ClickHouse-Query-Id: 1\r\n\
    X-ClickHouse-Format: Native\r\n\
    X-ClickHouse-Exception-Tag: abcdefghijklmnop\r\n";

/// Between the bytes of those that are slow.
const SLOW: Duration = Duration::from_millis(200);

/// What goes out at once of those that never end.
const PIECE: usize = 1 << 16;

/// What a [`Hostile`] does with each connection, or with each request on it.
///
/// Unless it says otherwise, an answer comes when the request has been read, body and all, has ClickHouse's headers, and
/// leaves the connection open for the next request. Bodies are zero bytes, which are blocks of `Native` without rows: a
/// client that takes such an answer for a good one finds nothing in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Takes what comes and says nothing, to a TLS handshake as well.
    Silent,
    /// Listens, but its queue is full: connecting to it takes for ever.
    NeverAccepts,
    /// Closes each connection before a request. The client sees its end, and no reset.
    CloseAtOnce,
    /// Resets the connection in place of an answer.
    Reset,
    /// The first line, and then a header of which a byte comes each 200 ms, for ever.
    SlowHead,
    /// Headers for ever, as fast as they are taken.
    EndlessHead,
    /// So many headers before a short body.
    ManyHeaders(usize),
    /// The head, and then a chunk of one byte each 200 ms, for ever.
    SlowBody,
    /// Chunks for ever, as fast as they are taken.
    EndlessBody,
    /// 10 MB in gzip that become 10 GiB. Everything is right about them, the checksum too.
    GzipBomb,
    /// Status 307, to this location.
    Redirect(String),
    /// Less body than the `Content-Length` says; then the connection ends.
    Truncated,
    /// A size of a chunk that is no number.
    BadChunk,
    /// A chunk of 2^64 - 1 bytes, of which a few come; then the connection ends.
    HugeChunkSize,
    /// Two headers `Content-Length` that differ.
    TwoLengths,
    /// A `Content-Length` and chunks that differ from it.
    LengthAndChunked,
    /// Nothing of HTTP.
    Garbage,
    /// A byte 0 in a header.
    NulInHeader,
    /// `100 Continue` for ever, and no answer behind it.
    Continues,
    /// Status 101, to a protocol that nobody asked for.
    SwitchingProtocols,
    /// An error in ClickHouse's form, whose words are the head of the request, the `Authorization` included.
    Echo,
    /// A good answer, on a connection that ends when it has been idle for a second, as its `Keep-Alive` says.
    BadKeepAlive,
}

/// Listens on loopback until it is dropped, which closes all its connections.
///
/// ```
/// use harness::{Behaviour, Hostile};
/// let hostile = Hostile::start(Behaviour::BadChunk)?;
/// let mut answer = ureq::get(format!("http://{}/", hostile.address())).call()?;
/// assert!(answer.body_mut().read_to_vec().is_err());
/// assert_eq!(hostile.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hostile {
    place: Place,
    accepted: Arc<AtomicUsize>,
}

enum Place {
    Open(Listening),
    Full {
        address: SocketAddr,
        _listener: TcpListener,
        _queue: Vec<TcpStream>,
    },
}

impl Hostile {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// Where no port is free, or the system lets a queue grow that should be full.
    pub fn start(behaviour: Behaviour) -> io::Result<Hostile> {
        let accepted = Arc::new(AtomicUsize::new(0));
        let place = match behaviour {
            Behaviour::NeverAccepts => Place::full()?,
            _ => {
                let accepted = Arc::clone(&accepted);
                Place::Open(Listening::start(Open::new(), move |stream| {
                    accepted.fetch_add(1, Ordering::SeqCst);
                    // A client that goes away is what most of these are for.
                    let _ = serve(&behaviour, &stream);
                })?)
            }
        };
        Ok(Hostile { place, accepted })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match &self.place {
            Place::Open(listening) => listening.address(),
            Place::Full { address, .. } => *address,
        }
    }

    /// How many connections it has accepted.
    pub fn count(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Place {
    fn full() -> io::Result<Place> {
        const SHORTEST: i32 = 1;
        const TRIES: usize = 16;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        listen(&listener, SHORTEST)?;
        let mut queue = Vec::new();
        // How many fit is up to the system: it is full when the next one is not answered.
        while queue.len() < TRIES {
            match TcpStream::connect_timeout(&address, SLOW) {
                Ok(stream) => queue.push(stream),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Ok(Place::Full {
                        address,
                        _listener: listener,
                        _queue: queue,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::Unsupported.into())
    }
}

fn serve(behaviour: &Behaviour, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    match behaviour {
        Behaviour::Silent => return io::copy(&mut reader, &mut io::sink()).map(drop),
        Behaviour::CloseAtOnce => return close(stream),
        _ => {}
    }
    loop {
        let head = match Head::read(&mut reader) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return close(stream),
            head => head?,
        };
        if head.value("expect").is_some() {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        copy_body(&mut reader, &head.request_body()?, &mut io::sink())?;
        let answer = answer(behaviour, &head);
        writer.write_all(&answer.start)?;
        for _ in 0..answer.times {
            thread::sleep(answer.pause);
            writer.write_all(&answer.middle)?;
        }
        writer.write_all(&answer.end)?;
        match answer.then {
            Then::Next => {}
            Then::NextWithin(time) => stream.set_read_timeout(Some(time))?,
            Then::Close => return close(stream),
            // It happens when the last owner lets go of the connection, which is soon.
            Then::Reset => return Ok(set_socket_linger(stream, Some(Duration::ZERO))?),
        }
    }
}

/// Ends a connection without a reset: what comes on it still is taken, until the client ends it too.
fn close(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// The start, the middle so many times with a pause before each, and the end.
struct Answer {
    start: Vec<u8>,
    middle: Vec<u8>,
    pause: Duration,
    times: u64,
    end: Vec<u8>,
    then: Then,
}

/// What comes behind an answer.
enum Then {
    Next,
    NextWithin(Duration),
    Close,
    Reset,
}

fn answer(behaviour: &Behaviour, head: &Head) -> Answer {
    use Behaviour::*;
    let chunked = ok("Transfer-Encoding: chunked\r\n", b"");
    match behaviour {
        // These two don't get here.
        Silent | NeverAccepts => once(Vec::new(), Then::Next),
        CloseAtOnce => once(Vec::new(), Then::Close),
        Reset => once(Vec::new(), Then::Reset),
        SlowHead => for_ever(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", SLOW),
        EndlessHead => {
            let header = b"X-Endless: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n";
            for_ever(b"HTTP/1.1 200 OK\r\n", &many(header), Duration::ZERO)
        }
        ManyHeaders(count) => {
            let headers: String = (0..*count)
                .map(|number| format!("X-Header-{number}: x\r\n"))
                .collect();
            once(
                ok(&format!("{headers}Content-Length: 2\r\n"), b"\0\0"),
                Then::Next,
            )
        }
        SlowBody => for_ever(&chunked, &chunk(b"\0"), SLOW),
        EndlessBody => for_ever(&chunked, &chunk(&[0; PIECE]), Duration::ZERO),
        GzipBomb => gzip_bomb(),
        Redirect(to) => once(
            format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
            ),
            Then::Next,
        ),
        Truncated => once(ok("Content-Length: 1000\r\n", b"\0\0"), Then::Close),
        BadChunk => once(
            [&chunked[..], b"xyz\r\n\0\0\r\n0\r\n\r\n"].concat(),
            Then::Next,
        ),
        HugeChunkSize => once(
            [&chunked[..], b"ffffffffffffffff\r\n\0\0"].concat(),
            Then::Close,
        ),
        TwoLengths => once(
            ok("Content-Length: 2\r\nContent-Length: 4\r\n", &[0; 4]),
            Then::Next,
        ),
        LengthAndChunked => once(
            ok(
                "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                b"2\r\n\0\0\r\n0\r\n\r\n",
            ),
            Then::Next,
        ),
        Garbage => once(
            *b"\x16\x03\x01\0\xffnothing of HTTP\r\n\r\n\0\0",
            Then::Next,
        ),
        NulInHeader => once(
            ok("X-Nul: a\0b\r\nContent-Length: 2\r\n", b"\0\0"),
            Then::Next,
        ),
        Continues => for_ever(b"", &many(b"HTTP/1.1 100 Continue\r\n\r\n"), Duration::ZERO),
        SwitchingProtocols => once(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
            Then::Next,
        ),
        Echo => once(echo(head), Then::Next),
        BadKeepAlive => once(
            ok(
                "Connection: Keep-Alive\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n",
                b"\0\0",
            ),
            Then::NextWithin(Duration::from_secs(1)),
        ),
    }
}

fn once(bytes: impl Into<Vec<u8>>, then: Then) -> Answer {
    Answer {
        start: bytes.into(),
        middle: Vec::new(),
        pause: Duration::ZERO,
        times: 0,
        end: Vec::new(),
        then,
    }
}

/// Until nobody takes it any more.
fn for_ever(start: &[u8], middle: &[u8], pause: Duration) -> Answer {
    Answer {
        middle: middle.to_vec(),
        pause,
        times: u64::MAX,
        ..once(start, Then::Close)
    }
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{CLICKHOUSE}{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", bytes.len());
    [size.as_bytes(), bytes, b"\r\n"].concat()
}

fn many(bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(PIECE.div_ceil(bytes.len()))
}

fn echo(head: &Head) -> String {
    let head = String::from_utf8_lossy(&head.bytes);
    let head: Vec<_> = head.lines().filter(|line| !line.is_empty()).collect();
    let words = format!(
        "Code: 62. DB::Exception: {}. (SYNTAX_ERROR) (version 1)\n",
        head.join(" ")
    );
    format!(
        "HTTP/1.1 500 Internal Server Error\r\n{CLICKHOUSE}X-ClickHouse-Exception-Code: 62\r\n\
         Content-Length: {}\r\n\r\n{words}",
        words.len()
    )
}

fn gzip_bomb() -> Answer {
    const TIMES: u64 = 640;
    static GZIP: LazyLock<Gzip> = LazyLock::new(|| Gzip::of_zeros(TIMES));
    Answer {
        start: [
            ok(
                "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                b"",
            ),
            chunk(GZIP_HEAD),
        ]
        .concat(),
        middle: chunk(&GZIP.blocks),
        times: TIMES,
        end: [chunk(&GZIP.end), b"0\r\n\r\n".to_vec()].concat(),
        ..once("", Then::Next)
    }
}

/// Without a name, a time or a system.
const GZIP_HEAD: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";

/// What goes behind the head of a file in gzip: the same blocks so many times, and an end.
struct Gzip {
    blocks: Vec<u8>,
    end: Vec<u8>,
}

impl Gzip {
    /// So many times 16 MiB of zeros.
    fn of_zeros(times: u64) -> Gzip {
        const MIB: &[u8] = &[0; 1 << 20];
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let mut once = Crc::new();
        for _ in 0..16 {
            // Nothing can go wrong in memory.
            let _ = encoder.write_all(MIB);
            once.update(MIB);
        }
        // Flushed blocks end with a whole byte, and these are the first ones, so they refer to nothing before them.
        let _ = encoder.flush();
        let mut all = Crc::new();
        for _ in 0..times {
            all.combine(&once);
        }
        // A last block with nothing in it, the checksum, and the length, of which gzip keeps 32 bits.
        let end = [
            &[3, 0][..],
            &all.sum().to_le_bytes(),
            &all.amount().to_le_bytes(),
        ]
        .concat();
        Gzip {
            blocks: encoder.get_ref().clone(),
            end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Behaviour::*;
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;
    use std::time::Instant;

    const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A connection on which a request has been sent.
    fn ask(hostile: &Hostile, request: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(hostile.address()).unwrap();
        // A server that hangs fails a test rather than to hang it.
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        client.write_all(request).unwrap();
        client
    }

    fn start(behaviour: Behaviour) -> Hostile {
        Hostile::start(behaviour).unwrap()
    }

    fn take(client: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// What comes until the connection ends, which ureq has no part in.
    fn take_all(client: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).map(|_| bytes)
    }

    fn has(bytes: &[u8], part: &str) -> bool {
        String::from_utf8_lossy(bytes).contains(part)
    }

    /// Takes some MB, to see that there are no other bytes between.
    fn flows(behaviour: Behaviour, start: &str, middle: &str) {
        let hostile = Hostile::start(behaviour).unwrap();
        let bytes = take(&mut ask(&hostile, GET), 4 << 20);
        let text = String::from_utf8(bytes).unwrap();
        let rest = text.strip_prefix(start).unwrap();
        assert!(rest.len() / middle.len() - 1 <= rest.matches(middle).count());
    }

    /// What a client makes of an answer.
    fn get(hostile: &Hostile) -> Result<(u16, Vec<u8>), ureq::Error> {
        get_within(hostile, Duration::from_secs(10))
    }

    fn get_within(hostile: &Hostile, patience: Duration) -> Result<(u16, Vec<u8>), ureq::Error> {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(patience))
            .build()
            .new_agent();
        let mut answer = agent
            .get(format!("http://{}/x", hostile.address()))
            .call()?;
        let body = answer.body_mut().read_to_vec()?;
        Ok((answer.status().as_u16(), body))
    }

    #[test]
    fn silent_takes_requests_and_handshakes_and_says_nothing() {
        let hostile = start(Silent);
        for said in [GET, b"\x16\x03\x01\0\x05hello"] {
            let mut client = ask(&hostile, said);
            client.set_read_timeout(Some(SLOW)).unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(hostile.count(), 2);
    }

    #[test]
    fn never_accepts_lets_connections_hang() {
        let hostile = start(NeverAccepts);
        for _ in 0..2 {
            let error = TcpStream::connect_timeout(&hostile.address(), SLOW).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        assert_eq!(hostile.count(), 0);
    }

    #[test]
    fn close_at_once_ends_a_connection_before_and_after_a_request() {
        let hostile = start(CloseAtOnce);
        for request in [GET, b""] {
            let mut client = ask(&hostile, request);
            assert_eq!(take_all(&mut client).unwrap(), b"");
        }
    }

    #[test]
    fn reset_ends_a_connection_with_an_error_when_the_request_is_there() {
        let hostile = start(Reset);
        for _ in 0..20 {
            let mut client = ask(&hostile, b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na");
            client.write_all(b"bc").unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn slow_head_and_slow_body_send_a_byte_now_and_then() {
        for behaviour in [SlowHead, SlowBody] {
            let hostile = start(behaviour);
            let start = Instant::now();
            let mut client = ask(&hostile, GET);
            // Whatever comes at once, then two more.
            let head = client.read(&mut [0; 1000]).unwrap();
            assert!(head > 20);
            for number in 1..=2 {
                assert!(client.read(&mut [0; 1000]).unwrap() < 100);
                assert!(start.elapsed() >= SLOW * number);
            }
            let error = get_within(&hostile, SLOW + SLOW / 2).unwrap_err();
            assert!(matches!(error, ureq::Error::Timeout(_)), "{error:?}");
        }
    }

    #[test]
    fn endless_ones_do_not_end() {
        let header = format!("X-Endless: {}\r\n", "x".repeat(56));
        flows(EndlessHead, "HTTP/1.1 200 OK\r\n", &header);
        flows(Continues, "", "HTTP/1.1 100 Continue\r\n\r\n");
        let head = String::from_utf8(ok("Transfer-Encoding: chunked\r\n", b"")).unwrap();
        let piece = format!("10000\r\n{}\r\n", "\0".repeat(PIECE));
        flows(EndlessBody, &head, &piece);
        for behaviour in [EndlessHead, Continues, EndlessBody] {
            assert!(get_within(&start(behaviour), SLOW * 2).is_err());
        }
    }

    #[test]
    fn many_headers_are_as_many_as_asked_for() {
        let hostile = start(ManyHeaders(5000));
        let mut client = ask(&hostile, GET);
        client.shutdown(Shutdown::Write).unwrap();
        let answer = take_all(&mut client).unwrap();
        assert_eq!(
            String::from_utf8(answer)
                .unwrap()
                .matches("X-Header-")
                .count(),
            5000
        );
        assert_eq!(get(&start(ManyHeaders(10))).unwrap(), (200, vec![0, 0]));
    }

    #[test]
    fn a_gzip_bomb_is_small_and_unpacks_without_an_error() {
        let hostile = start(GzipBomb);
        let url = format!("http://{}/x", hostile.address());
        let mut answer = ureq::get(url).call().unwrap();
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        let body = answer
            .body_mut()
            .with_config()
            .limit(20 << 20)
            .read_to_vec()
            .unwrap();
        assert!((9 << 20..11 << 20).contains(&body.len()), "{}", body.len());
        let mut start = vec![1; 20 << 20];
        GzDecoder::new(&body[..]).read_exact(&mut start).unwrap();
        assert!(start.iter().all(|byte| *byte == 0));

        // The same way, but small enough to unpack it all: the decoder compares the checksum and the length.
        let small = Gzip::of_zeros(2);
        let file = [GZIP_HEAD, &small.blocks, &small.blocks, &small.end].concat();
        let mut all = Vec::new();
        GzDecoder::new(&file[..]).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 32 << 20);
    }

    #[test]
    fn a_redirect_names_its_location_and_keeps_the_connection() {
        let hostile = start(Redirect("http://127.0.0.1:1/y".to_owned()));
        let mut client = ask(&hostile, &[GET, GET].concat());
        client.shutdown(Shutdown::Write).unwrap();
        let answers = String::from_utf8(take_all(&mut client).unwrap()).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 307 ").count(), 2);
        assert_eq!(
            answers
                .matches("\r\nLocation: http://127.0.0.1:1/y\r\n")
                .count(),
            2
        );
        assert_eq!(get(&hostile).unwrap(), (307, Vec::new()));
        assert_eq!(hostile.count(), 2);
    }

    #[test]
    fn broken_bodies_are_errors_to_a_client() {
        for behaviour in [Truncated, BadChunk, HugeChunkSize] {
            let hostile = start(behaviour.clone());
            let error = get(&hostile).unwrap_err();
            assert!(!matches!(error, ureq::Error::Timeout(_)), "{behaviour:?}");
        }
    }

    #[test]
    fn ambiguous_and_malformed_heads_say_what_they_should() {
        for (behaviour, parts) in [
            (
                TwoLengths,
                &["\r\nContent-Length: 2\r\n", "\r\nContent-Length: 4\r\n"][..],
            ),
            (
                LengthAndChunked,
                &[
                    "\r\nContent-Length: 4\r\n",
                    "\r\nTransfer-Encoding: chunked\r\n",
                ],
            ),
            (
                NulInHeader,
                &["X-ClickHouse-Query-Id: 1\r\n", "\r\nX-Nul: a\0b\r\n"],
            ),
            (SwitchingProtocols, &["HTTP/1.1 101 "]),
            (Garbage, &["nothing of HTTP"]),
        ] {
            let hostile = start(behaviour);
            let mut client = ask(&hostile, GET);
            client.shutdown(Shutdown::Write).unwrap();
            let answer = take_all(&mut client).unwrap();
            assert!(parts.iter().all(|part| has(&answer, part)), "{parts:?}");
        }
        for behaviour in [NulInHeader, Garbage] {
            assert!(get(&start(behaviour)).is_err());
        }
    }

    #[test]
    fn echo_gives_the_head_of_a_request_back_on_one_line() {
        let hostile = start(Echo);
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent();
        for body in ["", "SELECT 1"] {
            let mut answer = agent
                .post(format!("http://{}/?query=x", hostile.address()))
                .header("Authorization", "Basic c2VrcmV0")
                .send(body)
                .unwrap();
            assert_eq!(answer.status(), 500);
            assert_eq!(answer.headers()["x-clickhouse-exception-code"], "62");
            let words = answer.body_mut().read_to_string().unwrap();
            assert!(
                words.starts_with("Code: 62. DB::Exception: POST /?query=x HTTP/1.1 "),
                "{words}"
            );
            assert!(
                words
                    .to_lowercase()
                    .contains(" authorization: basic c2vrcmv0"),
                "{words}"
            );
            assert!(words.ends_with(". (SYNTAX_ERROR) (version 1)\n"), "{words}");
            assert_eq!(words.lines().count(), 1);
        }
        // One connection for both: the whole request has been read each time.
        assert_eq!(hostile.count(), 1);
    }

    #[test]
    fn bad_keep_alive_answers_until_it_has_been_idle_for_a_second() {
        let hostile = start(BadKeepAlive);
        let length = answer(&BadKeepAlive, &Head { bytes: Vec::new() })
            .start
            .len();
        let mut client = ask(&hostile, GET);
        take(&mut client, length);
        client.write_all(GET).unwrap();
        let start = Instant::now();
        let got = take(&mut client, length);
        assert!(has(&got, "\r\nKeep-Alive: timeout=1\r\n"));
        assert_eq!(take_all(&mut client).unwrap(), b"");
        assert!((900..5000).contains(&start.elapsed().as_millis()));
        assert_eq!(hostile.count(), 1);
    }

    #[test]
    fn a_dropped_one_has_closed_its_connections_and_its_port() {
        for behaviour in [Silent, EndlessBody, SlowHead, NeverAccepts] {
            let hostile = start(behaviour.clone());
            let address = hostile.address();
            let client = (behaviour != NeverAccepts).then(|| ask(&hostile, GET));
            thread::sleep(Duration::from_millis(20));
            drop(hostile);
            if let Some(mut client) = client {
                // What had been sent before is still there.
                let _ = take_all(&mut client);
                assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            }
            let error = TcpStream::connect(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
    }
}
