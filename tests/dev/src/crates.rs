//! The crates as a registry takes them: the host with the plugin inside, and what it stands on.
//!
//! In the workspace the host reads the contract from beside its folder, and its build script builds the plugin from the workspace, with
//! a toolchain for WebAssembly. Neither can be so in a crate that stands alone. So the two crates are put together in a folder of
//! their own, where the contract and the plugin lie inside the host. The manifests there are the workspace's own, less the tables that
//! are about building and testing it: a second set of manifests, written by hand, would not stay the same.

use std::fs;
use std::path::{Path, PathBuf};

use harness::workspace;
use toml::{Table, Value};

use crate::run::{cargo, step};

/// The crates, each after what it depends on.
const CRATES: [&str; 2] = ["guest/secret", "host"];
/// What a crate needs of the workspace only, with its tests and its build script.
const OF_THE_WORKSPACE: [&str; 4] = ["build-dependencies", "dev-dependencies", "example", "test"];
/// What everything that is given away carries.
pub(crate) const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The packaged host's build script: the plugin is there already.
const BUILD_SCRIPT: &str = r#"//! Says where the plugin is that the library embeds.

fn main() -> Result<(), std::env::VarError> {
    println!("cargo::rerun-if-changed=component");
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo::rustc-env=CLICKHOUSE_COMPONENT={here}/component/clickhouse.wasm");
    Ok(())
}
"#;

/// Crates that cargo has packaged, unpacked again and built.
pub(crate) struct Crates {
    /// What a registry would take.
    pub(crate) files: Vec<PathBuf>,
    /// The program, built from the packaged crate alone.
    pub(crate) program: PathBuf,
}

/// Packages the crates, in `home`, with `plugin` inside.
pub(crate) fn package(plugin: &Path, home: &Path) -> Result<Crates, String> {
    let stage = home.join("stage");
    let build = home.join("build");
    put_together(plugin, &stage)?;
    let packages = build.join("package");
    if packages.exists() {
        fs::remove_dir_all(&packages).map_err(failed(&packages))?;
    }
    let mut package = cargo(&["package", "--workspace"]);
    // One for all that is built here, so that a second time is quick.
    package.env("CARGO_TARGET_DIR", &build).current_dir(&stage);
    // It is built to see that it builds, and to run once: quickly, then.
    package.env("CARGO_PROFILE_DEV_DEBUG", "false");
    step(&mut package)?;

    let mut files = Vec::new();
    for entry in fs::read_dir(&packages).map_err(failed(&packages))? {
        let path = entry.map_err(failed(&packages))?.path();
        if path.extension().is_some_and(|end| end == "crate") {
            files.push(path);
        }
    }
    match files.len() == CRATES.len() {
        true => Ok(Crates {
            files,
            program: build.join("debug/pipeline-state"),
        }),
        false => Err(format!("cargo has packaged {files:?}, and not two crates")),
    }
}

/// Puts the crates together in `stage`, anew.
fn put_together(plugin: &Path, stage: &Path) -> Result<(), String> {
    if stage.exists() {
        fs::remove_dir_all(stage).map_err(failed(stage))?;
    }
    let workspace = workspace();
    for folder in CRATES {
        let (from, to) = (workspace.join(folder), stage.join(folder));
        copy_folder(&from.join("src"), &to.join("src"))?;
        write(
            &to.join("Cargo.toml"),
            &of_crate(&read(&from.join("Cargo.toml"))?)?,
        )?;
        for license in LICENSES {
            copy(&workspace.join(license), &to.join(license))?;
        }
    }
    let manifest = of_workspace(&read(&workspace.join("Cargo.toml"))?)?;
    write(&stage.join("Cargo.toml"), &manifest)?;
    // Without the packages of the workspace that are not here, cargo writes it anew; versions stay.
    copy(&workspace.join("Cargo.lock"), &stage.join("Cargo.lock"))?;
    copy(&workspace.join("README.md"), &stage.join("README.md"))?;
    let secret = "guest/secret/README.md";
    copy(&workspace.join(secret), &stage.join(secret))?;

    let host = stage.join("host");
    copy(
        &workspace.join("host/SECURITY.md"),
        &host.join("SECURITY.md"),
    )?;
    copy(plugin, &host.join("component/clickhouse.wasm"))?;
    copy_folder(&workspace.join("wit"), &host.join("wit"))?;
    write(&host.join("build.rs"), BUILD_SCRIPT)?;
    let bindings = host.join("src/bindings.rs");
    write(&bindings, &with_contract_inside(&read(&bindings)?)?)
}

/// The manifest of a crate, less what it needs of the workspace.
fn of_crate(manifest: &str) -> Result<String, String> {
    let mut manifest = parsed(manifest)?;
    for table in OF_THE_WORKSPACE {
        manifest.remove(table);
    }
    Ok(manifest.to_string())
}

/// The manifest of a workspace of these crates alone, with the versions and lints of the whole one.
fn of_workspace(manifest: &str) -> Result<String, String> {
    let whole = parsed(manifest)?;
    let mut workspace = match whole.get("workspace") {
        Some(Value::Table(workspace)) => workspace.clone(),
        _ => return Err("the manifest is not of a workspace".to_owned()),
    };
    workspace.remove("default-members");
    let members = CRATES.map(Value::from).to_vec();
    workspace.insert("members".to_owned(), Value::Array(members));
    if let Some(Value::Table(dependencies)) = workspace.get_mut("dependencies") {
        dependencies.retain(|_, dependency| {
            let path = dependency.get("path").and_then(Value::as_str);
            path.is_none_or(|path| CRATES.contains(&path))
        });
    }
    let manifest = Table::from_iter([("workspace".to_owned(), Value::Table(workspace))]);
    Ok(manifest.to_string())
}

fn parsed(manifest: &str) -> Result<Table, String> {
    manifest.parse().map_err(|error| format!("{error}"))
}

/// The host's source that names the folder of the contract: a macro reads it, which takes nothing but a literal.
fn with_contract_inside(source: &str) -> Result<String, String> {
    let (beside, inside) = (r#"path: "../wit""#, r#"path: "wit""#);
    match source.matches(beside).count() {
        1 => Ok(source.replace(beside, inside)),
        count => Err(format!(
            "host/src/bindings.rs has `{beside}` {count} times, not once"
        )),
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let path = entry.map_err(failed(from))?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        match path.is_dir() {
            true => copy_folder(&path, &to.join(name))?,
            false => copy(&path, &to.join(name))?,
        }
    }
    Ok(())
}

/// Copies a file, and makes its folder.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(failed(folder))?;
    fs::copy(from, to).map_err(failed(from)).map(drop)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(failed(path))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that can be seen without building it.
    #[test]
    fn cargo_takes_what_is_put_together_and_finds_nothing_of_the_workspace_in_it() {
        let home = std::env::temp_dir().join(harness::fresh_name("crates"));
        let plugin = home.join("plugin.wasm");
        fs::create_dir_all(&home).unwrap();
        fs::write(&plugin, "a component").unwrap();
        put_together(&plugin, &home.join("stage")).unwrap();

        let mut list = cargo(&["package", "--list", "--package", "pipeline-state"]);
        let list = crate::run::capture(list.current_dir(home.join("stage"))).unwrap();
        fs::remove_dir_all(&home).unwrap();
        // No word of a warning either: of what a registry asks for, nothing is missing.
        assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""));
        let files: Vec<_> = list.stdout.lines().collect();
        for file in [
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
            "component/clickhouse.wasm",
            "src/main.rs",
            "wit/deps/http.wit",
            "wit/world.wit",
        ] {
            assert!(files.contains(&file), "{file} is not in {files:?}");
        }
        let strange = ["node/", "python/", "tests/"];
        assert!(
            !files
                .iter()
                .any(|file| strange.iter().any(|folder| file.starts_with(folder))),
            "{files:?}"
        );
    }

    #[test]
    fn a_source_that_reads_the_contract_elsewhere_is_an_error() {
        assert!(with_contract_inside(r#"path: "../contract""#).is_err());
    }
}
