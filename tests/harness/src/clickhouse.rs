//! A real ClickHouse server that ends with the process that started it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use url::Url;

use crate::{ZooKeeper, wheel};

/// Names a server to use instead of starting one: `http://user:password@host:port`.
pub const GIVEN_VARIABLE: &str = "PIPELINE_STATE_TEST_CLICKHOUSE";

/// The users of a server that is started here. It listens on loopback alone, for the time of a test.
const USER: (&str, &str) = ("app", "secret");
const READER: (&str, &str) = ("reader", "read-secret");
const WRITER: (&str, &str) = ("writer", "write-secret");
/// What a pipeline needs on tables that are there, and no more.
const WRITER_GRANTS: [&str; 2] = ["SELECT ON *.*", "INSERT ON *.*"];

/// How often a server is started anew, when somebody took its port in the moment before it listened.
const TRIES: usize = 3;

/// Why there is no server, or why it refused a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What a server needs could not be installed.
    #[error("{0}")]
    Setup(String),
    /// Python can make no environments: on Debian that takes the package `python3-venv`.
    #[error("{0}; Python needs its module venv, on Debian the package python3-venv")]
    NoVenv(String),
    /// A file could not be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The server did not come up.
    #[error("ClickHouse did not start: {0}")]
    Start(String),
    /// [`GIVEN_VARIABLE`] can't be used.
    #[error("{GIVEN_VARIABLE} must look like http://user:password@host:port")]
    Given,
    /// The server refused a query, or could not be reached.
    #[error("{0}")]
    Query(String),
}

impl Error {
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Error {
        Error::File {
            path: path.to_owned(),
            error,
        }
    }
}

/// A running server. One that was started here ends, and its data is removed, when this is dropped, and also when
/// the process is killed.
///
/// ```
/// let server = harness::ClickHouse::start()?;
/// assert_eq!(server.query("SELECT 1 + 1")?, "2\n");
/// # Ok::<(), harness::Error>(())
/// ```
pub struct ClickHouse {
    host: String,
    port: u16,
    user: (String, String),
    /// Users with fewer rights; none on a server that was there before.
    reader: Option<(String, String)>,
    writer: Option<(String, String)>,
    /// None for a server that was there before.
    process: Option<Process>,
}

struct Process {
    child: Child,
    /// Closing it ends the server.
    stdin: Option<ChildStdin>,
}

/// What a server is to be like.
struct Wanted<'a> {
    /// 0 is any free one.
    port: u16,
    zone: &'a str,
    /// Settings of the server beside those that all have, as a file of its configuration.
    more: Option<String>,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Wanted {
            port: 0,
            zone: "UTC",
            more: None,
        }
    }
}

/// Installs what [`ClickHouse::start`] needs, if it needs anything, so that it does not take long then.
///
/// # Errors
///
/// Where the installation fails; the error says what is missing.
pub fn prepare() -> Result<(), Error> {
    if given().is_none() && installed().is_none() {
        wheel::python("clickhouse")?;
    }
    Ok(())
}

impl ClickHouse {
    /// The server that [`GIVEN_VARIABLE`] names, else a new one: a `clickhouse` program on the PATH, else the one in
    /// a Python wheel.
    ///
    /// # Errors
    ///
    /// Where there is none and none can be started.
    pub fn start() -> Result<ClickHouse, Error> {
        match given() {
            Some(given) => ClickHouse::given(&given),
            None => ClickHouse::start_on(0),
        }
    }

    /// A new server on this port; 0 is any free one.
    ///
    /// # Errors
    ///
    /// Where none can be started.
    pub fn start_on(port: u16) -> Result<ClickHouse, Error> {
        ClickHouse::start_with(&Wanted {
            port,
            ..Wanted::default()
        })
    }

    /// A new server whose time zone is `zone`, for example `America/New_York`.
    ///
    /// # Errors
    ///
    /// Where none can be started.
    pub fn start_in(zone: &str) -> Result<ClickHouse, Error> {
        ClickHouse::start_with(&Wanted {
            zone,
            ..Wanted::default()
        })
    }

    /// A new server on this ZooKeeper, which tables of the engine KeeperMap need. Several can share it, each with a
    /// `name` of its own, which is also its macro `{replica}`.
    ///
    /// ```
    /// let zookeeper = harness::ZooKeeper::start()?;
    /// let first = harness::ClickHouse::start_replica(&zookeeper, "r1")?;
    /// let second = harness::ClickHouse::start_replica(&zookeeper, "r2")?;
    /// for server in [&first, &second] {
    ///     server.query("CREATE DATABASE shared")?;
    ///     server.query("CREATE TABLE shared.t (k String) ENGINE = KeeperMap('/t') PRIMARY KEY k")?;
    /// }
    /// first.query("INSERT INTO shared.t VALUES ('seen')")?;
    /// assert_eq!(second.query("SELECT k FROM shared.t")?, "seen\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Where none can be started.
    pub fn start_replica(zookeeper: &ZooKeeper, name: &str) -> Result<ClickHouse, Error> {
        ClickHouse::start_with(&Wanted {
            more: Some(replica_settings(zookeeper, name)),
            ..Wanted::default()
        })
    }

    fn start_with(wanted: &Wanted) -> Result<ClickHouse, Error> {
        let mut result = launch(wanted);
        for _ in 1..TRIES {
            if wanted.port != 0 || result.is_ok() {
                break;
            }
            result = launch(wanted);
        }
        let (process, port) = result?;
        let owned = |(name, password): (&str, &str)| (name.to_owned(), password.to_owned());
        Ok(ClickHouse {
            host: "127.0.0.1".to_owned(),
            port,
            user: owned(USER),
            reader: Some(owned(READER)),
            writer: Some(owned(WRITER)),
            process: Some(process),
        })
    }

    fn given(url: &str) -> Result<ClickHouse, Error> {
        let url = Url::parse(url).map_err(|_| Error::Given)?;
        let host = url.host_str().ok_or(Error::Given)?.to_owned();
        let port = url.port().ok_or(Error::Given)?;
        let decode = |text: &str| {
            let pairs = format!("x={}", text.replace('+', "%2B"));
            url::form_urlencoded::parse(pairs.as_bytes())
                .next()
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        Ok(ClickHouse {
            host,
            port,
            user: (decode(url.username()), decode(url.password().unwrap_or(""))),
            reader: None,
            writer: None,
            process: None,
        })
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name and the password of a user who may do everything.
    pub fn user(&self) -> (&str, &str) {
        (&self.user.0, &self.user.1)
    }

    /// A URI for that user: `clickhouse://user:password@host:port/database`.
    pub fn uri(&self, database: &str) -> String {
        self.uri_of(&self.user, database)
    }

    /// A URI for a user with `readonly=1`; none on a server that was there before.
    pub fn reader_uri(&self, database: &str) -> Option<String> {
        self.reader
            .as_ref()
            .map(|reader| self.uri_of(reader, database))
    }

    /// A URI for a user who may read and insert, and nothing else; none on a server that was there before.
    pub fn writer_uri(&self, database: &str) -> Option<String> {
        self.writer
            .as_ref()
            .map(|writer| self.uri_of(writer, database))
    }

    fn uri_of(&self, (name, password): &(String, String), database: &str) -> String {
        let encode = |text: &str| {
            url::form_urlencoded::byte_serialize(text.as_bytes())
                .collect::<String>()
                .replace('+', "%20")
        };
        format!(
            "clickhouse://{}:{}@{}/{database}",
            encode(name),
            encode(password),
            self.address()
        )
    }

    /// Runs a statement and returns what the server answers, tab-separated unless it says otherwise.
    ///
    /// # Errors
    ///
    /// The server's own words.
    pub fn query(&self, sql: &str) -> Result<String, Error> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let failed = |error: ureq::Error| Error::Query(error.to_string());
        let mut response = agent
            .post(format!("http://{}/", self.address()))
            .header("X-ClickHouse-User", &self.user.0)
            .header("X-ClickHouse-Key", &self.user.1)
            .send(sql)
            .map_err(failed)?;
        let body = response
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string()
            .map_err(failed)?;
        match response.status().is_success() {
            true => Ok(body),
            false => Err(Error::Query(body)),
        }
    }
}

impl Drop for ClickHouse {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.stdin.take();
            // It removes its data before it ends, and it is over after that in any case.
            let _ = process.child.wait();
        }
    }
}

/// Starts a server and waits until it answers.
fn launch(wanted: &Wanted) -> Result<(Process, u16), Error> {
    let script = workspace().join("tests/clickhouse/server.py");
    let program = installed();
    let python = match program {
        Some(_) => PathBuf::from("python3"),
        None => wheel::python("clickhouse")?,
    };
    let folder = tempfile::Builder::new()
        .prefix("pipeline-state-clickhouse-")
        .tempdir()
        .map_err(|error| Error::file(&env::temp_dir(), error))?;
    if let Some(settings) = &wanted.more {
        // The server reads what is in there after its main file.
        let more = folder.path().join("config.d");
        fs::create_dir(&more)
            .and_then(|()| fs::write(more.join("more.xml"), settings))
            .map_err(|error| Error::file(&more, error))?;
    }
    let mut child = Command::new(&python)
        .arg(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::file(&python, error))?;
    let lost = |error: std::io::Error| Error::Start(error.to_string());
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::Start("it has no pipes".to_owned()));
    };
    let user = |(name, password): (&str, &str), readonly: bool| serde_json::json!({"name": name, "password": password, "readonly": readonly});
    let mut writer = user(WRITER, false);
    if let Some(writer) = writer.as_object_mut() {
        writer.insert("grants".to_owned(), WRITER_GRANTS.as_slice().into());
    }
    let told = serde_json::json!({
        // From here on the script removes it.
        "folder": folder.keep(),
        "port": wanted.port,
        "program": program,
        "zone": wanted.zone,
        "users": [user(USER, false), user(READER, true), writer],
    });
    writeln!(stdin, "{told}").map_err(lost)?;

    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(lost)?;
        let port = line
            .strip_prefix("READY ")
            .and_then(|port| port.parse().ok());
        if let Some(port) = port {
            let process = Process {
                child,
                stdin: Some(stdin),
            };
            return Ok((process, port));
        }
    }
    let status = child.wait().map_err(lost)?;
    Err(Error::Start(format!(
        "{} ended with {status}",
        script.display()
    )))
}

fn given() -> Option<String> {
    env::var(GIVEN_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// A server's part of sharing a ZooKeeper.
fn replica_settings(zookeeper: &ZooKeeper, name: &str) -> String {
    let address = zookeeper.address();
    // Servers from the wheel all have the same UUID, under which each would end the sessions of the others, were they
    // in one place.
    format!(
        "<clickhouse>
  <zookeeper>
    <node><host>{}</host><port>{}</port></node>
    <sessions_path>/clickhouse/sessions_{name}</sessions_path>
  </zookeeper>
  <keeper_map_path_prefix>/keeper_map</keeper_map_path_prefix>
  <macros><replica>{name}</replica></macros>
</clickhouse>
",
        address.ip(),
        address.port(),
    )
}

/// A `clickhouse` program on the PATH.
fn installed() -> Option<PathBuf> {
    on_path("clickhouse")
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_with_its_handle_and_leaves_nothing() {
        let server = ClickHouse::start_on(0).unwrap();
        let address = server.address();
        let pid = server.process.as_ref().unwrap().child.id();
        let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert!(folder.join("data").exists());
        drop(server);
        assert!(std::net::TcpStream::connect(&address).is_err());
        assert!(!folder.exists());
    }

    #[test]
    fn the_reader_may_read_and_nothing_else() {
        let server = ClickHouse::start_on(0).unwrap();
        let (name, password) = server.reader.clone().unwrap();
        let reader = ClickHouse {
            host: server.host.clone(),
            port: server.port,
            user: (name, password),
            reader: None,
            writer: None,
            process: None,
        };
        assert_eq!(reader.query("SELECT 1").unwrap(), "1\n");
        let refused = reader.query("CREATE DATABASE x").unwrap_err().to_string();
        assert!(refused.contains("READONLY"), "{refused}");
    }

    #[test]
    fn a_given_server_is_taken_apart() {
        let server = ClickHouse::given("http://me:a%40%2Bb@db:1234").unwrap();
        assert_eq!(server.user(), ("me", "a@+b"));
        assert_eq!(server.uri("x"), "clickhouse://me:a%40%2Bb@db:1234/x");
        assert!(matches!(ClickHouse::given("db:1234"), Err(Error::Given)));
    }
}
