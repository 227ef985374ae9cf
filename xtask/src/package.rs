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

/// A WebAssembly module with its glue.
struct Module {
    /// The feature of the crate that the module is built with.
    feature: &'static str,
    /// The name of its file, `NAME.wasm`.
    name: &'static str,
    /// The name of its glue's file, without `.js`.
    glue: &'static str,
    /// The size of WebAssembly and glue in bytes, compressed as by a web server: the target, and the limit
    /// above which the build fails.
    aim: usize,
    limit: usize,
}

const MODULES: [Module; 3] = [
    Module {
        feature: "engine",
        name: "leasehold",
        glue: "glue",
        aim: 62_000,
        limit: 109_300,
    },
    // The engine with quorums, for programs that use them; it replaces the other one.
    Module {
        feature: "quorum",
        name: "quorum",
        glue: "quorum-glue",
        aim: 100_000,
        limit: 157_700,
    },
    // The in-memory store, which only programs that use one load.
    Module {
        feature: "memory",
        name: "memory",
        glue: "memory-glue",
        aim: 30_000,
        limit: 52_000,
    },
];
/// Bytes of the engine's stack; the default is a mebibyte. The stack lies below everything else in memory, so
/// that an overflow traps. `bindings/node/test/host/memory.test.mjs` measures how much of it is used.
const STACK: usize = 64 * 1024;

/// Options that make code optimized for speed about as short as code optimized for size, which is a third
/// slower. Only tiny functions are inlined, and small ones marked for inlining; neither loops nor
/// computations are duplicated. A later LLVM may lack some of the options, and then says so.
const LEAN: [&str; 8] = [
    "inline-threshold=5",
    "inlinehint-threshold=40",
    "inline-cold-callsite-threshold=0",
    "unroll-threshold=0",
    "unroll-partial-threshold=0",
    "unroll-runtime=0",
    "rotation-max-header-size=0",
    "enable-pre=false",
];

/// The features of WebAssembly that the code uses. By default the linker takes them from the standard
/// library, which claims `multivalue`, too: then V8, when it starts, compiles a wrapper for each function
/// that returns several values.
const FEATURES: [&str; 7] = [
    "bulk-memory",
    "bulk-memory-opt",
    "call-indirect-overlong",
    "mutable-globals",
    "nontrapping-fptoint",
    "reference-types",
    "sign-ext",
];

/// Builds the package, and prints its path and sizes.
pub(crate) fn main() -> Result<()> {
    Need::Wasm.ensure()?;
    Need::Node.ensure()?;
    let generated = root().join(npm::FOLDER).join("src/generated");
    for module in &MODULES {
        build(module)?;
        generate(module, &generated)?;
    }
    npm::install(npm::FOLDER)?;
    run(&Cmd::line("node build.mjs").at(npm::FOLDER))?;
    let packed = pack()?;
    println!("== package: {}", packed.display());
    MODULES
        .iter()
        .try_for_each(|module| check_size(module, &generated))
}

fn build(module: &Module) -> Result<()> {
    // Built as a Rust library as well, it would be 4 % longer.
    let rustc = Cmd::line(
        "cargo rustc --crate-type cdylib -p leasehold-wasm --lib --profile wasm-release \
         --target wasm32-unknown-unknown --locked --no-default-features --features",
    );
    let flags = ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", flags());
    run(&rustc.args([module.feature]).with_env(flags.0, &flags.1))
}

/// Returns flags for a small stack, since each instance has one; for little code; and for no path of this
/// machine in the published package.
fn flags() -> String {
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let home = home.map(|home| format!(" --remap-path-prefix={home}=cargo"));
    let root = root();
    let lean = LEAN
        .map(|option| format!(" -Cllvm-args=-{option}"))
        .concat();
    let features = FEATURES.join(",");
    format!(
        "-Clink-arg=-zstack-size={STACK} -Clink-arg=--no-check-features -Clink-arg=--features={features}{lean}{} \
         --remap-path-prefix={}=leasehold --remap-path-prefix=core/engine/src=engine",
        home.unwrap_or_default(),
        root.display()
    )
}

fn run(cmd: &Cmd) -> Result<()> {
    println!("== package: {cmd}");
    cmd.run()
}

/// Makes the WebAssembly, the glue and its types from the compiler's output.
fn generate(module: &Module, into: &Path) -> Result<()> {
    let compiled = target().join("wasm32-unknown-unknown/wasm-release/leasehold_wasm.wasm");
    let folder = target().join("wasm-bindgen");
    Bindgen::new()
        .input_path(&compiled)
        .out_name(module.name)
        .bundler(true)?
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&folder)
        .with_context(|| format!("wasm-bindgen, of {}", compiled.display()))?;
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).context(format!("reading {name}"));
    let Module { name, glue, .. } = module;
    let factory = glue::factory(name, &read(&format!("{name}_bg.js"))?)?;
    let types = glue::factory_types(&read(&format!("{name}.d.ts"))?)?;
    fs::create_dir_all(into)?;
    fs::write(into.join(format!("{glue}.js")), factory)?;
    fs::write(into.join(format!("{glue}.d.ts")), types)?;
    fs::copy(
        folder.join(format!("{name}_bg.wasm")),
        into.join(format!("{name}.wasm")),
    )?;
    Ok(())
}

/// Packs what npm would publish. Returns the path of the tarball.
fn pack() -> Result<PathBuf> {
    let folder = target().join("npm");
    fs::create_dir_all(&folder)?;
    let to = folder.to_string_lossy();
    let cmd = Cmd::line("npm pack --silent --pack-destination").args([to]);
    let cmd = cmd.at(npm::FOLDER);
    println!("== package: {cmd}");
    let mut name = None;
    cmd.run_and_read(|line| {
        print!("{line}");
        if line.contains(".tgz") {
            name = Some(line.trim().to_owned());
        }
    })?;
    Ok(folder.join(name.with_context(|| format!("`{cmd}` printed no name"))?))
}

fn check_size(module: &Module, generated: &Path) -> Result<()> {
    let Module {
        name,
        glue,
        aim,
        limit,
        ..
    } = module;
    let mut sum = 0;
    for file in [format!("{name}.wasm"), format!("{glue}.js")] {
        let bytes = fs::read(generated.join(&file))?;
        let gzipped = gzipped_size(&bytes)?;
        println!(
            "== package: {file}: {} bytes, {gzipped} gzipped",
            bytes.len()
        );
        sum += gzipped;
    }
    println!("== package: both: {sum} bytes gzipped (aim {aim}, limit {limit})");
    ensure!(
        sum <= *limit,
        "{name}.wasm and its glue are too large: {sum} bytes gzipped"
    );
    Ok(())
}

fn gzipped_size(bytes: &[u8]) -> Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}
