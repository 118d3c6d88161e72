// Programs that use the package: they end by themselves, and when they should.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { freshSchema, query, uri } from "./support.js";

/** Runs a program, and says what it printed and how it ended. */
async function run(program, environment = {}) {
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: fileURLToPath(new URL("..", import.meta.url)),
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 20_000,
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (bytes) => (output[name] += bytes));
  const [code, signal] = await once(child, "close");
  return { ...output, code, signal };
}

async function schemaFor(t) {
  const schema = freshSchema();
  t.after(() => query(`DROP DATABASE IF EXISTS ${schema}`));
  return schema;
}

const opening = (schema) => `import { open } from "pipeline-state";
const store = await open(${JSON.stringify(uri())}, { settings: { schema: ${JSON.stringify(schema)} } });`;

test("a program ends after it has closed its store", async (t) => {
  const ended = await run(`${opening(await schemaFor(t))}
    await store.set("a", { completed: { n: 1 } });
    console.log((await store.get("a")).state.completed);
    await store.close();`);
  assert.deepEqual(ended, { stdout: '{"n":1}\n', stderr: "", code: 0, signal: null });
});

test("a program ends also where it forgets to, at once, and a lease with it", async (t) => {
  const ended = await run(`${opening(await schemaFor(t))}
    await store.lock("a", { ttlMs: 5_000 });
    console.log((await store.holders()).length);
    globalThis.start = performance.now();
    process.on("exit", () => console.log(performance.now() - start < 1_500));`);
  assert.deepEqual(ended, { stdout: "1\ntrue\n", stderr: "", code: 0, signal: null });
});

test("a program waits for a call that nobody awaits", async (t) => {
  const schema = await schemaFor(t);
  const ended = await run(`${opening(schema)} void store.set("a", { completed: { n: 1 } });`);
  assert.equal(ended.code, 0, ended.stderr);
  assert.equal(await query(`SELECT count() FROM ${schema}.state`), "1\n");
});

test("a program that throws shows no password", async (t) => {
  const ended = await run(`${opening(await schemaFor(t))} await store.set("a", {}, { expect: 1n });`);
  assert.equal(ended.code, 1);
  assert.match(ended.stderr, /kind: 'conflict'/);
  assert.ok(!ended.stderr.includes(new URL(process.env.PIPELINE_STATE_TEST_CLICKHOUSE).password));
});
