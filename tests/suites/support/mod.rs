//! What the suites share: one server for each test program, plugins, backends.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each suite uses a part of it, and tests break off to fail"
)]

pub mod shell;

use std::path::PathBuf;
use std::sync::OnceLock;

use harness::{ClickHouse, fresh_name};
use pipeline_state::{Backend, Plugins, Settings, State, StateId};
use tokio::sync::OnceCell;

/// The server of this test program. It ends with the program.
pub fn server() -> &'static ClickHouse {
    static SERVER: OnceLock<ClickHouse> = OnceLock::new();
    SERVER.get_or_init(|| ClickHouse::start().expect("a ClickHouse starts"))
}

/// The embedded plugins, loaded once.
pub async fn plugins() -> &'static Plugins {
    static PLUGINS: OnceCell<Plugins> = OnceCell::const_new();
    PLUGINS
        .get_or_init(async || Plugins::builder().build().await.expect("the plugins load"))
        .await
}

/// A database of the server that no other test uses; it is not there yet.
pub struct Place {
    pub schema: String,
    pub backend: Backend,
}

/// A place for one test, with the user who may do everything.
pub async fn place() -> Place {
    let schema = fresh_name("suite");
    Place {
        backend: open(&server().uri("default"), &schema).await,
        schema,
    }
}

/// Opens a schema.
pub async fn open(uri: &str, schema: &str) -> Backend {
    let settings = Settings::new().set("schema", schema);
    plugins().await.open(uri, &settings).expect("it opens")
}

impl Place {
    /// Runs SQL in which `{table}` is the table of this place.
    pub fn sql(&self, sql: &str) -> String {
        server()
            .query(&sql.replace("{table}", &format!("`{}`.state", self.schema)))
            .expect("the server takes it")
    }

    /// Creates the database and the table as the Python backend does.
    pub fn create_as_the_python_backend(&self) {
        self.sql(&format!("CREATE DATABASE IF NOT EXISTS `{}`", self.schema));
        self.sql(
            "CREATE TABLE IF NOT EXISTS {table} (state_id String, partial_state Nullable(String), \
             completed_state Nullable(String), updated_at DateTime64(3) DEFAULT now64(3)) \
             ENGINE = ReplacingMergeTree(updated_at) ORDER BY state_id",
        );
    }
}

pub fn id(text: &str) -> StateId {
    StateId::from(text)
}

pub fn completed(document: &str) -> State {
    State {
        completed: Some(document.to_owned()),
        partial: None,
    }
}

/// The second plugin: `tests/plugins/echo`, built once.
pub fn echo_plugin() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("echo-plugin")).clone()
}

/// The third one, which means harm: `tests/plugins/hostile`.
pub fn hostile_plugin() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("hostile-plugin")).clone()
}

fn build(package: &str) -> PathBuf {
    // Where all that builds plugins does, so that what they depend on is built once.
    let out = harness::workspace().join("target/components/build");
    component_build::build(package, &out).expect("the plugin builds")
}

pub fn partial(document: &str) -> State {
    State {
        completed: None,
        partial: Some(document.to_owned()),
    }
}

/// The Python backend's `get`.
pub const PYTHON_GET: &str = "SELECT partial_state, completed_state FROM {table} FINAL WHERE state_id = 'a' LIMIT 1 FORMAT TSVRaw";
/// The Python backend's `set`.
pub const PYTHON_SET: &str = "INSERT INTO {table} (state_id, partial_state, completed_state) VALUES ('a', NULL, '{\"singer_state\": {\"n\": 1}}')";

/// A place whose table the Python backend made and filled with `a`.
pub async fn python_place() -> Place {
    let place = place().await;
    place.create_as_the_python_backend();
    place.sql(PYTHON_SET);
    place
}

pub async fn with_settings(uri: &str, schema: &str, settings: &[(&str, &str)]) -> Backend {
    let settings = settings.iter().fold(
        Settings::new().set("schema", schema),
        |all, (name, value)| all.set(*name, *value),
    );
    plugins().await.open(uri, &settings).unwrap()
}

/// Of a write by the server that was given there are no such users.
pub fn of_started(uri: Option<String>) -> Option<String> {
    if uri.is_none() {
        eprintln!(
            "skipped: the server that was given has no such user; see ClickHouse::writer_uri"
        );
    }
    uri
}
