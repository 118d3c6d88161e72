//! The plain job without a plugin: hyper, and the statements that a person would write by hand.

use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use crate::Failure;

/// The host's, so that no connection is used that the server is about to close.
const POOL_IDLE: Duration = Duration::from_secs(2);

/// A client for one table. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub(crate) struct Native {
    client: Client<HttpConnector, Full<Bytes>>,
    address: String,
    authorization: String,
    table: String,
}

impl Native {
    pub(crate) fn new(address: &str, (user, password): (&str, &str)) -> Native {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let credentials =
            base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .build(connector);
        Native {
            client,
            address: address.to_owned(),
            authorization: format!("Basic {credentials}"),
            table: String::new(),
        }
    }

    /// The same for a table, by its quoted name.
    pub(crate) fn for_table(&self, table: String) -> Native {
        Native {
            table,
            ..self.clone()
        }
    }

    /// Runs a statement that answers nothing.
    pub(crate) async fn execute(&self, sql: String) -> Result<(), Failure> {
        self.post(&[], sql).await.map(drop)
    }

    /// Acquires and releases a lock as the Python backend does: its row, a second for others to put theirs there, a look at whose is
    /// the lowest, a deletion.
    pub(crate) async fn lock_and_unlock(&self, lock: usize) -> Result<(), Failure> {
        let table = &self.table;
        self.execute(format!(
            "INSERT INTO {table} (state_id, lock_id) VALUES ('a', '{lock}')"
        ))
        .await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.execute(format!(
            "SELECT lock_id FROM {table} WHERE state_id = 'a' ORDER BY lock_id LIMIT 1"
        ))
        .await?;
        self.execute(format!(
            "DELETE FROM {table} WHERE state_id = 'a' AND lock_id = '{lock}'"
        ))
        .await
    }

    /// The Python backend's query.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<String>, Failure> {
        let sql = format!(
            "SELECT partial_state, completed_state FROM {} FINAL WHERE state_id = {{id:String}} LIMIT 1 FORMAT JSONEachRow",
            self.table
        );
        let rows = self.rows(&[("param_id", id)], sql).await?;
        Ok(rows
            .into_iter()
            .next()
            .and_then(|row| text(row, "completed_state")))
    }

    /// Every completed document, in one answer.
    pub(crate) async fn states(&self) -> Result<Vec<String>, Failure> {
        let sql = format!(
            "SELECT state_id, partial_state, completed_state FROM {} FINAL ORDER BY state_id FORMAT JSONEachRow",
            self.table
        );
        let rows = self.rows(&[], sql).await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| text(row, "completed_state"))
            .collect())
    }

    /// The IDs behind one of them.
    pub(crate) async fn ids(&self, after: &str, limit: u32) -> Result<Vec<String>, Failure> {
        let sql = format!(
            "SELECT state_id FROM {} FINAL WHERE state_id > {{after:String}} ORDER BY state_id LIMIT {limit} FORMAT JSONEachRow",
            self.table
        );
        let rows = self.rows(&[("param_after", after)], sql).await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| text(row, "state_id"))
            .collect())
    }

    /// A plain insert: the version is the server's clock, nothing is looked up. What is stored is lost to view when the
    /// clock has stepped back since the last one.
    pub(crate) async fn insert<'a>(
        &self,
        states: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Failure> {
        let rows = states
            .map(|(id, document)| json!({"state_id": id, "completed_state": document}).to_string());
        self.insert_rows("state_id, completed_state", rows.collect())
            .await
    }

    /// What a careful client does: it reads the version, and inserts above it.
    pub(crate) async fn insert_above(&self, id: &str, document: &str) -> Result<(), Failure> {
        let sql = format!(
            "SELECT greatest(now64(9), max(updated_at) + toIntervalNanosecond(1)) AS version \
             FROM {} WHERE state_id = {{id:String}} FORMAT JSONEachRow",
            self.table
        );
        let rows = self.rows(&[("param_id", id)], sql).await?;
        let version = rows.into_iter().next().and_then(|row| text(row, "version"));
        let version = version.ok_or("the native client read no version")?;
        let row =
            json!({"state_id": id, "completed_state": document, "updated_at": version}).to_string();
        self.insert_rows("state_id, completed_state, updated_at", row)
            .await
    }

    /// Returns when the rows are gone, as the server has it by default.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Failure> {
        let sql = format!("DELETE FROM {} WHERE state_id = {{id:String}}", self.table);
        self.post(&[("param_id", id)], sql).await.map(drop)
    }

    async fn insert_rows(&self, columns: &str, rows: String) -> Result<(), Failure> {
        let sql = format!("INSERT INTO {} ({columns}) FORMAT JSONEachRow", self.table);
        self.post(&[("query", &sql), ("async_insert", "0")], rows)
            .await
            .map(drop)
    }

    async fn rows(&self, query: &[(&str, &str)], sql: String) -> Result<Vec<Value>, Failure> {
        let body = self.post(query, sql).await?;
        let rows = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
        Ok(rows.collect::<Result<_, _>>()?)
    }

    async fn post(&self, query: &[(&str, &str)], body: String) -> Result<Bytes, Failure> {
        let query = Serializer::new(String::new()).extend_pairs(query).finish();
        let request = Request::post(format!("http://{}/?{query}", self.address))
            .header("authorization", &self.authorization)
            .body(Full::from(body))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        match status.is_success() {
            true => Ok(body),
            false => Err(String::from_utf8_lossy(&body).into()),
        }
    }
}

/// A column of a row, where it is a text.
fn text(mut row: Value, column: &str) -> Option<String> {
    match row.get_mut(column).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}
