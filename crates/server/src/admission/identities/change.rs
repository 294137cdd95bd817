//! What a change makes of an identity.

use super::Identities;
use pando_format::{IdentityKey, IdentityRecord};
use pando_types::{IdentityId, Timestamp, plant};
use pando_wire::{AuthChange, AuthError};

/// Most identities at one time, so that all of them fit one message.
const MOST: usize = 10_000;
/// Longest name.
const NAME: usize = 255;
/// Keys of one identity: the newest, and those it replaced.
const KEYS: usize = 4;

impl Identities {
    /// The record after a change, of the server that keeps them. `None`: it is so already.
    pub(super) fn change(
        &self,
        seen: u64,
        asked: AuthChange,
        now: Timestamp,
    ) -> Result<(IdentityId, Option<IdentityRecord>), AuthError> {
        let newest = self.kept.iter().rev().find(|(_, r)| r.name == asked.name());
        let live = newest.filter(|(_, r)| r.revoked.is_none());
        let done = match &asked {
            AuthChange::Add { key, .. } | AuthChange::Rotate { key, .. } => {
                live.filter(|(_, r)| r.keys.first().is_some_and(|k| k.key == *key))
            }
            AuthChange::Revoke { .. } => newest.filter(|(_, r)| r.revoked.is_some()),
        };
        if let Some((id, _)) = done {
            return Ok((*id, None));
        }
        // A late copy of what was done, and undone since, would let in who was revoked.
        if seen != newest.map_or(0, |(_, r)| r.change) && !plant!(H123) {
            return Err(AuthError::Changed);
        }
        let change = self.table().version + 1;
        let fresh = |key| IdentityKey { key, until: None };
        match asked {
            AuthChange::Add { name, claims, key } => {
                if name.is_empty() || name.len() > NAME {
                    return Err(AuthError::BadName);
                }
                if live.is_some() {
                    return Err(AuthError::Exists);
                }
                if self.is_taken(&key, None) {
                    return Err(AuthError::KeyTaken);
                }
                let last = self.kept.keys().next_back().map_or(0, |id| id.0);
                let id = last.checked_add(1).map(IdentityId).ok_or(AuthError::TooMany)?;
                if self.table().identities.len() >= MOST {
                    return Err(AuthError::TooMany);
                }
                let record = IdentityRecord {
                    name,
                    claims,
                    keys: vec![fresh(key)],
                    created: now,
                    revoked: None,
                    change,
                };
                Ok((id, Some(record)))
            }
            AuthChange::Revoke { .. } => {
                let (id, record) = live.ok_or(AuthError::Unknown)?;
                let revoked = IdentityRecord {
                    revoked: Some(now),
                    // Nobody will ask for them again.
                    keys: Vec::new(),
                    change,
                    ..record.clone()
                };
                Ok((*id, Some(revoked)))
            }
            AuthChange::Rotate { key, grace, .. } => {
                let (id, record) = live.ok_or(AuthError::Unknown)?;
                if self.is_taken(&key, Some(*id)) {
                    return Err(AuthError::KeyTaken);
                }
                let end = Timestamp {
                    secs: now.secs.saturating_add(i64::from(grace)),
                    nanos: now.nanos,
                };
                let mut record = record.clone();
                for old in &mut record.keys {
                    old.until = Some(old.until.map_or(end, |t| t.min(end)));
                }
                record.keys.insert(0, fresh(key));
                record.keys.truncate(KEYS);
                record.change = change;
                Ok((*id, Some(record)))
            }
        }
    }

    /// Whether a key proves, or proved until it was replaced, somebody else.
    fn is_taken(&self, key: &[u8; 32], but: Option<IdentityId>) -> bool {
        let mut others = self.kept.iter().filter(|(id, _)| Some(**id) != but);
        others.any(|(_, r)| r.keys.iter().any(|k| k.key == *key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::Claims;

    const NOW: Timestamp = Timestamp { secs: 1000, nanos: 0 };

    fn add(key: u8) -> AuthChange {
        AuthChange::Add {
            name: "laptop".into(),
            claims: Claims::all(),
            key: [key; 32],
        }
    }

    fn revoke() -> AuthChange {
        AuthChange::Revoke {
            name: "laptop".into(),
        }
    }

    fn rotate(key: u8) -> AuthChange {
        AuthChange::Rotate {
            name: "laptop".into(),
            key: [key; 32],
            grace: 0,
        }
    }

    impl Identities {
        /// Makes a change by somebody who saw `seen`, and returns what they see then.
        fn make(&mut self, seen: u64, change: AuthChange) -> Result<u64, AuthError> {
            let (id, record) = Identities::change(self, seen, change, NOW)?;
            if let Some(record) = record {
                self.kept.insert(id, record);
            }
            Ok(self.kept[&id].change)
        }
    }

    #[test]
    fn what_was_asked_before_is_confirmed_and_not_done_again() {
        let mut all = Identities::default();
        let made = all.make(0, add(1)).unwrap();
        assert_eq!(all.make(0, add(1)), Ok(made));
        let rotated = all.make(made, rotate(2)).unwrap();
        assert_eq!(all.make(made, rotate(2)), Ok(rotated));
        let revoked = all.make(rotated, revoke()).unwrap();
        assert_eq!(all.make(rotated, revoke()), Ok(revoked));
        assert_eq!(all.kept.len(), 1);
    }

    #[test]
    fn a_late_copy_brings_nothing_back() {
        let mut all = Identities::default();
        let made = all.make(0, add(1)).unwrap();
        let rotated = all.make(made, rotate(2)).unwrap();
        let again = all.make(rotated, rotate(3)).unwrap();
        assert_eq!(all.make(made, rotate(2)), Err(AuthError::Changed));
        let revoked = all.make(again, revoke()).unwrap();
        assert_eq!(all.make(0, add(1)), Err(AuthError::Changed));
        // The name is somebody else's from here on.
        let other = all.make(revoked, add(4)).unwrap();
        assert_eq!(all.make(again, revoke()), Err(AuthError::Changed));
        assert_eq!(all.make(again, rotate(3)), Err(AuthError::Changed));
        assert_eq!(all.make(other, rotate(5)).map(|_| ()), Ok(()));
    }

    #[test]
    fn names_and_keys_are_checked() {
        let mut all = Identities::default();
        let made = all.make(0, add(1)).unwrap();
        assert_eq!(all.make(made, add(2)), Err(AuthError::Exists));
        let other = |name: &str, key: u8| AuthChange::Add {
            name: name.into(),
            claims: Claims::all(),
            key: [key; 32],
        };
        assert_eq!(all.make(0, other("desk", 1)), Err(AuthError::KeyTaken));
        assert_eq!(all.make(0, other("", 3)), Err(AuthError::BadName));
        assert_eq!(
            all.make(0, other(&"x".repeat(NAME + 1), 3)),
            Err(AuthError::BadName)
        );
        assert_eq!(
            all.make(0, AuthChange::Revoke { name: "desk".into() }),
            Err(AuthError::Unknown)
        );
    }
}
