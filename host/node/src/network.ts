// The way out: HTTP to the one origin of a target, over connections that are kept. It follows no redirects and asks no proxy.

import http, { type ClientRequest, type IncomingMessage } from "node:http";
import https from "node:https";
import { BlockList, isIP, isIPv6, type LookupFunction, type Socket } from "node:net";
import { lookup as systemLookup } from "node:dns";
import type { TLSSocket } from "node:tls";

import { originOfRequest, same, shown } from "./origin.js";
import type { ErrorCode, HttpRequest } from "./protocol.js";
import type { Target } from "./target.js";
import type { TlsOptions } from "./types.js";

/**
 * A connection that was idle for longer is not used again. ClickHouse as shipped closes one after 3 s, and a request that meets
 * the closing fails, though it may have been sent.
 */
const POOL_IDLE_MS = 2_000;
/** Some more than a server needs to be busy. */
const CONNECTIONS = 64;
const CONNECT_MS = 10_000;
/** The longest that any connection is waited for, whatever a plugin asks for. */
const LONGEST_CONNECT_MS = 60_000;
const DEFAULT_TIMEOUT_MS = 60_000;
/** What a timer of Node can wait at most. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const LONGEST_HEAD = 64 * 1024;
const LONGEST_BODY = 512 * 1024 * 1024;
/** How much of a response is read before the plugin has taken it. */
const WINDOW = 8 * 1024 * 1024;
/** Those of requests to a store: no tunnels, no echoes. */
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

/** Where clouds serve credentials, and what is no address of a server: never reached, whatever a name stands for. */
const FORBIDDEN = new BlockList();
FORBIDDEN.addSubnet("0.0.0.0", 8);
FORBIDDEN.addSubnet("169.254.0.0", 16);
FORBIDDEN.addAddress("100.100.100.200");
FORBIDDEN.addAddress("168.63.129.16");
FORBIDDEN.addAddress("192.0.0.192");
FORBIDDEN.addSubnet("224.0.0.0", 4);
FORBIDDEN.addAddress("::", "ipv6");
FORBIDDEN.addSubnet("fe80::", 10, "ipv6");
FORBIDDEN.addSubnet("fd00:ec2::", 32, "ipv6");
FORBIDDEN.addAddress("fd20:ce::254", "ipv6");
FORBIDDEN.addAddress("fd00:c1::a9fe:a9fe", "ipv6");
FORBIDDEN.addAddress("fd00:a9fe:a9fe::1", "ipv6");
FORBIDDEN.addAddress("fd00:42::42", "ipv6");
FORBIDDEN.addAddress("fd00:100::100:200", "ipv6");
FORBIDDEN.addSubnet("ff00::", 8, "ipv6");

/** Who is told what becomes of a request: the head, then pieces of the body, then the end; or at any point that it failed. */
export interface Listener {
  head(status: number, headers: Array<[string, string]>): void;
  data(bytes: Uint8Array): void;
  end(): void;
  failed(code: ErrorCode): void;
}

/** A request on its way. */
export interface Exchange {
  /** The plugin has taken so many bytes of the response. */
  consumed(bytes: number): void;
  /** Nobody waits for the response any more. */
  drop(): void;
}

/** What a plugin asked for that it may not have. */
export type Denied = (what: string) => void;

/** The connections to the origin of one target. */
export class Network {
  readonly #target: Target;
  readonly #agent: http.Agent;

  constructor(target: Target, tls: TlsOptions) {
    this.#target = target;
    this.#agent = target.origin?.tls ? keeping(new https.Agent({ ...POOL, ...verified(tls) })) : keeping(new http.Agent(POOL));
  }

  /** Sends a request, if it is one to the origin. */
  send(asked: HttpRequest, listener: Listener, denied: Denied): Exchange {
    const { origin } = this.#target;
    const wanted = originOfRequest(asked.scheme, asked.authority);
    const deny = (what: string): Exchange => {
      const may = origin
        ? `may reach ${shown(origin)} alone, which its URI and settings name`
        : "may reach nothing, since its URI and settings name no host";
      denied(this.#target.redact(`the plugin asked for ${asked.method} ${what}, and ${may}`));
      listener.failed({ tag: "HTTP-request-denied" });
      return NONE;
    };
    if (wanted === undefined) return deny("something that is not an HTTP origin");
    if (origin === undefined || !same(origin, wanted)) return deny(shown(wanted));
    const path = asked.path ?? "/";
    // What a proxy or a server could read as another request than this one.
    if (!METHODS.has(asked.method) || !/^\/[\x21-\x7e]*$/.test(path)) return deny("in a form that is not allowed");
    if (isIP(origin.host) !== 0 && isForbidden(origin.host)) {
      denied(`${shown(origin)} is an address that nobody may reach: where clouds serve credentials, or none of a server`);
      listener.failed({ tag: "destination-IP-prohibited" });
      return NONE;
    }
    const headers: Record<string, string[]> = {};
    for (const [name, value] of asked.headers) (headers[name] ??= []).push(Buffer.from(value).toString("latin1"));
    delete headers["authorization"];
    if (this.#target.authorization !== undefined) headers["authorization"] = [this.#target.authorization];
    closeStale(this.#agent);
    const request = (origin.tls ? https : http).request({
      agent: this.#agent,
      host: origin.host,
      port: origin.port,
      method: asked.method,
      path,
      headers,
      maxHeaderSize: LONGEST_HEAD,
      lookup: (name, options, done) => lookup(name, options, done, denied),
    });
    return new Sent(request, asked, origin.tls, listener);
  }

  /** Closes all connections. */
  close(): void {
    this.#agent.destroy();
  }
}

const NONE: Exchange = { consumed() {}, drop() {} };

const POOL: http.AgentOptions = {
  keepAlive: true,
  noDelay: true,
  timeout: POOL_IDLE_MS,
  maxSockets: CONNECTIONS,
  maxFreeSockets: CONNECTIONS,
};

/** Whatever the environment says: a connection without a check protects no password. */
function verified(tls: TlsOptions): https.AgentOptions {
  const { ca, cert, key } = tls;
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }), rejectUnauthorized: true, minVersion: "TLSv1.2" };
}

const idleSince = new WeakMap<object, number>();

/** Notes since when connections are idle: while a program computes, no timer closes them. */
function keeping<A extends http.Agent>(agent: A): A {
  const keep = agent.keepSocketAlive.bind(agent) as (socket: unknown) => unknown;
  agent.keepSocketAlive = ((socket: object) => {
    idleSince.set(socket, performance.now());
    return keep(socket);
  }) as typeof agent.keepSocketAlive;
  return agent;
}

function closeStale(agent: http.Agent): void {
  const oldest = performance.now() - POOL_IDLE_MS;
  for (const socket of Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? [])) {
    if ((idleSince.get(socket) ?? 0) < oldest) socket.destroy();
  }
}

function isForbidden(address: string): boolean {
  if (!isIPv6(address)) return FORBIDDEN.check(address);
  const mapped = /^::ffff:([0-9.]+)$/i.exec(address)?.[1];
  return FORBIDDEN.check(address, "ipv6") || (mapped !== undefined && isIP(mapped) === 4 && FORBIDDEN.check(mapped));
}

/** Addresses are judged when they are dialled: a name that was harmless may stand for another one now. */
function lookup(name: string, options: object, done: Parameters<LookupFunction>[2], denied: Denied): void {
  systemLookup(name, { ...options, all: true }, (error, addresses) => {
    if (error) return done(error, []);
    const allowed = addresses.filter(({ address }) => !isForbidden(address));
    const [first] = allowed;
    if (first === undefined) {
      denied(`${name} stands for an address that nobody may reach: where clouds serve credentials, or none of a server`);
      return done(Object.assign(new Error("forbidden"), { code: "FORBIDDEN" }), []);
    }
    if ((options as { all?: boolean }).all) return done(null, allowed);
    done(null, first.address, first.family);
  });
}

/** One request, its time-outs, and how much of the response was taken. */
class Sent implements Exchange {
  readonly #request: ClientRequest;
  readonly #listener: Listener;
  readonly #tls: boolean;
  readonly #firstByteMs: number;
  readonly #betweenMs: number;
  #response: IncomingMessage | undefined;
  #timer: NodeJS.Timeout | undefined;
  #connected = false;
  #over = false;
  #received = 0;
  #waiting = 0;

  constructor(request: ClientRequest, asked: HttpRequest, tls: boolean, listener: Listener) {
    this.#request = request;
    this.#listener = listener;
    this.#tls = tls;
    const { connect, firstByte, betweenBytes } = asked.timeouts;
    this.#firstByteMs = firstByte ?? DEFAULT_TIMEOUT_MS;
    this.#betweenMs = betweenBytes ?? DEFAULT_TIMEOUT_MS;
    this.#arm(Math.min(connect ?? CONNECT_MS, LONGEST_CONNECT_MS), "connection-timeout");
    request.on("error", (error: NodeJS.ErrnoException) => this.#fail(this.#explain(error)));
    request.on("socket", (socket) => this.#watch(socket));
    request.on("response", (response) => this.#answered(response));
    for (const piece of asked.body) request.write(piece);
    request.end();
  }

  #watch(socket: Socket): void {
    const connected = () => {
      this.#connected = true;
      if (this.#response === undefined) this.#arm(this.#firstByteMs, "connection-read-timeout");
    };
    const secure = socket as TLSSocket & { secureConnecting?: boolean };
    if (!socket.connecting && !secure.secureConnecting) return connected();
    socket.once(this.#tls ? "secureConnect" : "connect", connected);
  }

  #answered(response: IncomingMessage): void {
    this.#response = response;
    this.#arm(this.#betweenMs, "connection-read-timeout");
    response.on("data", (bytes: Buffer) => this.#data(bytes));
    response.on("end", () => {
      if (response.complete && this.#finish()) this.#listener.end();
    });
    // It broke in the middle.
    response.on("error", () => this.#fail({ tag: "HTTP-response-incomplete" }));
    const headers: Array<[string, string]> = [];
    for (let at = 0; at + 1 < response.rawHeaders.length; at += 2) {
      headers.push([(response.rawHeaders[at] ?? "").toLowerCase(), response.rawHeaders[at + 1] ?? ""]);
    }
    this.#listener.head(response.statusCode ?? 0, headers);
  }

  #data(bytes: Buffer): void {
    if (this.#over) return;
    this.#received += bytes.length;
    this.#waiting += bytes.length;
    if (this.#received > LONGEST_BODY) {
      return this.#fail({ tag: "HTTP-response-body-size", val: BigInt(LONGEST_BODY) });
    }
    if (this.#waiting > WINDOW) {
      this.#response?.pause();
      clearTimeout(this.#timer);
    } else {
      this.#timer?.refresh();
    }
    this.#listener.data(bytes);
  }

  consumed(bytes: number): void {
    this.#waiting -= bytes;
    if (this.#over || this.#waiting > WINDOW || !this.#response?.isPaused()) return;
    this.#arm(this.#betweenMs, "connection-read-timeout");
    this.#response.resume();
  }

  drop(): void {
    if (this.#finish()) this.#request.destroy();
  }

  #arm(ms: number, tag: string): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fail({ tag }), Math.min(ms, LONGEST_TIMER_MS));
  }

  #fail(code: ErrorCode): void {
    if (!this.#finish()) return;
    this.#request.destroy();
    this.#listener.failed(code);
  }

  /** Whether it was still on its way. */
  #finish(): boolean {
    clearTimeout(this.#timer);
    if (this.#over) return false;
    this.#over = true;
    return true;
  }

  /** The plugin tells by the kind of an error whether anything was sent, so a failure to connect must be none that comes later. */
  #explain(error: NodeJS.ErrnoException): ErrorCode {
    const code = error.code ?? "";
    // With TLS 1.3 it comes after the first request was sent, of which the server has read nothing then.
    const alert = Object.entries(ALERTS).find(([name]) => code.endsWith(`_ALERT_${name}`));
    if (alert !== undefined) return { tag: "TLS-alert-received", val: { alertId: alert[1], alertMessage: undefined } };
    if (code === "HPE_HEADER_OVERFLOW") return { tag: "HTTP-response-header-section-size", val: LONGEST_HEAD };
    if (code.startsWith("HPE_")) return { tag: "HTTP-protocol-error" };
    if (this.#connected) return { tag: "connection-terminated" };
    if (code === "FORBIDDEN") return { tag: "destination-IP-prohibited" };
    if (code === "ECONNREFUSED") return { tag: "connection-refused" };
    if (code === "ETIMEDOUT") return { tag: "connection-timeout" };
    if (error.syscall === "getaddrinfo") return { tag: "DNS-error", val: { rcode: undefined, infoCode: undefined } };
    const socket = this.#request.socket as TLSSocket | null;
    if (this.#tls && (socket?.authorizationError || code === "ERR_TLS_CERT_ALTNAME_INVALID")) return { tag: "TLS-certificate-error" };
    if (code.startsWith("ERR_SSL_") || code.startsWith("ERR_TLS_") || code === "EPROTO") return { tag: "TLS-protocol-error" };
    // The connection was there and broke while TLS was agreed on.
    if (this.#tls && code === "ECONNRESET") return { tag: "TLS-protocol-error" };
    return { tag: "destination-unavailable" };
  }
}

/** What a server says that wants another certificate of its client, or any: OpenSSL's names, and the numbers of RFC 8446. */
const ALERTS: Record<string, number> = {
  BAD_CERTIFICATE: 42,
  UNSUPPORTED_CERTIFICATE: 43,
  CERTIFICATE_REVOKED: 44,
  CERTIFICATE_EXPIRED: 45,
  CERTIFICATE_UNKNOWN: 46,
  UNKNOWN_CA: 48,
  ACCESS_DENIED: 49,
  CERTIFICATE_REQUIRED: 116,
};
