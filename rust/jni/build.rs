//! Link arguments of the library: it stays mapped, and carries no symbol table unless
//! `FRAZIL_SYMBOLS` is set.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "linux" {
        // A plugin loader that is collected must not unmap code on which a tokio thread still runs.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Dependencies with C interfaces of their own would export those too.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        // Stripped at link time: one profile serves the tests and the plugin. A profiler wants the names.
        println!("cargo:rerun-if-env-changed=FRAZIL_SYMBOLS");
        if std::env::var_os("FRAZIL_SYMBOLS").is_none() {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-s");
        }
    }
}
