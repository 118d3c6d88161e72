// What the main thread and a worker say to each other. The worker waits without an event loop: each message to it is followed
// by a step of a shared counter that it sleeps on.

import type { MessagePort } from "node:worker_threads";

/** A case of `wasi:http/types.error-code`. */
export interface ErrorCode {
  tag: string;
  val?: unknown;
}

/** Time-outs of one request, in milliseconds. */
export interface Timeouts {
  connect: number | undefined;
  firstByte: number | undefined;
  betweenBytes: number | undefined;
}

/** A request that a plugin wants to send, with its whole body. */
export interface HttpRequest {
  method: string;
  scheme: string | undefined;
  authority: string | undefined;
  path: string | undefined;
  headers: Array<[string, Uint8Array]>;
  body: Uint8Array[];
  timeouts: Timeouts;
}

/** To the worker: a call, or what became of an HTTP request of it. */
export type ToWorker =
  | { type: "call"; interface: string; name: string; args: unknown[] }
  | { type: "head"; request: number; status: number; headers: Array<[string, string]> }
  | { type: "data"; request: number; bytes: Uint8Array }
  | { type: "end"; request: number }
  | { type: "failed"; request: number; code: ErrorCode };

/** From the worker: how the call ended, or what it wants of the network. */
export type ToHost =
  | { type: "done"; value: unknown }
  | { type: "refused"; error: unknown }
  | { type: "broke"; reason: string }
  | { type: "send"; request: number; http: HttpRequest }
  | { type: "consumed"; request: number; bytes: number }
  | { type: "drop"; request: number };

/** What a worker is started with. */
export interface WorkerData {
  port: MessagePort;
  /** The counter that is stepped after each message to the worker. */
  wake: Int32Array;
  /** The URL of the transpiled component. */
  component: string;
  /** Its core modules by the names that it asks for, compiled. */
  modules: Record<string, WebAssembly.Module>;
}

/** Sends a message to a worker that may sleep. */
export function send(port: MessagePort, wake: Int32Array, message: ToWorker, transfer: ArrayBuffer[] = []): void {
  port.postMessage(message, transfer);
  Atomics.add(wake, 0, 1);
  Atomics.notify(wake, 0);
}
