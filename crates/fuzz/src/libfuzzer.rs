//! A target under libFuzzer. `PANDO_FUZZ_TARGET` says which, so that all of them are one build.

#![no_main]
#![allow(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<&pando_fuzz::Target> = OnceLock::new();

fn chosen() -> &'static pando_fuzz::Target {
    let name = std::env::var("PANDO_FUZZ_TARGET").unwrap_or_default();
    pando_fuzz::named(&name).expect("PANDO_FUZZ_TARGET names a target")
}

fuzz_target!(|bytes: &[u8]| {
    (TARGET.get_or_init(chosen).run)(bytes);
});
