// Leases: one holder, renewed in the background, who learns at once that it is lost.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { failure, place } from "./support.js";

const id = "dev:tap-a-to-target-b";

test("a lease has one holder, whom everybody sees, until it is released", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { owner: "run 42" });
  const refused = await failure(store.lock(id));
  assert.equal(refused.kind, "locked");
  assert.equal(refused.holder.owner, "run 42");
  assert.match(refused.message, /is locked by run 42 since/);
  const [holder] = await store.holders("dev:*");
  assert.equal(holder.token, lease.token);
  assert.ok(holder.expiresAt.getTime() - holder.renewedAt.getTime() === 30_000);
  await store.update(id, { partial: { a: 1 } }, { lease });
  await lease.release();
  await lease.release();
  assert.deepEqual(await store.holders(), []);
  const other = await failure(store.update(id, { partial: { b: 1 } }, { lease }));
  assert.equal(other.kind, "locked");
  assert.equal(lease.lost.aborted, false);
});

test("who waits gets it when it is released", async (t) => {
  const store = await place(t);
  const first = await store.lock(id);
  const second = store.lock(id, { waitMs: 20_000 });
  await sleep(300);
  await first.release();
  const lease = await second;
  assert.notEqual(lease.token, first.token);
  await lease.release();
});

test("who gives up waiting leaves nothing behind", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { owner: "first" });
  const late = await failure(store.lock(id, { waitMs: 300 }));
  assert.equal(late.kind, "locked");
  const aborted = await failure(store.lock(id, { waitMs: 20_000, signal: AbortSignal.timeout(300) }));
  assert.equal(aborted.kind, "aborted");
  await lease.release();
  await sleep(100);
  assert.deepEqual(await store.holders(), []);
});

test("it is renewed in the background for longer than it lasts", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { ttlMs: 2_000 });
  await sleep(4_500);
  assert.equal(lease.isLost, false);
  await store.set(id, { completed: "{}" }, { lease });
  const [holder] = await store.holders();
  assert.ok(holder.renewedAt > holder.acquiredAt);
  await lease.release();
  assert.deepEqual(await store.holders(), []);
});

test("a holder learns from a refused write that its lease was broken", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { ttlMs: 60_000 });
  assert.equal(await store.breakLease(id, lease.token), true);
  assert.equal(await store.breakLease(id, lease.token), false);
  const lost = once(lease.lost, "abort");
  const refused = await failure(store.set(id, { completed: "{}" }, { lease }));
  assert.equal(refused.kind, "locked");
  // Long before the next heartbeat.
  await Promise.race([lost, sleep(3_000).then(() => assert.fail("it was not told"))]);
  assert.equal(lease.lost.reason.kind, "locked");
  assert.equal(lease.isLost, true);
  assert.equal(await store.get(id), undefined);
  await lease.release();
});

test("a holder learns from the heartbeat who has it instead", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { ttlMs: 3_000 });
  await store.breakLease(id, lease.token);
  const other = await store.lock(id, { owner: "somebody else" });
  await once(lease.lost, "abort");
  assert.equal(lease.lost.reason.holder.owner, "somebody else");
  await other.release();
});

test("a lease of a program that is cut off ends by itself, and its holder knows", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id, { ttlMs: 2_000 });
  await store.close();
  const lost = await Promise.race([once(lease.lost, "abort"), sleep(5_000)]);
  assert.ok(lost, "it was not told");
  assert.equal(lease.isLost, true);
});

test("it can be disposed of", async (t) => {
  const store = await place(t);
  const lease = await store.lock(id);
  await lease[Symbol.asyncDispose]();
  assert.deepEqual(await store.holders(), []);
});
