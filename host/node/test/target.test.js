// Which origin a target names, what a plugin sees of it, and what may be shown: pure functions, held against the Rust host's cases.

import assert from "node:assert/strict";
import { test } from "node:test";

import { originOfRequest, shown } from "../dist/origin.js";
import { redactor } from "../dist/redact.js";
import { settingsFor } from "../dist/settings.js";
import { schemeOf, targetOf } from "../dist/target.js";

const setting = (name, role, more = {}) => {
  const env = `MELTANO_STATE_BACKEND_STORE_${name.toUpperCase()}`;
  return { name, kind: "text", role, label: name, sensitive: role === "password", env, ...more };
};
const plugin = {
  name: "store",
  version: "1.0.0",
  schemes: ["store"],
  settings: [
    setting("host", "host", { default: "localhost" }),
    setting("port", "port"),
    setting("secure", "tls"),
    setting("user", "user"),
    setting("password", "password"),
    setting("table"),
    setting("extra_*", undefined, { env: "MELTANO_STATE_BACKEND_STORE_EXTRA_*" }),
  ],
  defaultPorts: { plain: 8123, tls: 8443 },
};
const target = (uri, settings = {}) => targetOf(uri, settingsFor("store", plugin, { settings }), plugin);

test("the scheme is what stands before the authority", () => {
  assert.equal(schemeOf("ClickHouse://u@h/db"), "clickhouse");
  assert.equal(schemeOf("a+b-c.1://"), "a+b-c.1");
  for (const uri of ["", "secret", "secret:x", "://h", "1a://h", "se cret://h", "/secret://h"]) {
    assert.throws(() => schemeOf(uri), (error) => error.kind === "invalid-input" && !error.message.includes("secret"));
  }
});

test("the URI and the settings name the origin", () => {
  for (const [uri, origin, settings] of [
    ["store://u:p@Db.example:9/x", "http://db.example:9"],
    ["store://u:p@ss@h/db", "http://h:8123"],
    ["store://u:p%FF@h/db?user=a&password=b", "http://h:8123"],
    ["store://u@[::1]:8123/db", "http://[::1]:8123"],
    ["store://u@[0:0::1]/db", "http://[::1]:8123"],
    ["store://u@h:0/db", "http://h:8123"],
    ["store://u@h/db?secure=1", "https://h:8443"],
    ["store://u@h:8123/db?secure=True", "https://h:8123"],
    ["store:///db", "http://localhost:8123"],
    ["store://u:p@/db", "http://localhost:8123"],
    ["store://u@:9/db?host=other", "http://other:9"],
    ["store://u@h/db?port=0", "http://h:8123"],
    ["store:///db?host=other&port=7", "http://other:7"],
    ["store://u@h:8123/db?host=third&secure=0", "https://other:1234", { host: "other", port: 1234, secure: "yes" }],
    ["store://u@h/db", "http://[::2]:8123", { host: "::2" }],
  ]) {
    assert.equal(shown(target(uri, settings).origin), origin, uri);
  }
  for (const [uri, settings] of [
    ["store://u@h:123456/db"],
    ["store://u@h/db", { port: "http" }],
    ["store://u@h/db", { port: "65536" }],
    ["store://u@h/db", { host: "a/b" }],
    ["store://u@h/db", { host: "[127.0.0.1]" }],
    ["store://u@h/db", { host: "fe80::1%eth0" }],
  ]) {
    assert.equal(target(uri, settings).origin, undefined, uri);
  }
});

test("a plugin sees stand-ins where user and password were given", () => {
  const basic = (text) => text && `Basic ${Buffer.from(text).toString("base64")}`;
  for (const [uri, seen, credentials] of [
    ["store://h/db", "store://h/db", undefined],
    ["store://u@h:9/db", "store://sealed@h:9/db", "u:"],
    ["STORE://u:s%40krét@h/db?table=x#f", "STORE://sealed:sealed@h/db?table=x#f", "u:s@krét"],
    ["store://u:p@ss@h", "store://sealed:sealed@h", "u:p@ss"],
    ["store://u:100%@h", "store://sealed:sealed@h", "u:100%"],
    ["store://:p@/db", "store://:sealed@/db", ":p"],
    ["store://h/db?user=u&table=a+b&password=p%26q", "store://h/db?user=sealed&table=a+b&password=sealed", "u:p&q"],
    ["store://a:b@h?password=c&password=d&password=", "store://sealed:sealed@h?password=sealed&password=sealed&password=", "a:d"],
  ]) {
    const { sealed, authorization } = target(uri);
    assert.deepEqual([sealed.uri, authorization], [seen, basic(credentials)], uri);
  }
  const settings = [["password", "old"], ["table", "t"], ["password", "new"]];
  const { sealed, authorization } = targetOf("store://u:p@h/", settings, plugin);
  assert.deepEqual(sealed, { uri: "store://sealed:sealed@h/", settings: [["password", "sealed"], ["table", "t"], ["password", "sealed"]] });
  assert.equal(authorization, basic("u:new"));
  for (const uri of ["store://u:sekret@h:port/db", "store://u:sekret@[::1%25eth0]/db"]) {
    assert.ok(target(uri).sealed.uri.startsWith("store://sealed:sealed@"));
  }
});

test("what could be read otherwise is refused without a quotation", () => {
  for (const uri of [
    "store://u:sekret/sekret@h/db",
    "store://u:1?sekret@h/db",
    "store://u:1#sekret@h/db",
    "store://u:sek\tret@h/db",
    "store://u:sekret%FF@h/db",
    "store://u:sekret\ud800@h/db",
  ]) {
    assert.throws(() => target(uri), (error) => error.kind === "invalid-input" && !error.message.includes("sek"), uri);
  }
});

test("a request has an origin where that is clear", () => {
  const of = (scheme, authority) => {
    const origin = originOfRequest(scheme, authority);
    return origin && shown(origin);
  };
  assert.equal(of("http", "db"), "http://db:80");
  assert.equal(of("https", "DB.Example.com"), "https://db.example.com:443");
  assert.equal(of("http", "[0:0:0:0:0:0:0:1]:8123"), "http://[::1]:8123");
  for (const [scheme, authority] of [
    [undefined, "db"],
    ["ftp", "db"],
    ["http", undefined],
    ["http", ""],
    ["http", "user@db"],
    ["http", "user:password@db:8123"],
    ["http", "db:"],
    ["http", "db:99999"],
    ["http", "db:1:2"],
    ["http", "[::1%25eth0]"],
    ["http", "d%62"],
    ["http", "db/x"],
    ["http", "db\u0000"],
  ]) {
    assert.equal(of(scheme, authority), undefined, `${scheme} ${authority}`);
  }
});

test("given wins over our variable, which wins over Meltano's; an empty value counts as none", () => {
  const value = (env, settings, name) =>
    settingsFor("store", plugin, { env, settings }).findLast(([known]) => known === name)?.[1];
  const meltano = { MELTANO_STATE_BACKEND_STORE_HOST: "meltano" };
  const both = { ...meltano, PIPELINE_STATE_STORE_HOST: "ours" };
  assert.equal(value({}, {}, "host"), undefined);
  assert.equal(value(meltano, {}, "host"), "meltano");
  assert.equal(value(both, {}, "host"), "ours");
  assert.equal(value(both, { host: "given" }, "host"), "given");
  assert.equal(value({ ...meltano, PIPELINE_STATE_STORE_HOST: "" }, { host: "" }, "host"), "meltano");
  const any = { MELTANO_STATE_BACKEND_STORE_EXTRA_A_B: "1", PIPELINE_STATE_STORE_EXTRA_A_B: "2", MELTANO_STATE_BACKEND_STORE_EXTRA_: "3" };
  assert.equal(value(any, {}, "extra_a_b"), "2");
  assert.equal(value(any, {}, "extra_"), undefined);
  // A plugin that names somebody else's variable does not get it.
  const greedy = { ...plugin, settings: [{ ...setting("table"), env: "AWS_SECRET_ACCESS_KEY" }] };
  assert.deepEqual(settingsFor("store", greedy, { env: { AWS_SECRET_ACCESS_KEY: "x" } }), []);
});

test("a password is taken out of texts in each of its forms", () => {
  const plain = "p@ss/w'ord+1 \\x";
  const redact = redactor("app", [plain]);
  const header = Buffer.from(`app:${plain}`).toString("base64");
  const text = `a ${plain} b p%40ss%2Fw%27ord%2B1%20%5Cx c p%40ss%2Fw%27ord%2B1+%5Cx d Basic ${header} e p@ss/w\\'ord+1 \\\\x f`;
  assert.equal(redact(text), "a [redacted] b [redacted] c [redacted] d Basic [redacted] e [redacted] f");
  assert.equal(redactor("app", ["r"])("reader: r is wrong (r)"), "reader: [redacted] is wrong ([redacted])");
  assert.equal(redactor("app", [""])("Basic YXBwOg=="), "Basic YXBwOg==");
});

test("what others wrote is one line that does nothing", () => {
  const redact = redactor("", []);
  assert.equal(redact("Zoë \\ 'x' 💾"), "Zoë \\ 'x' 💾");
  assert.equal(redact("one\r\ntwo"), "one\\r\\ntwo");
  assert.equal(redact("a\u001b[2Jb\u009b1m\u202ec"), "a\\u{1b}[2Jb\\u{9b}1m\\u{202e}c");
  assert.equal([...redact("ä".repeat(3_000))].length, 2_001);
});
