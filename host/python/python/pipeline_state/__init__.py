"""Keeps the state of pipelines in any store, through a sandboxed plugin that the scheme of a URI chooses.

>>> import pipeline_state
>>> store = pipeline_state.open(uri)  # clickhouse://user:password@localhost:8123/analytics
>>> version = store.set("dev:tap-a-to-target-b", State(completed='{"singer_state": {"since": 1}}'))
>>> store.get("dev:tap-a-to-target-b").state.completed
'{"singer_state": {"since": 1}}'
>>> with store.lock("dev:tap-a-to-target-b", owner="run 42") as lease:
...     version = lease.store.update("dev:tap-a-to-target-b", State(partial='{"singer_state": {"b": 2}}'))
>>> store.delete("dev:tap-a-to-target-b")
True

Any number of threads may use one store. What goes wrong is a `PipelineStateError`, of which `outcome` says whether a
write may have been stored all the same.
"""

from pipeline_state._errors import (
    AccessDeniedError,
    BadPluginError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    LockedError,
    MissingSettingError,
    NotAllowedError,
    PipelineStateError,
    PluginFailedError,
    ServerError,
    TimedOutError,
    UnauthenticatedError,
    UnavailableError,
    UnknownSchemeError,
)
from pipeline_state._plugins import Description, Plugins, Setting, open
from pipeline_state._records import Change, Entry, Finding, Holder, IdPage, Page, State
from pipeline_state._store import Lease, Store

__all__ = [
    "AccessDeniedError",
    "BadPluginError",
    "Change",
    "ConflictError",
    "CorruptError",
    "Description",
    "Entry",
    "Finding",
    "Holder",
    "IdPage",
    "InvalidInputError",
    "Lease",
    "LockedError",
    "MissingSettingError",
    "NotAllowedError",
    "Page",
    "PipelineStateError",
    "PluginFailedError",
    "Plugins",
    "ServerError",
    "Setting",
    "State",
    "Store",
    "TimedOutError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownSchemeError",
    "open",
]
