//! Names the shared library, so that programs are bound to its name and not to the path that they were linked with.

fn main() {
    let mut targets = vec!["cdylib-link-arg"];
    // The package of the crate has no example.
    if std::path::Path::new("examples/library.rs").exists() {
        targets.push("link-arg-examples");
    }
    for target in targets {
        println!("cargo:rustc-{target}=-Wl,-soname,libpunctual.so");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
