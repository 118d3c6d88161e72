// The threads of a store: each makes one call at a time. A call that takes too long ends with its thread; the next one gets a
// fresh thread.

import { readFile } from "node:fs/promises";
import { MessageChannel, Worker, type MessagePort } from "node:worker_threads";

import { PipelineStateError } from "./error.js";
import type { Exchange, Listener, Network } from "./network.js";
import { send, type ToHost, type WorkerData } from "./protocol.js";
import { oneLine } from "./redact.js";
import type { Outcome, Plugin } from "./types.js";

/** What is made of a component when the package is built. */
export interface Component {
  /** Where the transpiled module is, beside its core modules. */
  readonly url: URL;
  readonly modules: Record<string, WebAssembly.Module>;
  readonly plugin: Plugin;
}

interface Manifest {
  modules: string[];
  plugin: Plugin;
}

/** Reads and compiles a component, on other threads. `folder` ends in a slash. */
export async function load(folder: URL): Promise<Component> {
  const manifest = JSON.parse(await readFile(new URL("manifest.json", folder), "utf8")) as Manifest;
  const compiled = manifest.modules.map(async (name): Promise<[string, WebAssembly.Module]> => [
    name,
    await WebAssembly.compile(await readFile(new URL(name, folder))),
  ]);
  return {
    url: new URL("component.js", folder),
    modules: Object.fromEntries(await Promise.all(compiled)),
    plugin: manifest.plugin,
  };
}

/** Whether a call may change the store, which decides what a broken one may have done. */
export type Access = "read" | "write";

/** A function of the contract, and what it is called with. */
export interface Call {
  interface: "store" | "locks" | "history" | "maintenance" | "registration";
  name: string;
  args: unknown[];
  access: Access;
}

/** What a plugin's function has refused with: `types.error` of the contract. */
export class Refusal {
  readonly error: unknown;
  constructor(error: unknown) {
    this.error = error;
  }
}

interface Job {
  call: Call;
  resolve(value: unknown): void;
  /** With a `Refusal` or an error. */
  reject(reason: unknown): void;
  /** The first thing that the plugin asked for and may not have. */
  denied: string | undefined;
  thread: Thread | undefined;
  settled: boolean;
}

/** How long a call may take, and what ends it earlier. */
export interface Limits {
  timeoutMs: number;
  signal: AbortSignal | undefined;
}

export class Pool {
  readonly #component: Component;
  readonly #network: Network;
  readonly #size: number;
  readonly #threads = new Set<Thread>();
  readonly #queue: Job[] = [];
  #closed = false;

  constructor(component: Component, network: Network, size: number) {
    this.#component = component;
    this.#network = network;
    this.#size = size;
    // So that the first call need not wait for all of it.
    this.#start();
  }

  /** Makes a call. Fails with a `Refusal` of the plugin, or with an error of this host. */
  call(call: Call, { timeoutMs, signal }: Limits): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new PipelineStateError("closed", "the store was closed"));
      if (signal?.aborted) return reject(aborted(signal, "not-applied"));
      const job: Job = { call, resolve, reject, denied: undefined, thread: undefined, settled: false };
      const late = (): void =>
        this.#end(job, (outcome) => {
          const message = `no answer within ${timeoutMs / 1000} s, which is all that a call may take`;
          return new PipelineStateError("timed-out", message, { outcome });
        });
      const timer = setTimeout(late, timeoutMs);
      const onAbort = (): void => this.#end(job, (outcome) => aborted(signal, outcome));
      signal?.addEventListener("abort", onAbort, { once: true });
      const settle = <T>(done: (value: T) => void) => {
        return (value: T): void => {
          if (job.settled) return;
          job.settled = true;
          clearTimeout(timer);
          signal?.removeEventListener("abort", onAbort);
          done(value);
        };
      };
      job.resolve = settle(resolve);
      job.reject = settle(reject);
      this.#queue.push(job);
      this.#dispatch();
    });
  }

  /** Ends all threads and connections. Calls that are on their way fail. */
  async close(): Promise<void> {
    this.#closed = true;
    const closed = (outcome: Outcome) => new PipelineStateError("closed", "the store was closed", { outcome });
    for (const job of this.#queue.splice(0)) job.reject(closed("not-applied"));
    const threads = [...this.#threads];
    this.#threads.clear();
    await Promise.all(threads.map((thread) => thread.stop(closed(outcomeOf(thread.job)))));
    this.#network.close();
  }

  #start(): Thread {
    const thread = new Thread(this.#component, this.#network, () => this.#dispatch(), (gone) => {
      this.#threads.delete(gone);
      // Not at once: what ended this call may be about to end those that wait, which need not begin then.
      setImmediate(() => this.#dispatch());
    });
    this.#threads.add(thread);
    return thread;
  }

  #dispatch(): void {
    while (this.#queue.length > 0 && !this.#closed) {
      const idle = [...this.#threads].find((thread) => thread.job === undefined);
      const thread = idle ?? (this.#threads.size < this.#size ? this.#start() : undefined);
      if (thread === undefined) return;
      const job = this.#queue.shift();
      if (job === undefined) return;
      job.thread = thread;
      thread.run(job);
    }
  }

  /** Ends a job before its time, with its thread if it has one. */
  #end(job: Job, error: (outcome: Outcome) => PipelineStateError): void {
    if (job.settled) return;
    const { thread } = job;
    if (thread === undefined) {
      const at = this.#queue.indexOf(job);
      if (at >= 0) this.#queue.splice(at, 1);
      return job.reject(error("not-applied"));
    }
    void thread.stop(error(outcomeOf(job)));
  }
}

function aborted(signal: AbortSignal | undefined, outcome: Outcome): PipelineStateError {
  return new PipelineStateError("aborted", "the call was aborted", { outcome, cause: signal?.reason });
}

/** What a call may have done that broke off. */
function outcomeOf(job: Job | undefined): Outcome {
  return job?.call.access === "write" ? "unknown" : "not-applied";
}

class Thread {
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #wake: Int32Array;
  readonly #network: Network;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #idle: () => void;
  readonly #gone: (thread: Thread) => void;
  job: Job | undefined;

  constructor(component: Component, network: Network, idle: () => void, gone: (thread: Thread) => void) {
    this.#network = network;
    this.#idle = idle;
    this.#gone = gone;
    this.#wake = new Int32Array(new SharedArrayBuffer(4));
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const data: WorkerData = { port: port2, wake: this.#wake, component: component.url.href, modules: component.modules };
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), {
      workerData: data,
      transferList: [port2],
      // The plugin's thread needs nothing of this process.
      env: {},
      execArgv: [],
      argv: [],
    });
    port1.on("message", (message: ToHost) => this.#hear(message));
    this.#worker.on("error", (error: Error) => void this.stop(broke(error.message, this.job)));
    this.#worker.on("exit", () => void this.stop(broke("its thread ended", this.job)));
    // A program may end while nothing is asked for, closed or not.
    this.#worker.unref();
    port1.unref();
  }

  run(job: Job): void {
    this.job = job;
    this.#port.ref();
    const { interface: from, name, args } = job.call;
    try {
      send(this.#port, this.#wake, { type: "call", interface: from, name, args });
    } catch (error) {
      this.#end();
      job.reject(error);
    }
  }

  /** Ends the thread; the call that it makes fails with this error. */
  async stop(error: PipelineStateError): Promise<void> {
    const { job } = this;
    this.job = undefined;
    for (const exchange of this.#exchanges.values()) exchange.drop();
    this.#exchanges.clear();
    this.#port.close();
    job?.reject(job.denied === undefined ? error : denied(job));
    this.#gone(this);
    await this.#worker.terminate();
  }

  #hear(message: ToHost): void {
    const { job } = this;
    if (message.type === "send") this.#send(message.request, message.http, job);
    else if (message.type === "consumed") this.#exchanges.get(message.request)?.consumed(message.bytes);
    else if (message.type === "drop") {
      this.#exchanges.get(message.request)?.drop();
      this.#exchanges.delete(message.request);
    } else if (job !== undefined) {
      this.#end();
      if (message.type === "done") job.resolve(message.value);
      else if (job.denied !== undefined) job.reject(denied(job));
      else job.reject(message.type === "refused" ? new Refusal(message.error) : broke(message.reason, job));
      this.#idle();
    }
  }

  #send(request: number, http: Extract<ToHost, { type: "send" }>["http"], job: Job | undefined): void {
    const say: Listener = {
      head: (status, headers) => send(this.#port, this.#wake, { type: "head", request, status, headers }),
      data: (piece) => {
        // Alone in its memory, which is handed over.
        const bytes = new Uint8Array(piece);
        send(this.#port, this.#wake, { type: "data", request, bytes }, [bytes.buffer]);
      },
      end: () => {
        this.#exchanges.delete(request);
        send(this.#port, this.#wake, { type: "end", request });
      },
      failed: (code) => {
        this.#exchanges.delete(request);
        send(this.#port, this.#wake, { type: "failed", request, code });
      },
    };
    const refuse = (what: string): void => {
      if (job !== undefined) job.denied ??= what;
    };
    try {
      this.#exchanges.set(request, this.#network.send(http, say, refuse));
    } catch {
      // Node takes something of it for no request.
      say.failed({ tag: "HTTP-request-URI-invalid" });
    }
  }

  /** The call has come to an end; what it left on its way is dropped. */
  #end(): void {
    this.job = undefined;
    this.#port.unref();
    for (const exchange of this.#exchanges.values()) exchange.drop();
    this.#exchanges.clear();
  }
}

function denied(job: Job): PipelineStateError {
  return new PipelineStateError("not-allowed", job.denied ?? "", { outcome: outcomeOf(job) });
}

function broke(reason: string, job: Job | undefined): PipelineStateError {
  return new PipelineStateError("plugin-failed", `the plugin broke off: ${oneLine(reason)}`, { outcome: outcomeOf(job) });
}
