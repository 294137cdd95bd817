//! The files of a backup: frames of bytes, each with a check, in pieces of bounded length. What is cut off,
//! changed or of another backup is told with the file and the place.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a piece begins with.
const MAGIC: &[u8; 16] = b"pando-backup-1\n\0";
/// Bytes of a frame's check.
const CHECK: usize = 8;
/// Longest frame: a block of file data, and then some.
const LONGEST: u32 = 256 << 20;
/// About so long is a piece.
pub const PIECE: u64 = 1 << 30;

/// A file of a backup, as the manifest has it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Frames in it.
    pub frames: u64,
    /// BLAKE3 of all of it.
    pub hash: String,
}

/// Writes frames, one piece after the other.
pub struct Writer {
    folder: PathBuf,
    kind: &'static str,
    most: u64,
    open: Option<Open>,
    done: Vec<Piece>,
}

struct Open {
    name: String,
    path: PathBuf,
    file: BufWriter<File>,
    hash: blake3::Hasher,
    bytes: u64,
    frames: u64,
}

impl Open {
    fn new(folder: &Path, name: String) -> Result<Open> {
        let path = folder.join(&name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let mut open = Open {
            name,
            path,
            file: BufWriter::with_capacity(1 << 20, file),
            hash: blake3::Hasher::new(),
            bytes: 0,
            frames: 0,
        };
        open.write(MAGIC)?;
        Ok(open)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn close(mut self) -> Result<Piece> {
        // A frame of no bytes is the end.
        self.write(&0u32.to_le_bytes())?;
        let path = self.path;
        let sync =
            || -> std::io::Result<()> { self.file.into_inner().map_err(|e| e.into_error())?.sync_all() };
        sync().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Piece {
            name: self.name,
            bytes: self.bytes,
            frames: self.frames,
            hash: self.hash.finalize().to_hex().to_string(),
        })
    }
}

fn check(payload: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&blake3::hash(payload).as_bytes()[..CHECK]);
    check
}

impl Writer {
    /// Of pieces of this kind, which is the beginning of their names.
    pub fn new(folder: &Path, kind: &'static str, most: u64) -> Writer {
        Writer {
            folder: folder.to_owned(),
            kind,
            most,
            open: None,
            done: Vec::new(),
        }
    }

    /// One frame. It is not empty.
    pub fn put(&mut self, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        ensure!((1..=LONGEST).contains(&length), "a frame of {length} bytes");
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(&self.folder, format!("{}-{:04}", self.kind, self.done.len() + 1))?,
        };
        open.write(&length.to_le_bytes())?;
        open.write(payload)?;
        open.write(&check(payload))?;
        open.frames += 1;
        match open.bytes >= self.most {
            true => self.done.push(open.close()?),
            false => self.open = Some(open),
        }
        Ok(())
    }

    /// All pieces, on the disk.
    pub fn finish(mut self) -> Result<Vec<Piece>> {
        if let Some(open) = self.open.take() {
            self.done.push(open.close()?);
        }
        Ok(self.done)
    }
}

/// Reads a piece, frame by frame. When this returns it was whole and unchanged.
pub fn read(folder: &Path, piece: &Piece, mut each: impl FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
    ensure!(
        !piece.name.contains('/') && !piece.name.starts_with('.'),
        "the manifest names \"{}\", which is no file of a backup",
        piece.name
    );
    let path = folder.join(&piece.name);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let length = file.metadata()?.len();
    if length != piece.bytes {
        bail!(
            "{} has {length} bytes and should have {}: it is cut off, or of another backup",
            path.display(),
            piece.bytes
        );
    }
    let mut from = Source {
        file: BufReader::with_capacity(1 << 20, file),
        hash: blake3::Hasher::new(),
        at: 0,
        path: &path,
    };
    let mut magic = [0; MAGIC.len()];
    from.take(&mut magic)?;
    if &magic != MAGIC {
        bail!(
            "{} is not a file of a backup that this program understands",
            path.display()
        );
    }
    let mut frames = 0;
    loop {
        let at = from.at;
        let mut bytes = [0; 4];
        from.take(&mut bytes)?;
        let length = u32::from_le_bytes(bytes);
        if length == 0 {
            break;
        }
        if u64::from(length.min(LONGEST)) > piece.bytes.saturating_sub(at) || length > LONGEST {
            bail!(
                "{} is damaged at byte {at}: a frame of {length} bytes",
                path.display()
            );
        }
        let mut payload = vec![0; length as usize];
        from.take(&mut payload)?;
        let mut said = [0; CHECK];
        from.take(&mut said)?;
        if said != check(&payload) {
            bail!("{} is damaged at byte {at}: the check is wrong", path.display());
        }
        each(payload).with_context(|| format!("{}, byte {at}", path.display()))?;
        frames += 1;
    }
    let hash = from.hash.finalize().to_hex().to_string();
    if from.at != piece.bytes || frames != piece.frames || hash != piece.hash {
        bail!(
            "{} is damaged at byte {} or before: it is not what the manifest says",
            path.display(),
            from.at
        );
    }
    Ok(())
}

struct Source<'a> {
    file: BufReader<File>,
    hash: blake3::Hasher,
    at: u64,
    path: &'a Path,
}

impl Source<'_> {
    fn take(&mut self, into: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact(into);
        read.with_context(|| format!("{} ends early, at byte {}", self.path.display(), self.at))?;
        self.hash.update(into);
        self.at += into.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(folder: &Path, pieces: &[Piece]) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for piece in pieces {
            read(folder, piece, |frame| {
                all.push(frame);
                Ok(())
            })?;
        }
        Ok(all)
    }

    #[test]
    fn frames_come_back_and_no_damage_passes() {
        let folder = tempfile::tempdir().expect("works");
        let frames: Vec<Vec<u8>> = (1..30usize).map(|n| vec![n as u8; n * 7]).collect();
        let mut writer = Writer::new(folder.path(), "records", 600);
        for frame in &frames {
            writer.put(frame).expect("works");
        }
        assert!(writer.put(&[]).is_err());
        let pieces = writer.finish().expect("works");
        assert!(pieces.len() > 3, "{pieces:?}");
        assert_eq!(collect(folder.path(), &pieces).expect("whole"), frames);
        assert_eq!(Writer::new(folder.path(), "data", 9).finish().expect("works"), []);

        let path = folder.path().join(&pieces[1].name);
        let whole = std::fs::read(&path).expect("works");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("works");
            let why = collect(folder.path(), &pieces).expect_err("cut off").to_string();
            assert!(why.contains(&pieces[1].name), "{why}");
            // Also with a manifest that somebody made fit.
            let mut fits = pieces.clone();
            fits[1].bytes = cut as u64;
            assert!(collect(folder.path(), &fits).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            std::fs::write(&path, &changed).expect("works");
            let why = format!("{:#}", collect(folder.path(), &pieces).expect_err("changed"));
            assert!(why.contains(&pieces[1].name), "{why}");
        }
        std::fs::remove_file(&path).expect("works");
        assert!(collect(folder.path(), &pieces).is_err(), "missing");
        let mut out = pieces.clone();
        out[0].name = "../elsewhere".into();
        assert!(collect(folder.path(), &out).is_err(), "outside");
    }
}
