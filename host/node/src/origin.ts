// An origin: scheme, host and port, the only place that a call may reach.

import { isIP, isIPv4, isIPv6 } from "node:net";

/** Where a plugin may send requests. */
export interface Origin {
  readonly tls: boolean;
  /** A name in lower case, or an address without brackets. */
  readonly host: string;
  readonly port: number;
}

/** `host` may be a name in any case, or an address, an IPv6 one in brackets or not. Undefined where it is neither. */
export function originOf(tls: boolean, host: string, port: number): Origin | undefined {
  const known = hostOf(host);
  return known === undefined ? undefined : { tls, host: known, port };
}

/**
 * The origin of a request that a plugin wants to send. Undefined where it is not clear, or holds user information, which no
 * request needs and some parsers read otherwise.
 */
export function originOfRequest(scheme: string | undefined, authority: string | undefined): Origin | undefined {
  if ((scheme !== "http" && scheme !== "https") || authority === undefined) return undefined;
  const parts = /^(\[[^\]]*\]|[^:@[\]]+)(?::([0-9]{1,5}))?$/.exec(authority);
  if (parts === null) return undefined;
  const tls = scheme === "https";
  const port = parts[2] === undefined ? (tls ? 443 : 80) : Number(parts[2]);
  return port > 65_535 ? undefined : originOf(tls, parts[1] ?? "", port);
}

/** Whether two origins are one. */
export function same(a: Origin, b: Origin): boolean {
  return a.tls === b.tls && a.host === b.host && a.port === b.port;
}

/** As people write it. */
export function shown({ tls, host, port }: Origin): string {
  return `${tls ? "https" : "http"}://${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

function hostOf(text: string): string | undefined {
  if (isIPv4(text)) return text;
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : undefined;
  if (bare !== undefined || isIP(text) === 6) {
    const address = bare ?? text;
    // One way of writing it, of the many that there are. A zone is none of an origin.
    if (!isIPv6(address) || address.includes("%")) return undefined;
    return new URL(`http://[${address}]`).hostname.slice(1, -1);
  }
  return /^[A-Za-z0-9._-]+$/.test(text) ? text.toLowerCase() : undefined;
}
