//! The contract as one file.

use std::path::Path;

use wit_parser::Resolve;

use crate::component::{Error, write};

/// Writes the WIT package in `folder`, with all that it stands on and its documentation, as one file in the binary form of WIT,
/// which tools for components read like a folder.
///
/// ```
/// use std::path::Path;
///
/// let file = std::env::temp_dir().join(format!("contract-{}.wasm", std::process::id()));
/// component_build::wit(Path::new("../../wit"), &file)?;
/// assert!(std::fs::read(&file)?.starts_with(b"\0asm"));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Where the folder holds no valid package, or the file can't be written.
pub fn wit(folder: &Path, file: &Path) -> Result<(), Error> {
    let bytes = encode(folder).map_err(|error| Error::Encode(format!("{error:#}")))?;
    write(file, &bytes).map_err(|error| Error::File(file.to_owned(), error))
}

fn encode(folder: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut all = Resolve::default();
    let (package, _) = all.push_dir(folder)?;
    Ok(wit_component::encode(&all, package)?)
}

#[cfg(test)]
mod tests {
    use wit_component::{DecodedWasm, WitPrinter};

    use super::*;

    /// The package `pipeline:state`, printed: with its documentation.
    fn printed(all: &Resolve, package: wit_parser::PackageId) -> String {
        let mut printer = WitPrinter::default();
        printer.print(all, package, &[]).unwrap();
        printer.output.to_string()
    }

    #[test]
    fn what_is_read_back_is_what_the_folder_says() {
        let folder = Path::new("../../wit");
        let mut written = Resolve::default();
        let (package, _) = written.push_dir(folder).unwrap();

        let bytes = encode(folder).unwrap();
        let DecodedWasm::WitPackage(read, read_package) = wit_component::decode(&bytes).unwrap()
        else {
            panic!("a component, not a package");
        };
        let text = printed(&read, read_package);
        assert_eq!(text, printed(&written, package));
        assert!(text.contains("package pipeline:state@"), "{text}");
        assert!(text.contains("world plugin {"), "{text}");
        assert!(text.contains("/// "), "without documentation: {text}");
    }

    #[test]
    fn a_folder_without_a_package_is_an_error() {
        let error = wit(Path::new("src"), Path::new("no-such-folder/contract.wasm")).unwrap_err();
        assert!(matches!(error, Error::Encode(_)), "{error}");
    }
}
