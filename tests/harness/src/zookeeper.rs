//! A real ZooKeeper, on which servers of ClickHouse share what they must agree upon.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::clickhouse::on_path;

/// Debian's ZooKeeper: its manifest names the other jars that it takes.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// Writes what ZooKeeper has to say to its standard error.
const LOG_JAR: &str = "/usr/share/java/slf4j-simple.jar";

/// A small and short-lived process: no time is well spent on the best code, and nobody watches its counters.
const JVM: [&str; 8] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.jmx.log4j.disable=true",
    // Each log file is made this long, in KiB; 64 MiB unless told.
    "-Dzookeeper.preAllocSize=1024",
    // Its data need not outlive the machine, and waiting for a slow disk would make tests late.
    "-Dzookeeper.forceSync=no",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
];

/// Ends ZooKeeper, and removes its folder `$0`, when standard input is closed, which is when the parent ends, however
/// it ends. A parent that says `keep` first has a use for the folder. ZooKeeper takes the shell's place, and so
/// its process number too.
const GUARD: &str = r#"exec 3<&0
(
    trap '' INT HUP TERM
    read -r word <&3
    kill -KILL $$
    [ "$word" = keep ] || rm -rf -- "$0"
) >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-"#;

/// Two ticks are the shortest session, 20 the longest: a session whose server is gone is over after 4 seconds.
const TICK: Duration = Duration::from_millis(200);
/// Under a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often it is started anew, when somebody took its port in the moment before it listened.
const TRIES: usize = 3;

/// A running ZooKeeper, on loopback alone. It ends, and its data is removed, when this is dropped, and also when the
/// process is killed.
///
/// ```
/// use std::net::TcpStream;
///
/// let mut zookeeper = harness::ZooKeeper::start()?;
/// assert!(TcpStream::connect(zookeeper.address()).is_ok());
/// zookeeper.stop()?;
/// assert!(TcpStream::connect(zookeeper.address()).is_err());
/// zookeeper.start_again()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ZooKeeper {
    folder: TempDir,
    port: u16,
    /// None while it is stopped.
    process: Option<Process>,
}

struct Process {
    child: Child,
    /// Closing it ends ZooKeeper.
    stdin: Option<ChildStdin>,
}

impl ZooKeeper {
    /// Debian's packages that [`ZooKeeper::start`] takes. Neither starts a service.
    pub const PACKAGES: [&str; 2] = ["libzookeeper-java", "default-jre-headless"];

    /// Whether this machine has what [`ZooKeeper::start`] takes.
    pub fn is_installed() -> bool {
        Path::new(JAR).is_file() && on_path("java").is_some()
    }

    /// A new one, without data, on any free port.
    ///
    /// # Errors
    ///
    /// Where it is not installed, which the error says how to do, or does not start.
    pub fn start() -> io::Result<ZooKeeper> {
        if !ZooKeeper::is_installed() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "ZooKeeper is not installed: run as root: apt-get install --no-install-recommends {}",
                    ZooKeeper::PACKAGES.join(" ")
                ),
            ));
        }
        let mut result = ZooKeeper::launch();
        for _ in 1..TRIES {
            if result.is_ok() {
                break;
            }
            result = ZooKeeper::launch();
        }
        result
    }

    fn launch() -> io::Result<ZooKeeper> {
        let folder = tempfile::Builder::new()
            .prefix("pipeline-state-zookeeper-")
            .tempdir()?;
        let mut zookeeper = ZooKeeper {
            folder,
            port: free_port()?,
            process: None,
        };
        fs::create_dir(zookeeper.data())?;
        fs::write(zookeeper.configuration(), zookeeper.settings())?;
        zookeeper.start_again()?;
        Ok(zookeeper)
    }

    /// Kills it and keeps its data, so that nobody can reach it. Nothing happens if it is stopped already.
    ///
    /// # Errors
    ///
    /// Where the system does not let it end.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        if let Some(mut stdin) = process.stdin.take() {
            // Nobody reads it where ZooKeeper has ended by itself.
            let _ = stdin.write_all(b"keep\n");
        }
        process.child.wait()?;
        Ok(())
    }

    /// Starts it after [`ZooKeeper::stop`], on the same port with the same data, and waits until it answers. Nothing
    /// happens if it runs already.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start_again(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let log = File::create(self.log())?;
        let mut child = Command::new("sh")
            .args(["-c", GUARD])
            .arg(self.folder.path())
            .arg("java")
            .args(JVM)
            .args(["-cp", &[JAR, LOG_JAR].join(":")])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.configuration())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let stdin = child.stdin.take();
        let process = self.process.insert(Process { child, stdin });

        let start = Instant::now();
        let why = loop {
            if let Some(status) = process.child.try_wait()? {
                break status.to_string();
            }
            if serves(self.port, self.folder.path()) {
                return Ok(());
            }
            if start.elapsed() > START_LIMIT {
                break format!("no answer within {} s", START_LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(10));
        };
        self.stop()?;
        let said = fs::read_to_string(self.log()).unwrap_or_default();
        Err(io::Error::other(format!(
            "ZooKeeper did not start: {why}\n{said}"
        )))
    }

    /// Where it listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn settings(&self) -> String {
        format!(
            "tickTime={}\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=conf\n",
            TICK.as_millis(),
            self.data().display(),
            self.port,
            Ipv4Addr::LOCALHOST,
        )
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("zoo.cfg")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        // The folder goes after it, also where it could not be waited for.
        let _ = self.stop();
    }
}

/// A port that nobody listens on now. Somebody may a moment later: then it is started anew.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Whether the ZooKeeper with this folder serves this port: somebody else's names another folder, and one that is
/// still starting names none.
fn serves(port: u16, folder: &Path) -> bool {
    let limit = Duration::from_secs(1);
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"conf")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(&*folder.to_string_lossy()))
}
