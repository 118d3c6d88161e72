// A target: the URI and the settings that an operator named, the origin that follows from them, and the secrets, which stay here.
// The rule is that of `types.target` in the WIT package. A plugin sees stand-ins where user and password were.

import { invalid } from "./error.js";
import { originOf, type Origin } from "./origin.js";
import { redactor, type Redact } from "./redact.js";
import type { Plugin, Setting } from "./types.js";

/** What a plugin sees where a user or a password was given. */
const STAND_IN = "sealed";
/** Stands for the host of a URI that has none: `user@/path`, which the parser does not know. */
const NO_HOST = "no-host.invalid";

/** What a plugin is given. */
export interface Sealed {
  uri: string;
  settings: Array<[string, string]>;
}

/** What is known of a target. */
export interface Target {
  readonly sealed: Sealed;
  /** Undefined where neither the URI nor a setting names a host: then the plugin may reach nothing. */
  readonly origin: Origin | undefined;
  /** The header that requests get on their way. */
  readonly authorization: string | undefined;
  readonly redact: Redact;
}

/** The scheme of a URI, in lower case. The error quotes nothing of the URI: without a scheme, its first part may be a password. */
export function schemeOf(uri: string): string {
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(uri)?.[1];
  if (scheme === undefined) {
    throw invalid("the URI has no scheme; it must look like clickhouse://user:password@host:8123/database");
  }
  return scheme.toLowerCase();
}

export function targetOf(uri: string, settings: Array<[string, string]>, plugin: Plugin): Target {
  check(uri);
  // A URI that does not parse names no host. The plugin says what is wrong with it, in its own words.
  const values = new Values(parse(uri), settings, plugin);
  const user = values.credential("user", (url) => url.username);
  const password = values.credential("password", (url) => url.password);
  const sensitive = plugin.settings
    .filter((setting) => setting.sensitive && setting.role !== "password")
    .map((setting) => values.given(setting.name) ?? "");
  const given = user !== undefined || password !== undefined;
  return {
    sealed: seal(uri, settings, plugin),
    origin: values.origin(),
    authorization: given ? `Basic ${Buffer.from(`${user ?? ""}:${password ?? ""}`).toString("base64")}` : undefined,
    redact: redactor(user ?? "", [password ?? "", ...sensitive]),
  };
}

/** Refuses what could be read otherwise than it was meant, so that a part of a password would be sent or shown. */
function check(uri: string): void {
  if (!uri.isWellFormed()) throw invalid("the URI is no Unicode text");
  // The parser would leave them out without a word.
  if (/[\u0000-\u001f\u007f]/.test(uri)) {
    throw invalid("the URI holds a control character; write it percent-encoded, a tab as %09");
  }
  // `u:a@b/c@h`: the host would be `b`, and would be sent a part of the password.
  if (partsOf(uri)?.behind.includes("@")) {
    throw invalid(
      "the URI has an `@` behind its host; in a user or password write `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40",
    );
  }
}

/** A URI as text: `scheme://authority` and what stands behind that. */
function partsOf(uri: string): { scheme: string; authority: string; behind: string } | undefined {
  const parts = /^(.*?):\/\/([^/?#]*)(.*)$/s.exec(uri);
  return parts === null ? undefined : { scheme: parts[1] ?? "", authority: parts[2] ?? "", behind: parts[3] ?? "" };
}

function parse(uri: string): URL | undefined {
  try {
    return new URL(uri);
  } catch {
    const parts = partsOf(uri);
    const authority = parts && /^(.*@)(:[0-9]*)?$/s.exec(parts.authority);
    if (!parts || !authority) return undefined;
    try {
      return new URL(`${parts.scheme}://${authority[1]}${NO_HOST}${authority[2] ?? ""}${parts.behind}`);
    } catch {
      return undefined;
    }
  }
}

/** Where the values of a target are from. */
class Values {
  readonly #url: URL | undefined;
  readonly #settings: Array<[string, string]>;
  readonly #plugin: Plugin;

  constructor(url: URL | undefined, settings: Array<[string, string]>, plugin: Plugin) {
    this.#url = url;
    this.#settings = settings;
    this.#plugin = plugin;
  }

  /** What is set by this name, in the settings or in the query. */
  given(name: string): string | undefined {
    const set = this.#settings.findLast(([known, value]) => known === name && value !== "");
    return set?.[1] ?? this.#url?.searchParams.getAll(name).findLast((value) => value !== "");
  }

  /** Its own setting, the part of the URI that plays its role, or its default. */
  #value(role: Setting["role"], part: (url: URL) => string | undefined): string | undefined {
    const setting = this.#plugin.settings.find((known) => known.role === role);
    const given = setting && this.given(setting.name);
    return given ?? ((this.#url && part(this.#url)) || undefined) ?? setting?.default;
  }

  credential(role: "user" | "password", part: (url: URL) => string): string | undefined {
    return this.#value(role, (url) => percentDecoded(part(url)));
  }

  origin(): Origin | undefined {
    if (this.#url === undefined) return undefined;
    const tls = /^(true|1|yes|on)$/i.test(this.#value("tls", () => undefined)?.trim() ?? "");
    const text = this.#value("port", (url) => url.port)?.trim() ?? "0";
    const { plain, tls: encrypted } = this.#plugin.defaultPorts;
    // 0 counts as none, as in a URI.
    const port = text === "0" ? (tls ? encrypted : plain) : Number(text);
    if (!/^\+?[0-9]+$/.test(text) || port > 65_535) return undefined;
    const host = this.#value("host", (url) => (url.hostname === NO_HOST ? undefined : url.hostname));
    return host === undefined ? undefined : originOf(tls, host.trim(), port);
  }
}

function percentDecoded(text: string): string {
  const bytes = Buffer.from(
    text.replace(/%([0-9A-Fa-f]{2})|[^%]|%/gsu, (found, hex: string | undefined) =>
      hex === undefined ? Buffer.from(found).toString("latin1") : String.fromCharCode(parseInt(hex, 16)),
    ),
    "latin1",
  );
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalid("the user or the password of the URI has percent-encoded bytes that are not UTF-8");
  }
}

/** The target with stand-ins for user and password where there were any. */
function seal(uri: string, settings: Array<[string, string]>, plugin: Plugin): Sealed {
  const secret = new Set(plugin.settings.filter(({ role }) => role === "user" || role === "password").map(({ name }) => name));
  const standIn = (name: string, value: string): string => (secret.has(name) && value !== "" ? STAND_IN : value);
  const parts = partsOf(uri);
  return {
    uri: parts === undefined ? uri : `${parts.scheme}://${sealAuthority(parts.authority)}${sealBehind(parts.behind, standIn)}`,
    settings: settings.map(([name, value]) => [name, standIn(name, value)]),
  };
}

function sealAuthority(authority: string): string {
  const at = authority.lastIndexOf("@");
  if (at < 0) return authority;
  const [user = "", ...password] = authority.slice(0, at).split(":");
  const hidden = password.length === 0 ? [user] : [user, password.join(":")];
  return `${hidden.map((part) => (part === "" ? "" : STAND_IN)).join(":")}${authority.slice(at)}`;
}

/** What stands behind the authority; a query that holds nothing secret as it is. */
function sealBehind(behind: string, standIn: (name: string, value: string) => string): string {
  const parts = /^([^?]*)\?([^#]*)(#.*)?$/s.exec(behind);
  if (parts === null) return behind;
  const pairs = [...new URLSearchParams(parts[2])];
  if (pairs.every(([name, value]) => standIn(name, value) === value)) return behind;
  const query = new URLSearchParams(pairs.map(([name, value]): [string, string] => [name, standIn(name, value)]));
  return `${parts[1]}?${query}${parts[3] ?? ""}`;
}
