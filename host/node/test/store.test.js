// What a store does, through the plugin, against a real ClickHouse.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, PipelineStateError } from "pipeline-state";

import { failure, freshSchema, place, query, server, uri } from "./support.js";

const id = "dev:tap-github-to-target-jsonl";

test("a state is kept byte for byte, and its version grows", async (t) => {
  const store = await place(t);
  assert.equal(await store.get(id), undefined);
  const completed = '{ "since":18446744073709551617, "é":"\\u00e9" }';
  const first = await store.set(id, { completed, partial: null });
  const entry = await store.get(id);
  assert.deepEqual(entry.state, { completed, partial: undefined });
  assert.equal(entry.version, first);
  assert.equal(entry.id, id);
  assert.ok(Math.abs(entry.updatedAt.getTime() - Date.now()) < 60_000, String(entry.updatedAt));
  assert.ok((await store.set(id, { completed: "{}" })) > first);
});

test("IDs of any Unicode text come back as they went in", async (t) => {
  const store = await place(t);
  const ids = ["", "\ufeffa", "a", "ä\u0000\n'\\", "💾", "%_*"];
  for (const id of ids) await store.set(id, { partial: JSON.stringify({ id }) });
  for (const id of ids) assert.equal((await store.get(id)).id, id);
  const found = [];
  for await (const id of store.ids()) found.push(id);
  assert.deepEqual(found, ids.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
});

test("values are written as JSON", async (t) => {
  const store = await place(t);
  await store.set(id, { completed: { singer_state: { bookmarks: [1, null] } } });
  assert.equal((await store.get(id)).state.completed, '{"singer_state":{"bookmarks":[1,null]}}');
});

test("what can't be a state is refused, and nothing is written", async (t) => {
  const store = await place(t);
  const round = {};
  round.round = round;
  for (const state of [
    { completed: "no JSON" },
    { completed: "[]" },
    { completed: '{"a": "\ud800"}' },
    { completed: round },
    { complete: "{}" },
    { completed: () => {} },
    { completed: 1 },
    null,
    "{}",
  ]) {
    assert.equal((await failure(store.set(id, state))).kind, "invalid-input");
  }
  for (const bad of [1, undefined, "\udc00"]) assert.equal((await failure(store.get(bad))).kind, "invalid-input");
  assert.equal((await failure(store.set(id, {}, { expect: 1 }))).kind, "invalid-input");
  assert.equal((await failure(store.getPage("*", { limit: 0 }))).kind, "invalid-input");
  assert.equal((await failure(store.getPage("*", { limit: 1.5 }))).kind, "invalid-input");
  assert.equal(await store.get(id), undefined);
});

test("of all who expect one version, one succeeds", async (t) => {
  const store = await place(t);
  const first = await store.set(id, { completed: "{}" }, { expect: "absent" });
  const tries = await Promise.allSettled([1, 2, 3, 4].map((n) => store.set(id, { completed: { n } }, { expect: first })));
  const [won, ...others] = tries.filter(({ status }) => status === "fulfilled");
  assert.deepEqual(others, []);
  for (const { reason } of tries.filter(({ status }) => status === "rejected")) {
    assert.equal(reason.kind, "conflict");
    assert.equal(reason.stored, won.value);
    assert.equal(reason.outcome, "not-applied");
  }
  const missing = await failure(store.set("no such", {}, { expect: first }));
  assert.deepEqual([missing.kind, missing.stored], ["conflict", undefined]);
});

test("updates of one state at once are all kept", async (t) => {
  const store = await place(t, { concurrency: 8 });
  const members = Array.from({ length: 12 }, (_, n) => `m${n}`);
  await Promise.all(members.map((name) => store.update(id, { partial: { [name]: 1 } })));
  assert.deepEqual(Object.keys(JSON.parse((await store.get(id)).state.partial)).sort(), members.toSorted());
});

test("many states are written, listed page by page, and cleared", async (t) => {
  const store = await place(t);
  const ids = Array.from({ length: 25 }, (_, n) => `s${String(n).padStart(2, "0")}`);
  assert.equal(await store.setMany(ids.map((id) => [id, { completed: { id } }])), 25);
  const page = await store.getPage("s*", { limit: 10 });
  assert.deepEqual(page.entries.map(({ id }) => id), ids.slice(0, 10));
  assert.equal((await store.getIds("s*", { limit: 10, after: page.next })).ids[0], ids[10]);
  const found = [];
  for await (const { id, state } of store.entries("s1?", { pageSize: 3 })) found.push([id, JSON.parse(state.completed).id]);
  assert.deepEqual(found, ids.slice(10, 20).map((id) => [id, id]));
  assert.equal(await store.delete("s00"), true);
  assert.equal(await store.delete("s00"), false);
  assert.equal(await store.clear(), 24);
  assert.deepEqual((await store.getIds()).ids, []);
});

test("documents of 10 MB go both ways, and a page of them", async (t) => {
  const store = await place(t);
  const completed = `{"a": "${"xä".repeat(3_500_000)}"}`;
  for (const id of ["a", "b", "c", "d", "e"]) await store.set(id, { completed });
  assert.equal((await store.get("a")).state.completed, completed);
  let entries = 0;
  for await (const { state } of store.entries()) {
    assert.equal(state.completed, completed);
    entries += 1;
  }
  assert.equal(entries, 5);
});

test("history tells what a state was", async (t) => {
  const store = await place(t, { settings: { history: true } });
  await store.set(id, { completed: '{"n": 1}' });
  const second = await store.set(id, { completed: '{"n": 2}' });
  await store.delete(id);
  const changes = await store.history(id);
  assert.deepEqual(changes.map(({ state }) => state?.completed), [undefined, '{"n": 2}', '{"n": 1}']);
  assert.equal(changes[1].version, second);
  assert.deepEqual((await store.history(id, { before: second, limit: 5 })).map(({ state }) => state.completed), ['{"n": 1}']);
});

test("check, migrate and describe say what there is", async (t) => {
  const store = await place(t);
  const findings = await store.check();
  assert.ok(findings.some(({ severity, subject, text }) => severity === "fine" && subject === "server" && text.includes(server.host)));
  assert.deepEqual(findings.filter(({ severity }) => severity === "problem"), []);
  const done = await store.migrate();
  assert.ok(done.every((line) => typeof line === "string"));
  assert.deepEqual(await store.migrate(), []);
  const plugin = store.describe();
  assert.equal(plugin.name, "clickhouse");
  assert.ok(plugin.settings.some(({ name, role }) => name === "password" && role === "password"));
  assert.equal(store.origin, `http://${server.host}`);
});

test("the Python backend's table is read and written", async (t) => {
  const store = await place(t);
  await store.set(id, { completed: { singer_state: { n: 1 } } });
  const schema = (await query("SELECT name FROM system.databases WHERE name LIKE 'suite_node_%' ORDER BY name")).trim().split("\n");
  const rows = await Promise.all(schema.map((name) => query(`SELECT completed_state FROM ${name}.state FINAL FORMAT TSVRaw`).catch(() => "")));
  assert.ok(rows.includes('{"singer_state":{"n":1}}\n'), rows.join());
});

test("32 calls at once are all answered", async (t) => {
  const store = await place(t, { concurrency: 8 });
  await store.set("n0", { completed: '{"n": 0}' });
  const answers = await Promise.all(Array.from({ length: 32 }, (_, n) => (n % 2 ? store.get("n0") : store.set(`n${n}`, { completed: { n } }))));
  assert.equal(answers.length, 32);
  assert.ok(answers.every((answer) => typeof answer === "bigint" || answer.id === "n0"));
  assert.equal((await store.getIds("n*")).ids.length, 16);
});

test("settings come from the environment where it is given", async (t) => {
  const schema = freshSchema();
  t.after(() => query(`DROP DATABASE IF EXISTS ${schema}`));
  const env = {
    MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA: "nobody_has_this",
    PIPELINE_STATE_CLICKHOUSE_SCHEMA: schema,
    MELTANO_STATE_BACKEND_CLICKHOUSE_TABLE: "from_env",
    PIPELINE_STATE_CLICKHOUSE_SETTING_MAX_THREADS: "2",
  };
  const store = await open(uri(), { env });
  t.after(() => store.close());
  await store.set(id, { completed: "{}" });
  assert.equal(await query(`SELECT count() FROM ${schema}.from_env`), "1\n");
  const given = await open(uri(), { env, settings: { table: "given" } });
  t.after(() => given.close());
  assert.equal(await given.get(id), undefined);
});

test("errors of the plugin, of the server and of this host are told apart", async (t) => {
  const kind = async (opening) => {
    const error = await failure(opening.then((store) => store.get("a").finally(() => store.close())));
    assert.ok(error instanceof PipelineStateError && error instanceof Error, String(error));
    assert.equal(error.message.split("\n").length, 1);
    return error.kind;
  };
  assert.equal(await kind(open("redis://localhost/0")), "no-plugin");
  assert.equal(await kind(open("no URI")), "invalid-input");
  assert.equal(await kind(open(uri(), { concurrency: 0 })), "invalid-input");
  assert.equal(await kind(open(uri(), { timeoutMs: Number.NaN })), "invalid-input");
  assert.equal(await kind(open(`clickhouse://${server.host}/x`)), "missing-setting");
  assert.equal(await kind(open(uri(), { settings: { password: "wrong" } })), "unauthenticated");
  assert.equal(await kind(open(uri(), { settings: { setting_max_execution_time: "x" } })), "server");
  assert.equal(await kind(open(uri("127.0.0.1:1"))), "unavailable");
  const store = await place(t);
  await store.close();
  const closed = await failure(store.get("a"));
  assert.equal(closed.kind, "closed");
});
