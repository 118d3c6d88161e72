// What the tests share: the real ClickHouse that `cargo dev node` has started, places in it, and fronts before it.

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { open } from "pipeline-state";

const given = process.env.PIPELINE_STATE_TEST_CLICKHOUSE;
if (!given) throw new Error("PIPELINE_STATE_TEST_CLICKHOUSE must be http://user:password@host:port; or run `cargo dev node`");

/** The server: its host, port, user and password. */
export const server = new URL(given);
export const user = decodeURIComponent(server.username);
export const password = decodeURIComponent(server.password);

/** A URI for the server, or for another address with the same user. */
export const uri = (address = server.host) => `clickhouse://${server.username}:${server.password}@${address}/analytics`;

/** A database that nobody else uses. */
export function freshSchema() {
  return `suite_node_${process.pid}_${Math.random().toString(36).slice(2)}`;
}

/** Opens a store in a database of its own, that goes with the test. */
export async function place(t, options = {}, address = undefined) {
  const { settings, ...rest } = options;
  const schema = settings?.schema ?? freshSchema();
  const store = await open(uri(address), { settings: { schema, ...settings }, ...rest });
  t.after(async () => {
    await store.close();
    await query(`DROP DATABASE IF EXISTS ${schema}`);
  });
  return store;
}

/** Runs a statement without the plugin. */
export async function query(sql) {
  const answer = await fetch(`http://${server.host}/`, {
    method: "POST",
    body: sql,
    headers: { "X-ClickHouse-User": user, "X-ClickHouse-Key": password },
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
}

/** Listens on loopback, and says the address. Whatever is still connected at the end of the test is cut off. */
async function listening(t, listener) {
  const sockets = new Set();
  listener.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {});
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    listener.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: listener.address().port, host: `127.0.0.1:${listener.address().port}`, sockets };
}

/** An HTTP server that answers as `respond` says. */
export async function httpServer(t, respond) {
  return listening(t, http.createServer(respond));
}

/** A TCP server that does with each connection what `accept` says. */
export async function tcpServer(t, accept) {
  return listening(t, net.createServer(accept));
}

/** Hands a request on to the real server. */
export function handOn(request, response) {
  const { method, url: path, headers } = request;
  const behind = http.request({ host: server.hostname, port: server.port, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  request.pipe(behind);
}

/** Hands requests on, but for those that insert rows: of them the real server hears nothing. */
export function butInserts(insert) {
  return async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = Buffer.concat(pieces);
    if (request.url.includes("INSERT") || body.includes("INSERT")) return insert(response);
    const { method, url: path, headers } = request;
    const behind = http.request({ host: server.hostname, port: server.port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    behind.end(body);
  };
}

/** HTTPS before the real server. `options` are those of `https.createServer`. */
export async function tlsFront(t, options) {
  const front = https.createServer(options, handOn);
  front.on("tlsClientError", () => {});
  return listening(t, front);
}

/** An authority and what it has signed: a server's certificate for 127.0.0.1, and a client's. All in PEM. */
export function certificates(t) {
  const folder = mkdtempSync(join(tmpdir(), "pipeline-state-node-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  openssl("req", "-x509", ...key, "-subj", "/CN=an authority of the tests", "-keyout", "ca.key", "-out", "ca.pem");
  const signed = (name, extension) =>
    openssl("req", "-x509", ...key, "-subj", `/CN=${name}`, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", extension,
      "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", `${name}.key`, "-out", `${name}.pem`);
  signed("server", "subjectAltName=IP:127.0.0.1");
  signed("client", "extendedKeyUsage=clientAuth");
  const read = (name) => readFileSync(join(folder, name), "utf8");
  return {
    ca: read("ca.pem"),
    server: { cert: read("server.pem"), key: read("server.key") },
    client: { cert: read("client.pem"), key: read("client.key") },
  };
}

/** What a promise fails with; a failure of the test where it does not. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it should have failed");
}
