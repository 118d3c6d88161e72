"""A store that is open, and leases of its states."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pipeline_state import _records
from pipeline_state._errors import PipelineStateError
from pipeline_state._records import Change, Entry, Finding, Holder, IdPage, Page, State, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from pipeline_state import _native

_PAGE = 1000
"""How many states or IDs are asked for at once by what goes through all of them."""


class Store:
    """A store of pipeline state. `Plugins.open` makes it.

    Any number of threads may use it at once: calls may overlap, and other Python threads run while one waits. Each
    runs on a fresh instance of the plugin, so that one that fails leaves nothing behind.
    """

    def __init__(self, native: _native.Backend) -> None:
        """Not for use: see `Plugins.open`."""
        self._native = native

    def __repr__(self) -> str:
        """Shows the origin alone: all else may be secret."""
        return f"<Store at {self.origin}>"

    @property
    def origin(self) -> str | None:
        """The one origin that calls may reach, for example `http://localhost:8123`."""
        return self._native.origin

    def under_lease(self, token: str) -> Store:
        """The same store, with writes under the lease of this token.

        They fail with `LockedError`, and nothing is written, once that lease has ended, also when it ends while they
        are on their way. A lease is of one state, so that no other one can be written through this, nor many at once.
        """
        return Store(self._native.under_lease(token))

    def get(self, state_id: str) -> Entry | None:
        """Reads one state; none where there is none."""
        found = self._native.get(state_id)
        return None if found is None else _entry(found)

    def get_page(self, pattern: str = "*", *, after: str | None = None, limit: int = _PAGE) -> Page:
        """Reads the states whose whole ID matches a pattern, ordered by the bytes of their IDs, after the ID `after`.

        A pattern is one of `fnmatch.fnmatchcase`. Go on with `Page.next` until it is none.
        """
        entries, following = self._native.get_page(pattern, after, limit)
        return Page([_entry(entry) for entry in entries], following)

    def get_all(self, pattern: str = "*") -> Iterator[Entry]:
        """Reads all states whose whole ID matches a pattern, page by page, so that few of them are in memory."""
        page = self.get_page(pattern)
        yield from page.entries
        while page.next is not None:
            page = self.get_page(pattern, after=page.next)
            yield from page.entries

    def get_ids(self, pattern: str = "*", *, after: str | None = None, limit: int = _PAGE) -> IdPage:
        """Reads IDs alone, like `get_page`."""
        return IdPage(*self._native.get_ids(pattern, after, limit))

    def get_all_ids(self, pattern: str = "*") -> Iterator[str]:
        """Reads all IDs that match a pattern, page by page."""
        page = self.get_ids(pattern)
        yield from page.ids
        while page.next is not None:
            page = self.get_ids(pattern, after=page.next)
            yield from page.ids

    def set(self, state_id: str, state: State, *, expect: Literal["any", "absent"] | int = "any") -> int:
        """Stores a state in place of what is there, and says its version.

        `expect` is a version, or `"absent"`: where something else is stored, nothing is written, and it raises
        `ConflictError`. Of all who expect one version one alone succeeds.
        """
        return self._native.set(state_id, _documents(state), expect)

    def set_many(self, states: Iterable[tuple[str, State]]) -> int:
        """Stores many states in place of what is there, and says how many. Of two of one ID the later one counts.

        All of them are in memory at once, and on an error some of them may be stored.
        """
        return self._native.set_many([(state_id, _documents(state)) for state_id, state in states])

    def update(self, state_id: str, state: State) -> int:
        """Adds to a state what a pipeline has got to, and says the version: Meltano's `update`, in one step.

        A state whose completed document has members replaces what is there; any other one's partial document is merged
        into the stored partial one. No concurrent write is lost, and no lock is needed.
        """
        return self._native.update(state_id, _documents(state))

    def delete(self, state_id: str, *, expect: Literal["any", "absent"] | int = "any") -> bool:
        """Deletes a state, where it is as expected; false where there was none."""
        return self._native.delete(state_id, expect)

    def clear(self) -> int:
        """Deletes every state, and says how many there were."""
        return self._native.clear()

    def lock(self, state_id: str, *, owner: str = "", ttl: float = 30, wait: float = 0) -> Lease:
        """Acquires the lease of a state: of all who want it one has it. `LockedError` where somebody else does.

        `owner` says to people who holds it. It is renewed in the background, so that it is lost `ttl` seconds after
        this process died or was cut off from the store. `wait` is for how many seconds to wait for it.
        """
        return Lease(self._native.lock(state_id, owner, ttl, wait), state_id)

    def holders(self, pattern: str = "*") -> list[Holder]:
        """Who holds leases of the states whose whole ID matches a pattern, ordered by ID."""
        return [_records.holder(values) for values in self._native.holders(pattern)]

    def break_lease(self, state_id: str, token: str) -> bool:
        """Ends the lease of a holder who will not, by the token that `holders` tells; false where it is not held."""
        return self._native.break_lease(state_id, token)

    def versions(self, state_id: str, *, before: int | None = None, limit: int = 100) -> list[Change]:
        """The last writes of one state, the newest first. To restore one is to `set` what it was.

        Where the store keeps no history, it raises `InvalidInputError` that says what to do.
        """
        return [
            Change(version, moment(written), None if documents is None else State(*documents))
            for version, written, documents in self._native.versions(state_id, before, limit)
        ]

    def check(self) -> list[Finding]:
        """Looks at the store and at all that could stand between it and a pipeline. Changes nothing."""
        return [Finding(*finding) for finding in self._native.check()]

    def migrate(self) -> list[str]:
        """Brings what an earlier version, or another program, has made up to date. Says what it did, a line each."""
        return self._native.migrate()


class Lease:
    """A lease that is held. `Store.lock` makes it; as a context manager it is released at the end.

    It is renewed in the background as long as this exists.
    """

    def __init__(self, native: _native.Lease, state_id: str) -> None:
        """Not for use: see `Store.lock`."""
        self._native = native
        self.state_id = state_id
        """Whose lease it is."""

    def __repr__(self) -> str:
        """Shows whose it is and its token, which is no secret."""
        return f"<Lease of {self.state_id!r}, token {self.token}>"

    def __enter__(self) -> Lease:
        """It is acquired already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Releases it. Where that fails it ends by itself, so that this is no error."""
        with suppress(PipelineStateError):
            self.release()

    @property
    def token(self) -> str:
        """What tells it from all others, for `Store.under_lease` and `Store.break_lease`."""
        return self._native.token

    @property
    def store(self) -> Store:
        """The store, with this lease: what is written through it is refused once the lease is lost."""
        return Store(self._native.backend())

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be lost, or was released."""
        return self._native.is_lost()

    def raise_if_lost(self) -> None:
        """Raises `LockedError` with who has it now, once it is lost."""
        self._native.check()

    def release(self) -> None:
        """Gives it back. One that is lost or released already needs no giving back."""
        self._native.release()


def _documents(state: State) -> tuple[str | None, str | None]:
    return state.completed, state.partial


def _entry(values: tuple[str, tuple[str | None, str | None], int, int]) -> Entry:
    state_id, documents, version, updated = values
    return Entry(state_id, State(*documents), version, moment(updated))
