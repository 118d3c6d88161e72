// What a call costs, side by side with a plain request for the same rows. PIPELINE_STATE_URI names the server.

const uri = new URL(process.env.PIPELINE_STATE_URI);
const schema = process.env.PIPELINE_STATE_CLICKHOUSE_SCHEMA ?? "meltano";
const ROUNDS = Number(process.argv[2] ?? 500);

const start = performance.now();
const { open } = await import("pipeline-state");
const store = await open(uri.href, { env: process.env });
const opened = performance.now();
await store.get("bench");
const first = performance.now();
console.log(`import and open ${ms(opened - start)}, then the first get ${ms(first - opened)}: ${ms(first - start)} in all`);

const document = JSON.stringify({ singer_state: { text: "x".repeat(1_000) } });
await store.set("bench", { completed: document });
const query = `SELECT partial_state, completed_state, updated_at FROM ${schema}.state FINAL WHERE state_id = 'bench' FORMAT JSON`;
const headers = { authorization: `Basic ${btoa(`${decodeURIComponent(uri.username)}:${decodeURIComponent(uri.password)}`)}` };
const plain = async (sql) => {
  const answer = await fetch(`http://${uri.host}/`, { method: "POST", body: sql, headers });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
};

let n = 0;
const jobs = {
  get: () => store.get("bench"),
  "plain fetch of the row": () => plain(query),
  "plain fetch of a 1": () => plain("SELECT 1"),
  set: () => store.set("bench", { completed: JSON.stringify({ n: (n += 1), document }) }),
  "set of what is stored": () => store.set("same", { completed: "{}" }),
  update: () => store.update("other", { partial: { n: (n += 1) } }),
};
await store.set("same", { completed: "{}" });
// In turns, so that what else the machine does meets all of them.
const times = Object.fromEntries(Object.keys(jobs).map((name) => [name, []]));
for (let round = -20; round < ROUNDS; round += 1) {
  for (const [name, job] of Object.entries(jobs)) {
    if (round > 100 && !/get|fetch/.test(name)) continue;
    const before = performance.now();
    await job();
    if (round >= 0) times[name].push(performance.now() - before);
  }
}
for (const [name, all] of Object.entries(times)) {
  all.sort((a, b) => a - b);
  console.log(`${name}: median ${ms(all[all.length >> 1])}, 95 of 100 within ${ms(all[Math.floor(all.length * 0.95)])}`);
}

const before = performance.now();
await Promise.all(Array.from({ length: 320 }, () => store.get("bench")));
console.log(`320 gets at once, on 4 threads: ${Math.round(320_000 / (performance.now() - before))} a second`);
await store.close();

function ms(time) {
  return `${time.toFixed(2)} ms`;
}
