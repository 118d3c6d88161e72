//! A port on loopback and the connections behind it, all of which end when it is dropped.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// Serves each connection in a thread of its own.
pub(crate) struct Listening {
    address: SocketAddr,
    open: Arc<Open>,
    accepting: Option<JoinHandle<()>>,
}

impl Listening {
    pub(crate) fn start(
        open: Arc<Open>,
        serve: impl Fn(Arc<TcpStream>) + Send + Sync + 'static,
    ) -> io::Result<Listening> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let accepting = thread::spawn({
            let open = Arc::clone(&open);
            move || accept(&listener, &open, &Arc::new(serve))
        });
        Ok(Listening {
            address,
            open,
            accepting: Some(accepting),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let open = self.open.lock().take();
        for stream in open.iter().flatten().filter_map(Weak::upgrade) {
            // One that is closed already can't be shut down, and needn't be.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // It takes a connection to end the wait for one.
        if let (Ok(_), Some(accepting)) = (TcpStream::connect(self.address), self.accepting.take())
        {
            let _ = accepting.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    open: &Open,
    serve: &Arc<impl Fn(Arc<TcpStream>) + Send + Sync + 'static>,
) {
    for stream in listener.incoming() {
        if open.ended() {
            break;
        }
        // A client that goes away is no fault of the test.
        let Ok(stream) = stream.and_then(|stream| open.hold(stream)) else {
            continue;
        };
        let serve = Arc::clone(serve);
        thread::spawn(move || serve(stream));
    }
}

/// The connections to close in the end; none once that has been done. They are weak, because a connection is reset by
/// its last owner's letting go of it.
pub(crate) struct Open(Mutex<Option<Vec<Weak<TcpStream>>>>);

impl Open {
    pub(crate) fn new() -> Arc<Open> {
        Arc::new(Open(Mutex::new(Some(Vec::new()))))
    }

    /// Takes a connection in, unless the end has come.
    pub(crate) fn hold(&self, stream: TcpStream) -> io::Result<Arc<TcpStream>> {
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let mut open = self.lock();
        let Some(open) = open.as_mut() else {
            return Err(ErrorKind::ConnectionAborted.into());
        };
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&stream));
        Ok(stream)
    }

    fn ended(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Weak<TcpStream>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
