//! Nothing to do for the bindings that are committed; with `build-from-headers`, generates them from an installation's headers.

#[cfg(feature = "build-from-headers")]
#[path = "generate/mod.rs"]
mod generate;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "build-from-headers")]
    if let Err(why) = generate::run() {
        // How a build script tells the user of the build what to change.
        println!("cargo::error={why}");
    }
}
