//! What a component may import, and must export, before any of its code runs.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

/// The packages of WASI of which a plugin may import any interface: they reach nothing outside.
const ALLOWED_PACKAGES: [&str; 3] = ["wasi:io", "wasi:clocks", "wasi:random"];
/// Of `wasi:http` only what sends requests: those go through the host's policy.
const ALLOWED_INTERFACES: [&str; 2] = ["wasi:http/types", "wasi:http/outgoing-handler"];
/// The versions that this host provides: 0.2 of WASI.
const WASI_VERSION: &str = "0.2.";

/// The contract that this host speaks.
const CONTRACT: &str = "pipeline:state/";
const CONTRACT_VERSION: &str = "0.1.0";
const REQUIRED_EXPORTS: [&str; 5] = ["registration", "store", "locks", "history", "maintenance"];

/// The names of the interfaces of a component.
pub(crate) struct Interfaces {
    /// Those that give it something to call. One of types alone, like the contract's own, gives nothing.
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
}

impl Interfaces {
    pub(crate) fn of(engine: &Engine, component: &Component) -> Interfaces {
        let ty = component.component_type();
        let mut imports: Vec<String> = ty
            .imports(engine)
            .filter(|(_, import)| gives_something(engine, &import.ty))
            .map(|(name, _)| name.to_owned())
            .collect();
        let mut exports: Vec<String> = ty
            .exports(engine)
            .map(|(name, _)| name.to_owned())
            .collect();
        imports.sort();
        exports.sort();
        Interfaces { imports, exports }
    }

    /// Says why a component can't be a plugin, and all of it at once.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let forbidden: Vec<&str> = self
            .imports
            .iter()
            .map(String::as_str)
            .filter(|import| !allowed(import))
            .collect();
        if !forbidden.is_empty() {
            return Err(format!(
                "it imports {}, which no plugin is given; it may import wasi:http ({}), {}",
                forbidden.join(", "),
                "types and outgoing-handler",
                ALLOWED_PACKAGES.join(", "),
            ));
        }
        for wanted in REQUIRED_EXPORTS {
            self.check_export(wanted)?;
        }
        Ok(())
    }

    fn check_export(&self, wanted: &str) -> Result<(), String> {
        let name = format!("{CONTRACT}{wanted}");
        let found = self.exports.iter().find_map(|export| {
            let (interface, version) = export.split_once('@')?;
            (interface == name).then_some(version)
        });
        match found {
            Some(CONTRACT_VERSION) => Ok(()),
            Some(other) => Err(format!(
                "it was made for version {other} of the contract, and this program speaks {CONTRACT_VERSION}; \
                 use a build of the plugin for that"
            )),
            None => Err(format!(
                "it is a component of another world: it does not export {name}@{CONTRACT_VERSION}"
            )),
        }
    }
}

fn gives_something(engine: &Engine, import: &ComponentItem) -> bool {
    match import {
        ComponentItem::ComponentInstance(interface) => interface
            .exports(engine)
            .any(|(_, item)| gives_something(engine, &item.ty)),
        ComponentItem::Type(_) => false,
        _ => true,
    }
}

fn allowed(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    let package = interface.split_once('/').map(|(package, _)| package);
    version.starts_with(WASI_VERSION)
        && (ALLOWED_INTERFACES.contains(&interface)
            || package.is_some_and(|package| ALLOWED_PACKAGES.contains(&package)))
}

/// Tells a component from a core module and from anything else by its first eight bytes, since the
/// compiler's own words for these are of no use to most people.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), &'static str> {
    match bytes {
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(
            "it is a core WebAssembly module, not a component; make one of it with `wasm-tools component new`",
        ),
        [0, b'a', b's', b'm', ..] => {
            Err("it is WebAssembly of a version that this program does not know")
        }
        [] => Err("the file is empty"),
        _ => Err("it is not WebAssembly"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(imports: &[&str], exports: &[&str]) -> Interfaces {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Interfaces {
            imports: owned(imports),
            exports: owned(exports),
        }
    }

    const EXPORTS: [&str; 5] = [
        "pipeline:state/history@0.1.0",
        "pipeline:state/locks@0.1.0",
        "pipeline:state/maintenance@0.1.0",
        "pipeline:state/registration@0.1.0",
        "pipeline:state/store@0.1.0",
    ];

    #[test]
    fn a_plugin_may_import_what_reaches_nothing_and_outgoing_http() {
        let imports = [
            "wasi:clocks/monotonic-clock@0.2.12",
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:http/types@0.2.12",
            "wasi:io/poll@0.2.12",
            "wasi:random/random@0.2.3",
        ];
        assert_eq!(interfaces(&imports, &EXPORTS).audit(), Ok(()));
    }

    #[test]
    fn anything_else_is_named() {
        for import in [
            "wasi:cli/environment@0.2.12",
            "wasi:filesystem/types@0.2.12",
            "wasi:sockets/tcp@0.2.12",
            "wasi:http/incoming-handler@0.2.12",
            "wasi:http/types@0.3.0",
            "wasi:io/poll",
            "wasi:iota/poll@0.2.12",
            "env",
        ] {
            let message = interfaces(&["wasi:io/poll@0.2.12", import], &EXPORTS)
                .audit()
                .unwrap_err();
            assert!(
                message.starts_with(&format!("it imports {import}, ")),
                "{message}"
            );
        }
    }

    #[test]
    fn another_world_and_another_version_are_told_apart() {
        let message = interfaces(&[], &["wasi:cli/run@0.2.0"])
            .audit()
            .unwrap_err();
        assert!(message.contains("another world"), "{message}");
        let message = interfaces(&[], &["pipeline:state/registration@0.2.0"])
            .audit()
            .unwrap_err();
        assert!(
            message.contains("version 0.2.0 of the contract"),
            "{message}"
        );
    }

    #[test]
    fn the_header_tells_what_a_file_is() {
        assert_eq!(check_header(b"\0asm\x0d\0\x01\0rest"), Ok(()));
        assert!(
            check_header(b"\0asm\x01\0\0\0")
                .unwrap_err()
                .contains("core WebAssembly module")
        );
        assert!(check_header(b"\0asm").unwrap_err().contains("version"));
        assert!(check_header(b"").unwrap_err().contains("empty"));
        assert!(
            check_header(b"#!/bin/sh")
                .unwrap_err()
                .contains("not WebAssembly")
        );
    }
}
