"""Keeps the bookmarks of a pipeline.

PIPELINE_STATE_URI names the store: clickhouse://user:password@localhost:8123/analytics.
"""

import os

import pipeline_state
from pipeline_state import State

ID = "dev:tap-github-to-target-jsonl"
store = pipeline_state.open(os.environ["PIPELINE_STATE_URI"])

# One run at a time. The lease is renewed in the background; what a run writes that has lost it is refused.
with store.lock(ID, owner=f"example {os.getpid()}", wait=10) as lease:
    lease.store.update(ID, State(partial='{"singer_state": {"bookmarks": {"issues": {"since": "2026-11-30"}}}}'))
    lease.store.update(ID, State(partial='{"singer_state": {"bookmarks": {"commits": {"since": "2026-12-01"}}}}'))

entry = store.get(ID)
assert entry is not None
print(entry.state.partial)

# Compare and set: of all who expect one version, one succeeds.
store.set(ID, State(completed=entry.state.partial), expect=entry.version)
try:
    store.set(ID, State(completed="{}"), expect=entry.version)
except pipeline_state.ConflictError as error:
    print(f"somebody was faster: {error}")

print(list(store.get_all_ids("dev:*")))
store.delete(ID)
