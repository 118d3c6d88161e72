// Leases for those who hold them: waiting, a heartbeat, and knowing at once when one is lost.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { locked, milliseconds, text, type WireLease } from "./convert.js";
import { PipelineStateError } from "./error.js";
import type { CallOptions, LockOptions, PageOptions } from "./types.js";

const TTL_MS = 30_000;
const LONGEST_TTL_MS = 86_400_000;
/** A lease is renewed after a third of its time, and after this time at the latest: then it is soon known that it was broken. */
const LONGEST_HEARTBEAT_MS = 10_000;
/** How many tries of a renewal that get no answer fit into the time of a lease. */
const TRIES = 6;
/** How long somebody who gives up waiting for a lease waits until it is certain that none is left behind. */
const LONGEST_FAREWELL_MS = 2_000;
/** When less than this is left, a write under the lease may have renewed it (see the contract's `release`). */
const RENEWED_BY_WRITES_MS = 2_000;
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 200;

/** The functions of the contract, as single attempts. */
export interface Locks {
  acquire(id: string, request: { token: string; ttlMs: bigint; owner: string }, options: CallOptions): Promise<WireLease>;
  renew(lease: WireLease, ttlMs: number, options: CallOptions): Promise<WireLease>;
  release(lease: WireLease): Promise<void>;
  breakLease(id: string, token: string, options: CallOptions): Promise<boolean>;
  inspect(pattern: string, options: PageOptions): Promise<{ leases: WireLease[]; next?: string }>;
}

const outcomeUnknown = (error: unknown): boolean => error instanceof PipelineStateError && error.outcome === "unknown";

/** A lease that is held, from `Store.lock`. It is renewed in the background until it is released or lost. */
export class Lease {
  /** Whose lease it is. */
  readonly id: string;
  /** What tells it from all others. */
  readonly token: string;
  /** Who holds it. */
  readonly owner: string;
  /**
   * Aborted once the lease is lost: its `reason` is an error of the kind `locked`, with who has it now, if anybody. What is done
   * under a lease is to be given up then; it can be handed to whatever takes a signal.
   */
  readonly lost: AbortSignal;
  readonly #locks: Locks;
  readonly #ttlMs: number;
  readonly #lost = new AbortController();
  #current: WireLease;
  /** Whether it is as the store has it: not where a renewal failed, which may have been stored all the same. */
  #certain = true;
  /** When it ends by this machine's clock, which began to count before the store's. */
  #end: number;
  #beat: NodeJS.Timeout | undefined;
  #expiry: NodeJS.Timeout | undefined;
  #renewal: Promise<void> | undefined;
  #released = false;

  private constructor(locks: Locks, lease: WireLease, ttlMs: number, end: number) {
    this.id = lease.id;
    this.token = lease.token;
    this.owner = lease.owner;
    this.lost = this.#lost.signal;
    this.#locks = locks;
    this.#ttlMs = ttlMs;
    this.#current = lease;
    this.#end = end;
    this.#schedule();
  }

  /** @internal */
  static async acquire(locks: Locks, id: string, options: LockOptions): Promise<Lease> {
    const ttlMs = Math.trunc(milliseconds(options.ttlMs ?? TTL_MS, "`ttlMs`", LONGEST_TTL_MS));
    const deadline = performance.now() + milliseconds(options.waitMs ?? 0, "`waitMs`");
    const owner = text(options.owner ?? "", "`owner`");
    const token = randomUUID().replaceAll("-", "");
    let mayBeHeld = false;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 1.5, LONGEST_PAUSE_MS)) {
      // The store begins to count after this moment.
      const end = performance.now() + ttlMs;
      try {
        const request = { token, ttlMs: BigInt(ttlMs), owner };
        const lease = await locks.acquire(id, request, { timeoutMs: Math.max(ttlMs, 1), signal: options.signal });
        if (performance.now() < end) return new Lease(locks, lease, ttlMs, end);
        const message = "the lease had ended before the store's answer came";
        throw new PipelineStateError("timed-out", message, { outcome: "unknown" });
      } catch (error) {
        mayBeHeld ||= outcomeUnknown(error);
        const passes = error instanceof PipelineStateError && ["locked", "unavailable", "timed-out"].includes(error.kind);
        const rest = deadline - performance.now();
        if (passes && rest > 0) {
          try {
            await sleep(Math.min(pause, rest), undefined, { signal: options.signal });
            continue;
          } catch {
            // The signal: said below, after what may be held was given back.
          }
        }
        // Nobody would get it before its end.
        if (mayBeHeld) await locks.breakLease(id, token, { timeoutMs: LONGEST_FAREWELL_MS }).catch(() => false);
        if (options.signal?.aborted && !(error instanceof PipelineStateError && error.kind === "aborted")) {
          throw new PipelineStateError("aborted", "the call was aborted", { cause: options.signal.reason });
        }
        throw error;
      }
    }
  }

  /** Whether it is known to be lost, or its time is over by this machine's clock. */
  get isLost(): boolean {
    return this.lost.aborted || (!this.#released && performance.now() >= this.#end);
  }

  /** Gives it back. One that is lost already needs no giving back. Where this fails, it ends by itself after its time. */
  async release(): Promise<void> {
    if (this.#released) return;
    const over = this.isLost;
    this.#released = true;
    this.#stop();
    if (over) return;
    await this.#renewal;
    const untouched = this.#end - performance.now() > RENEWED_BY_WRITES_MS;
    if (this.#certain && untouched) await this.#locks.release(this.#current);
    // The store may have a later step of it: it is looked for.
    else await this.#locks.breakLease(this.id, this.token, {});
  }

  /** As `release`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /**
   * A write under it was refused: it is lost, or another state's was meant. To renew it tells.
   * @internal
   */
  doubt(): void {
    this.#renewNow();
  }

  #schedule(): void {
    this.#stop();
    const beat = Math.min(this.#ttlMs / 3, LONGEST_HEARTBEAT_MS);
    // A forgotten lease keeps no program from ending.
    this.#beat = setTimeout(() => this.#renewNow(), beat).unref();
    this.#expiry = setTimeout(() => this.#lose(undefined), Math.max(this.#end - performance.now(), 0)).unref();
  }

  #stop(): void {
    clearTimeout(this.#beat);
    clearTimeout(this.#expiry);
  }

  #lose(error: PipelineStateError | undefined): void {
    this.#stop();
    if (!this.#released) this.#lost.abort(error ?? locked(undefined));
  }

  #renewNow(): void {
    if (this.#released || this.lost.aborted) return;
    this.#renewal ??= this.#renew().finally(() => (this.#renewal = undefined));
  }

  /** Tries until it is renewed or lost, or somebody stops it. */
  async #renew(): Promise<void> {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      const before = this.#certain;
      // Until it is answered.
      this.#certain = false;
      const end = performance.now() + this.#ttlMs;
      try {
        // One that hangs must not take the time of all others.
        const renewed = await this.#locks.renew(this.#current, this.#ttlMs, { timeoutMs: this.#ttlMs / TRIES });
        // An answer that is heard later is too late, since everybody may have been told so.
        if (performance.now() >= this.#end) return this.#lose(undefined);
        this.#current = renewed;
        this.#certain = true;
        this.#end = end;
        if (!this.#released) this.#schedule();
        return;
      } catch (error) {
        if (error instanceof PipelineStateError && error.kind === "locked") return this.#lose(error);
        this.#certain = before && !outcomeUnknown(error);
        if (error instanceof PipelineStateError && error.kind === "closed") return;
      }
      if (this.#released || this.lost.aborted) return;
      await sleep(pause, undefined, { ref: false });
      if (this.#released || this.lost.aborted) return;
    }
  }
}
