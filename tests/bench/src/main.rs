//! What a call costs through the plugin, side by side with a native client on the same server, in one run.
//!
//! Each row measures ours and native in turn, since a machine's speed drifts; only their ratio is to be trusted. The
//! native client is hyper with the same settings of its pool, sending the plain query that the job takes.

mod native;

use std::error::Error;
use std::time::{Duration, Instant};

use harness::{ClickHouse, Stub, fresh_name};
use native::Native;
use pipeline_state::{Backend, Plugins, Settings, State, StateId};

const ROUNDS: usize = 500;
const LARGE_ROUNDS: usize = 15;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ClickHouse::start()?;
    let schema = fresh_name("bench");
    let (cold, plugins) = load().await?;
    let (warm, _) = load().await?;
    let settings = Settings::new().set("schema", &schema);
    let ours = plugins.open(&server.uri("default"), &settings)?;
    let native = Native::new(&server, &format!("`{schema}`.state"));

    println!(
        "loading the plugins: {} compiled, {} from the cache",
        shown(cold),
        shown(warm)
    );
    println!(
        "{:<24} {:>10} {:>10} {:>7}",
        "median (p99)", "ours", "native", "ratio"
    );
    let mut rows = vec![sandbox(&plugins).await?];
    for (name, size, rounds) in [
        ("1 KB", 1_000, ROUNDS),
        ("10 KB", 10_000, ROUNDS),
        ("10 MB", 10_000_000, LARGE_ROUNDS),
    ] {
        let state = document(size);
        rows.push(set(&format!("set {name}"), &ours, &native, &state, rounds).await?);
        rows.push(get(&format!("get {name}"), &ours, &native, &state, rounds).await?);
    }
    for row in &rows {
        println!("{row}");
    }
    server.query(&format!("DROP DATABASE `{schema}`"))?;
    let json: Vec<_> = rows.iter().map(Row::json).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench.json");
    std::fs::write(path, serde_json::to_string_pretty(&json)?)?;
    Ok(())
}

/// What the sandbox adds: against a server that answers at once, for a state that is not there.
async fn sandbox(plugins: &Plugins) -> Result<Row, Box<dyn Error>> {
    const HEADERS: [&str; 2] = [
        "X-ClickHouse-Query-Id: 1",
        "X-ClickHouse-Exception-Code: 60",
    ];
    let body =
        b"Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE) (version 26.9.2.1)";
    let stub = Stub::start(|_| Some(Stub::response("404 Not Found", &HEADERS, body)))?;
    let ours = plugins.open(
        &format!("clickhouse://u@{}/db", stub.address()),
        &Settings::new(),
    )?;
    let native = Native::at(&stub.address().to_string(), ("u", ""), "a.b");
    let id = StateId::from("bench");
    let mut row = Row::new("instant stub");
    for _ in 0..ROUNDS * 4 {
        let start = Instant::now();
        ours.get(&id).await?;
        row.ours.push(start.elapsed());

        let start = Instant::now();
        // The error that it is answered with is an answer too.
        let _ = native.get("bench").await;
        row.native.push(start.elapsed());
    }
    Ok(row)
}

/// Into a cache of its own, so that the first time is the first time.
async fn load() -> Result<(Duration, Plugins), Box<dyn Error>> {
    let cache = std::env::temp_dir().join(format!("pipeline-state-bench-{}", std::process::id()));
    let start = Instant::now();
    let plugins = Plugins::builder().cache_folder(cache).build().await?;
    Ok((start.elapsed(), plugins))
}

fn document(size: usize) -> String {
    format!(
        "{{\"singer_state\": {{\"bookmark\": \"{}\"}}}}",
        "x".repeat(size)
    )
}

async fn set(
    name: &str,
    ours: &Backend,
    native: &Native,
    document: &str,
    rounds: usize,
) -> Result<Row, Box<dyn Error>> {
    let id = StateId::from("bench");
    let state = || State {
        completed: Some(document.to_owned()),
        partial: None,
    };
    ours.set(&id, state()).await?;
    let mut row = Row::new(name);
    for _ in 0..rounds {
        let state = state();
        let start = Instant::now();
        ours.set(&id, state).await?;
        row.ours.push(start.elapsed());

        let start = Instant::now();
        native.set("native", document).await?;
        row.native.push(start.elapsed());
    }
    Ok(row)
}

async fn get(
    name: &str,
    ours: &Backend,
    native: &Native,
    document: &str,
    rounds: usize,
) -> Result<Row, Box<dyn Error>> {
    let id = StateId::from("bench");
    let mut row = Row::new(name);
    for _ in 0..rounds {
        let start = Instant::now();
        let entry = ours.get(&id).await?;
        row.ours.push(start.elapsed());
        if entry.and_then(|entry| entry.state.completed).as_deref() != Some(document) {
            return Err("what was read is not what was stored".into());
        }

        let start = Instant::now();
        let length = native.get("native").await?;
        row.native.push(start.elapsed());
        if length < document.len() {
            return Err("the native client read too little".into());
        }
    }
    Ok(row)
}

struct Row {
    name: String,
    ours: Vec<Duration>,
    native: Vec<Duration>,
}

impl Row {
    fn new(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            ours: Vec::new(),
            native: Vec::new(),
        }
    }

    fn ratio(&self) -> f64 {
        quantile(&self.ours, 0.5).as_secs_f64() / quantile(&self.native, 0.5).as_secs_f64()
    }

    fn json(&self) -> serde_json::Value {
        let ms = |times: &[Duration], q| quantile(times, q).as_secs_f64() * 1e3;
        serde_json::json!({
            "name": self.name,
            "rounds": self.ours.len(),
            "ours_p50_ms": ms(&self.ours, 0.5),
            "ours_p99_ms": ms(&self.ours, 0.99),
            "native_p50_ms": ms(&self.native, 0.5),
            "native_p99_ms": ms(&self.native, 0.99),
            "ratio_p50": self.ratio(),
        })
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cell = |times: &[Duration]| {
            format!(
                "{} ({})",
                shown(quantile(times, 0.5)),
                shown(quantile(times, 0.99))
            )
        };
        write!(
            out,
            "{:<12} {:>22} {:>22} {:>7.2}",
            self.name,
            cell(&self.ours),
            cell(&self.native),
            self.ratio()
        )
    }
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn quantile(times: &[Duration], q: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = (sorted.len() as f64 * q) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
