// What callers give and get. All documented here; `Store` and `Lease` have the functions.

/** What a failed call may have done to the store: nothing, or it may have written. */
export type Outcome = "not-applied" | "unknown";

/**
 * A JSON object: its text, or a value that `JSON.stringify` makes one of.
 *
 * A text is kept byte for byte. Give a text where there are numbers beyond 2^53.
 */
export type Document = string | object;

/** What a pipeline is to remember. An absent document and an empty one are the same. */
export interface NewState {
  /** The state of the last run that ended well: Meltano's `completed_state`. */
  completed?: Document | null;
  /** What runs that were interrupted left behind: Meltano's `partial_state`. */
  partial?: Document | null;
}

/** What a pipeline remembers: JSON texts, as they were stored. `JSON.parse` rounds numbers beyond 2^53. */
export interface State {
  /** The state of the last run that ended well: Meltano's `completed_state`. */
  completed: string | undefined;
  /** What runs that were interrupted left behind: Meltano's `partial_state`. */
  partial: string | undefined;
}

/** A state as it is stored. */
export interface Entry {
  /** Whose state it is. */
  id: string;
  /** The state. */
  state: State;
  /** Which write it is from: a number that grows with each write of one ID. */
  version: bigint;
  /** When it was written, by the store's clock. */
  updatedAt: Date;
}

/** Some entries in the order of their IDs. */
export interface Page {
  /** The entries; there may be none, though more follow. */
  entries: Entry[];
  /** What to pass as `after` to get the next page; undefined where this is the last one. */
  next: string | undefined;
}

/** Some IDs in their order. */
export interface IdPage {
  /** The IDs; there may be none, though more follow. */
  ids: string[];
  /** What to pass as `after` to get the next page; undefined where this is the last one. */
  next: string | undefined;
}

/** A write that was made. */
export interface Change {
  /** Its version. */
  version: bigint;
  /** When it was made, by the store's clock. */
  writtenAt: Date;
  /** What was stored; undefined where the state was deleted. */
  state: State | undefined;
}

/** One thing that `check` has looked at. */
export interface Finding {
  /** How much it matters. */
  severity: "fine" | "note" | "warning" | "problem";
  /** What was looked at, in one or two words. */
  subject: string;
  /** What it is like, in one line. */
  text: string;
  /** What to do about it. */
  mend: string | undefined;
}

/** A lease as everybody may see it. */
export interface HeldLease {
  /** Whose lease it is. */
  id: string;
  /** What tells this lease from all others. No secret. */
  token: string;
  /** Who holds it, in the holder's own words. */
  owner: string;
  /** When it was acquired, by the store's clock. */
  acquiredAt: Date;
  /** When it was acquired or renewed last, likewise. */
  renewedAt: Date;
  /** When it ends unless it is renewed, likewise. */
  expiresAt: Date;
}

/** One thing that an operator can set. */
export interface Setting {
  /** Its name; one that ends in `*` stands for all names that begin so and are longer. */
  name: string;
  /** What its value must look like. */
  kind: "text" | "integer" | "boolean";
  /** What it means to the host, if anything. */
  role?: "host" | "port" | "tls" | "user" | "password";
  /** A few words for people. */
  label: string;
  /** Its value where none is given. */
  default?: string;
  /** Whether its value must never be shown. */
  sensitive: boolean;
  /** The environment variable that gives it. */
  env: string;
}

/** What the plugin says of itself. */
export interface Plugin {
  /** Its name. */
  name: string;
  /** Its version. */
  version: string;
  /** The schemes of the URIs that it serves. */
  schemes: string[];
  /** The settings that it knows. */
  settings: Setting[];
  /** The ports that stand for one that is not named. */
  defaultPorts: { plain: number; tls: number };
}

/** Whom HTTPS trusts, and how it identifies itself: handed to `node:tls` as it is. */
export interface TlsOptions {
  /** Certificate authorities, in PEM, in place of those that Node trusts. */
  ca?: string | Buffer | Array<string | Buffer>;
  /** A client certificate, in PEM. */
  cert?: string | Buffer;
  /** Its key, in PEM. */
  key?: string | Buffer;
}

/** How a store is opened. */
export interface OpenOptions {
  /** Settings by name. They win over the URI and the environment. */
  settings?: Record<string, string | number | boolean | undefined>;
  /**
   * Variables that give settings too, `process.env` for example: `PIPELINE_STATE_<SCHEME>_<NAME>`, then
   * `MELTANO_STATE_BACKEND_<SCHEME>_<NAME>`. None unless told.
   */
  env?: Record<string, string | undefined>;
  /** Whom HTTPS trusts, and how it identifies itself. */
  tls?: TlsOptions;
  /** How long a call may take, in milliseconds, waiting for its turn included; 120,000 unless told. */
  timeoutMs?: number;
  /** How many calls are made at once, each on a thread; 4 unless told. More wait. */
  concurrency?: number;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call. What a write has done then is not known. */
  signal?: AbortSignal;
  /** How long this call may take, in milliseconds, in place of that of `open`. */
  timeoutMs?: number;
}

/** What a page takes. */
export interface PageOptions extends CallOptions {
  /** The `next` of the page before. */
  after?: string;
  /** How many at most; 1,000 unless told. */
  limit?: number;
}

/** What `ids` and `entries` take. */
export interface IterateOptions extends CallOptions {
  /** How many to ask for at once; 1,000 unless told. */
  pageSize?: number;
}

/** What a write takes. */
export interface WriteOptions extends CallOptions {
  /** The lease under which it is made, or its token: it is refused as `locked` once that has ended. */
  lease?: { readonly token: string } | string;
}

/** What a write that expects something takes. */
export interface SetOptions extends WriteOptions {
  /** What has to be there: whatever there is (unless told), no state, or the state of this version. */
  expect?: "any" | "absent" | bigint;
}

/** What `history` takes. */
export interface HistoryOptions extends CallOptions {
  /** Only writes before this version. */
  before?: bigint;
  /** How many at most; 100 unless told. */
  limit?: number;
}

/** How a lease is acquired. */
export interface LockOptions {
  /** Who holds it, for people: for example host, process and job. At most 1,024 bytes. */
  owner?: string;
  /** After which time without a renewal somebody else may have it, in milliseconds: 2,000 to 86,400,000; 30,000 unless told. */
  ttlMs?: number;
  /** How long to wait where somebody else holds it, or the store can't be reached; not at all unless told. */
  waitMs?: number;
  /** Ends the waiting. */
  signal?: AbortSignal;
}
