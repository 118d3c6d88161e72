//! `component-build PACKAGE FILE`: builds a package of this workspace as a component.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [package, file] = args.as_slice() else {
        eprintln!("usage: component-build PACKAGE FILE");
        return ExitCode::FAILURE;
    };
    match build(package, Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn build(package: &str, file: &Path) -> Result<(), String> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let built = component_build::build(package, &folder.join("build"))
        .map_err(|error| error.to_string())?;
    std::fs::rename(&built, file).map_err(|error| format!("{}: {error}", file.display()))
}
