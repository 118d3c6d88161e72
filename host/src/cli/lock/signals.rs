//! Signals for a command that runs under a lease.

#[cfg(unix)]
pub(super) use unix::{Signal, Signals};
#[cfg(not(unix))]
pub(super) use windows::{Signal, Signals};

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io;
    use std::task::Poll;

    pub(crate) use rustix::process::Signal;
    use rustix::process::getpgrp;
    use rustix::termios::tcgetpgrp;
    use tokio::signal::unix::{self, SignalKind, signal};

    /// None is caught until [`Signals::catch`].
    #[derive(Default)]
    pub(crate) struct Signals {
        all: Vec<(unix::Signal, Signal)>,
    }

    impl Signals {
        /// After the command was started: what is ignored (`nohup`, `&` in a script) is ignored by the command as well then.
        pub(crate) fn catch(&mut self) -> io::Result<()> {
            self.all = [
                (SignalKind::terminate(), Signal::TERM),
                (SignalKind::hangup(), Signal::HUP),
                (SignalKind::user_defined1(), Signal::USR1),
                (SignalKind::user_defined2(), Signal::USR2),
                (SignalKind::interrupt(), Signal::INT),
                (SignalKind::quit(), Signal::QUIT),
            ]
            .into_iter()
            .map(|(kind, number)| Ok((signal(kind)?, number)))
            .collect::<io::Result<_>>()?;
            Ok(())
        }

        pub(crate) async fn next(&mut self) -> Signal {
            std::future::poll_fn(|context| {
                for (signal, number) in &mut self.all {
                    if let Poll::Ready(Some(())) = signal.poll_recv(context) {
                        return Poll::Ready(*number);
                    }
                }
                Poll::Pending
            })
            .await
        }

        /// The next one that the command does not have already. A terminal sends what is typed to all of the group in its
        /// foreground, and so to the command itself, wherever that reads its input from.
        pub(crate) async fn next_to_pass_on(&mut self) -> Signal {
            loop {
                let signal = self.next().await;
                if !(matches!(signal, Signal::INT | Signal::QUIT) && in_foreground()) {
                    return signal;
                }
            }
        }
    }

    fn in_foreground() -> bool {
        File::open("/dev/tty").is_ok_and(|tty| tcgetpgrp(tty).is_ok_and(|group| group == getpgrp()))
    }
}

/// A console passes its signals to the command itself.
#[cfg(not(unix))]
mod windows {
    use std::io;

    pub(crate) enum Signal {}

    #[derive(Default)]
    pub(crate) struct Signals {}

    impl Signals {
        pub(crate) fn catch(&mut self) -> io::Result<()> {
            Ok(())
        }

        pub(crate) async fn next(&mut self) -> Signal {
            std::future::pending().await
        }

        pub(crate) async fn next_to_pass_on(&mut self) -> Signal {
            self.next().await
        }
    }
}
