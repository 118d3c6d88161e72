//! The plain job without a plugin: hyper, and the statements that a careful person would write by hand.

use std::error::Error;

use base64::Engine;
use bytes::Bytes;
use harness::ClickHouse;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use url::form_urlencoded::Serializer;

/// A client for one table.
pub(crate) struct Native {
    client: Client<HttpConnector, Full<Bytes>>,
    address: String,
    authorization: String,
    table: String,
}

impl Native {
    pub(crate) fn new(server: &ClickHouse, table: &str) -> Native {
        Native::at(&server.address(), server.user(), table)
    }

    pub(crate) fn at(address: &str, (user, password): (&str, &str), table: &str) -> Native {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let credentials =
            base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        Native {
            client: Client::builder(TokioExecutor::new()).build(connector),
            address: address.to_owned(),
            authorization: format!("Basic {credentials}"),
            table: table.to_owned(),
        }
    }

    /// A plain insert: the version is the server's clock, nothing is looked up.
    pub(crate) async fn set(&self, id: &str, document: &str) -> Result<(), Box<dyn Error>> {
        let sql = format!(
            "INSERT INTO {} (state_id, completed_state) FORMAT JSONEachRow",
            self.table
        );
        let row = serde_json::json!({"state_id": id, "completed_state": document}).to_string();
        self.post(&[("query", &sql), ("async_insert", "0")], row)
            .await
            .map(drop)
    }

    /// The Python backend's query. Returns how long the answer is.
    pub(crate) async fn get(&self, id: &str) -> Result<usize, Box<dyn Error>> {
        let sql = format!(
            "SELECT partial_state, completed_state FROM {} FINAL WHERE state_id = {{id:String}} LIMIT 1 FORMAT JSONEachRow",
            self.table
        );
        let body = self.post(&[("param_id", id)], sql).await?;
        let row: serde_json::Value = serde_json::from_slice(&body)?;
        Ok(row
            .get("completed_state")
            .and_then(|text| text.as_str())
            .map_or(0, str::len))
    }

    async fn post(&self, query: &[(&str, &str)], body: String) -> Result<Bytes, Box<dyn Error>> {
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
