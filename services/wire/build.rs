//! Generates the services' Rust from `proto/`, and the descriptor set that reflection serves.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from("../../proto");
    let files =
        ["bireme/fetch/v1/fetch.proto", "bireme/query/v1/query.proto"].map(|f| root.join(f));
    // The files are outside of this package, so Cargo does not watch them by default.
    println!("cargo:rerun-if-changed={}", root.display());
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    tonic_prost_build::configure()
        .file_descriptor_set_path(out.join("descriptors.bin"))
        .bytes(".")
        // Written by hand, so that Arrow buffers are sent without being joined first.
        .extern_path(".bireme.fetch.v1.ArrowBatch", "crate::ArrowBatch")
        .codec_path("crate::Codec")
        .compile_protos(&files, &[root])?;
    Ok(())
}
