//! `cargo xtask package`: the npm package, from the Rust crate to the tarball.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use wasm_bindgen_cli_support::Bindgen;

use crate::glue;
use crate::npm;
use crate::run::{Cmd, root, target};
use crate::setup::Need;

const BUILD: Cmd<'_> = Cmd::cargo(&[
    "build",
    "-p",
    "leasehold-wasm",
    "--lib",
    "--profile",
    "wasm-release",
    "--target",
    "wasm32-unknown-unknown",
    "--locked",
]);
const BUNDLE: Cmd<'_> = Cmd::new("node", &["build.mjs"]).at(npm::FOLDER);
/// Bytes of the engine's stack; by default it would be a mebibyte. It lies below everything else in memory,
/// so that an overflow traps. `bindings/node/test/host/memory.test.mjs` measures how much of it is used.
const STACK: usize = 64 * 1024;
/// Bytes of WebAssembly and glue, compressed as a web server does; above it the build fails.
const SIZE_LIMIT: usize = 94 * 1024;
const SIZE_AIM: usize = 60 * 1024;

/// Builds it, and prints where it is and how large.
pub(crate) fn main() -> Result<()> {
    Need::Wasm.ensure()?;
    Need::Node.ensure()?;
    let flags = flags();
    run(BUILD.with_env(&[("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", &flags)]))?;
    let generated = root().join(npm::FOLDER).join("src/generated");
    generate(&generated)?;
    npm::install(npm::FOLDER)?;
    run(BUNDLE)?;
    let packed = pack()?;
    println!("== package: {}", packed.display());
    check_sizes(&generated)
}

/// A small stack, because each instance has one; and no path of this machine in what is published.
fn flags() -> String {
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let home = home.map(|home| format!(" --remap-path-prefix={home}=cargo"));
    let root = root();
    format!(
        "-Clink-arg=-zstack-size={STACK}{} --remap-path-prefix={}=leasehold",
        home.unwrap_or_default(),
        root.display()
    )
}

fn run(cmd: Cmd<'_>) -> Result<()> {
    println!("== package: {cmd}");
    cmd.run()
}

/// Makes the WebAssembly, the glue and its types from what the compiler made.
fn generate(into: &Path) -> Result<()> {
    let compiled = target().join("wasm32-unknown-unknown/wasm-release/leasehold_wasm.wasm");
    let folder = target().join("wasm-bindgen");
    Bindgen::new()
        .input_path(&compiled)
        .out_name("leasehold")
        .bundler(true)?
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&folder)
        .with_context(|| format!("wasm-bindgen, of {}", compiled.display()))?;
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).context(format!("reading {name}"));
    let glue = glue::factory(&read("leasehold_bg.js")?)?;
    let types = glue::factory_types(&read("leasehold.d.ts")?)?;
    fs::create_dir_all(into)?;
    fs::write(into.join("glue.js"), glue)?;
    fs::write(into.join("glue.d.ts"), types)?;
    fs::copy(
        folder.join("leasehold_bg.wasm"),
        into.join("leasehold.wasm"),
    )?;
    Ok(())
}

/// Packs what npm would publish, and returns where it is.
fn pack() -> Result<PathBuf> {
    let folder = target().join("npm");
    fs::create_dir_all(&folder)?;
    let to = folder.to_string_lossy();
    let args = ["pack", "--silent", "--pack-destination", &*to];
    let cmd = Cmd::new("npm", &args).at(npm::FOLDER);
    println!("== package: {cmd}");
    let mut name = None;
    cmd.run_and_read(|line| name = Some(line.trim().to_owned()))?;
    Ok(folder.join(name.with_context(|| format!("`{cmd}` printed no name"))?))
}

fn check_sizes(generated: &Path) -> Result<()> {
    let mut sum = 0;
    for name in ["leasehold.wasm", "glue.js"] {
        let bytes = fs::read(generated.join(name))?;
        let gzipped = gzipped_size(&bytes)?;
        println!(
            "== package: {name}: {} bytes, {gzipped} gzipped",
            bytes.len()
        );
        sum += gzipped;
    }
    println!("== package: both: {sum} bytes gzipped (aim {SIZE_AIM}, limit {SIZE_LIMIT})");
    ensure!(
        sum <= SIZE_LIMIT,
        "blob and glue are too large: {sum} bytes gzipped"
    );
    Ok(())
}

fn gzipped_size(bytes: &[u8]) -> Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}
