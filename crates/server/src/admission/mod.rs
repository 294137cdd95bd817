//! Admission: identities and their claims, sessions and lanes. Admitted requests are executed (`pipeline`).

pub(crate) mod claims;
pub(crate) mod identities;
pub(crate) mod operate;
pub(crate) mod sessions;

use claims::InFlight;
use identities::Identities;
use pando_auth::Secrets;
use pando_types::IdentityId;
use sessions::Sessions;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What this room knows.
pub(crate) struct State {
    pub secrets: Secrets,
    pub sessions: RefCell<Sessions>,
    pub identities: RefCell<Identities>,
    /// Requests of each identity that are being served.
    pub in_flight: RefCell<BTreeMap<IdentityId, InFlight>>,
}
