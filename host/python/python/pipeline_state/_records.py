"""What is kept, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment(milliseconds: int) -> datetime:
    """A time of the store's clock, which counts milliseconds since 1970; the last one that Python knows at most."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class State:
    """What a pipeline remembers: Meltano's `MeltanoState`.

    Each document is one JSON object as text, and is kept byte for byte. An absent one and `{}` are the same; a state
    whose documents are both empty exists all the same.
    """

    completed: str | None = None
    """The state of the last run that ended well."""
    partial: str | None = None
    """What runs that were interrupted left behind."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A state as it is stored."""

    id: str
    state: State
    version: int
    """Which write it is from: it grows with each write of one ID, and means nothing but its order."""
    updated_at: datetime
    """When it was written, by the store's clock."""


@dataclass(frozen=True, slots=True)
class Change:
    """A write that was made: what the history has of it."""

    version: int
    written_at: datetime
    state: State | None
    """What was stored; none where the state was deleted."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries in the order of their IDs. There may be fewer than were asked for, or none, though more follow."""

    entries: list[Entry]
    next: str | None
    """What to pass as `after` to get the next page; none where this is the last one."""


@dataclass(frozen=True, slots=True)
class IdPage:
    """Some IDs in their order, likewise."""

    ids: list[str]
    next: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A lease that somebody holds, as everybody may see it."""

    id: str
    token: str
    """What tells this lease from all others; see `Store.break_lease`. It is no secret."""
    owner: str
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    """When it ends unless it is renewed, by the store's clock."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `Store.check` has looked at."""

    severity: Literal["fine", "note", "warning", "problem"]
    subject: str
    text: str
    mend: str | None
    """What to do about it."""


def holder(values: tuple[str, str, str, int, int, int]) -> Holder:
    """The native part's tuple as a record."""
    identifier, token, owner, acquired, renewed, expires = values
    return Holder(identifier, token, owner, moment(acquired), moment(renewed), moment(expires))
