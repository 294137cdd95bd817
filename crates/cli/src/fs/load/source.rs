//! The stream, read and checked on a thread of its own: a pipe that stands still keeps nobody from talking to
//! servers.

use anyhow::{Context, Result, bail};
use pando_dump::{End, Entry, Next, Reader, StreamError};
use std::fs::File;
use std::io::{BufReader, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Data up to this size come with their entry, and both when they are proved.
const SMALL: u64 = 256 << 10;
/// Pieces of larger ones.
const PIECE: usize = 1 << 20;
/// What may wait to be taken.
const WAITING: usize = 64;

/// A piece of the stream.
pub enum Item {
    /// An entry. With its data, or without: then they follow, if it has some.
    Entry(Box<Entry>, Option<Vec<u8>>),
    /// Data of the last entry.
    Data(Vec<u8>),
    /// They are over, and were right.
    Good,
    /// All was right.
    End(End),
}

/// What is read.
pub struct Source(Receiver<Result<Item, StreamError>>);

impl Source {
    /// Begins to read a file, or standard input.
    pub fn open(file: Option<&Path>) -> Result<Source> {
        let from: Box<dyn Read + Send> = match file.filter(|f| *f != Path::new("-")) {
            Some(path) => {
                Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
            }
            None if std::io::stdin().is_terminal() => {
                bail!("nothing comes from the terminal: name a file, or pipe a dump in")
            }
            None => Box::new(std::io::stdin()),
        };
        let mut reader = Reader::new(BufReader::with_capacity(PIECE, from))?;
        let (sender, receiver) = sync_channel(WAITING);
        let read = move || {
            if let Err(e) = read_all(&mut reader, &sender) {
                // Whoever does not listen any more has failed otherwise.
                let _ = sender.send(Err(e));
            }
        };
        std::thread::Builder::new()
            .name("pando-load".into())
            .spawn(read)
            .context("cannot start a thread")?;
        Ok(Source(receiver))
    }

    /// What has come, if something has.
    pub fn take(&mut self) -> Option<Result<Item>> {
        match self.0.try_recv() {
            Ok(item) => Some(item.map_err(Into::into)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(anyhow::anyhow!("the dump is not read any more"))),
        }
    }
}

/// Returns early if nobody listens.
fn read_all<R: Read>(
    reader: &mut Reader<R>,
    sender: &SyncSender<Result<Item, StreamError>>,
) -> Result<(), StreamError> {
    // What is complete, and proved by what follows it.
    let mut held: Option<Item> = None;
    loop {
        let next = reader.next()?;
        if let Some(item) = held.take()
            && sender.send(Ok(item)).is_err()
        {
            return Ok(());
        }
        let entry = match next {
            Next::End(end) => {
                let _ = sender.send(Ok(Item::End(end)));
                return Ok(());
            }
            Next::Entry(entry) => entry,
        };
        if entry.stored() <= SMALL {
            let mut data = vec![0; entry.stored() as usize];
            fill(reader, &mut data)?;
            held = Some(Item::Entry(Box::new(entry), Some(data)));
            continue;
        }
        let mut left = entry.stored();
        if sender.send(Ok(Item::Entry(Box::new(entry), None))).is_err() {
            return Ok(());
        }
        while left > 0 {
            let mut piece = vec![0; left.min(PIECE as u64) as usize];
            fill(reader, &mut piece)?;
            left -= piece.len() as u64;
            if sender.send(Ok(Item::Data(piece))).is_err() {
                return Ok(());
            }
        }
        held = Some(Item::Good);
    }
}

fn fill<R: Read>(reader: &mut Reader<R>, buffer: &mut [u8]) -> Result<(), StreamError> {
    let mut n = 0;
    while n < buffer.len() {
        n += reader.data(&mut buffer[n..])?;
    }
    Ok(())
}
