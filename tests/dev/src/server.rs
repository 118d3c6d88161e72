//! A real ClickHouse for what is tried with it.

use std::process::Command;

use harness::ClickHouse;

use crate::run::step;

/// A server, and a database there, which may not be there yet.
pub(crate) struct Server {
    clickhouse: ClickHouse,
    schema: String,
}

impl Server {
    /// Does some work with a database of its own, which goes afterwards: the server may be the user's.
    pub(crate) fn with(
        name: &str,
        work: impl FnOnce(&Server) -> Result<(), String>,
    ) -> Result<(), String> {
        let clickhouse = ClickHouse::start().map_err(|error| error.to_string())?;
        let schema = harness::fresh_name(name);
        let server = Server { clickhouse, schema };
        let done = work(&server);
        let drop = format!("DROP DATABASE IF EXISTS {}", server.schema);
        let dropped = server.clickhouse.query(&drop);
        dropped.map_err(|error| error.to_string())?;
        done
    }

    /// As [`harness::GIVEN_VARIABLE`] wants it.
    pub(crate) fn given(&self) -> String {
        let uri = self.clickhouse.uri("");
        let url = uri.replacen("clickhouse://", "http://", 1);
        url.trim_end_matches('/').to_owned()
    }

    /// Tells a program where the store is.
    pub(crate) fn told<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("PIPELINE_STATE_URI", self.clickhouse.uri("default"))
            .env("PIPELINE_STATE_CLICKHOUSE_SCHEMA", &self.schema)
    }

    /// Runs each of some programs, told so.
    pub(crate) fn run(&self, programs: impl IntoIterator<Item = Command>) -> Result<(), String> {
        let mut programs = programs.into_iter();
        programs.try_for_each(|mut program| step(self.told(&mut program)))
    }
}
