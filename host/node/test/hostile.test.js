// What a plugin that means harm gets: the component of tests/plugins/hostile, transpiled like the real one.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { after, test } from "node:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { transpile } from "../build.js";
import { openWith } from "../dist/index.js";
import { load } from "../dist/pool.js";
import { failure, httpServer } from "./support.js";

const given = process.env.PIPELINE_STATE_TEST_HOSTILE;
if (!given) throw new Error("PIPELINE_STATE_TEST_HOSTILE must name the component of tests/plugins/hostile; or run `cargo dev node`");
const folder = await mkdtemp(join(tmpdir(), "pipeline-state-hostile-"));
after(() => rm(folder, { recursive: true }));
await transpile(given, folder);
const hostile = await load(pathToFileURL(`${folder}/`));

async function opened(t, host, options = {}) {
  const store = await openWith(hostile, `hostile://user:sekret@${host}/`, { timeoutMs: 10_000, concurrency: 1, ...options });
  t.after(() => store.close());
  return store;
}

/** A server that counts what it is asked, and how to ask it for something. */
async function attacked(t) {
  const seen = [];
  const server = await httpServer(t, (request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.end("hello");
  });
  const store = await opened(t, server.host);
  const attack = async (request) => {
    const entry = await store.get(JSON.stringify({ authority: server.host, path: "/", ...request }));
    return JSON.parse(entry.state.completed).answers;
  };
  return { seen, server, store, attack };
}

test("it reaches its own origin, as the host's user, and without headers that are the host's", async (t) => {
  const { seen, attack } = await attacked(t);
  const [answer] = await attack({ method: "POST", body: "x", headers: [["x-own", "1"]] });
  assert.deepEqual([answer.status, answer.body], [200, "hello"]);
  for (const name of ["Host", "Connection", "Proxy-Authorization", "X-Forwarded-For", "Cookie", "a b"]) {
    const refused = await failure(attack({ headers: [[name, "x"]] }));
    assert.equal(refused.kind, "unavailable");
    assert.match(refused.message, /header/);
  }
  assert.deepEqual(seen, ["POST /"]);
});

test("it reaches no other origin", async (t) => {
  const { seen, server, attack } = await attacked(t);
  for (const request of [
    { authority: `localhost:${server.port}` },
    { authority: `127.0.0.1:${server.port + 1}` },
    { authority: `user@127.0.0.1:${server.port}` },
    { authority: "169.254.169.254" },
    { scheme: "https" },
    { scheme: "ftp" },
  ]) {
    const denied = await failure(attack(request));
    assert.equal(denied.kind, "not-allowed", JSON.stringify(request));
    assert.match(denied.message, new RegExp(`may reach http://${server.host} alone`));
    assert.equal(denied.outcome, "not-applied");
  }
  for (const request of [{ method: "CONNECT" }, { method: "TRACE" }, { path: "http://elsewhere/" }, { path: "/a b\r\nx: y" }, { method: "GET /x HTTP/1.1\r\n\r\n" }]) {
    const denied = await failure(attack(request));
    assert.equal(denied.kind, "not-allowed", JSON.stringify(request));
    assert.equal(denied.message.split("\n").length, 1);
  }
  assert.deepEqual(seen, []);
});

test("a denied write may have been made before", async (t) => {
  const { store } = await attacked(t);
  const denied = await failure(store.set(JSON.stringify({ authority: "elsewhere", path: "/" }), {}));
  assert.deepEqual([denied.kind, denied.outcome], ["not-allowed", "unknown"]);
});

test("after a trap, or what fills its stack or memory, the next call works", async (t) => {
  const { store } = await attacked(t);
  for (const id of ["trap", "recursion", "polls:0", "chance:99999999999", "full-fields"]) {
    // What never ends of itself ends at the deadline.
    const broke = await failure(store.set(id, {}, { timeoutMs: 3_000 }));
    assert.ok(["plugin-failed", "timed-out"].includes(broke.kind), `${id}: ${broke.kind}`);
    assert.equal(broke.outcome, "unknown");
    assert.equal((await store.get("ordinary")).state.completed, "{}");
  }
  assert.equal((await failure(store.get("trap"))).kind, "plugin-failed");
});

test("what computes or sleeps for ever ends at the deadline, and harms no other call", async (t) => {
  const store = await opened(t, "127.0.0.1:9", { concurrency: 2 });
  const hanging = ["spin", "sleep"].map((id) => failure(store.get(id, { timeoutMs: 700 })));
  assert.equal((await store.get("ordinary")).state.completed, "{}");
  for (const error of await Promise.all(hanging)) assert.equal(error.kind, "timed-out");
  assert.equal((await store.get("ordinary")).state.completed, "{}");
});

test("it sees no credentials, and what it says is redacted", async (t) => {
  const { store } = await attacked(t);
  const { completed } = (await store.get("credentials")).state;
  assert.ok(completed.includes("hostile://sealed:sealed@"), completed);
  assert.ok(!completed.includes("sekret") && !completed.includes("user"), completed);
  const error = await failure(store.get("error:server:sekret\u001b[2J c2VrcmV0"));
  assert.equal(error.message, "[redacted]\\u{1b}[2J [redacted]");
  assert.equal(error.serverName, error.message);
});

test("what is no answer of a store is no crash of the host", async (t) => {
  const { store } = await attacked(t);
  const odd = await store.get("odd");
  assert.equal(odd.version, 0n);
  const locked = await failure(store.get("error:locked:x\n"));
  assert.equal(locked.kind, "locked");
  assert.equal(locked.message.split("\n").length, 1);
});
