"""What a call costs, side by side with a plain request for the same row. PIPELINE_STATE_URI names the server."""

from __future__ import annotations

import base64
import http.client
import os
import statistics
import sys
import time
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

URI = os.environ["PIPELINE_STATE_URI"]
SCHEMA = os.environ.get("PIPELINE_STATE_CLICKHOUSE_SCHEMA", "meltano")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 500

start = time.perf_counter()
import pipeline_state  # noqa: E402

store = pipeline_state.open(URI)
opened = time.perf_counter()
store.get("bench")
first = time.perf_counter()


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


print(
    f"import and open {milliseconds(opened - start)}, then the first get {milliseconds(first - opened)}: "
    f"{milliseconds(first - start)} in all"
)

document = '{"singer_state": {"text": "' + "x" * 1000 + '"}}'
store.set("bench", pipeline_state.State(completed=document))
store.set("same", pipeline_state.State(completed="{}"))

where = urlsplit(URI)
connection = http.client.HTTPConnection(where.hostname or "localhost", where.port or 8123)
password = f"{unquote(where.username or '')}:{unquote(where.password or '')}"
headers = {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"}


def plain(sql: str) -> None:
    connection.request("POST", "/", sql, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(text)


row = (
    f"SELECT partial_state, completed_state, updated_at FROM {SCHEMA}.state FINAL "  # noqa: S608
    "WHERE state_id = 'bench' FORMAT JSON"
)
count = iter(range(1_000_000))
reads: dict[str, Callable[[], object]] = {
    "get": lambda: store.get("bench"),
    "plain request for the row": lambda: plain(row),
    "plain request for a 1": lambda: plain("SELECT 1"),
}
writes: dict[str, Callable[[], object]] = {
    "set": lambda: store.set("bench", pipeline_state.State(completed=f'{{"n": {next(count)}, "of": {document}}}')),
    "set of what is stored": lambda: store.set("same", pipeline_state.State(completed="{}")),
    "update": lambda: store.update("other", pipeline_state.State(partial=f'{{"n": {next(count)}}}')),
    "lock and release": lambda: store.lock("other").release(),
}
# In turns, so that what else the machine does meets all of them.
times: dict[str, list[float]] = {name: [] for name in (*reads, *writes)}
for turn in range(-20, ROUNDS):
    for name, job in (reads if turn > 100 else {**reads, **writes}).items():
        before = time.perf_counter()
        job()
        if turn >= 0:
            times[name].append(time.perf_counter() - before)
for name, all_of_it in times.items():
    median, most = statistics.median(all_of_it), statistics.quantiles(all_of_it, n=20)[-1]
    print(f"{name}: median {milliseconds(median)}, 95 of 100 within {milliseconds(most)}")
