// The state of pipelines in ClickHouse, through the sandboxed plugin of pipeline-state. See `open`.

import { milliseconds } from "./convert.js";
import { invalid, PipelineStateError } from "./error.js";
import { Network } from "./network.js";
import { load, Pool, type Component } from "./pool.js";
import { settingsFor } from "./settings.js";
import { Store } from "./store.js";
import { schemeOf, targetOf } from "./target.js";
import type { OpenOptions } from "./types.js";

export { PipelineStateError, type ErrorDetails, type ErrorKind } from "./error.js";
export type { Lease } from "./lease.js";
export type { Store } from "./store.js";
export type * from "./types.js";

/** More than the plugin's own time-outs for one request, which say better what happened. */
const TIMEOUT_MS = 120_000;
const CONCURRENCY = 4;
const MOST_CONCURRENCY = 64;

let embedded: Promise<Component> | undefined;

/**
 * Opens the store that a URI and settings name. Nothing is sent: whether the store can be reached shows at the first call.
 *
 * ```js
 * import { open } from "pipeline-state";
 *
 * const store = await open("clickhouse://user:password@localhost:8123/meltano", { env: process.env });
 * await store.set("dev:tap-a-to-target-b", { completed: { singer_state: {} } });
 * console.log(await store.get("dev:tap-a-to-target-b"));
 * await store.close();
 * ```
 */
export async function open(uri: string, options: OpenOptions = {}): Promise<Store> {
  embedded ??= load(new URL("./component/", import.meta.url));
  return openWith(await embedded, uri, options);
}

/**
 * Opens a store through another component, for tests.
 * @internal
 */
export async function openWith(component: Component, uri: string, options: OpenOptions = {}): Promise<Store> {
  if (typeof uri !== "string") throw invalid("the URI must be a string");
  const scheme = schemeOf(uri);
  const { plugin } = component;
  if (!plugin.schemes.includes(scheme)) {
    const known = plugin.schemes.join(", ");
    throw new PipelineStateError("no-plugin", `no plugin serves the scheme \`${scheme}\`; there are: ${known}`);
  }
  const timeoutMs = milliseconds(options.timeoutMs ?? TIMEOUT_MS, "`timeoutMs`");
  const concurrency = options.concurrency ?? CONCURRENCY;
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > MOST_CONCURRENCY) {
    throw invalid(`\`concurrency\` must be a whole number from 1 to ${MOST_CONCURRENCY}`);
  }
  const target = targetOf(uri, settingsFor(scheme, plugin, options), plugin);
  let network: Network;
  try {
    network = new Network(target, options.tls ?? {});
  } catch {
    throw invalid("`tls` can't be used: `ca`, `cert` and `key` must be PEM, the key that of the certificate");
  }
  return new Store(new Pool(component, network, concurrency), target, plugin, timeoutMs);
}
