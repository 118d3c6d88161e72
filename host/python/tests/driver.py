"""The driver of this host for the conformance suite, on the public API: see tests/conformance.

One JSON request on each line of stdin, one JSON answer on each line of stdout, in order, until stdin ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any, Literal

from pipeline_state import ConflictError, Lease, LockedError, PipelineStateError, Plugins, State, Store

PLUGINS = Plugins()
LEASES: dict[tuple[str, str], Lease] = {}
"""Those that were acquired here: each is renewed in the background until it is released."""

Request = dict[str, Any]


@cache
def opened(target: str) -> Store:
    named = json.loads(target)
    return PLUGINS.open(named["uri"], named.get("settings"), environment=False)


def state(request: Request) -> State:
    return State(request.get("completed"), request.get("partial"))


def expected(request: Request) -> Literal["any", "absent"] | int:
    expect: Any = request.get("expect") or "any"
    return int(expect["version"]) if isinstance(expect, dict) else expect


def pages(request: Request) -> Request:
    return {"pattern": request["pattern"], "after": request.get("after"), "limit": request["limit"]}


def held(store: Store, state_id: str, token: str) -> Any:
    """The lease as everybody sees it; it is lost where nobody does."""
    holder = next((holder for holder in store.holders() if holder.id == state_id), None)
    if holder is None or holder.token != token:
        error = LockedError("the lease is lost", holder=None)
        error.holder = holder
        raise error
    return holder


def acquire(store: Store, request: Request) -> Any:
    lease = store.lock(request["id"], owner=request.get("owner") or "", ttl=request["ttl_ms"] / 1000)
    LEASES[request["id"], lease.token] = lease
    return held(store, request["id"], lease.token)


def release(_: Store, request: Request) -> None:
    lease = LEASES.pop((request["id"], request["token"]), None)
    if lease is not None:
        lease.release()


def versions(store: Store, request: Request) -> Any:
    before = request.get("before")
    return store.versions(request["id"], before=before and int(before), limit=request["limit"])


def describe(*_: object) -> Request:
    (plugin,) = PLUGINS
    shown = asdict(plugin)
    ports = {"plain": shown.pop("plain_port"), "tls": shown.pop("tls_port")}
    return {**shown, "schemes": [plugin.scheme], "default_ports": ports}


OPERATIONS: dict[str, Callable[[Store, Request], Any]] = {
    "get": lambda store, request: store.get(request["id"]),
    "get_page": lambda store, request: store.get_page(**pages(request)),
    "get_ids": lambda store, request: store.get_ids(**pages(request)),
    "set": lambda store, request: str(store.set(request["id"], state(request["state"]), expect=expected(request))),
    "set_many": lambda store, request: store.set_many((each["id"], state(each["state"])) for each in request["states"]),
    "update": lambda store, request: str(store.update(request["id"], state(request["state"]))),
    "delete": lambda store, request: store.delete(request["id"], expect=expected(request)),
    "clear": lambda store, _: store.clear(),
    "acquire": acquire,
    # The host does that by itself, so that what is left is to see whether it could.
    "renew": lambda store, request: held(store, request["id"], request["token"]),
    "release": release,
    "inspect": lambda store, request: {"leases": store.holders(request["pattern"]), "next": None},
    "break_lease": lambda store, request: store.break_lease(request["id"], request["token"]),
    "versions": versions,
    "history": versions,
    "check": lambda store, _: store.check(),
    "migrate": lambda store, _: store.migrate(),
    "describe": describe,
}


def shown(value: Any) -> Any:
    """A value in the words of the protocol: times in milliseconds, versions as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(member(field.name, getattr(value, field.name)) for field in fields(value))
    if isinstance(value, (list, dict)):
        return {name: shown(each) for name, each in value.items()} if isinstance(value, dict) else [*map(shown, value)]
    return value


def member(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, datetime):
        return f"{name}_ms", (value - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    return name, str(value) if name == "version" else shown(value)


def answer(request: Request) -> Request:
    try:
        store = opened(json.dumps(request["target"], sort_keys=True))
        if request.get("lease"):
            store = store.under_lease(request["lease"])
        return {"ok": shown(OPERATIONS[request["op"]](store, request))}
    except PipelineStateError as error:
        told: Request = {"kind": error.kind, "message": str(error), **shown(vars(error))}
        if isinstance(error, ConflictError):
            told["found"] = error.stored and str(error.stored)
        return {"error": told}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
