//! `component-build PACKAGE FILE`: builds a package of this workspace as a component.
//!
//! `component-build PLUGIN COMMAND FILE`: builds two, and puts them into one that commands a store.
//!
//! `component-build --wit FILE`: writes the contract as one file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use component_build::Error;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.as_slice() {
        [option, file] if option == "--wit" => component_build::wit(&contract(), Path::new(file)),
        [package, file] => build(package, file),
        [plugin, command, file] => compose(plugin, command, file),
        _ => {
            eprintln!(
                "usage: component-build PACKAGE FILE, component-build PLUGIN COMMAND FILE, or component-build --wit FILE"
            );
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn build(package: &str, file: &str) -> Result<(), Error> {
    let file = Path::new(file);
    let built = component_build::build(package, &work(file))?;
    std::fs::rename(&built, file).map_err(|error| Error::File(file.to_owned(), error))
}

fn compose(plugin: &str, command: &str, file: &str) -> Result<(), Error> {
    let file = Path::new(file);
    let plugin = component_build::build(plugin, &work(file))?;
    let command = component_build::build(command, &work(file))?;
    component_build::compose(&plugin, &command, file)
}

/// The package beside this crate's folder.
fn contract() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")
}

/// Where cargo works, beside the result.
fn work(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new(".")).join("build")
}
