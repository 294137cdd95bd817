fn main() {
    // Linux only, and always mounted without libfuse.
    println!(
        "cargo::rustc-check-cfg=cfg(fuser_mount_impl, values(\"pure-rust\", \"libfuse2\", \"libfuse3\", \"macos-no-mount\"))"
    );
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"serializable\", \"macfuse-4-compat\"))");
    println!("cargo::rustc-cfg=fuser_mount_impl=\"pure-rust\"");
}
