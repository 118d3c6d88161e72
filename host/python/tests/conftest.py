"""A real ClickHouse, which `cargo dev python` starts, and a place of its own in it for each test."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

import pipeline_state
from meltano_state_backend_pipeline_state.manager import PipelineStateManager

_GIVEN = "PIPELINE_STATE_TEST_CLICKHOUSE"


@dataclass(frozen=True)
class Server:
    address: str
    user: str
    password: str

    @property
    def uri(self) -> str:
        return f"clickhouse://{self.user}:{self.password}@{self.address}/default"

    def sql(self, statement: str, **parameters: str) -> str:
        """Runs a statement over HTTP, as a stranger to everything that is tested here."""
        # The server takes the value of a parameter as it would a field of a file with tabs.
        escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
        query = "&".join(f"param_{name}={quote(value.translate(escapes))}" for name, value in parameters.items())
        request = urllib.request.Request(
            f"http://{self.address}/?{query}",
            data=statement.encode(),
            headers={"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                answer: bytes = response.read()
                return answer.decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@pytest.fixture(scope="session")
def server() -> Server:
    if _GIVEN not in os.environ:
        pytest.exit(f"{_GIVEN} must be http://user:password@host:port of a ClickHouse; `cargo dev python` starts one")
    given = urlsplit(os.environ[_GIVEN])
    return Server(f"{given.hostname}:{given.port}", unquote(given.username or ""), unquote(given.password or ""))


@dataclass(frozen=True)
class Place:
    """A database of the server that no other test uses; it is not there until something is written."""

    server: Server
    schema: str = field(default_factory=lambda: f"suite_python_{uuid.uuid4().hex}")

    @property
    def uri(self) -> str:
        return self.server.uri

    def store(self, **settings: object) -> pipeline_state.Store:
        return pipeline_state.open(self.uri, {"schema": self.schema, **settings})

    def manager(self, **settings: Any) -> PipelineStateManager:
        return PipelineStateManager(uri=self.uri, schema=self.schema, **settings)

    def sql(self, statement: str, **parameters: str) -> str:
        """Runs a statement in which `{table}` is the table of this place."""
        return self.server.sql(statement.replace("{table}", f"`{self.schema}`.state"), **parameters)


@pytest.fixture
def place(server: Server) -> Place:
    return Place(server)


@pytest.fixture
def store(place: Place) -> pipeline_state.Store:
    return place.store()


@pytest.fixture
def manager(place: Place) -> PipelineStateManager:
    return place.manager()
