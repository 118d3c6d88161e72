// The way to the server: TLS, time-outs, what is not allowed, and what is left after something went wrong.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

import { butInserts, certificates, failure, handOn, httpServer, password, place, server, tcpServer, tlsFront } from "./support.js";

const id = "dev:tap-a-to-target-b";
/** Of an answer that is longer. */
const BEGINNING = "HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: x\r\nContent-Length: 1000\r\n\r\nx";

test("HTTPS with a private authority and a client certificate", async (t) => {
  const { ca, server: identity, client } = certificates(t);
  const front = await tlsFront(t, { ...identity, ca, requestCert: true, rejectUnauthorized: true });
  const settings = { secure: true };
  const store = await place(t, { settings, tls: { ca, ...client } }, front.host);
  assert.equal(store.origin, `https://${front.host}`);
  await store.set(id, { completed: '{"n": 1}' });
  assert.equal((await store.get(id)).state.completed, '{"n": 1}');
  // One connection was enough.
  assert.equal(front.sockets.size, 1);

  const nobody = await place(t, { settings, tls: { ca } }, front.host);
  const refused = await failure(nobody.get(id));
  assert.equal(refused.kind, "unavailable");
  assert.match(refused.message, /client's certificate/);

  const stranger = await place(t, { settings }, front.host);
  const untrusted = await failure(stranger.get(id));
  assert.equal(untrusted.kind, "unavailable");
  assert.match(untrusted.message, /certificate of .* is not trusted/);

  const other = certificates(t);
  const wrong = await place(t, { settings, tls: { ca: other.ca } }, front.host);
  assert.match((await failure(wrong.set(id, {}))).message, /certificate of .* is not trusted/);
  // The certificate is for 127.0.0.1.
  const named = await place(t, { settings, tls: { ca, ...client } }, `localhost:${front.port}`);
  assert.match((await failure(named.get(id))).message, /certificate of .* is not trusted/);
});

test("TLS is checked whatever the environment says", async (t) => {
  const { server: identity } = certificates(t);
  const front = await tlsFront(t, identity);
  const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  t.after(() => {
    if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before;
  });
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  const store = await place(t, { settings: { secure: true } }, front.host);
  assert.match((await failure(store.get(id))).message, /is not trusted/);
});

test("what is no PEM is refused without its words", async (t) => {
  const error = await failure(place(t, { settings: { secure: true }, tls: { cert: "sekret", key: "sekret" } }).then((store) => store.get(id)));
  assert.ok(["invalid-input", "unavailable"].includes(error.kind), error.kind);
  assert.ok(!inspect(error).includes("sekret"));
});

test("connections are kept for the next call, and not beyond two seconds", async (t) => {
  const front = await httpServer(t, handOn);
  const store = await place(t, {}, front.host);
  for (let n = 0; n < 5; n += 1) await store.set(id, { completed: { n } });
  assert.equal(front.sockets.size, 1);
  const [first] = front.sockets;
  await sleep(2_500);
  assert.equal(first.destroyed, true);
  assert.equal((await store.get(id)).state.completed, '{"n":4}');
});

test("the plugin sees no credentials, and the server gets them", async (t) => {
  let seen;
  const front = await httpServer(t, (request, response) => {
    seen = request;
    response.writeHead(401).end();
  });
  const store = await place(t, { settings: { user: "me", password: "a:b ü" } }, front.host);
  await failure(store.get(id));
  assert.equal(seen.headers.authorization, `Basic ${Buffer.from("me:a:b ü").toString("base64")}`);
  assert.equal(seen.headers.host, front.host);
});

test("redirects are not followed", async (t) => {
  let elsewhere = 0;
  const other = await httpServer(t, (_, response) => {
    elsewhere += 1;
    response.end();
  });
  const front = await httpServer(t, (_, response) => response.writeHead(302, { location: `http://${other.host}/` }).end());
  const store = await place(t, {}, front.host);
  await failure(store.get(id));
  assert.equal(elsewhere, 0);
});

test("a server that takes a request and does not answer is given up in time", async (t) => {
  const front = await httpServer(t, butInserts(() => {}));
  const store = await place(t, { settings: { request_timeout: 1 } }, front.host);
  const start = performance.now();
  const write = await failure(store.set(id, { completed: { n: 1 } }));
  assert.deepEqual([write.kind, write.outcome], ["timed-out", "unknown"]);
  assert.ok(performance.now() - start < 5_000);
  const mute = await tcpServer(t, () => {});
  const read = await failure((await place(t, { settings: { request_timeout: 1 } }, mute.host)).get(id));
  assert.deepEqual([read.kind, read.outcome], ["timed-out", "not-applied"]);
});

test("a server that stops in the middle of an answer is given up in time", async (t) => {
  const front = await tcpServer(t, (socket) => socket.write(BEGINNING));
  const store = await place(t, { settings: { request_timeout: 1 } }, front.host);
  assert.equal((await failure(store.get(id))).kind, "timed-out");
});

test("an answer that is cut off is no answer", async (t) => {
  const cut = (response) => response.socket.end(BEGINNING);
  const front = await httpServer(t, butInserts(cut));
  const store = await place(t, { settings: { request_timeout: 1 } }, front.host);
  const write = await failure(store.set(id, { completed: { n: 1 } }));
  assert.deepEqual([write.kind, write.outcome], ["unavailable", "unknown"]);
  const short = await tcpServer(t, (socket) => socket.end(BEGINNING));
  const read = await failure((await place(t, { settings: { request_timeout: 1 } }, short.host)).get(id));
  assert.deepEqual([read.kind, read.outcome], ["unavailable", "not-applied"]);
});

test("a head without an end is cut off", async (t) => {
  const front = await tcpServer(t, (socket) => socket.write(`HTTP/1.1 200 OK\r\nx: ${"x".repeat(100_000)}`));
  const store = await place(t, { settings: { request_timeout: 2 } }, front.host);
  assert.equal((await failure(store.get(id))).kind, "unavailable");
});

test("a call ends at its deadline, and the next one works", async (t) => {
  let answer = false;
  const front = await tcpServer(t, (socket) => {
    if (answer) socket.end("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
  });
  const store = await place(t, { timeoutMs: 500, concurrency: 1 }, front.host);
  const start = performance.now();
  // The third waits for its turn until it is late.
  const late = await Promise.all([store.set(id, {}), store.get(id), store.set(id, {})].map(failure));
  assert.deepEqual(late.map(({ kind }) => kind), ["timed-out", "timed-out", "timed-out"]);
  assert.deepEqual(late.map(({ outcome }) => outcome), ["unknown", "not-applied", "not-applied"]);
  assert.match(late[0].message, /within 0.5 s/);
  assert.ok(performance.now() - start < 2_000);
  assert.equal((await failure(store.get(id, { timeoutMs: 100 }))).kind, "timed-out");
  answer = true;
  assert.equal((await failure(store.get(id, { timeoutMs: 20_000 }))).kind, "unauthenticated");
});

test("a call ends when its signal says so, and the next one works", async (t) => {
  const front = await tcpServer(t, () => {});
  const hanging = await place(t, { concurrency: 1 }, front.host);
  const controller = new AbortController();
  const write = failure(hanging.set(id, {}, { signal: controller.signal }));
  const queued = failure(hanging.set(id, {}, { signal: controller.signal }));
  await sleep(300);
  controller.abort("enough");
  const error = await write;
  assert.deepEqual([error.kind, error.name, error.outcome, error.cause], ["aborted", "AbortError", "unknown", "enough"]);
  assert.deepEqual([(await queued).kind, (await queued).outcome], ["aborted", "not-applied"]);
  const store = await place(t, { concurrency: 1 });
  assert.equal((await failure(store.get(id, { signal: AbortSignal.abort() }))).outcome, "not-applied");
  assert.equal(await store.get(id), undefined);
});

test("calls that are on their way fail when the store is closed", async (t) => {
  const front = await tcpServer(t, () => {});
  const store = await place(t, {}, front.host);
  const call = failure(store.set(id, {}));
  await sleep(300);
  await store.close();
  const error = await call;
  assert.deepEqual([error.kind, error.outcome], ["closed", "unknown"]);
});

test("addresses where clouds serve credentials are out of reach", async (t) => {
  for (const address of ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "0.0.0.0"]) {
    const store = await place(t, {}, `${address}:80`);
    const error = await failure(store.get(id));
    assert.equal(error.kind, "not-allowed", `${address}: ${error.message}`);
  }
});

test("no secret is in an error, whoever echoes it", async (t) => {
  const secret = "s3kret/pass+word";
  const forms = [secret, encodeURIComponent(secret), Buffer.from(`me:${secret}`).toString("base64"), Buffer.from(secret).toString("base64")];
  const front = await httpServer(t, (request, response) => {
    response.writeHead(500, { "x-clickhouse-exception-code": "999" });
    response.end(`Code: 999. DB::Exception: ${forms.join(" ")} ${request.headers.authorization}\u001b[2J (ODD)`);
  });
  const store = await place(t, { settings: { user: "me", password: secret } }, front.host);
  const findings = await store.check();
  for (const shown of [await failure(store.get(id)), store, findings].map((value) => inspect(value, { depth: 9, showHidden: true }))) {
    for (const form of [...forms, "\u001b[2J"]) assert.ok(!shown.includes(form), shown);
  }
});

test("a wrong password of the real server is not in the error", async (t) => {
  const wrong = `${password}-and-more`;
  const store = await place(t, { settings: { password: wrong } });
  const error = await failure(store.get(id));
  assert.equal(error.kind, "unauthenticated");
  assert.ok(!inspect(error).includes(wrong));
});

