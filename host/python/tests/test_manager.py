"""Meltano's contract, kept by the manager on a real server."""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points

import pytest
from meltano.core.error import MeltanoError
from meltano.core.state_store.base import (
    MeltanoState,
    MissingStateBackendSettingsError,
    StateIDLockedError,
    UnsupportedStateBackendURIError,
)

from conftest import Place
from meltano_state_backend_pipeline_state import manager as module
from meltano_state_backend_pipeline_state.manager import PipelineStateManager, StateBackendError
from meltano_state_backend_pipeline_state.settings import NAMES
from pipeline_state import PipelineStateError, Plugins, UnavailableError

ID = "dev:tap-a-to-target-b"


def partial(**bookmarks: object) -> MeltanoState:
    return MeltanoState(ID, partial_state={"singer_state": bookmarks})


def test_meltano_finds_it_and_all_its_settings() -> None:
    (plugin,) = Plugins()
    declared = [setting for setting in plugin.settings if not setting.name.endswith("*")]
    registered = [point.load() for point in entry_points(group="meltano.settings")]
    ours = {setting.name: setting for setting in registered if setting.name.startswith("state_backend.clickhouse.")}
    assert [f"state_backend.clickhouse.{setting.name}" for setting in declared] == [
        f"state_backend.clickhouse.{name}" for name in NAMES
    ]
    assert set(ours) == {f"state_backend.clickhouse.{setting.name}" for setting in declared}
    kinds = {"text": "string", "integer": "integer", "boolean": "boolean"}
    for setting in declared:
        known = ours[f"state_backend.clickhouse.{setting.name}"]
        assert (known.kind, bool(known.sensitive)) == (kinds[setting.kind], setting.sensitive), setting.name
        assert known.value is None
        assert [variable.key for variable in known.env_vars(["meltano"])] == [setting.env]
    (backend,) = entry_points(group="meltano.state_backends", name="clickhouse")
    assert backend.load() is PipelineStateManager


def test_what_is_missing_is_told_when_it_is_made() -> None:
    with pytest.raises(MissingStateBackendSettingsError, match="user is required"):
        PipelineStateManager(uri="clickhouse://localhost/db")
    with pytest.raises(MissingStateBackendSettingsError, match="database is required"):
        PipelineStateManager(uri="clickhouse://u@localhost")
    with pytest.raises(UnsupportedStateBackendURIError, match="clickhouse"):
        PipelineStateManager(uri="redis://localhost")
    with pytest.raises(StateBackendError, match="port"):
        PipelineStateManager(uri="clickhouse://u@localhost/db", port="http")


def test_errors_are_what_meltano_shows_without_a_trace() -> None:
    with pytest.raises(MeltanoError) as refused:
        PipelineStateManager(uri="clickhouse://u:sekret@127.0.0.1:1/db", request_timeout=1).get(ID)
    assert str(refused.value).startswith("nothing listens at http://127.0.0.1:1; ")
    assert isinstance(refused.value.__cause__, UnavailableError)


def test_making_it_sends_nothing() -> None:
    # Nobody listens there.
    PipelineStateManager(uri="clickhouse://u:p@127.0.0.1:1/db")


def test_it_takes_all_that_meltano_hands_on(place: Place) -> None:
    manager = PipelineStateManager(
        uri="clickhouse://",
        host=place.server.address.split(":")[0],
        port=int(place.server.address.split(":")[1]),
        user=place.server.user,
        password=place.server.password,
        database="default",
        secure=False,
        schema=place.schema,
        table=None,
        history_days=7,
        lock_timeout_seconds=10,
        lock_retry_seconds=1,
        azure_connection_string=None,
    )
    manager.set(partial(a=1))
    assert place.sql("SELECT count() FROM {table}") == "1\n"
    assert manager.label == "ClickHouse"


def test_set_get_delete(manager: PipelineStateManager) -> None:
    assert manager.get(ID) is None
    state = MeltanoState(ID, partial_state={"b": [1, None]}, completed_state={"singer_state": {"é": 2**70}})
    manager.set(state)
    assert manager.get(ID) == state
    manager.set(MeltanoState(ID))
    assert manager.get(ID) == MeltanoState(ID, partial_state={}, completed_state={})
    manager.delete(ID)
    manager.delete(ID)
    assert manager.get(ID) is None


def test_update_merges_what_is_partial_and_replaces_by_what_is_complete(manager: PipelineStateManager) -> None:
    manager.update(partial(a={"x": 1}))
    manager.update(partial(a={"y": 2}, b=[3]))
    assert manager.get(ID) == MeltanoState(
        ID, partial_state={"singer_state": {"a": {"x": 1, "y": 2}, "b": [3]}}, completed_state={}
    )
    manager.update(MeltanoState(ID, completed_state={"singer_state": {"c": 4}}))
    assert manager.get(ID) == MeltanoState(ID, partial_state={}, completed_state={"singer_state": {"c": 4}})
    manager.clear(ID)
    assert manager.get(ID) is None


def test_all_at_once(manager: PipelineStateManager) -> None:
    states = [
        MeltanoState(f"dev:{number:04}", completed_state={"n": number}, partial_state={}) for number in range(1001)
    ]
    assert manager.set_all(iter(states)) == 1001
    assert list(manager.get_all()) == states
    assert list(manager.get_all("dev:000[12]")) == states[1:3]
    assert manager.get_state_ids("dev:1*") == ["dev:1000"]
    assert len(manager.get_state_ids(None)) == len(manager.get_state_ids("")) == 1001
    assert manager.clear_all() == 1001
    assert manager.get_state_ids() == []


def test_large_states_go_in_more_than_one_request(manager: PipelineStateManager) -> None:
    large = {"x": "x" * 9_000_000}
    assert manager.set_all(MeltanoState(state_id, completed_state=large) for state_id in "abc") == 3
    assert manager.get_state_ids() == ["a", "b", "c"]


def test_a_lock_keeps_others_out_and_lets_its_holder_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.3)
    manager, other = place.manager(), place.manager()
    with manager.acquire_lock(ID, retry_seconds=1):
        with pytest.raises(StateIDLockedError, match=f"process {os.getpid()}") as refused:
            other.update(partial(b=1))
        assert isinstance(refused.value, MeltanoError)
        with pytest.raises(StateIDLockedError), other.acquire_lock(ID, retry_seconds=1):
            pass
        manager.update(partial(a=1))
        manager.set(partial(a=2))
        with manager.acquire_lock(ID, retry_seconds=1):
            manager.update(partial(a=3))
        # Another state is another lock.
        other.update(MeltanoState("another", partial_state={"x": 1}))
    other.update(partial(b=1))
    assert manager.get(ID) == MeltanoState(ID, partial_state={"singer_state": {"a": 3, "b": 1}}, completed_state={})


def test_one_who_waits_gets_the_lock_when_it_is_free(place: Place) -> None:
    manager, other = place.manager(), place.manager()
    with manager.acquire_lock(ID, retry_seconds=1):
        waiting = threading.Thread(target=other.update, args=(partial(b=1),))
        waiting.start()
        time.sleep(0.3)
        assert other.get(ID) is None
    waiting.join(10)
    assert other.get(ID) is not None


def test_of_a_lost_lock_nothing_is_written(place: Place) -> None:
    manager, store = place.manager(), place.store()
    with manager.acquire_lock(ID, retry_seconds=1):
        (holder,) = store.holders()
        assert store.break_lease(ID, holder.token)
        for write in (manager.set, manager.update):
            with pytest.raises(StateIDLockedError, match="lost"):
                write(partial(a=1))
        with pytest.raises(StateIDLockedError):
            manager.delete(ID)
    assert store.get(ID) is None


def test_the_end_of_a_lock_is_quiet_where_its_table_is_gone(place: Place) -> None:
    manager = place.manager()
    with manager.acquire_lock(ID, retry_seconds=1):
        place.server.sql(f"DROP TABLE `{place.schema}`.state_lease SYNC")
    manager.update(partial(a=1))


def test_an_error_under_a_lock_is_raised_as_it_is_and_the_lock_is_free(place: Place) -> None:
    manager = place.manager()
    with pytest.raises(ZeroDivisionError), manager.acquire_lock(ID, retry_seconds=1):
        1 / 0  # noqa: B018
    assert place.store().holders() == []


def test_without_leases_updates_are_exact_all_the_same(place: Place) -> None:
    by_uri = PipelineStateManager(uri=f"{place.uri}?lock=none", schema=place.schema)
    for manager in (place.manager(lock="none"), by_uri):
        manager.update(partial(a=1))
        manager.clear(ID)
    with pytest.raises(PipelineStateError, match="lock"):
        place.store(lock="none").lock(ID)


def test_under_lock_run_its_lease_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store, manager = place.store(), place.manager()
    with store.lock(ID) as lease:
        monkeypatch.setenv("PIPELINE_STATE_LEASE_ID", ID)
        monkeypatch.setenv("PIPELINE_STATE_LEASE_TOKEN", lease.token)
        monkeypatch.setenv("PIPELINE_STATE_LEASE_ORIGIN", store.origin or "")
        manager.update(partial(a=1))
        assert [holder.token for holder in store.holders()] == [lease.token]
        store.break_lease(ID, lease.token)
        with pytest.raises(StateIDLockedError, match="lost"):
            manager.update(partial(a=2))
        monkeypatch.setenv("PIPELINE_STATE_LEASE_ORIGIN", "http://elsewhere:8123")
        manager.update(partial(a=3))
    assert manager.get(ID) == MeltanoState(ID, partial_state={"singer_state": {"a": 3}}, completed_state={})


def test_threads_may_share_one(manager: PipelineStateManager) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: manager.update(partial(**{f"k{number}": number})), range(12)))
    state = manager.get(ID)
    assert state is not None
    assert state.partial_state == {"singer_state": {f"k{number}": number for number in range(12)}}


def test_nothing_that_is_logged_or_shown_holds_the_password(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    manager = PipelineStateManager(uri=f"clickhouse://{place.server.user}:wrong-sekret@{place.server.address}/default")
    with pytest.raises(StateBackendError) as refused:
        manager.get(ID)
    shown = f"{manager!r} {vars(manager)} {refused.value!r} {refused.value.__cause__!r} {caplog.text}"
    assert "sekret" not in shown
