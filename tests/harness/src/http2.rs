//! HTTP/2 with a client, HTTP/1.1 with the server behind.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Request, Response, Uri};
use tokio::io::{AsyncRead, AsyncWrite};

/// The longest answer that is passed on.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Serves one connection until its end.
pub(crate) async fn serve(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: SocketAddr,
) -> io::Result<()> {
    let mut connection = h2::server::handshake(client)
        .await
        .map_err(io::Error::other)?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request.map_err(io::Error::other)?;
        tokio::spawn(async move {
            if pass_on(request, &mut respond, upstream).await.is_err() {
                respond.send_reset(Reason::INTERNAL_ERROR);
            }
        });
    }
    Ok(())
}

async fn pass_on(
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    upstream: SocketAddr,
) -> io::Result<()> {
    let (mut parts, mut body) = request.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(io::Error::other)?;
        bytes.extend_from_slice(&piece);
        let flow = body.flow_control();
        flow.release_capacity(piece.len())
            .map_err(io::Error::other)?;
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("http://{upstream}{path}")
        .parse::<Uri>()
        .map_err(io::Error::other)?;
    // It is the server's own again.
    parts.headers.remove(HOST);
    let request = Request::from_parts(parts, bytes);
    let answer = tokio::task::spawn_blocking(move || ask(request)).await??;
    let (mut head, bytes) = answer.into_parts();
    for name in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.headers.remove("keep-alive");
    let mut stream = respond
        .send_response(Response::from_parts(head, ()), false)
        .map_err(io::Error::other)?;
    stream
        .send_data(Bytes::from(bytes), true)
        .map_err(io::Error::other)
}

fn ask(mut request: Request<Vec<u8>>) -> io::Result<Response<Vec<u8>>> {
    *request.version_mut() = http::Version::HTTP_11;
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .new_agent();
    let answer = agent.run(request).map_err(io::Error::other)?;
    let (head, mut body) = answer.into_parts();
    let bytes = body.with_config().limit(LONGEST).read_to_vec();
    Ok(Response::from_parts(head, bytes.map_err(io::Error::other)?))
}
