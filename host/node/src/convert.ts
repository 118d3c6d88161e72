// Between what callers see and what the contract has.

import { invalid, PipelineStateError, type ErrorKind } from "./error.js";
import { Refusal } from "./pool.js";
import { oneLine, type Redact } from "./redact.js";
import type { Change, Document, Entry, HeldLease, NewState, Outcome, SetOptions, State, WriteOptions } from "./types.js";

/** The records of the contract, as the transpiled plugin has them. */
export interface WireState {
  completed?: string;
  partial?: string;
}
export interface WireEntry {
  id: string;
  state: WireState;
  version: bigint;
  updatedAtMs: bigint;
}
export interface WireChange {
  version: bigint;
  writtenAtMs: bigint;
  state?: WireState;
}
export interface WireLease {
  id: string;
  token: string;
  epoch: bigint;
  owner: string;
  acquiredAtMs: bigint;
  renewedAtMs: bigint;
  expiresAtMs: bigint;
}
interface WireError {
  tag: ErrorKind;
  val: unknown;
}

/** A text that UTF-8 can say: what can't be would be stored as something else. */
export function text(value: unknown, what: string): string {
  if (typeof value !== "string") throw invalid(`${what} must be a string`);
  if (!value.isWellFormed()) throw invalid(`${what} holds half of a surrogate pair, which is no Unicode text`);
  return value;
}

/** A whole number that fits into 32 bits. */
export function count(value: unknown, what: string): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > 0xffff_ffff) {
    throw invalid(`${what} must be a whole number from 0 to ${0xffff_ffff}`);
  }
  return value;
}

function version(value: unknown, what: string): bigint {
  if (typeof value !== "bigint" || value < 0n || value >= 1n << 64n) throw invalid(`${what} must be a bigint of 64 bits`);
  return value;
}

export function optionalVersion(value: unknown, what: string): bigint | undefined {
  return value === undefined ? undefined : version(value, what);
}

/** Milliseconds that a timer can wait. */
export function milliseconds(value: unknown, what: string, most = 2 ** 31 - 1): number {
  if (typeof value !== "number" || !(value >= 0) || value > most) throw invalid(`${what} must be a number from 0 to ${most}`);
  return value;
}

export function wireState(state: NewState): WireState {
  if (typeof state !== "object" || state === null) throw invalid("a state must be an object with `completed` and `partial`");
  const strange = Object.keys(state).find((name) => name !== "completed" && name !== "partial");
  if (strange !== undefined) throw invalid(`a state has \`completed\` and \`partial\`, and no \`${oneLine(strange)}\``);
  const wire: WireState = {};
  const completed = document(state.completed, "completed");
  const partial = document(state.partial, "partial");
  if (completed !== undefined) wire.completed = completed;
  if (partial !== undefined) wire.partial = partial;
  return wire;
}

function document(value: Document | null | undefined, what: string): string | undefined {
  if (value === null || value === undefined) return undefined;
  if (typeof value === "string") return text(value, `\`${what}\``);
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw invalid(`\`${what}\` can't be written as JSON: ${error instanceof Error ? oneLine(error.message) : "it throws"}`);
  }
  return text(json, `\`${what}\``);
}

export function wireExpectation(expect: SetOptions["expect"]): { tag: string; val?: bigint } {
  if (expect === undefined || expect === "any") return { tag: "any" };
  if (expect === "absent") return { tag: "absent" };
  return { tag: "version", val: version(expect, '`expect` must be "any", "absent" or a version, which') };
}

export function wireToken(lease: WriteOptions["lease"]): string | undefined {
  if (lease === undefined) return undefined;
  return text(typeof lease === "string" ? lease : lease.token, "the token of `lease`");
}

export function state(wire: WireState): State {
  return { completed: wire.completed, partial: wire.partial };
}

export function entry(wire: WireEntry): Entry {
  return { id: wire.id, state: state(wire.state), version: wire.version, updatedAt: date(wire.updatedAtMs) };
}

export function change(wire: WireChange): Change {
  return { version: wire.version, writtenAt: date(wire.writtenAtMs), state: wire.state && state(wire.state) };
}

export function heldLease(wire: WireLease): HeldLease {
  return {
    id: wire.id,
    token: wire.token,
    owner: wire.owner,
    acquiredAt: date(wire.acquiredAtMs),
    renewedAt: date(wire.renewedAtMs),
    expiresAt: date(wire.expiresAtMs),
  };
}

function date(ms: bigint): Date {
  return new Date(Number(ms));
}

/** What a call failed with, as an error without secrets. */
export function asError(reason: unknown, redact: Redact): PipelineStateError {
  if (reason instanceof Refusal) return ofWire(reason.error as WireError, redact);
  if (reason instanceof PipelineStateError) return reason;
  return new PipelineStateError("plugin-failed", redact(reason instanceof Error ? reason.message : String(reason)), {
    outcome: "unknown",
  });
}

function ofWire(error: WireError, redact: Redact): PipelineStateError {
  switch (error.tag) {
    case "conflict": {
      const stored = error.val as bigint | undefined;
      const found =
        stored === undefined
          ? "there is no such state, and one was expected"
          : `the stored state has the version ${stored}, which is not the expected one`;
      return new PipelineStateError("conflict", `${found}; nothing was written`, { stored });
    }
    case "locked":
      return locked(error.val === undefined ? undefined : heldLease(error.val as WireLease));
    case "unavailable":
    case "timed-out": {
      const { message, outcome } = error.val as { message: string; outcome: Outcome };
      return new PipelineStateError(error.tag, redact(message), { outcome });
    }
    case "server": {
      const { code, name, message, outcome } = error.val as { code: number; name: string; message: string; outcome: Outcome };
      return new PipelineStateError("server", redact(message), { outcome, serverCode: code, serverName: redact(name) });
    }
    default:
      return new PipelineStateError(error.tag, redact(String(error.val)));
  }
}

export function locked(holder: HeldLease | undefined): PipelineStateError {
  if (holder === undefined) {
    return new PipelineStateError("locked", "the lease is lost: it has expired, or was broken; nothing was written");
  }
  const time = (at: Date) => (Number.isNaN(at.getTime()) ? "9999-12-31T23:59:59Z" : `${at.toISOString().slice(0, 19)}Z`);
  const owner = holder.owner === "" ? "somebody without a name" : oneLine(holder.owner);
  const since = `since ${time(holder.acquiredAt)}, until ${time(holder.expiresAt)} unless renewed`;
  return new PipelineStateError("locked", `\`${oneLine(holder.id)}\` is locked by ${owner} ${since} (token ${oneLine(holder.token)})`, {
    holder,
  });
}
