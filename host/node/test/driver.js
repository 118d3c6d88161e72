// The driver of this host for the conformance suite: one JSON request a line on stdin, one JSON answer a line on stdout, in
// order, until stdin ends. See tests/conformance.

import { createInterface } from "node:readline";

import { open, PipelineStateError } from "pipeline-state";

/** Each open store has a thread or more, and each case a target of its own. */
const MOST_OPEN = 4;

/** The stores by their targets, the one that was used last at the end. */
const stores = new Map();
/** Leases by ID and token, as they were acquired or renewed last: the contract wants them whole. */
const leases = new Map();

async function storeOf(target) {
  const key = JSON.stringify([target.uri, Object.entries(target.settings ?? {}).sort()]);
  const store = stores.get(key) ?? (await open(target.uri, { settings: target.settings }));
  stores.delete(key);
  stores.set(key, store);
  if (stores.size > MOST_OPEN) {
    const [oldest, unused] = stores.entries().next().value;
    stores.delete(oldest);
    await unused.close();
  }
  return store;
}

const version = (text) => (text === null || text === undefined ? undefined : BigInt(text));
const expectation = (expect) => (typeof expect === "object" && expect !== null ? version(expect.version) : (expect ?? "any"));
const shownState = (state) => state && { completed: state.completed ?? null, partial: state.partial ?? null };
const shownEntry = (entry) => ({
  id: entry.id,
  state: shownState(entry.state),
  version: String(entry.version),
  updated_at_ms: entry.updatedAt.getTime(),
});
const shownHolder = (lease) => ({
  id: lease.id,
  token: lease.token,
  owner: lease.owner,
  acquired_at_ms: lease.acquiredAt.getTime(),
  renewed_at_ms: lease.renewedAt.getTime(),
  expires_at_ms: lease.expiresAt.getTime(),
});
const shownLease = (lease) => ({
  id: lease.id,
  token: lease.token,
  epoch: String(lease.epoch),
  owner: lease.owner,
  acquired_at_ms: Number(lease.acquiredAtMs),
  renewed_at_ms: Number(lease.renewedAtMs),
  expires_at_ms: Number(lease.expiresAtMs),
});
const leaseKey = (id, token) => JSON.stringify([id, token]);

/** A lease as a call of the contract returned it. */
function keep(lease) {
  leases.set(leaseKey(lease.id, lease.token), lease);
  return shownLease(lease);
}

function kept(id, token) {
  const none = { id, token, epoch: 0n, owner: "", acquiredAtMs: 0n, renewedAtMs: 0n, expiresAtMs: 0n };
  return leases.get(leaseKey(id, token)) ?? none;
}

const page = ({ after, limit }) => ({ after: after ?? undefined, limit });

const operations = {
  async get(store, { id }) {
    const entry = await store.get(id);
    return entry ? shownEntry(entry) : null;
  },
  async get_page(store, request) {
    const { entries, next } = await store.getPage(request.pattern, page(request));
    return { entries: entries.map(shownEntry), next: next ?? null };
  },
  async get_ids(store, request) {
    const { ids, next } = await store.getIds(request.pattern, page(request));
    return { ids, next: next ?? null };
  },
  async set(store, { id, state, expect, lease }) {
    return String(await store.set(id, state, { expect: expectation(expect), lease: lease ?? undefined }));
  },
  set_many: (store, { states }) => store.setMany(states.map(({ id, state }) => [id, state])),
  async update(store, { id, state, lease }) {
    return String(await store.update(id, state, { lease: lease ?? undefined }));
  },
  delete: (store, { id, expect, lease }) => store.delete(id, { expect: expectation(expect), lease: lease ?? undefined }),
  clear: (store) => store.clear(),
  // Single attempts, as the contract has them; the public `lock` waits and renews.
  async acquire(store, { id, ttl_ms, owner, token }) {
    const request = { token: token ?? crypto.randomUUID(), ttlMs: BigInt(ttl_ms), owner: owner ?? "" };
    return keep(await store.locks.acquire(id, request, {}));
  },
  renew: async (store, { id, token, ttl_ms }) => keep(await store.locks.renew(kept(id, token), ttl_ms, {})),
  async release(store, { id, token }) {
    await store.locks.release(kept(id, token));
    return null;
  },
  async inspect(store, request) {
    const { leases, next } = await store.locks.inspect(request.pattern, page(request));
    return { leases: leases.map(shownLease), next: next ?? null };
  },
  break_lease: (store, { id, token }) => store.breakLease(id, token),
  async versions(store, { id, before, limit }) {
    const changes = await store.history(id, { before: version(before), limit });
    return changes.map(({ version, writtenAt, state }) => ({
      version: String(version),
      written_at_ms: writtenAt.getTime(),
      state: shownState(state) ?? null,
    }));
  },
  async check(store) {
    return (await store.check()).map((finding) => ({ ...finding, mend: finding.mend ?? null }));
  },
  migrate: (store) => store.migrate(),
  async describe(store) {
    const { defaultPorts, needsCredentials, settings, ...rest } = store.describe();
    const shown = settings.map((setting) => ({ ...setting, role: setting.role ?? null, default: setting.default ?? null }));
    return { ...rest, settings: shown, default_ports: defaultPorts, needs_credentials: needsCredentials };
  },
};
operations.history = operations.versions;

function shownError(error) {
  if (!(error instanceof PipelineStateError)) throw error;
  const { kind, message, outcome } = error;
  return {
    kind,
    message,
    outcome,
    ...(kind === "conflict" && { found: error.stored === undefined ? null : String(error.stored) }),
    ...(kind === "locked" && { holder: error.holder === undefined ? null : shownHolder(error.holder) }),
    ...(kind === "server" && { code: error.serverCode, name: error.serverName }),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    const operation = operations[request.op];
    if (operation === undefined) throw new Error(`there is no operation ${request.op}`);
    answer = { ok: await operation(await storeOf(request.target), request) };
  } catch (error) {
    answer = { error: shownError(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await Promise.all([...stores.values()].map((store) => store.close()));
