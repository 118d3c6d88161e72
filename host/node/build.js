#!/usr/bin/env node
// Makes the package: transpiles the plugin's component with jco, asks it to describe itself, compiles the TypeScript.
//
//     node build.js [COMPONENT]
//
// The component is the argument, else PIPELINE_STATE_COMPONENT, else target/components/clickhouse.wasm of the workspace.

import { execFileSync } from "node:child_process";
import { copyFile, mkdir, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { transpile as transpileComponent } from "@bytecodealliance/jco-transpile";

const here = dirname(fileURLToPath(import.meta.url));
const workspace = join(here, "../..");

/** Writes a component as JavaScript and core modules into a folder, with a manifest of what a host must know before it runs. */
export async function transpile(component, folder) {
  const { files } = await transpileComponent(component, {
    name: "component",
    outDir: folder,
    instantiation: "sync",
    minify: true,
    emitTypescriptDeclarations: false,
    // The imports are those of src/wasi.ts.
    wasiShim: false,
    noComponentErrorWrapping: true,
  });
  const modules = Object.entries(files).filter(([path]) => path.endsWith(".wasm"));
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  for (const [path, bytes] of Object.entries(files)) {
    const isScript = path.endsWith(".js");
    await writeFile(join(folder, basename(path)), isScript ? keepingMarks(Buffer.from(bytes).toString()) : bytes);
  }
  const plugin = await describe(folder, new Map(modules.map(([path, bytes]) => [basename(path), bytes])));
  const manifest = { modules: modules.map(([path]) => basename(path)), plugin };
  await writeFile(join(folder, "manifest.json"), `${JSON.stringify(manifest, null, 1)}\n`);
}

/**
 * jco decodes strings with a `TextDecoder` that drops a byte order mark at their beginning, so that the ID "\ufeffa" would be
 * read as "a".
 */
function keepingMarks(script) {
  const decoder = /new TextDecoder(?:\(\))?(?!\()/g;
  const found = script.match(decoder)?.length ?? 0;
  if (found !== 1) throw new Error(`jco's code has changed: ${found} decoders of UTF-8 where one was expected`);
  return script.replace(decoder, 'new TextDecoder("utf-8", { ignoreBOM: true, fatal: true })');
}

/** What the plugin says of itself. It reaches for nothing meanwhile: each import throws. */
async function describe(folder, modules) {
  const { instantiate } = await import(pathToFileURL(join(folder, "component.js")));
  const unreachable = (name) => {
    throw new Error(`the plugin used ${String(name)} to describe itself`);
  };
  const imports = new Proxy({}, { get: () => new Proxy({}, { get: (_, name) => class { constructor() { unreachable(name); } } }) });
  const root = instantiate((name) => new WebAssembly.Module(modules.get(name)), imports);
  return root.registration.describe();
}

async function build(component) {
  const dist = join(here, "dist");
  await rm(dist, { recursive: true, force: true });
  await transpile(component, join(dist, "component"));
  for (const license of ["LICENSE-APACHE", "LICENSE-MIT"]) await copyFile(join(workspace, license), join(here, license));
  const tsc = join(dirname(createRequire(import.meta.url).resolve("typescript/package.json")), "bin/tsc");
  execFileSync(process.execPath, [tsc, "--project", join(here, "tsconfig.json")], { stdio: "inherit" });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const given = process.argv[2] || process.env.PIPELINE_STATE_COMPONENT;
  await build(resolve(given || join(workspace, "target/components/clickhouse.wasm")));
}
