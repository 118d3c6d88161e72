//! Builds packages of this workspace as WebAssembly components, with whichever toolchain this machine has.
//!
//! Plugins are built for `wasm32-unknown-unknown`, a target without an operating system, so that a component
//! imports nothing that it does not use. Its standard library comes in one of two ways, see [`Toolchain`].
//! Installing either is not done here but by `cargo dev setup`.

#[cfg(feature = "component")]
mod component;
#[cfg(feature = "compose")]
mod compose;
mod toolchain;
#[cfg(feature = "compose")]
mod wit;

#[cfg(feature = "component")]
pub use component::{Error, build, rerun_if_changed};
#[cfg(feature = "compose")]
pub use compose::compose;
pub use toolchain::{
    Missing, TARGET, TOOLCHAIN_VARIABLE, Toolchain, debian, linker, linker_package, rustup,
    toolchain,
};
#[cfg(feature = "compose")]
pub use wit::wit;
