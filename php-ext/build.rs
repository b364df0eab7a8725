//! Link options of the extension.

fn main() {
    // The library stays mapped after dlclose(): its threads may still run at the end of the process.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
