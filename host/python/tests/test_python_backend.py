"""The tables of `meltano-state-backend-clickhouse` 0.1.0, by its own statements, both ways."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from meltano.core.state_store.base import MeltanoState

from conftest import Place

ID = "dev:tap-a-to-target-b"


class PythonBackend:
    """What that package sends, in its words: it is not installed here."""

    def __init__(self, place: Place) -> None:
        self._place = place
        place.sql(f"CREATE DATABASE IF NOT EXISTS `{place.schema}`")
        place.sql(
            "CREATE TABLE IF NOT EXISTS {table} (state_id String, partial_state Nullable(String), "
            "completed_state Nullable(String), updated_at DateTime64(3) DEFAULT now64(3)) "
            "ENGINE = ReplacingMergeTree(updated_at) ORDER BY state_id"
        )

    def set(self, state_id: str, completed: dict[str, Any], partial: dict[str, Any]) -> None:
        row = {
            "state_id": state_id,
            "partial_state": json.dumps(partial) if partial else None,
            "completed_state": json.dumps(completed) if completed else None,
        }
        self._place.sql(
            "INSERT INTO {table} (state_id, partial_state, completed_state) FORMAT JSONEachRow " + json.dumps(row)
        )

    def get(self, state_id: str) -> tuple[Any, Any] | None:
        rows = self._place.sql(
            "SELECT partial_state, completed_state FROM {table} FINAL WHERE state_id = {id:String} LIMIT 1 "
            "FORMAT JSONEachRow",
            id=state_id,
        )
        if not rows:
            return None
        row = json.loads(rows)
        partial, completed = row["partial_state"], row["completed_state"]
        return (json.loads(completed) if completed else {}), (json.loads(partial) if partial else {})

    def ids(self) -> list[str]:
        rows = self._place.sql("SELECT DISTINCT state_id FROM {table} FINAL FORMAT JSONEachRow")
        return sorted(json.loads(row)["state_id"] for row in rows.splitlines())

    def delete(self, state_id: str) -> None:
        self._place.sql("DELETE FROM {table} WHERE state_id = {id:String}", id=state_id)


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_each_reads_what_the_other_wrote(place: Place, first: str) -> None:
    if first == "ours":
        place.manager().set(MeltanoState("ours first", completed_state={"n": 1}))
    theirs, ours = PythonBackend(place), place.manager()
    for state_id in (ID, "tab\tquote'\\back`tick", "Zoë"):
        theirs.set(state_id, {"singer_state": {"n": 2**70}}, {})
        assert ours.get(state_id) == MeltanoState(
            state_id, completed_state={"singer_state": {"n": 2**70}}, partial_state={}
        )
        ours.update(MeltanoState(state_id, partial_state={"singer_state": {"m": [1]}}))
        assert theirs.get(state_id) == ({"singer_state": {"n": 2**70}}, {"singer_state": {"m": [1]}})
        theirs.set(state_id, {}, {"singer_state": {"o": "ö"}})
        ours.update(MeltanoState(state_id, partial_state={"singer_state": {"p": 1}}))
        assert theirs.get(state_id) == ({}, {"singer_state": {"o": "ö", "p": 1}})
    assert ours.get_state_ids() == theirs.ids()
    theirs.delete(ID)
    assert ours.get(ID) is None
    ours.delete("Zoë")
    # It is marked as deleted at once, which that package does not see, and removed as soon as the server gets to it.
    deadline = time.monotonic() + 30
    while theirs.get("Zoë") is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert theirs.get("Zoë") is None


def test_an_empty_state_exists_for_both(place: Place) -> None:
    theirs, ours = PythonBackend(place), place.manager()
    theirs.set("a", {}, {})
    assert ours.get("a") == MeltanoState("a", completed_state={}, partial_state={})
    ours.set(MeltanoState("b"))
    assert theirs.get("b") == ({}, {})


def test_what_one_clears_the_other_does_not_find(place: Place) -> None:
    theirs, ours = PythonBackend(place), place.manager()
    theirs.set("a", {"x": 1}, {})
    ours.set_all([MeltanoState("b", completed_state={"x": 1})])
    assert theirs.ids() == ["a", "b"]
    assert ours.clear_all() == 2
    assert theirs.ids() == []
