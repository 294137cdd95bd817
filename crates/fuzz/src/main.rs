//! What `scripts/fuzz.sh` needs beside libFuzzer.
//!
//!     pando-fuzz targets                 name and longest input of every target
//!     pando-fuzz seeds TARGET DIR        writes the target's seeds into a folder, a file each
//!     pando-fuzz unpack FILE DIR         the same with a packed corpus
//!     pando-fuzz pack DIR FILE           packs the files of a folder
//!     pando-fuzz run TARGET FILE...      runs inputs

use anyhow::{Context, Result, bail};
use pando_fuzz::{TARGETS, named, pack, seeds};
use std::collections::BTreeSet;
use std::fs;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["targets"] => {
            for t in TARGETS {
                println!("{} {}", t.name, t.max_len);
            }
            Ok(())
        }
        ["seeds", target, dir] => {
            named(target).with_context(|| format!("there is no target {target}"))?;
            write(dir, "seed", &seeds::of(target).into_iter().collect())
        }
        ["unpack", file, dir] => {
            let packed = fs::read(file).with_context(|| format!("cannot read {file}"))?;
            let inputs = pack::unpack(&packed).with_context(|| format!("{file} is damaged"))?;
            write(dir, "corpus", &inputs)
        }
        ["pack", dir, file] => {
            let mut inputs = BTreeSet::new();
            for entry in fs::read_dir(dir).with_context(|| format!("cannot list {dir}"))? {
                inputs.insert(fs::read(entry?.path())?);
            }
            fs::write(file, pack::pack(&inputs)).with_context(|| format!("cannot write {file}"))
        }
        ["run", target, files @ ..] => {
            let target = named(target).with_context(|| format!("there is no target {target}"))?;
            for file in files {
                (target.run)(&fs::read(file).with_context(|| format!("cannot read {file}"))?);
            }
            println!("{}: {} inputs", target.name, files.len());
            Ok(())
        }
        _ => {
            bail!("usage: targets | seeds TARGET DIR | unpack FILE DIR | pack DIR FILE | run TARGET FILE...")
        }
    }
}

fn write(dir: &str, prefix: &str, inputs: &BTreeSet<Vec<u8>>) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {dir}"))?;
    for (n, input) in inputs.iter().enumerate() {
        let path = format!("{dir}/{prefix}-{n}");
        fs::write(&path, input).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}
