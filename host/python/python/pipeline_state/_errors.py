"""What can go wrong: one exception for each kind, made by the native part."""

from __future__ import annotations

from typing import ClassVar, Literal

from pipeline_state import _records

Outcome = Literal["not-applied", "unknown"]


class PipelineStateError(Exception):
    """Why a call failed. Its text is one line, says what to do, and never holds a secret."""

    kind: ClassVar[str] = "other"
    """The kind of error, in the words of the contract."""

    def __init__(self, message: str, *, outcome: Outcome = "not-applied") -> None:
        """Takes the text, and what a failed write may have done."""
        super().__init__(message)
        self.outcome: Outcome = outcome
        """What a failed write may have done: `not-applied`, or `unknown`, then read it back before you act on it."""


class InvalidInputError(PipelineStateError, ValueError):
    """The call's arguments, the URI or a setting can't be used as they are."""

    kind = "invalid-input"


class MissingSettingError(PipelineStateError):
    """A setting without a default is not given."""

    kind = "missing-setting"


class UnauthenticatedError(PipelineStateError):
    """The store does not know this user, or the password is wrong."""

    kind = "unauthenticated"


class AccessDeniedError(PipelineStateError):
    """The store knows the user and forbids the operation."""

    kind = "access-denied"


class ConflictError(PipelineStateError):
    """A write did not find what it expected; nothing was written."""

    kind = "conflict"

    def __init__(self, message: str, *, stored: int | None, outcome: Outcome = "not-applied") -> None:
        """Takes the version that is stored too."""
        super().__init__(message, outcome=outcome)
        self.stored = stored
        """The version that is stored; none where there is no state."""


class LockedError(PipelineStateError):
    """Somebody else holds the lease, or the lease under which a write was made is lost; nothing was written."""

    kind = "locked"

    def __init__(
        self,
        message: str,
        *,
        holder: tuple[str, str, str, int, int, int] | None,
        outcome: Outcome = "not-applied",
    ) -> None:
        """Takes who holds it too."""
        super().__init__(message, outcome=outcome)
        self.holder: _records.Holder | None = None if holder is None else _records.holder(holder)
        """Who holds it; none where nobody does."""


class UnavailableError(PipelineStateError):
    """The store could not be reached, or the connection broke."""

    kind = "unavailable"


class TimedOutError(PipelineStateError):
    """The store, or the plugin, did not answer in time."""

    kind = "timed-out"


class ServerError(PipelineStateError):
    """The store answered with an error of its own."""

    kind = "server"

    def __init__(self, message: str, *, code: int, name: str, outcome: Outcome = "not-applied") -> None:
        """Takes the store's number and name for it too."""
        super().__init__(message, outcome=outcome)
        self.code = code
        """The store's number for it; 0 where it gave none."""
        self.name = name
        """The store's name for it; empty where it gave none."""


class CorruptError(PipelineStateError):
    """The store answered with something that can't be a state."""

    kind = "corrupt"


class UnknownSchemeError(PipelineStateError):
    """No plugin serves the scheme of the URI."""

    kind = "no-plugin"


class BadPluginError(PipelineStateError):
    """A file can't be used as a plugin, or two plugins serve one scheme."""

    kind = "bad-plugin"


class NotAllowedError(PipelineStateError):
    """The operator does not allow it, or the plugin asked for an origin that its URI does not name."""

    kind = "not-allowed"


class PluginFailedError(PipelineStateError):
    """The plugin broke off. The next call runs on a fresh instance of it."""

    kind = "plugin-failed"
