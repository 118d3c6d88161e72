// The package's types as callers see them. It is compiled, not run: see package.test.js.

import { open, PipelineStateError, type Entry, type Lease, type OpenOptions, type State, type Store } from "pipeline-state";

const options: OpenOptions = { env: process.env, tls: { ca: "" }, timeoutMs: 1, concurrency: 1, settings: { port: 1, secure: true } };
const store: Store = await open("clickhouse://u@h/d", options);

const entry: Entry | undefined = await store.get("a");
// @ts-expect-error: there may be none.
entry.version;
const state: State | undefined = entry?.state;
const text: string | undefined = state?.completed;
const version: bigint = await store.set("a", { completed: text, partial: { a: 1 } }, { expect: entry?.version ?? "absent" });
// @ts-expect-error: a version is a bigint.
await store.set("a", {}, { expect: 1 });
// @ts-expect-error: a state has no such member.
await store.set("a", { complete: "{}" });
for await (const id of store.ids("*", { pageSize: 10 })) id.toUpperCase();
for await (const { updatedAt } of store.entries()) updatedAt.getTime();
await store.setMany([["a", {}]]);
await store.setMany(new Map([["a", { completed: "{}" }]]));
const lease: Lease = await store.lock("a", { owner: "o", ttlMs: 1, waitMs: 1, signal: AbortSignal.timeout(1) });
await store.update("a", { partial: "{}" }, { lease, signal: lease.lost });
await store.delete("a", { lease: lease.token, expect: version });
const [holder] = await store.holders();
await store.breakLease(holder?.id ?? "", holder?.token ?? "");
for (const { mend } of await store.check()) mend?.toUpperCase();
for (const change of await store.history("a", { before: version, limit: 1 })) change.state?.partial;
try {
  await lease.release();
} catch (error) {
  if (error instanceof PipelineStateError && error.kind === "conflict") error.stored?.toString();
  // @ts-expect-error: there is no such kind.
  if (error instanceof PipelineStateError && error.kind === "odd") throw error;
}
await store.close();
