// A store that is open: the contract's functions as methods.

import { inspect } from "node:util";

import {
  asError,
  change,
  count,
  entry,
  heldLease,
  milliseconds,
  optionalVersion,
  text,
  wireExpectation,
  wireState,
  wireToken,
  type WireChange,
  type WireEntry,
  type WireLease,
} from "./convert.js";
import { PipelineStateError } from "./error.js";
import { Lease, type Locks } from "./lease.js";
import { shown } from "./origin.js";
import type { Access, Call, Pool } from "./pool.js";
import type { Target } from "./target.js";
import type {
  CallOptions,
  Change,
  Entry,
  Finding,
  HeldLease,
  HistoryOptions,
  IdPage,
  IterateOptions,
  LockOptions,
  NewState,
  Page,
  PageOptions,
  Plugin,
  SetOptions,
  WriteOptions,
} from "./types.js";

const PAGE = 1_000;
const CHANGES = 100;

/** A store of pipeline state, from `open`. Calls may overlap in any number; one that fails harms no other one. */
export class Store {
  /** The one origin that calls may reach; undefined where the URI and the settings name no host. */
  readonly origin: string | undefined;
  readonly #pool: Pool;
  readonly #target: Target;
  readonly #plugin: Plugin;
  readonly #timeoutMs: number;
  readonly #locks: Locks;

  /** @internal */
  constructor(pool: Pool, target: Target, plugin: Plugin, timeoutMs: number) {
    this.#pool = pool;
    this.#target = target;
    this.#plugin = plugin;
    this.#timeoutMs = timeoutMs;
    this.origin = target.origin && shown(target.origin);
    const lock = (name: string, args: unknown[], options: CallOptions) => this.#call("locks", name, args, "write", options);
    this.#locks = {
      acquire: (id, request, options) => lock("acquire", [id, request], options) as Promise<WireLease>,
      renew: (lease, ttlMs, options) => lock("renew", [lease, BigInt(ttlMs)], options) as Promise<WireLease>,
      release: (lease) => lock("release", [lease], {}) as Promise<void>,
      breakLease: (id, token, options) => this.breakLease(id, token, options),
      inspect: (pattern, options) =>
        this.#read("locks", "inspect", pageArgs(pattern, options), options) as ReturnType<Locks["inspect"]>,
    };
  }

  /** Reads one state; undefined where there is none. */
  async get(id: string, options: CallOptions = {}): Promise<Entry | undefined> {
    const found = (await this.#read("store", "get", [text(id, "an ID")], options)) as WireEntry | undefined;
    return found && entry(found);
  }

  /**
   * Reads the states whose whole ID matches a pattern of Python's `fnmatch` (`*`, `?`, `[abc]`, `[!abc]`), some at once, in
   * the order of their IDs. Go on with `next` until it is undefined.
   */
  async getPage(pattern = "*", options: PageOptions = {}): Promise<Page> {
    const page = (await this.#read("store", "getPage", pageArgs(pattern, options), options)) as {
      entries: WireEntry[];
      next?: string;
    };
    return { entries: page.entries.map(entry), next: page.next };
  }

  /** Reads IDs alone, like `getPage`. */
  async getIds(pattern = "*", options: PageOptions = {}): Promise<IdPage> {
    const page = (await this.#read("store", "getIds", pageArgs(pattern, options), options)) as { ids: string[]; next?: string };
    return { ids: page.ids, next: page.next };
  }

  /** All states whose whole ID matches a pattern, a page at a time. */
  async *entries(pattern = "*", options: IterateOptions = {}): AsyncGenerator<Entry, void, void> {
    const { pageSize: limit, ...rest } = options;
    for await (const page of pages((after) => this.getPage(pattern, { ...rest, limit, after }))) yield* page.entries;
  }

  /** All IDs that match a pattern, a page at a time. */
  async *ids(pattern = "*", options: IterateOptions = {}): AsyncGenerator<string, void, void> {
    const { pageSize: limit, ...rest } = options;
    for await (const page of pages((after) => this.getIds(pattern, { ...rest, limit, after }))) yield* page.ids;
  }

  /**
   * Stores a state in place of what is there, if that is what is expected, and says its version.
   *
   * Once it answers, the state is stored, and every read finds it or a later one. Of all writes that expect one version, one at
   * most succeeds; the others fail with `conflict`.
   */
  async set(id: string, state: NewState, options: SetOptions = {}): Promise<bigint> {
    const args = [text(id, "an ID"), wireState(state), wireExpectation(options.expect), wireToken(options.lease)];
    return (await this.#write("store", "set", args, options)) as bigint;
  }

  /**
   * Adds to a state what a pipeline has got to, and says the version: Meltano's `update`. A state whose completed document has
   * members replaces what is there; any other one's partial document is merged into the stored partial one. No concurrent write is
   * lost, and no lock is needed.
   */
  async update(id: string, state: NewState, options: WriteOptions = {}): Promise<bigint> {
    const args = [text(id, "an ID"), wireState(state), wireToken(options.lease)];
    return (await this.#write("store", "update", args, options)) as bigint;
  }

  /** Deletes a state, if it is what is expected; false where there was none. */
  async delete(id: string, options: SetOptions = {}): Promise<boolean> {
    const args = [text(id, "an ID"), wireExpectation(options.expect), wireToken(options.lease)];
    return (await this.#write("store", "delete", args, options)) as boolean;
  }

  /** Stores many states in place of what is there, and says how many. On an error, some of them may be stored. */
  async setMany(states: Iterable<readonly [string, NewState]>, options: CallOptions = {}): Promise<number> {
    const list = Array.from(states, ([id, state]) => [text(id, "an ID"), wireState(state)]);
    return (await this.#call("store", "setMany", [list], "write", options)) as number;
  }

  /** Deletes every state, and says how many there were. */
  async clear(options: CallOptions = {}): Promise<number> {
    return Number(await this.#call("store", "clear", [], "write", options));
  }

  /** The last writes of one state, the newest first. To restore one is to `set` what it was. */
  async history(id: string, options: HistoryOptions = {}): Promise<Change[]> {
    const limit = count(options.limit ?? CHANGES, "`limit`");
    const args = [text(id, "an ID"), optionalVersion(options.before, "`before`"), limit];
    return ((await this.#read("history", "versions", args, options)) as WireChange[]).map(change);
  }

  /**
   * Acquires the lease of a state, whether there is a state or not, and renews it in the background; fails with `locked` where
   * somebody else holds it.
   *
   * ```js
   * const lease = await store.lock(id, { owner: "run 42", waitMs: 30_000 });
   * try {
   *   await store.update(id, { partial }, { lease });
   * } finally {
   *   await lease.release();
   * }
   * ```
   */
  async lock(id: string, options: LockOptions = {}): Promise<Lease> {
    return Lease.acquire(this.#locks, text(id, "an ID"), options);
  }

  /**
   * Who holds leases of the states whose whole ID matches a pattern, ordered by ID. They are read page by page, so that one who
   * begins or ends to hold a lease meanwhile may be among them or not.
   */
  async holders(pattern = "*", options: CallOptions = {}): Promise<HeldLease[]> {
    const holders: HeldLease[] = [];
    for await (const page of pages((after) => this.#locks.inspect(pattern, { ...options, after }))) {
      holders.push(...page.leases.map(heldLease));
    }
    return holders;
  }

  /** Ends the lease of a holder who will not, by the token that `holders` tells; false where it is not held any more. */
  async breakLease(id: string, token: string, options: CallOptions = {}): Promise<boolean> {
    const args = [text(id, "an ID"), text(token, "a token")];
    return (await this.#call("locks", "breakLease", args, "write", options)) as boolean;
  }

  /** Looks at the store and at all that could stand between it and a pipeline. Changes nothing. */
  async check(options: CallOptions = {}): Promise<Finding[]> {
    const { redact } = this.#target;
    const findings = (await this.#read("maintenance", "check", [], options)) as Array<Finding>;
    return findings.map(({ severity, subject, text: found, mend }) => ({
      severity,
      subject: redact(subject),
      text: redact(found),
      mend: mend === undefined ? undefined : redact(mend),
    }));
  }

  /** Brings what an earlier version, or another program, has made up to date. Says what it did, a line each. */
  async migrate(options: CallOptions = {}): Promise<string[]> {
    const lines = (await this.#call("maintenance", "migrate", [], "write", options)) as string[];
    return lines.map(this.#target.redact);
  }

  /** What the plugin says of itself. */
  describe(): Plugin {
    return structuredClone(this.#plugin);
  }

  /** Ends all threads and connections. Calls that are on their way fail with `closed`, and so do later ones. */
  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** As `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Without the URI and the settings, which hold secrets. */
  [inspect.custom](): string {
    return `Store { origin: ${JSON.stringify(this.origin)} }`;
  }

  /**
   * The leases as the contract has them: single attempts.
   * @internal
   */
  get locks(): Locks {
    return this.#locks;
  }

  #read(from: Call["interface"], name: string, args: unknown[], options: CallOptions): Promise<unknown> {
    return this.#call(from, name, args, "read", options);
  }

  async #write(from: Call["interface"], name: string, args: unknown[], options: WriteOptions): Promise<unknown> {
    try {
      return await this.#call(from, name, args, "write", options);
    } catch (error) {
      // So that the holder learns at once that the lease is lost, not at the next renewal.
      if (error instanceof PipelineStateError && error.kind === "locked" && options.lease instanceof Lease) options.lease.doubt();
      throw error;
    }
  }

  async #call(from: Call["interface"], name: string, args: unknown[], access: Access, options: CallOptions): Promise<unknown> {
    const timeoutMs = milliseconds(options.timeoutMs ?? this.#timeoutMs, "`timeoutMs`");
    const call: Call = { interface: from, name, args: [this.#target.sealed, ...args], access };
    try {
      return await this.#pool.call(call, { timeoutMs, signal: options.signal });
    } catch (reason) {
      throw asError(reason, this.#target.redact);
    }
  }
}

/** Page after page. A plugin must not make anybody ask for ever. */
async function* pages<P extends { next?: string | undefined }>(get: (after: string | undefined) => Promise<P>): AsyncGenerator<P> {
  let after: string | undefined;
  do {
    const page = await get(after);
    if (page.next !== undefined && after !== undefined && Buffer.compare(Buffer.from(page.next), Buffer.from(after)) <= 0) {
      throw new PipelineStateError("corrupt", "the plugin's pages don't go on from one another");
    }
    yield page;
    after = page.next;
  } while (after !== undefined);
}

function pageArgs(pattern: string, options: PageOptions): unknown[] {
  const after = options.after === undefined ? undefined : text(options.after, "`after`");
  return [text(pattern, "a pattern"), after, count(options.limit ?? PAGE, "`limit`")];
}
