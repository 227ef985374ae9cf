//! Turns the JavaScript that wasm-bindgen generates into a factory.
//!
//! wasm-bindgen generates a module with a single instance. A host needs several, and a new one after a trap;
//! so the text becomes the body of a function that makes an instance. The text may change with the version of
//! wasm-bindgen: any unexpected text is an error.

use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

/// Frees objects that JavaScript no longer refers to. After a trap it must not call into the instance.
const FINALIZER: &str = "new FinalizationRegistry(ptr => wasm.";
const FINALIZER_OF_LIVE: &str = "new FinalizationRegistry(ptr => wasm?.";
const PASS_TEXT: &str = "function passStringToWasm0(arg, malloc, realloc) {";
const SET_WASM: &str = "__wbg_set_wasm";

/// Returns the module with `instantiate`, made from the generated one (target `bundler`, the `NAME_bg.js`
/// that the WebAssembly imports).
pub(crate) fn factory(name: &str, generated: &str) -> Result<String> {
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut body = String::new();
    // Comments are left out: the types have the same ones.
    let mut in_comment = false;
    for line in generated.lines() {
        in_comment |= line.trim_start().starts_with("/**");
        if in_comment {
            in_comment = !line.ends_with("*/");
            continue;
        }
        let line = match line.strip_prefix("export ") {
            None => line,
            Some(declaration) => {
                let name = declared(declaration)
                    .with_context(|| format!("the glue has an unknown kind of export: {line}"))?;
                if name.starts_with("__wb") {
                    imports.push(name);
                } else {
                    exports.push(name);
                }
                declaration
            }
        };
        if !line.is_empty() {
            body.push_str("  ");
            body.push_str(line);
        }
        body.push('\n');
    }
    let all = imports.len();
    imports.retain(|name| *name != SET_WASM);
    ensure!(imports.len() + 1 == all, "the glue has no {SET_WASM}");
    ensure!(!exports.is_empty(), "the glue exports nothing");
    ensure!(!in_comment, "the glue ends in a comment");
    let body = checked_texts(&live_finalizers(&body)?)?;
    refuse_leftovers(&body)?;
    let (imports, exports) = (imports.join(", "), exports.join(", "));
    Ok(format!(
        "/** A new instance with a state of its own. */\n\
         export function instantiate(module) {{\n\
         {body}\n\
         \x20 const imports = {{ __proto__: null, {imports} }};\n\
         \x20 wasm = new WebAssembly.Instance(module, {{ \"./{name}_bg.js\": imports }}).exports;\n\
         \x20 wasm.__wbindgen_start();\n\
         \x20 const discard = () => {{ wasm = undefined; }};\n\
         \x20 return {{ {exports}, memory: wasm.memory, discard }};\n\
         }}\n"
    ))
}

/// Returns the types of that module, made from the generated ones.
pub(crate) fn factory_types(generated: &str) -> Result<String> {
    let (mut types, mut members, mut body) = (Vec::new(), String::new(), String::new());
    for line in generated.lines() {
        let Some(declaration) = line.strip_prefix("export ") else {
            body.push_str(line);
            body.push('\n');
            continue;
        };
        let name = declared(declaration)
            .with_context(|| format!("the types have an unknown kind of export: {line}"))?;
        if declaration.starts_with("class ") {
            types.push(name);
        }
        writeln!(members, "  readonly {name}: typeof {name};")?;
        writeln!(body, "declare {declaration}")?;
    }
    ensure!(!types.is_empty(), "the types have no class");
    let types = types.join(", ");
    Ok(format!(
        "{body}\n\
         /** One instance of the WebAssembly. */\n\
         export interface Glue {{\n\
         {members}\
         \x20 /** All of it; what is read has to be found anew after it has grown. */\n\
         \x20 readonly memory: {{ readonly buffer: ArrayBuffer }};\n\
         \x20 /** After a trap: nothing runs in this instance any more, finalizers neither. */\n\
         \x20 discard(): void;\n\
         }}\n\
         \n\
         export type {{ {types} }};\n\
         /** A new instance with a state of its own. */\n\
         export function instantiate(module: WebAssembly.Module): Glue;\n"
    ))
}

/// Returns the name of a declared class, function or constant.
fn declared(declaration: &str) -> Option<&str> {
    let rest = ["class ", "function ", "const "]
        .iter()
        .find_map(|keyword| declaration.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$')?;
    (end > 0).then(|| &rest[..end])
}

fn live_finalizers(body: &str) -> Result<String> {
    let live = body.replace(FINALIZER, FINALIZER_OF_LIVE);
    let (all, known) = (
        live.matches("new FinalizationRegistry").count(),
        live.matches(FINALIZER_OF_LIVE).count(),
    );
    ensure!(
        all == known,
        "{} unknown finalizers in the glue",
        all - known
    );
    Ok(live)
}

/// Refuses values that are no texts, and texts that the memory has no room for, before they reach the
/// WebAssembly: they would end the instance with all its locks. The code throws as the module does: a string
/// with an error in JSON.
fn checked_texts(body: &str) -> Result<String> {
    ensure!(
        body.matches(PASS_TEXT).count() == 1,
        "the glue has an unknown way to pass texts"
    );
    let message =
        "the engine takes texts of up to 67108864 characters, and nothing else in their place";
    let check = format!(
        "{PASS_TEXT}\n      if (typeof arg !== 'string' || arg.length > 67108864) \
         throw '{{\"code\":\"config\",\"message\":\"{message}\"}}';"
    );
    Ok(body.replace(PASS_TEXT, &check))
}

fn refuse_leftovers(body: &str) -> Result<()> {
    for word in [
        "import", "export", "fetch(", "require(", "await ", "new URL",
    ] {
        let found = body.lines().find(|line| {
            let code = line.trim_start();
            !code.starts_with("//") && has_word(code, word)
        });
        if let Some(line) = found {
            bail!("the glue still has `{word}`: {}", line.trim());
        }
    }
    Ok(())
}

/// Returns true if the word stands alone, not as a part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "_$.".contains(c);
    code.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(|c: char| c.is_ascii_alphabetic())
            && code[at + word.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        !(code[..at].ends_with(in_name) || goes_on)
    })
}

#[cfg(test)]
mod tests {
    use super::{factory, factory_types};

    /// A shortened sample of generated glue: a class, a free function, imports, a constant, a finalizer.
    const GENERATED: &str = r"/**
 * To be imported, and it may export what it holds.
 */
export class Engine {
    free() {
        wasm.__wbg_engine_free(this.__wbg_ptr, 0);
    }
}
export function script() {
    return wasm.script();
}
export function __wbg___wbindgen_throw_4c88(arg0, arg1) {
    throw new Error(getStringFromWasm0(arg0, arg1));
}
export const __wbg_now_1 = Date.now;
const EngineFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_engine_free(ptr, 1));

let wasm;
export function __wbg_set_wasm(val) {
    wasm = val;
}
function passStringToWasm0(arg, malloc, realloc) {
    return arg.length;
}
";

    const TYPES: &str = "\
/* tslint:disable */

export class Engine {
    free(): void;
}
export function script(): string;
";

    /// Catches a version of wasm-bindgen that passes texts in another way, so that they are not checked.
    #[test]
    fn bad_texts_are_refused_before_they_reach_the_module() {
        let made = factory("leasehold", GENERATED).expect("the glue has the known form");
        let check = "function passStringToWasm0(arg, malloc, realloc) {\n      if (typeof arg !== 'string' ";
        assert!(made.contains(check), "{made}");
        let other = GENERATED.replace("passStringToWasm0", "passText");
        assert!(factory("leasehold", &other).is_err());
    }

    #[test]
    fn the_module_becomes_the_body_of_one_function() {
        let made = factory("leasehold", GENERATED).expect("the glue has the known form");
        assert_eq!(made.matches("\nexport ").count(), 1, "{made}");
        assert!(!made.contains("To be imported"), "{made}");
        for part in [
            "export function instantiate(module) {",
            "  class Engine {",
            "{ __proto__: null, __wbg___wbindgen_throw_4c88, __wbg_now_1 }",
            "return { Engine, script, memory: wasm.memory, discard };",
            "ptr => wasm?.__wbg_engine_free(ptr, 1)",
        ] {
            assert!(made.contains(part), "no {part:?} in:\n{made}");
        }
    }

    #[test]
    fn unknown_glue_is_an_error_that_shows_it() {
        let cases = [
            ("import * as wasm from './x.wasm';\n", "import * as wasm"),
            ("const u = new URL('x', import.meta.url);\n", "import.meta"),
            ("export default init;\n", "export default init"),
            ("export { Engine as E };\n", "Engine as E"),
            ("export let wasm2 = 1;\n", "wasm2"),
            ("  const got = fetch(path);\n", "fetch("),
            (
                "const r = new FinalizationRegistry(free);\n",
                "1 unknown finalizers",
            ),
        ];
        for (more, shown) in cases {
            let error = factory("leasehold", &format!("{GENERATED}{more}")).expect_err(more);
            assert!(error.to_string().contains(shown), "{more}: {error}");
        }
        let without = GENERATED.replace("__wbg_set_wasm", "__wbg_wasm");
        assert!(factory("leasehold", &without).is_err());
        assert!(
            factory(
                "leasehold",
                "let wasm;\nexport function __wbg_set_wasm(val) {\n}\n"
            )
            .is_err()
        );
    }

    #[test]
    fn the_types_have_what_the_factory_returns() {
        let made = factory_types(TYPES).expect("the types have the known form");
        for part in [
            "declare class Engine {",
            "declare function script(): string;",
            "  readonly Engine: typeof Engine;\n  readonly script: typeof script;\n",
            "export type { Engine };",
        ] {
            assert!(made.contains(part), "no {part:?} in:\n{made}");
        }
        assert!(factory_types("export default class Engine {}\n").is_err());
        assert!(factory_types("export function script(): string;\n").is_err());
    }
}
