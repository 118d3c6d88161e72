// WASI 0.2 for a plugin, as far as one may import it: outgoing HTTP, clocks and chance. It runs in a worker, where a call waits
// without an event loop: requests are sent by the main thread, which wakes the worker when something of the answer is there.

import { randomBytes } from "node:crypto";
import { receiveMessageOnPort } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";

import type { ErrorCode, HttpRequest, Timeouts, ToHost, ToWorker } from "./protocol.js";

/** How many bytes of headers each request may have. */
const LONGEST_HEADERS = 32 * 1024;
/** A document of 64 MiB twice, escaped, and what stands around them. */
const LONGEST_BODY = 256 * 1024 * 1024;
/** How much is taken at once from a plugin that writes. */
const PIECE = 1024n * 1024n;
/** After how many bytes the main thread is told that a response was read. */
const TELL_AFTER = 1024 * 1024;

/** How an import says that it failed: what is thrown is no Error, or else it would be a trap. */
class Failure {
  readonly payload: unknown;
  constructor(payload: unknown) {
    this.payload = payload;
  }
}

const fail = (payload?: unknown): never => {
  throw new Failure(payload);
};

/** What of the answer to a request has come. */
interface Answer {
  status: number;
  headers: Array<[string, string]>;
  pieces: Uint8Array[];
  hasHead: boolean;
  ended: boolean;
  failed: ErrorCode | undefined;
}

/** The worker's end of the line to the main thread. */
export class Line {
  readonly #port: MessagePort;
  readonly #wake: Int32Array;
  readonly #answers = new Map<number, Answer>();
  #last = 0;

  constructor(port: MessagePort, wake: Int32Array) {
    this.#port = port;
    this.#wake = wake;
  }

  post(message: ToHost): void {
    this.#port.postMessage(message);
  }

  /** Waits for the next call. What still comes for requests of earlier ones is thrown away. */
  nextCall(): Extract<ToWorker, { type: "call" }> {
    this.#answers.clear();
    for (;;) {
      const message = this.#receive();
      if (message?.type === "call") return message;
    }
  }

  /** Sleeps until something is true, or until a moment of `performance.now()`. */
  waitFor(ready: () => boolean, until = Infinity): void {
    while (!ready()) {
      const rest = until - performance.now();
      if (rest <= 0) return;
      const message = this.#receive(rest);
      if (message !== undefined) this.#note(message);
    }
  }

  #receive(ms = Infinity): ToWorker | undefined {
    const seen = Atomics.load(this.#wake, 0);
    const received = receiveMessageOnPort(this.#port);
    if (received === undefined) {
      Atomics.wait(this.#wake, 0, seen, ms);
      return undefined;
    }
    return received.message as ToWorker;
  }

  #note(message: ToWorker): void {
    if (message.type === "call") return;
    const answer = this.#answers.get(message.request);
    if (answer === undefined) return;
    if (message.type === "head") {
      answer.hasHead = true;
      answer.status = message.status;
      answer.headers = message.headers;
    } else if (message.type === "data") answer.pieces.push(message.bytes);
    else if (message.type === "end") answer.ended = true;
    else answer.failed = message.code;
  }

  send(http: HttpRequest): { request: number; answer: Answer } {
    const request = ++this.#last;
    const answer: Answer = { status: 0, headers: [], pieces: [], hasHead: false, ended: false, failed: undefined };
    this.#answers.set(request, answer);
    this.post({ type: "send", request, http });
    return { request, answer };
  }

  drop(request: number): void {
    if (this.#answers.delete(request)) this.post({ type: "drop", request });
  }
}

/** Headers that say who sends a request and on what way it came: the host's to say. */
const HOSTS_OWN = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "transfer-encoding",
  "upgrade",
  "host",
  "http2-settings",
  "forwarded",
  "via",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-proto",
  "x-forwarded-server",
  "x-real-ip",
  "te",
  "trailer",
  "expect",
  "cookie",
]);

/** Makes the imports of a plugin, on a line to the main thread. */
export function imports(line: Line): Record<string, Record<string, unknown>> {
  class IoError {
    readonly code: ErrorCode | undefined;
    constructor(code?: ErrorCode) {
      this.code = code;
    }
    toDebugString(): string {
      return this.code?.tag ?? "error";
    }
  }

  class Pollable {
    readonly isReady: () => boolean;
    readonly at: number;
    constructor(isReady: () => boolean, at = Infinity) {
      this.isReady = isReady;
      this.at = at;
    }
    ready(): boolean {
      return this.isReady() || performance.now() >= this.at;
    }
    block(): void {
      line.waitFor(this.isReady, this.at);
    }
  }

  function poll(list: Pollable[]): Uint32Array {
    if (list.length === 0) throw new Error("a plugin waited for nothing");
    line.waitFor(() => list.some((pollable) => pollable.isReady()), Math.min(...list.map(({ at }) => at)));
    return Uint32Array.from(list.flatMap((pollable, index) => (pollable.ready() ? [index] : [])));
  }

  const milliseconds = (nanoseconds: bigint): number => Number(nanoseconds) / 1e6;

  class Fields {
    entriesOf: Array<[string, Uint8Array]> = [];
    immutable = false;

    static fromList(entries: Array<[string, Uint8Array]>): Fields {
      const fields = new Fields();
      for (const [name, value] of entries) fields.append(name, value);
      return fields;
    }
    static received(headers: Array<[string, string]>): Fields {
      const fields = new Fields();
      fields.entriesOf = headers.map(([name, value]) => [name, Buffer.from(value, "latin1")]);
      fields.immutable = true;
      return fields;
    }
    #check(name: string, values: Uint8Array[]): string {
      if (this.immutable) fail({ tag: "immutable" });
      const lower = name.toLowerCase();
      const valid = (value: Uint8Array) => value.every((byte) => byte === 9 || (byte >= 32 && byte !== 127));
      if (!/^[!#$%&'*+\-.^_`|~0-9a-z]+$/.test(lower) || !values.every(valid)) fail({ tag: "invalid-syntax" });
      if (HOSTS_OWN.has(lower)) fail({ tag: "forbidden" });
      return lower;
    }
    has(name: string): boolean {
      return this.get(name).length > 0;
    }
    get(name: string): Uint8Array[] {
      const lower = name.toLowerCase();
      return this.entriesOf.filter(([known]) => known === lower).map(([, value]) => value);
    }
    set(name: string, values: Uint8Array[]): void {
      const lower = this.#check(name, values);
      this.entriesOf = this.entriesOf.filter(([known]) => known !== lower);
      for (const value of values) this.#add(lower, value);
    }
    append(name: string, value: Uint8Array): void {
      this.#add(this.#check(name, [value]), value);
    }
    #add(name: string, value: Uint8Array): void {
      this.entriesOf.push([name, value]);
      const length = this.entriesOf.reduce((sum, [known, bytes]) => sum + known.length + bytes.length, 0);
      if (length > LONGEST_HEADERS) throw new Error(`a plugin made headers of more than ${LONGEST_HEADERS} bytes`);
    }
    delete(name: string): void {
      const lower = this.#check(name, []);
      this.entriesOf = this.entriesOf.filter(([known]) => known !== lower);
    }
    entries(): Array<[string, Uint8Array]> {
      return this.entriesOf;
    }
    clone(): Fields {
      const fields = new Fields();
      fields.entriesOf = [...this.entriesOf];
      return fields;
    }
  }

  class RequestOptions {
    readonly timeouts: Timeouts = { connect: undefined, firstByte: undefined, betweenBytes: undefined };
    setConnectTimeout(time: bigint | undefined): void {
      this.timeouts.connect = time === undefined ? undefined : milliseconds(time);
    }
    setFirstByteTimeout(time: bigint | undefined): void {
      this.timeouts.firstByte = time === undefined ? undefined : milliseconds(time);
    }
    setBetweenBytesTimeout(time: bigint | undefined): void {
      this.timeouts.betweenBytes = time === undefined ? undefined : milliseconds(time);
    }
  }

  class OutputStream {
    readonly pieces: Uint8Array[] = [];
    length = 0;
    checkWrite(): bigint {
      return PIECE;
    }
    write(contents: Uint8Array): void {
      this.length += contents.length;
      if (this.length > LONGEST_BODY) fail({ tag: "closed" });
      // Its own copy: the plugin's memory may be under it.
      this.pieces.push(new Uint8Array(contents));
    }
    blockingWriteAndFlush(contents: Uint8Array): void {
      this.write(contents);
    }
    flush(): void {}
    blockingFlush(): void {}
    subscribe(): Pollable {
      return new Pollable(() => true);
    }
  }

  class OutgoingBody {
    readonly stream = new OutputStream();
    finished: (() => void) | undefined;
    #taken = false;
    write(): OutputStream {
      if (this.#taken) fail();
      this.#taken = true;
      return this.stream;
    }
    static finish(body: OutgoingBody, trailers: Fields | undefined): void {
      if (trailers !== undefined) fail({ tag: "HTTP-request-trailer-section-size", val: 0 });
      body.finished?.();
    }
  }

  class OutgoingRequest {
    readonly fields: Fields;
    method = "GET";
    scheme: string | undefined;
    authority: string | undefined;
    path: string | undefined;
    content: OutgoingBody | undefined;
    constructor(fields: Fields) {
      this.fields = fields;
      fields.immutable = true;
    }
    body(): OutgoingBody {
      if (this.content !== undefined) fail();
      return (this.content = new OutgoingBody());
    }
    setMethod(method: { tag: string; val?: string }): void {
      this.method = method.tag === "other" ? (method.val ?? "") : method.tag.toUpperCase();
    }
    setScheme(scheme: { tag: string; val?: string } | undefined): void {
      this.scheme = scheme === undefined || scheme.tag === "other" ? scheme?.val : scheme.tag.toLowerCase();
    }
    setAuthority(authority: string | undefined): void {
      this.authority = authority;
    }
    setPathWithQuery(path: string | undefined): void {
      this.path = path;
    }
  }

  class InputStream {
    readonly answer: Answer;
    readonly request: number;
    #untold = 0;
    constructor(answer: Answer, request: number) {
      this.answer = answer;
      this.request = request;
    }
    #isReady = (): boolean => this.answer.pieces.length > 0 || this.answer.ended || this.answer.failed !== undefined;
    read(most: bigint): Uint8Array {
      const piece = this.answer.pieces[0];
      if (piece === undefined) {
        if (this.answer.failed) fail({ tag: "last-operation-failed", val: new IoError(this.answer.failed) });
        if (this.answer.ended) fail({ tag: "closed" });
        return new Uint8Array();
      }
      const now = piece.subarray(0, Number(most));
      if (now.length === piece.length) this.answer.pieces.shift();
      else this.answer.pieces[0] = piece.subarray(now.length);
      this.#untold += now.length;
      if (this.#untold >= TELL_AFTER) {
        line.post({ type: "consumed", request: this.request, bytes: this.#untold });
        this.#untold = 0;
      }
      return now;
    }
    blockingRead(most: bigint): Uint8Array {
      line.waitFor(this.#isReady);
      return this.read(most);
    }
    subscribe(): Pollable {
      return new Pollable(this.#isReady);
    }
  }

  class IncomingBody {
    readonly answer: Answer;
    readonly request: number;
    constructor(answer: Answer, request: number) {
      this.answer = answer;
      this.request = request;
    }
    stream(): InputStream {
      return new InputStream(this.answer, this.request);
    }
    [Symbol.dispose](): void {
      line.drop(this.request);
    }
  }

  class IncomingResponse {
    readonly answer: Answer;
    readonly request: number;
    #taken = false;
    constructor(answer: Answer, request: number) {
      this.answer = answer;
      this.request = request;
    }
    status(): number {
      return this.answer.status;
    }
    headers(): Fields {
      return Fields.received(this.answer.headers);
    }
    consume(): IncomingBody {
      if (this.#taken) fail();
      this.#taken = true;
      return new IncomingBody(this.answer, this.request);
    }
    [Symbol.dispose](): void {
      if (!this.#taken) line.drop(this.request);
    }
  }

  class FutureIncomingResponse {
    sent: { request: number; answer: Answer } | undefined;
    #taken = false;
    // A body that was never finished is never sent.
    #isReady = (): boolean => {
      const answer = this.sent?.answer;
      return answer === undefined || answer.hasHead || answer.failed !== undefined;
    };
    subscribe(): Pollable {
      return new Pollable(this.#isReady);
    }
    get(): unknown {
      if (!this.#isReady()) return undefined;
      if (this.#taken) return { tag: "err", val: undefined };
      this.#taken = true;
      if (this.sent === undefined) return { tag: "ok", val: { tag: "err", val: { tag: "HTTP-protocol-error" } } };
      const { request, answer } = this.sent;
      const result = answer.hasHead
        ? { tag: "ok", val: new IncomingResponse(answer, request) }
        : { tag: "err", val: answer.failed };
      return { tag: "ok", val: result };
    }
    [Symbol.dispose](): void {
      if (!this.#taken && this.sent) line.drop(this.sent.request);
    }
  }

  function handle(request: OutgoingRequest, options: RequestOptions | undefined): FutureIncomingResponse {
    const future = new FutureIncomingResponse();
    const { method, scheme, authority, path, fields, content } = request;
    const timeouts = options?.timeouts ?? { connect: undefined, firstByte: undefined, betweenBytes: undefined };
    const sendNow = () => {
      const body = content?.stream.pieces ?? [];
      future.sent = line.send({ method, scheme, authority, path, headers: fields.entriesOf, body, timeouts });
    };
    // The whole body first: it is in memory anyway, and may be sent in one piece.
    if (content === undefined) sendNow();
    else content.finished = sendNow;
    return future;
  }

  const started = process.hrtime.bigint();
  return {
    "wasi:clocks/monotonic-clock": {
      now: () => process.hrtime.bigint() - started,
      resolution: () => 1n,
      subscribeDuration: (time: bigint) => new Pollable(() => false, performance.now() + milliseconds(time)),
      subscribeInstant: (at: bigint) =>
        new Pollable(() => false, performance.now() + milliseconds(at - (process.hrtime.bigint() - started))),
    },
    "wasi:clocks/wall-clock": {
      now: () => {
        const now = BigInt(Date.now());
        return { seconds: now / 1000n, nanoseconds: Number(now % 1000n) * 1_000_000 };
      },
      resolution: () => ({ seconds: 0n, nanoseconds: 1_000_000 }),
    },
    "wasi:http/outgoing-handler": { handle },
    "wasi:http/types": {
      Fields,
      FutureIncomingResponse,
      IncomingBody,
      IncomingResponse,
      OutgoingBody,
      OutgoingRequest,
      RequestOptions,
      httpErrorCode: (error: IoError) => error.code,
    },
    "wasi:io/error": { Error: IoError },
    "wasi:io/poll": { Pollable, poll },
    "wasi:io/streams": { InputStream, OutputStream },
    "wasi:random/random": {
      getRandomBytes: (length: bigint) => new Uint8Array(randomBytes(Number(length))),
      getRandomU64: () => randomBytes(8).readBigUInt64LE(),
    },
  };
}
