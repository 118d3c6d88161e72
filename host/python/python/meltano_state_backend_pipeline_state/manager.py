"""Meltano's state store manager for ClickHouse, on the Rust host and its sandboxed plugin."""

from __future__ import annotations

import json
import os
import platform
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from meltano.core.error import MeltanoError
from meltano.core.state_store.base import (
    MeltanoState,
    MissingStateBackendSettingsError,
    StateIDLockedError,
    StateStoreManager,
    UnsupportedStateBackendURIError,
)

from meltano_state_backend_pipeline_state.settings import NAMES
from pipeline_state import (
    LockedError,
    MissingSettingError,
    PipelineStateError,
    Plugins,
    State,
    UnknownSchemeError,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from pipeline_state import Entry, Store

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

_LONGEST_WAIT = 30.0
"""How many seconds to wait for a lock that somebody else holds: as long as the Python backend does."""
_SHORTEST_LEASE, _LONGEST_LEASE = 2.0, 86_400.0

_MOST_STATES, _MOST_CHARACTERS = 500, 16 * 1024 * 1024
"""How much is written at once by `set_all`."""

_held: ContextVar[Mapping[tuple[int, str], Store]] = ContextVar("held", default={})  # noqa: B039
"""The stores through which the locks that this thread or task holds let it write. Never changed, but replaced."""


class PipelineStateManager(StateStoreManager):
    """Keeps Meltano's state in ClickHouse. Threads may share one.

    It takes what `meltano-state-backend-clickhouse` takes, over the same tables, and the settings of the plugin. A
    lock is a lease: it is renewed in the background, and what is written after it was lost is refused by the server.

    >>> from meltano.core.state_store import MeltanoState
    >>> manager = PipelineStateManager(uri=uri)  # clickhouse://user:password@localhost:8123/analytics
    >>> manager.update(MeltanoState("dev:tap-a-to-target-b", partial_state={"singer_state": {"a": 1}}))
    >>> manager.update(MeltanoState("dev:tap-a-to-target-b", partial_state={"singer_state": {"b": 2}}))
    >>> manager.get("dev:tap-a-to-target-b").partial_state
    {'singer_state': {'a': 1, 'b': 2}}
    """

    def __init__(self, *, uri: str, lock_timeout_seconds: float | None = None, **settings: Any) -> None:
        """Opens the store. Nothing is sent.

        `lock_timeout_seconds` is how long a lock lasts whose holder has died. Of `settings`, those that are None or not
        known are passed over: Meltano hands on all of `state_backend`.
        """
        super().__init__()
        given = {name: settings.get(name) for name in NAMES}
        self._lease_seconds = min(max(float(lock_timeout_seconds or 10), _SHORTEST_LEASE), _LONGEST_LEASE)
        self._has_leases = _lock_setting(uri, given["lock"]) != "none"
        with _meltanos_errors():
            self._store = _plugins(os.getpid()).open(uri, given)
            # Writes nothing and sends nothing, but looks at all settings.
            self._store.set_many([])

    @property
    @override
    def label(self) -> str:
        return "ClickHouse"

    @override
    def get(self, state_id: str) -> MeltanoState | None:
        with _meltanos_errors():
            entry = self._store.get(state_id)
        return None if entry is None else _meltanos(entry)

    @override
    def set(self, state: MeltanoState) -> None:
        with _meltanos_errors():
            self._for_writing(state.state_id).set(state.state_id, _ours(state))

    @override  # type: ignore[misc]
    def update(self, state: MeltanoState) -> None:
        # Meltano marks its own as final: it reads, merges and sets under the lock. So does this, but in one step of the
        # store, so that it loses nothing either that is written without that lock, as by the Python backend.
        with self.acquire_lock(state.state_id, retry_seconds=1), _meltanos_errors():
            self._for_writing(state.state_id).update(state.state_id, _ours(state))

    @override
    def delete(self, state_id: str) -> None:
        with _meltanos_errors():
            self._for_writing(state_id).delete(state_id)

    @override
    def get_state_ids(self, pattern: str | None = None) -> list[str]:
        with _meltanos_errors():
            return list(self._store.get_all_ids(pattern or "*"))

    @override
    def get_all(self, pattern: str | None = None) -> Iterator[MeltanoState]:
        with _meltanos_errors():
            for entry in self._store.get_all(pattern or "*"):
                yield _meltanos(entry)

    @override
    def set_all(self, states: Iterable[MeltanoState]) -> int:
        with _meltanos_errors():
            return sum(self._store.set_many(batch) for batch in _batches(states))

    @override
    def clear_all(self) -> int:
        with _meltanos_errors():
            return self._store.clear()

    @override
    def migrate(self) -> None:
        with _meltanos_errors():
            self._store.migrate()

    @override
    @contextmanager
    def acquire_lock(self, state_id: str, *, retry_seconds: float) -> Generator[None]:
        """Holds the lock of a state; once more where this thread or task has it, or `pipeline-state lock run`.

        What this manager writes to the state meanwhile is refused by the server once the lock is lost. While somebody
        else has it, it is asked for again for 30 s, more often than every `retry_seconds`.
        """
        key = (id(self), state_id)
        if not self._has_leases or key in _held.get() or self._inherited(state_id) is not None:
            yield
            return
        with _meltanos_errors():
            lease = self._store.lock(state_id, owner=_owner(), ttl=self._lease_seconds, wait=_LONGEST_WAIT)
        # Released at the end, quietly: where that fails, it ends by itself.
        with lease:
            _held.set({**_held.get(), key: lease.store})
            try:
                yield
            finally:
                _held.set({held: store for held, store in _held.get().items() if held != key})

    def _for_writing(self, state_id: str) -> Store:
        """The store, under the lock that is held of this state, if any: so the server checks it as it writes."""
        return _held.get().get((id(self), state_id)) or self._inherited(state_id) or self._store

    def _inherited(self, state_id: str) -> Store | None:
        """The store under the lease with which `pipeline-state lock run` has started this process."""
        environment = os.environ.get
        if environment("PIPELINE_STATE_LEASE_ID") != state_id:
            return None
        if environment("PIPELINE_STATE_LEASE_ORIGIN", self._store.origin) != self._store.origin:
            return None
        token = environment("PIPELINE_STATE_LEASE_TOKEN")
        return self._store.under_lease(token) if token else None


@cache
def _plugins(process: int) -> Plugins:
    # A forked process has none of the threads of the one that it was forked from.
    del process
    return Plugins.from_environment()


class StateBackendError(MeltanoError):
    """What went wrong, in Meltano's words: it shows users the text alone. `__cause__` is the `PipelineStateError`."""

    def __init__(self, cause: PipelineStateError) -> None:
        """Take the text: what is wrong, and what to do about it."""
        super().__init__(str(cause))


class LockedStateError(StateBackendError, StateIDLockedError):
    """Somebody else holds the lock, or the lock under which something was to be written is lost."""


class MissingSettingsError(StateBackendError, MissingStateBackendSettingsError):
    """A setting that has no default is missing."""


class UnsupportedURIError(StateBackendError, UnsupportedStateBackendURIError):
    """The URI is of another scheme."""


@contextmanager
def _meltanos_errors() -> Generator[None]:
    """Raises what Meltano knows."""
    try:
        yield
    except LockedError as error:
        raise LockedStateError(error) from error
    except MissingSettingError as error:
        raise MissingSettingsError(error) from error
    except UnknownSchemeError as error:
        raise UnsupportedURIError(error) from error
    except PipelineStateError as error:
        raise StateBackendError(error) from error


def _ours(state: MeltanoState) -> State:
    # As the Python backend: what is empty is left out.
    def document(value: dict[str, Any] | None) -> str | None:
        return json.dumps(value) if value else None

    return State(completed=document(state.completed_state), partial=document(state.partial_state))


def _meltanos(entry: Entry) -> MeltanoState:
    def document(text: str | None) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(text) if text else {}
        return value

    return MeltanoState(
        entry.id,
        partial_state=document(entry.state.partial),
        completed_state=document(entry.state.completed),
    )


def _batches(states: Iterable[MeltanoState]) -> Iterator[list[tuple[str, State]]]:
    batch: list[tuple[str, State]] = []
    characters = 0
    for state in states:
        ours = _ours(state)
        size = len(ours.completed or "") + len(ours.partial or "")
        if batch and (len(batch) == _MOST_STATES or characters + size > _MOST_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append((state.state_id, ours))
        characters += size
    if batch:
        yield batch


def _lock_setting(uri: str, given: object) -> str:
    """The setting `lock`, by the order in which the host looks for it."""
    variables = ("PIPELINE_STATE_CLICKHOUSE_LOCK", "MELTANO_STATE_BACKEND_CLICKHOUSE_LOCK")
    query = parse_qs(urlsplit(uri).query).get("lock", [""])
    found = (given, *(os.environ.get(variable) for variable in variables), query[-1])
    return str(next((value for value in found if value), "table")).strip()


def _owner() -> str:
    """Who holds a lock, for people."""
    return f"meltano on {platform.node()}, process {os.getpid()}"[:200]


__all__ = [
    "LockedStateError",
    "MissingSettingsError",
    "PipelineStateManager",
    "StateBackendError",
    "UnsupportedURIError",
]
