// What can go wrong, as one class: the kind, the cause and the mend in one line, and for a write what it may have done.

import type { HeldLease, Outcome } from "./types.js";

/** Why a call failed. The first ten are those of the contract, the others are this host's own. */
export type ErrorKind =
  /** The call's arguments, the URI or a setting can't be used as they are. */
  | "invalid-input"
  /** A setting without a default is not given. */
  | "missing-setting"
  /** The store does not know this user, or the password is wrong. */
  | "unauthenticated"
  /** The store knows the user and forbids the operation. */
  | "access-denied"
  /** A write did not find what it expected; nothing was written. */
  | "conflict"
  /** Somebody else holds the lease of the state, or the lease under which a write was made is lost; nothing was written. */
  | "locked"
  /** The store could not be reached, or the connection broke. */
  | "unavailable"
  /** The store, or the plugin, did not answer in time. */
  | "timed-out"
  /** The store answered with an error of its own. */
  | "server"
  /** The store answered with something that can't be a state. */
  | "corrupt"
  /** No plugin serves the scheme of the URI. */
  | "no-plugin"
  /** The plugin asked for something else than the origin that the URI and the settings name. */
  | "not-allowed"
  /** The plugin broke off: it trapped, or went past its memory. */
  | "plugin-failed"
  /** The caller's `AbortSignal` has ended the call. */
  | "aborted"
  /** The store was closed. */
  | "closed";

/** What some kinds of errors have beside their message. */
export interface ErrorDetails {
  /** What a failed write may have done to the store; `not-applied` unless told. A read has never written. */
  outcome?: Outcome;
  /** Of `conflict`: the version that is stored; undefined where there is no state. */
  stored?: bigint;
  /** Of `locked`: who holds the lease; undefined where nobody does. */
  holder?: HeldLease;
  /** Of `server`: the store's number for its error; 0 where it gave none. */
  serverCode?: number;
  /** Of `server`: the store's name for its error; empty where it gave none. */
  serverName?: string;
  /** Of `aborted`: the reason of the signal. */
  cause?: unknown;
}

/**
 * Why a call failed. Its message is one line, says what to do, and never holds a secret.
 *
 * ```js
 * try {
 *   await store.set(id, state, { expect: version });
 * } catch (error) {
 *   if (error instanceof PipelineStateError && error.kind === "conflict") console.log("somebody was faster:", error.stored);
 *   else throw error;
 * }
 * ```
 */
export class PipelineStateError extends Error {
  /** What went wrong. */
  readonly kind: ErrorKind;
  /** What a failed write may have done to the store: `unknown` means that it is to be read back before anybody acts on it. */
  readonly outcome: Outcome;
  /** Of `conflict`: the version that is stored; undefined where there is no state. */
  declare readonly stored?: bigint;
  /** Of `locked`: who holds the lease; undefined where nobody does. */
  declare readonly holder?: HeldLease;
  /** Of `server`: the store's number for its error; 0 where it gave none. */
  declare readonly serverCode?: number;
  /** Of `server`: the store's name for its error; empty where it gave none. */
  declare readonly serverName?: string;

  /** An error of this kind, with these words. */
  constructor(kind: ErrorKind, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    // As everything of Node calls it.
    this.name = kind === "aborted" ? "AbortError" : "PipelineStateError";
    this.kind = kind;
    this.outcome = details.outcome ?? "not-applied";
    const { stored, holder, serverCode, serverName } = details;
    // What does not apply is not there: logs show all that is.
    Object.assign(this, {
      ...(stored !== undefined && { stored }),
      ...(holder !== undefined && { holder }),
      ...(serverCode !== undefined && { serverCode }),
      ...(serverName !== undefined && { serverName }),
    });
  }
}

/** What can't be used as it is. */
export function invalid(message: string): PipelineStateError {
  return new PipelineStateError("invalid-input", message);
}
