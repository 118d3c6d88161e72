// Keeps the bookmarks of a pipeline. PIPELINE_STATE_URI names the store: clickhouse://user:password@localhost:8123/analytics

import { open, PipelineStateError } from "pipeline-state";

const id = "dev:tap-github-to-target-jsonl";
const store = await open(process.env.PIPELINE_STATE_URI, { env: process.env });

// One run at a time. The lease is renewed in the background; what a run writes that has lost it is refused.
const lease = await store.lock(id, { owner: `example ${process.pid}`, waitMs: 10_000 });
try {
  await store.update(id, { partial: { singer_state: { bookmarks: { issues: { since: "2026-11-30" } } } } }, { lease });
  await store.update(id, { partial: { singer_state: { bookmarks: { commits: { since: "2026-12-01" } } } } }, { lease });
} finally {
  await lease.release();
}
const entry = await store.get(id);
console.log(entry.state.partial);

// Compare and set: of all who expect one version, one succeeds.
const expect = entry.version;
await store.set(id, { completed: entry.state.partial }, { expect });
try {
  await store.set(id, { completed: {} }, { expect });
} catch (error) {
  if (!(error instanceof PipelineStateError && error.kind === "conflict")) throw error;
  console.log(`somebody was faster: ${error.message}`);
}

for await (const found of store.ids("dev:*")) console.log(found);
await store.delete(id);
await store.close();
