"""The plain API, through the real plugin, on a real server."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import pipeline_state
from conftest import Place, Server
from pipeline_state import Plugins, State, Store

ID = "dev:tap-a-to-target-b"


def completed(document: str) -> State:
    return State(completed=document)


def test_a_document_is_kept_byte_for_byte(store: Store) -> None:
    state = State('{ "b":1.0,"a": 99999999999999999999, "é": "\\ud800" }', '{"x":[]}')
    version = store.set(ID, state)
    entry = store.get(ID)
    assert entry is not None
    assert (entry.id, entry.state, entry.version) == (ID, state, version)
    assert abs(entry.updated_at.timestamp() - time.time()) < 60


def test_what_is_not_there_is_none_and_reading_creates_nothing(store: Store, place: Place) -> None:
    assert store.get(ID) is None
    assert list(store.get_all_ids()) == []
    assert store.delete(ID) is False
    assert place.server.sql(f"EXISTS DATABASE {place.schema}") == "0\n"


def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    ids = [f"id-{number}" for number in range(5)]
    assert store.set_many((state_id, completed("{}")) for state_id in ids) == 5
    page = store.get_page(limit=2)
    assert [entry.id for entry in page.entries] == ids[:2]
    assert [entry.id for entry in store.get_page(after=page.next, limit=9).entries] == ids[2:]
    assert store.get_ids("id-[13]").ids == ["id-1", "id-3"]
    assert [entry.id for entry in store.get_all()] == ids


def test_all_go_through_more_than_one_page(store: Store) -> None:
    ids = [f"{number:04}" for number in range(1001)]
    store.set_many((state_id, State()) for state_id in ids)
    assert list(store.get_all_ids()) == ids
    assert [entry.id for entry in store.get_all()] == ids


def test_of_two_who_expect_one_version_one_succeeds(store: Store) -> None:
    first = store.set(ID, completed('{"n": 1}'), expect="absent")
    second = store.set(ID, completed('{"n": 2}'), expect=first)
    assert second > first
    with pytest.raises(pipeline_state.ConflictError) as late:
        store.set(ID, completed('{"n": 3}'), expect=first)
    assert (late.value.kind, late.value.stored, late.value.outcome) == ("conflict", second, "not-applied")
    with pytest.raises(pipeline_state.ConflictError):
        store.delete(ID, expect="absent")
    assert store.delete(ID, expect=second)


def test_updates_of_many_threads_are_all_kept(store: Store) -> None:
    def update(number: int) -> None:
        store.update(ID, State(partial=f'{{"singer_state": {{"k{number}": {number}}}}}'))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(update, range(16)))
    entry = store.get(ID)
    assert entry is not None
    assert entry.state.partial is not None
    assert all(f'"k{number}"' in entry.state.partial for number in range(16))


def test_a_lease_has_one_holder_whom_everybody_sees(store: Store) -> None:
    with store.lock(ID, owner="run 42") as lease:
        with pytest.raises(pipeline_state.LockedError) as refused:
            store.lock(ID)
        assert refused.value.holder is not None
        assert (refused.value.holder.owner, refused.value.holder.token) == ("run 42", lease.token)
        assert [holder.token for holder in store.holders()] == [lease.token]
        lease.store.update(ID, State(partial='{"a": 1}'))
        assert not lease.is_lost
    assert lease.is_lost
    assert store.holders() == []


def test_it_outlives_its_time_by_being_renewed(store: Store) -> None:
    with store.lock(ID, ttl=2) as lease:
        time.sleep(2.5)
        assert not lease.is_lost
        lease.store.set(ID, State())


def test_what_is_written_under_a_lost_lease_is_refused(store: Store) -> None:
    lease = store.lock(ID)
    assert store.break_lease(ID, lease.token)
    with pytest.raises(pipeline_state.LockedError) as lost:
        lease.store.set(ID, State())
    assert lost.value.holder is None
    assert store.get(ID) is None
    # The heartbeat was told.
    deadline = time.monotonic() + 5
    while not lease.is_lost and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(pipeline_state.LockedError):
        lease.raise_if_lost()
    lease.release()


def test_a_lease_that_is_forgotten_is_given_back(store: Store) -> None:
    lease = store.lock(ID)
    del lease
    store.lock(ID, wait=5).release()


def test_other_threads_run_while_one_waits(store: Store) -> None:
    held = store.lock(ID)
    releasing = threading.Timer(0.5, held.release)
    releasing.start()
    # Were the interpreter kept, nobody would release it, and this would fail after its time.
    store.lock(ID, wait=10).release()
    releasing.join()


def test_an_interrupt_ends_a_wait(store: Store) -> None:
    with store.lock(ID):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            store.lock(ID, wait=60)
        assert time.monotonic() - start < 5
    # Nothing is left behind of the one that was given up.
    store.lock(ID, wait=2).release()


def _in_a_fork(place: Place, inherited: Store, answers: multiprocessing.SimpleQueue[str]) -> None:
    try:
        inherited.get(ID)
    except pipeline_state.InvalidInputError as error:
        answers.put(str(error))
    answers.put(str(place.store().get(ID)))


def test_a_forked_process_opens_its_own(store: Store, place: Place) -> None:
    assert store.get(ID) is None
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_fork, args=(place, store, answers))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert "forked" in answers.get()
    assert answers.get() == "None"


def test_the_history_brings_back_what_was(place: Place) -> None:
    store = place.store(history=True)
    store.set(ID, completed('{"n": 1}'))
    store.set(ID, completed('{"n": 2}'))
    store.delete(ID)
    changes = store.versions(ID)
    assert [change.state and change.state.completed for change in changes] == [None, '{"n": 2}', '{"n": 1}']
    with pytest.raises(pipeline_state.InvalidInputError, match="history"):
        Place(place.server).store().versions(ID)


def test_an_operator_is_told_what_there_is(store: Store) -> None:
    assert store.migrate()
    assert store.migrate() == []
    findings = store.check()
    assert {"server", "table"} <= {finding.subject for finding in findings}
    assert all(finding.severity in ("fine", "note", "warning", "problem") for finding in findings)


def test_a_plugin_that_breaks_off_leaves_nothing_behind(place: Place) -> None:
    place.store().set(ID, completed('{"x": "' + "x" * 8_000_000 + '"}'))
    plugins = Plugins(memory=4 * 1024 * 1024)
    small = plugins.open(place.uri, {"schema": place.schema})
    with pytest.raises((pipeline_state.PluginFailedError, pipeline_state.PipelineStateError)) as broken:
        small.get(ID)
    assert broken.value.kind in ("plugin-failed", "unavailable", "server")
    assert small.get("another") is None


@pytest.mark.parametrize(
    ("uri", "error", "kind"),
    [
        ("redis://localhost/0", pipeline_state.UnknownSchemeError, "no-plugin"),
        ("nonsense", pipeline_state.InvalidInputError, "invalid-input"),
        ("clickhouse://localhost/db", pipeline_state.MissingSettingError, "missing-setting"),
        ("clickhouse://u:sekret@127.0.0.1:1/db?request_timeout=1", pipeline_state.UnavailableError, "unavailable"),
        ("clickhouse://u:sekret@h/db?tabel=x", pipeline_state.InvalidInputError, "invalid-input"),
    ],
)
def test_errors_have_a_kind_and_no_secret(uri: str, error: type[pipeline_state.PipelineStateError], kind: str) -> None:
    with pytest.raises(error) as raised:
        pipeline_state.open(uri).get(ID)
    assert raised.value.kind == kind
    assert raised.value.outcome == "not-applied"
    assert "sekret" not in repr(raised.value)
    assert "\n" not in str(raised.value)


def test_a_wrong_password_is_not_shown(server: Server) -> None:
    store = pipeline_state.open(f"clickhouse://{server.user}:wrong-sekret@{server.address}/default")
    assert "sekret" not in repr(store)
    with pytest.raises(pipeline_state.UnauthenticatedError) as refused:
        store.get(ID)
    assert "sekret" not in str(refused.value)


def test_a_server_error_has_its_code(place: Place) -> None:
    with pytest.raises(pipeline_state.ServerError) as refused:
        place.store(setting_max_result_rows="x").get(ID)
    assert refused.value.code != 0


def test_settings_come_from_the_environment_unless_told_otherwise(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA", place.schema)
    pipeline_state.open(place.uri).set(ID, State())
    assert place.sql("SELECT count() FROM {table}") == "1\n"
    other = pipeline_state.open(place.uri, {"schema": place.schema + "_x"})
    assert other.get(ID) is None
    assert pipeline_state.open(place.uri, {"table": "none_such"}, environment=False).get(ID) is None


def test_the_operator_narrows_down_what_may_be_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pipeline_state.NotAllowedError):
        Plugins(allow="https://*.example.com:8443").open(place.uri)
    with pytest.raises(pipeline_state.NotAllowedError):
        Plugins(deny_private=True).open(place.uri)
    monkeypatch.setenv("PIPELINE_STATE_ALLOW", "https://*.example.com:8443")
    with pytest.raises(pipeline_state.NotAllowedError):
        Plugins.from_environment().open(place.uri)


def test_plugins_describe_themselves() -> None:
    (plugin,) = Plugins()
    assert (plugin.scheme, plugin.source, plugin.plain_port, plugin.tls_port) == ("clickhouse", "embedded", 8123, 8443)
    password = next(setting for setting in plugin.settings if setting.role == "password")
    assert password.sensitive
    with pytest.raises(pipeline_state.BadPluginError, match="digest"):
        Plugins(files={"/bin/sh": "sha256:" + "0" * 64})
    with pytest.raises(pipeline_state.InvalidInputError):
        Plugins(ca_file="/nonexistent")
