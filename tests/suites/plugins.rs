//! How the host chooses plugins, what it takes for one, and what it lets them do. The second plugin, `echo`, shows
//! that nothing here is about ClickHouse.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use harness::Stub;
use pipeline_state::{Backend, Error, Outcome, Plugins, Settings, State};
use support::{echo_plugin, id};
use tempfile::TempDir;

/// A folder with the echo plugin in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(echo_plugin(), folder.path().join("echo.wasm")).unwrap();
    folder
}

async fn echo(uri: &str) -> Backend {
    let plugins = Plugins::builder()
        .directory(folder().path())
        .build()
        .await
        .unwrap();
    plugins.open(uri, &Settings::new()).unwrap()
}

#[tokio::test]
async fn the_scheme_of_the_uri_chooses_the_plugin() {
    let folder = folder();
    let plugins = Plugins::builder()
        .directory(folder.path())
        .build()
        .await
        .unwrap();
    let schemes: Vec<_> = plugins.iter().map(|served| served.scheme).collect();
    assert_eq!(schemes, ["clickhouse", "echo"]);

    let store = plugins
        .open("ECHO://any/thing", &Settings::new().set("colour", "blue"))
        .unwrap();
    let entry = store.get(&id("a")).await.unwrap().unwrap();
    let document: serde_json::Value =
        serde_json::from_str(&entry.state.completed.unwrap()).unwrap();
    assert_eq!(
        document,
        serde_json::json!({"answer": "ECHO://any/thing", "colour": "blue"})
    );
    let ids = store.get_ids("x*", None, 1).await.unwrap().ids;
    assert_eq!(ids, ["ECHO://any/thing", "x*"].map(id));
}

#[tokio::test]
async fn an_unknown_scheme_lists_those_that_there_are() {
    let folder = folder();
    let plugins = Plugins::builder()
        .directory(folder.path())
        .build()
        .await
        .unwrap();
    let error = plugins.open("redis://h/0", &Settings::new()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "no plugin serves the scheme `redis`; there are: clickhouse, echo"
    );
}

#[tokio::test]
async fn two_plugins_of_one_scheme_are_both_named() {
    let folder = folder();
    fs::copy(echo_plugin(), folder.path().join("again.wasm")).unwrap();
    let error = Plugins::builder()
        .directory(folder.path())
        .build()
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::SchemeTaken { .. }), "{error:?}");
    let message = error.to_string();
    assert!(
        message.contains("again.wasm")
            && message.contains("echo.wasm")
            && message.contains("`echo`"),
        "{message}"
    );
}

#[tokio::test]
async fn a_file_that_is_no_plugin_is_told_in_one_line_that_names_it() {
    let component = fs::read(echo_plugin()).unwrap();
    // The smallest component there is, of a world without anything.
    let other_world = b"\0asm\x0d\0\x01\0".to_vec();
    let mut damaged = component.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    for (name, bytes, expected) in [
        (
            "core",
            b"\0asm\x01\0\0\0".to_vec(),
            "core WebAssembly module",
        ),
        (
            "cut",
            component[..component.len() / 2].to_vec(),
            "cut short",
        ),
        ("damaged", damaged, "not a valid component"),
        ("empty", Vec::new(), "the file is empty"),
        ("script", b"#!/bin/sh\n".to_vec(), "not WebAssembly"),
        ("other", other_world, "another world"),
        ("huge", vec![0; 17 * 1024 * 1024], "bytes"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(format!("{name}.wasm")), bytes).unwrap();
        let error = Plugins::builder()
            .directory(folder.path())
            .build()
            .await
            .err()
            .unwrap();
        assert!(matches!(error, Error::BadPlugin { .. }), "{error:?}");
        let message = error.to_string();
        assert!(
            message.contains(&format!("{name}.wasm")) && message.contains(expected),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[tokio::test]
async fn a_folder_without_plugins_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("readme.txt"), "").unwrap();
    let error = Plugins::builder()
        .directory(folder.path())
        .build()
        .await
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("no plugin in this folder"),
        "{error}"
    );
    let missing = folder.path().join("missing");
    let error = Plugins::builder()
        .directory(&missing)
        .build()
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn the_clickhouse_plugin_imports_outgoing_http_clocks_and_chance_and_nothing_else() {
    let out = harness::workspace().join("target/components/build");
    let path = component_build::build("pipeline-state-clickhouse", &out).unwrap();
    let inspection = Plugins::builder().inspect(&path).await.unwrap();
    assert_eq!(
        inspection.imports,
        [
            "wasi:clocks/monotonic-clock@0.2.12",
            "wasi:clocks/wall-clock@0.2.12",
            "wasi:http/outgoing-handler@0.2.12",
            "wasi:http/types@0.2.12",
            "wasi:io/error@0.2.12",
            "wasi:io/poll@0.2.12",
            "wasi:io/streams@0.2.12",
            "wasi:random/random@0.2.12",
        ]
    );
    assert_eq!(
        inspection.exports,
        [
            "pipeline:state/history@0.1.0",
            "pipeline:state/locks@0.1.0",
            "pipeline:state/maintenance@0.1.0",
            "pipeline:state/registration@0.1.0",
            "pipeline:state/store@0.1.0"
        ]
    );
    assert_eq!(inspection.description.unwrap().schemes, ["clickhouse"]);
    assert!(inspection.size <= 650_000, "{} bytes", inspection.size);

    // And it is the one that is embedded.
    let plugins = Plugins::builder().build().await.unwrap();
    assert_eq!(plugins.iter().next().unwrap().digest, inspection.digest);
}

#[tokio::test]
async fn a_plugin_reaches_the_origin_that_its_target_names() {
    let stub = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let address = stub.address();
    let store = echo(&format!("echo://{address}/")).await;
    let entry = store
        .get(&id(&format!("http://{address}/path?q")))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.state.completed.unwrap(), "{\"answer\":\"200\"}");
    assert_eq!(stub.received()[0].line, "GET /path?q HTTP/1.1");
    assert!(
        stub.received()[0]
            .headers
            .contains(&format!("host: {address}"))
    );
}

#[tokio::test]
async fn a_plugin_reaches_nothing_else_and_the_error_says_what_it_asked_for() {
    let allowed = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let other = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let (here, there) = (allowed.address(), other.address());
    let store = echo(&format!("echo://{here}/")).await;
    for url in [
        format!("http://{there}/"),
        format!("https://{here}/"),
        format!("http://localhost:{}/", here.port()),
        format!("http://[::1]:{}/", here.port()),
        format!("http://[::ffff:127.0.0.1]:{}/", here.port()),
        format!("http://user@{here}/"),
        "http://127.0.0.1/".to_owned(),
        "http://169.254.169.254/latest".to_owned(),
    ] {
        let error = store.get(&id(&url)).await.unwrap_err();
        let Error::OriginDenied {
            asked,
            allowed,
            outcome,
        } = &error
        else {
            panic!("{url}: {error:?}")
        };
        assert!(asked.starts_with("GET "), "{asked}");
        assert_eq!(allowed.as_deref(), Some(&*format!("http://{here}")));
        assert_eq!(*outcome, Outcome::NotApplied);
        let error = store.set(&id(&url), State::default()).await.unwrap_err();
        assert_eq!(
            error.outcome(),
            Outcome::Unknown,
            "a write may have done something before"
        );
    }
    assert_eq!(allowed.received().len() + other.received().len(), 0);
    assert!(store.get(&id("a")).await.is_ok());
}

#[tokio::test]
async fn a_plugin_whose_target_names_no_host_reaches_nothing() {
    let stub = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let store = echo("echo:///").await;
    assert_eq!(store.origin(), None);
    let error = store
        .get(&id(&format!("http://{}/", stub.address())))
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::OriginDenied { allowed: None, .. }),
        "{error:?}"
    );
    assert!(stub.received().is_empty());
}

/// A connection lives on the runtime that made it; nobody drives that while another one is used.
#[test]
fn plugins_serve_several_runtimes() {
    let stub = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let url = format!("http://{}/", stub.address());
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (one, other) = (runtime(), runtime());
    let store = one.block_on(echo(&format!("echo://{}/", stub.address())));
    for runtime in [&one, &other, &one, &other] {
        let get =
            async { tokio::time::timeout(Duration::from_secs(10), store.get(&id(&url))).await };
        runtime.block_on(get).unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Stub::start(|_| Some(Stub::ok(b""))).unwrap();
    let location = format!("Location: http://{}/", other.address());
    let stub = Stub::start(move |_| Some(Stub::response("302 Found", &[&location], b""))).unwrap();
    let store = echo(&format!("echo://{}/", stub.address())).await;
    let entry = store
        .get(&id(&format!("http://{}/", stub.address())))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.state.completed.unwrap(), "{\"answer\":\"302\"}");
    assert!(other.received().is_empty());
}

#[tokio::test]
async fn a_plugin_that_traps_harms_no_other_call() {
    let store = echo("echo:///").await;
    for _ in 0..3 {
        let error = store.get(&id("trap")).await.unwrap_err();
        assert!(matches!(error, Error::PluginFailed { .. }), "{error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        let error = store.set(&id("trap"), State::default()).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert!(store.get(&id("a")).await.is_ok());
    }
}

#[tokio::test]
async fn a_plugin_that_computes_for_ever_is_ended_at_the_deadline() {
    let plugins = Plugins::builder()
        .directory(folder().path())
        .call_deadline(Duration::from_millis(200))
        .build()
        .await
        .unwrap();
    let store = plugins.open("echo:///", &Settings::new()).unwrap();
    let start = Instant::now();
    let error = store.get(&id("spin")).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    assert!(store.get(&id("a")).await.is_ok());
}

#[tokio::test]
async fn a_plugin_that_takes_all_memory_is_ended() {
    let plugins = Plugins::builder()
        .directory(folder().path())
        .memory(16 * 1024 * 1024)
        .build()
        .await
        .unwrap();
    let store = plugins.open("echo:///", &Settings::new()).unwrap();
    let error = store.get(&id("memory")).await.unwrap_err();
    assert!(matches!(error, Error::PluginFailed { .. }), "{error:?}");
    assert!(store.get(&id("a")).await.is_ok());
}

/// The plugin at a path, with one more module in it, which makes a table grow by a number of elements when it starts, and traps
/// if that is refused.
fn with_growing_table(plugin: &Path, elements: u32) -> Vec<u8> {
    fn number(mut value: u32) -> Vec<u8> {
        // A signed LEB128 of 5 bytes holds any positive one.
        let mut bytes = Vec::new();
        for _ in 0..4 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }
    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        let length = number(u32::try_from(content.len()).unwrap());
        [&[id], &*length, content].concat()
    }
    let mut body = vec![0x00, 0xd0, 0x70, 0x41]; // no locals; ref.null func; i32.const
    body.extend(number(elements));
    body.extend([0xfc, 0x0f, 0x00]); // table.grow 0
    body.extend([0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b, 0x0b]); // i32.const -1, i32.eq, if, unreachable, end, end
    let code = [&[1][..], &number(u32::try_from(body.len()).unwrap()), &body].concat();
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 0, 0]), // one type: no parameters, no results
        section(3, &[1, 0]),          // one function of it
        section(4, &[1, 0x70, 0, 0]), // one table of functions, empty
        section(8, &[0]),             // that function starts
        section(10, &code),
    ]
    .concat();

    let mut component = fs::read(plugin).unwrap();
    // The new module's index is the number of those before it, each a section of its own.
    let (mut at, mut modules) = (8, 0);
    while at < component.len() {
        modules += u8::from(component[at] == 1);
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            at += 1;
            length |= usize::from(component[at] & 0x7f) << shift;
            shift += 7;
            if component[at] & 0x80 == 0 {
                break;
            }
        }
        at += 1 + length;
    }
    component.extend(section(1, &module));
    component.extend(section(2, &[1, 0x00, modules, 0])); // one instance of it, without arguments
    component
}

#[tokio::test]
async fn a_plugin_that_makes_a_table_grow_without_end_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("echo.wasm");
    for (elements, fine) in [(1_000, true), (10_000_000, false), (0x7fff_ffff, false)] {
        fs::write(&path, with_growing_table(&echo_plugin(), elements)).unwrap();
        let built = Plugins::builder().plugin(&path, None).build().await;
        match built {
            Ok(plugins) => {
                assert!(fine, "{elements}");
                let store = plugins.open("echo:///", &Settings::new()).unwrap();
                assert!(store.get(&id("a")).await.is_ok(), "{elements}");
            }
            Err(error) => {
                assert!(!fine, "{elements}: {error}");
                assert!(matches!(error, Error::BadPlugin { .. }), "{error:?}");
                assert!(error.to_string().contains("table"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_compiled_plugin_is_kept_where_one_says() {
    let cache = tempfile::tempdir().unwrap();
    let load = async || {
        let plugins = Plugins::builder()
            .cache_folder(cache.path())
            .build()
            .await
            .unwrap();
        let store = plugins
            .open("clickhouse://u@h/db", &Settings::new())
            .unwrap();
        assert_eq!(store.origin().unwrap(), "http://h:8123");
    };
    load().await;
    // A thread of the cache writes it, and statistics beside it.
    let start = Instant::now();
    while compiled(cache.path()).is_empty() && start.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = compiled(cache.path());
    assert_eq!(kept.len(), 1, "{kept:?}");
    load().await;
    assert_eq!(compiled(cache.path()), kept, "it was compiled again");
}

/// Whoever can write there can't be kept from putting code there that works; but what is broken is made anew, and what others can
/// write to is not used.
#[tokio::test]
async fn a_compile_cache_that_is_broken_or_open_to_others_does_no_harm() {
    let cache = tempfile::tempdir().unwrap();
    let load = async || Plugins::builder().cache_folder(cache.path()).build().await;
    load().await.unwrap();
    let start = Instant::now();
    while compiled(cache.path()).is_empty() && start.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (path, _) in compiled(cache.path()) {
        let whole = fs::read(&path).unwrap();
        for broken in [&b"poison"[..], &whole[..whole.len() / 2], b""] {
            fs::write(&path, broken).unwrap();
            let plugins = load().await.unwrap();
            assert_eq!(plugins.iter().count(), 1);
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = load().await.map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::InvalidInput(ref text) if text.contains("others can write to it")),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_file_lists_plugins_with_what_each_must_be_and_may_reach() {
    let folder = folder();
    let bytes = fs::read(folder.path().join("echo.wasm")).unwrap();
    fs::write(folder.path().join("other.wasm"), &bytes[..bytes.len() - 1]).unwrap();
    let inspection = Plugins::builder()
        .inspect(&folder.path().join("echo.wasm"))
        .await
        .unwrap();
    let list = folder.path().join("plugins.toml");
    let load = async |plugin: &str, file: &str| {
        let digest = &inspection.digest;
        let text = format!("[[plugin]]\npath = \"{file}.wasm\"\ndigest = \"{digest}\"\n{plugin}");
        fs::write(&list, text).unwrap();
        Plugins::builder().plugins_file(&list).build().await
    };
    let plugins = load(
        "scheme = \"echo\"\nallow = [\"http://127.0.0.1:80\"]\nsettings = { colour = \"blue\" }",
        "echo",
    )
    .await
    .unwrap();
    // It is the whole list.
    let schemes: Vec<_> = plugins.iter().map(|served| served.scheme).collect();
    assert_eq!(schemes, ["echo"]);
    let store = plugins.open("echo://127.0.0.1/", &Settings::new()).unwrap();
    let answer = store.get(&id("a")).await.unwrap().unwrap().state.completed;
    assert!(answer.unwrap().contains("\"colour\":\"blue\""));
    let refused = plugins.open("echo://127.0.0.1:81/", &Settings::new());
    let refused = refused.map(drop).unwrap_err();
    assert!(
        matches!(refused, Error::NotAllowed { .. })
            && refused.to_string().contains("http://127.0.0.1:81"),
        "{refused}"
    );
    let both = load(
        "[[plugin]]\nembedded = true\nscheme = \"clickhouse\"",
        "echo",
    )
    .await
    .unwrap();
    // What one may reach is not what the other may.
    assert!(both.open("clickhouse://u@h/db", &Settings::new()).is_ok());
    for (plugin, file, reason) in [
        ("", "other", "digest"),
        ("scheme = \"store\"", "echo", "does not serve"),
        ("color = 1", "echo", "line 4"),
        ("", "missing", "missing.wasm"),
    ] {
        let refused = load(plugin, file).await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::BadPlugin { .. }), "{refused:?}");
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}

#[test]
fn plugins_and_stores_can_be_shared() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Plugins>();
    shared::<Backend>();
    shared::<pipeline_state::blocking::Plugins>();
    shared::<pipeline_state::blocking::Backend>();
}

/// The compiled plugins in a folder, and when each was written.
fn compiled(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if path.is_dir() {
            found.extend(compiled(&path));
        } else if path.extension().is_none() {
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            found.push((path, written));
        }
    }
    found
}
