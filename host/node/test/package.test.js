// What is published: the files, the types, and that it works where only they are.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { open } from "pipeline-state";

import { freshSchema, query, uri } from "./support.js";

const run = promisify(execFile);
const here = fileURLToPath(new URL("..", import.meta.url));
const require = createRequire(import.meta.url);
const tsc = join(dirname(require.resolve("typescript/package.json")), "bin/tsc");
const published = JSON.parse(await readFile(join(here, "package.json"), "utf8"));

test("the package has the version of the plugin in it, and no dependencies", async () => {
  const store = await open(uri());
  assert.equal(store.describe().version, published.version);
  await store.close();
  assert.equal(published.dependencies, undefined);
});

test("the lock file names no registry", async () => {
  const lock = await readFile(join(here, "package-lock.json"), "utf8");
  assert.ok(!/"resolved"|https?:\/\/(?!(github\.com|opencollective\.com|www\.patreon\.com|tidelift\.com))[^"]*\.tgz/.test(lock));
});

test("the packed package works alone, with its types, and runs the example and what its README shows", { timeout: 120_000 }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "pipeline-state-packed-"));
  const schema = freshSchema();
  t.after(async () => {
    await rm(folder, { recursive: true });
    await query(`DROP DATABASE IF EXISTS ${schema}`);
  });
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: here });
  const [{ filename, files }] = JSON.parse(stdout);
  const names = files.map(({ path }) => path);
  for (const name of ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "dist/index.js", "dist/index.d.ts", "dist/component/component.core.wasm"]) {
    assert.ok(names.includes(name), name);
  }
  assert.deepEqual(names.filter((name) => /^(src|test|examples|build|bench|node_modules)/.test(name)), []);

  await writeFile(join(folder, "package.json"), '{"type": "module", "private": true}');
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(folder, filename)], { cwd: folder });
  await copyFile(join(here, "examples/bookmarks.js"), join(folder, "bookmarks.js"));
  const env = { ...process.env, PIPELINE_STATE_URI: uri(), PIPELINE_STATE_CLICKHOUSE_SCHEMA: schema };
  const example = await run(process.execPath, ["bookmarks.js"], { cwd: folder, env });
  assert.match(example.stdout, /somebody was faster/);
  const readme = await readFile(join(folder, "node_modules/pipeline-state/README.md"), "utf8");
  const blocks = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block);
  assert.ok(blocks.length >= 3);
  for (const block of blocks) {
    await writeFile(join(folder, "block.js"), block.replace("clickhouse://user:password@localhost:8123/analytics", uri()));
    await run(process.execPath, ["block.js"], { cwd: folder, env });
  }

  // As a program with strict types would be compiled, without any of this package's own settings.
  await copyFile(join(here, "test/types.ts"), join(folder, "types.ts"));
  const types = join(here, "node_modules/@types");
  const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2023", "--types", "node", "--typeRoots", types];
  await run(process.execPath, [tsc, ...flags, "types.ts"], { cwd: folder }).catch((error) => assert.fail(error.stdout));
});
