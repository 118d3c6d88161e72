// A thread that makes one call at a time. The plugin blocks while it waits for the store, so it has a thread to itself.

import { workerData } from "node:worker_threads";

import { imports, Line } from "./wasi.js";
import type { WorkerData } from "./protocol.js";

/** An instance that has grown larger is thrown away: the memory of WebAssembly never shrinks. */
const LARGEST_KEPT = 32 * 1024 * 1024;

type Root = Record<string, Record<string, (...args: unknown[]) => unknown>>;
type Instantiate = (
  module: (name: string) => WebAssembly.Module,
  imports: Record<string, Record<string, unknown>>,
  instantiate: (module: WebAssembly.Module, imports: WebAssembly.Imports) => WebAssembly.Instance,
) => Root;

const { port, wake, component, modules } = workerData as WorkerData;
const { instantiate } = (await import(component)) as { instantiate: Instantiate };
const line = new Line(port, wake);
const wasi = imports(line);

/** A plugin that is ready for calls, and how much memory it has. */
class Plugin {
  readonly root: Root;
  readonly #memories: WebAssembly.Memory[] = [];

  constructor() {
    const module = (name: string): WebAssembly.Module => {
      const found = modules[name];
      if (found === undefined) throw new Error(`the package lacks ${name}`);
      return found;
    };
    this.root = instantiate(module, wasi, (core, given) => {
      const instance = new WebAssembly.Instance(core, given);
      for (const item of Object.values(instance.exports)) {
        if (item instanceof WebAssembly.Memory) this.#memories.push(item);
      }
      return instance;
    });
  }

  get bytes(): number {
    return this.#memories.reduce((sum, memory) => sum + memory.buffer.byteLength, 0);
  }
}

let plugin: Plugin | undefined = new Plugin();
for (;;) {
  // While nobody waits for it, if possible.
  plugin ??= new Plugin();
  const call = line.nextCall();
  try {
    const value = plugin.root[call.interface]?.[call.name]?.(...call.args);
    line.post({ type: "done", value });
  } catch (error) {
    // What a function answers with as its error is thrown as it is, and no Error.
    if (!(error instanceof Error)) line.post({ type: "refused", error });
    else {
      // Nothing of an instance that trapped is used again.
      plugin = undefined;
      line.post({ type: "broke", reason: error.message });
    }
  }
  if (plugin !== undefined && plugin.bytes > LARGEST_KEPT) plugin = undefined;
}
