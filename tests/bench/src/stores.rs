//! The tables of a run, and what they are filled with.

use harness::{ClickHouse, fresh_name};
use pipeline_state::{Backend, Plugins, Settings, StateId};

use crate::Failure;
use crate::client::Client;
use crate::native::Native;

/// How many bookmarks make a document of 1 KB. One is some 95 bytes.
pub(crate) const BOOKMARKS_OF_1_KB: u64 = 11;
pub(crate) const BOOKMARKS_OF_10_KB: u64 = 110;

/// A server, and a database on it for this run.
pub(crate) struct Stores {
    server: ClickHouse,
    plugins: Plugins,
    schema: String,
    native: Native,
}

impl Stores {
    pub(crate) fn new(server: ClickHouse, plugins: Plugins) -> Result<Stores, Failure> {
        let schema = fresh_name("bench");
        server.query(&format!("CREATE DATABASE `{schema}`"))?;
        let native = Native::new(&server.address(), server.user());
        Ok(Stores {
            server,
            plugins,
            schema,
            native,
        })
    }

    /// The same with connections of its own. Those of a runtime that is not driven any more never answer, and the native client
    /// would wait for them for ever.
    pub(crate) fn reconnected(self) -> Stores {
        Stores {
            native: Native::new(&self.server.address(), self.server.user()),
            ..self
        }
    }

    pub(crate) fn remove(&self) -> Result<(), Failure> {
        self.server
            .query(&format!("DROP DATABASE `{}`", self.schema))?;
        Ok(())
    }

    /// A backend for another server than this one.
    pub(crate) fn open_elsewhere(&self, uri: &str) -> Result<Backend, Failure> {
        Ok(self.plugins.open(uri, &Settings::new())?)
    }

    pub(crate) fn backend(&self, table: &str) -> Result<Backend, Failure> {
        let settings = Settings::new()
            .set("schema", &self.schema)
            .set("table", table);
        Ok(self
            .plugins
            .open(&self.server.uri(&self.schema), &settings)?)
    }

    /// Where the tables are: a URI and a schema.
    pub(crate) fn target(&self) -> (String, &str) {
        (self.server.uri(&self.schema), &self.schema)
    }

    pub(crate) fn ours(&self, table: &str) -> Result<Client, Failure> {
        Ok(Client::Ours(self.backend(table)?))
    }

    pub(crate) fn plain(&self, table: &str) -> Client {
        Client::Plain(self.native.for_table(self.quoted(table)))
    }

    pub(crate) fn careful(&self, table: &str) -> Client {
        Client::Careful(self.native.for_table(self.quoted(table)))
    }

    /// Has the plugin make an empty table.
    pub(crate) async fn make(&self, table: &str) -> Result<Backend, Failure> {
        let backend = self.backend(table)?;
        backend.migrate().await?;
        Ok(backend)
    }

    /// Makes the table in which the Python backend keeps its locks.
    pub(crate) async fn make_python_lock(&self, table: &str) -> Result<Native, Failure> {
        let table = self.quoted(table);
        self.native
            .execute(format!(
                "CREATE TABLE {table} (state_id String, lock_id String, locked_at DateTime DEFAULT now()) \
                 ENGINE = ReplacingMergeTree(locked_at) ORDER BY state_id TTL locked_at + INTERVAL 300 SECOND"
            ))
            .await?;
        Ok(self.native.for_table(table))
    }

    /// Makes the table that the Python backend makes.
    pub(crate) async fn make_as_python(&self, table: &str) -> Result<(), Failure> {
        let table = self.quoted(table);
        self.native
            .execute(format!(
                "CREATE TABLE {table} (state_id String, partial_state Nullable(String), \
                 completed_state Nullable(String), updated_at DateTime64(3) DEFAULT now64(3)) \
                 ENGINE = ReplacingMergeTree(updated_at) ORDER BY state_id"
            ))
            .await
    }

    /// With the states `id(n)` and `document(n, bookmarks)` for each n below `count`, in one part.
    pub(crate) async fn fill(
        &self,
        table: &str,
        count: u64,
        bookmarks: u64,
    ) -> Result<(), Failure> {
        let table = self.quoted(table);
        self.native
            .execute(format!(
                "INSERT INTO {table} (state_id, completed_state) SELECT \
                 concat('dev:tap-', leftPad(toString(number), 7, '0'), '-to-target'), \
                 concat('{{\"singer_state\": {{\"bookmarks\": {{', arrayStringConcat(arrayMap(i -> concat(\
                 '\"stream_', toString(i), '\": {{\"replication_key\": \"updated_at\", \"replication_key_value\": \"', \
                 toString(number * {SPREAD} + i * {SPREAD_WITHIN}), '\"}}'), range({bookmarks})), ', '), '}}}}}}') \
                 FROM numbers({count})"
            ))
            .await?;
        self.native
            .execute(format!("OPTIMIZE TABLE {table} FINAL"))
            .await
    }

    /// How many states there are in a table.
    pub(crate) fn count(&self, table: &str) -> Result<u64, Failure> {
        let table = self.quoted(table);
        let count = self
            .server
            .query(&format!("SELECT count() FROM {table} FINAL"))?;
        Ok(count.trim().parse()?)
    }

    fn quoted(&self, table: &str) -> String {
        format!("`{}`.`{table}`", self.schema)
    }
}

/// Both make numbers of 20 digits that compress badly, here and in the server's 64 bits alike.
const SPREAD: u64 = 11_400_714_819_323_198_485;
const SPREAD_WITHIN: u64 = 14_029_467_366_897_019_727;

/// In the order of the numbers.
pub(crate) fn id(number: u64) -> StateId {
    StateId::from(format!("dev:tap-{number:07}-to-target"))
}

/// A state as Singer taps have them. It is what `Stores::fill` stores.
pub(crate) fn document(number: u64, bookmarks: u64) -> String {
    let bookmarks: Vec<String> = (0..bookmarks)
        .map(|i| {
            let value = number
                .wrapping_mul(SPREAD)
                .wrapping_add(i.wrapping_mul(SPREAD_WITHIN));
            format!(
                "\"stream_{i}\": {{\"replication_key\": \"updated_at\", \"replication_key_value\": \"{value}\"}}"
            )
        })
        .collect();
    format!(
        "{{\"singer_state\": {{\"bookmarks\": {{{}}}}}}}",
        bookmarks.join(", ")
    )
}
