//! What `export` writes and `ingest` reads, the same for every store: a list of encoded keys and their
//! values.

use crate::{Bundle, Key, Record, StoreError};
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_types::Slot;
use std::collections::BTreeSet;

/// An encoded key and the encoded record under it.
pub type RawRecord = (Vec<u8>, Vec<u8>);

impl Bundle {
    /// Of the encoded records of a slot.
    pub fn of(records: Vec<RawRecord>) -> Bundle {
        let records: Vec<(Blob, Blob)> = records.into_iter().map(|(k, v)| (Blob(k), Blob(v))).collect();
        Bundle(records.to_bytes())
    }

    /// The encoded records. Each was checked: a bundle comes from another machine, and what is damaged must
    /// not become part of a store.
    pub fn records(&self) -> Result<Vec<RawRecord>, StoreError> {
        let records = self.parse()?;
        for (key, value) in &records {
            check(&key.0, &value.0)?;
        }
        Ok(records.into_iter().map(|(k, v)| (k.0, v.0)).collect())
    }

    /// The encoded records, as they are: of a store of this process, which has checked them.
    pub fn raw(&self) -> Result<Vec<RawRecord>, StoreError> {
        Ok(self.parse()?.into_iter().map(|(k, v)| (k.0, v.0)).collect())
    }

    /// The slots of its records.
    pub fn slots(&self) -> Result<BTreeSet<Slot>, StoreError> {
        let slot = |(key, _): &(Blob, Blob)| match key.0[..] {
            [a, b, ..] => Ok(Slot(u16::from_be_bytes([a, b]))),
            _ => Err(StoreError::corrupt(&key.0, "a key without a slot")),
        };
        self.parse()?.iter().map(slot).collect()
    }

    /// The records.
    pub fn decode(&self) -> Result<Vec<(Key, Record)>, StoreError> {
        self.parse()?
            .iter()
            .map(|(key, value)| check(&key.0, &value.0))
            .collect()
    }

    fn parse(&self) -> Result<Vec<(Blob, Blob)>, StoreError> {
        Vec::<(Blob, Blob)>::from_bytes(&self.0).map_err(|e| StoreError::corrupt(&[], format!("bundle: {e}")))
    }
}

fn check(key: &[u8], value: &[u8]) -> Result<(Key, Record), StoreError> {
    let record = Record::decode(key, value).map_err(|e| StoreError::corrupt(key, e))?;
    let decoded = Key::decode(key).map_err(|e| StoreError::corrupt(key, e))?;
    if !record.fits(&decoded) {
        return Err(StoreError::corrupt(key, "record of another kind"));
    }
    Ok((decoded, record))
}
