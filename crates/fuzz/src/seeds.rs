//! Where fuzzing starts: an encoding of every variant of everything.

mod cuts;
mod filelocks;
mod identities;
mod messages;
mod moving;
mod records;
mod scripts;
mod splitting;
mod tables;

use pando_auth::{Acceptor, Greeting, Initiator, Introduction, Key, OpenGate, Step, payload, seal};
use pando_cluster::{ClusterFile, Placement, Profile, Server};
use pando_format::Codec;
use pando_types::AuthMode;
use pando_wire::{Role, encode_frame};

/// The seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "frames" => frames(),
        "hello" => hellos(),
        "message" => messages::all(),
        "sealed" => sealed(),
        "statement" => messages::statements().iter().map(Codec::to_bytes).collect(),
        "map" => maps(),
        "key" => records::keys().iter().map(|k| k.encode()).collect(),
        "range" => records::ranges(),
        "record" => records::values(),
        "mutation" => records::mutations(),
        "bundle" => records::bundles(),
        "cluster_file" => cluster_files(),
        "secret" => secrets(),
        "path" => paths(),
        "server" => scripts::all(),
        "table" => tables::all(),
        _ => Vec::new(),
    }
}

fn frames() -> Vec<Vec<u8>> {
    let mut stream = vec![3, 5, 9, 1];
    for payload in [&b""[..], b"x", b"hello, world"] {
        encode_frame(&mut stream, payload);
    }
    let whole = [&[0], &stream[4..]].concat();
    let too_long = vec![0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1];
    let cut = stream[..stream.len() - 3].to_vec();
    vec![stream, whole, too_long, cut, b"\x00GET / HTTP/1.1\r\n".to_vec()]
}

/// A first payload and a second.
fn pair(first: &[u8], second: &[u8]) -> Vec<u8> {
    [&[first.len() as u8], first, second].concat()
}

fn hellos() -> Vec<Vec<u8>> {
    let replies: Vec<Vec<u8>> = identities::hello_replies().iter().map(payload).collect();
    let hellos = identities::roles().map(|role| payload(&identities::hello(role)));
    let proof = payload(&identities::proof());
    let mut all: Vec<Vec<u8>> = hellos.iter().map(|h| pair(h, &proof)).collect();
    all.extend(
        replies
            .iter()
            .flat_map(|a| replies.iter().map(move |b| pair(a, b))),
    );
    // A bit of each message of a handshake, or all of it.
    all.extend((0..8).map(|n| [&[n][..], &vec![0; usize::from(n)], &[40, n]].concat()));
    all.extend(conversation().iter().map(|said| pair(&[], said)));
    all
}

/// What is said when all is well, but for the nonces.
fn conversation() -> Vec<Vec<u8>> {
    let key = Key::new(crate::targets::KEY);
    let me = Introduction {
        fs: crate::targets::FS,
        role: Role::Server(records::TX.coordinator),
        key: Some(key.clone()),
    };
    let (mut initiator, hello) = Initiator::new(&me, [3; 32]);
    let gate = OpenGate(vec![key]);
    let mut said = vec![hello];
    if let Greeting::Challenge(reply, acceptor) =
        Acceptor::greet(&said[0], crate::targets::HERE, &gate, None, [4; 32])
    {
        said.push(payload(&reply));
        if let Ok(Step::Say(proof)) = initiator.take(&said[1]) {
            let accepted = acceptor.accept(&proof, &gate);
            said.push(proof);
            said.extend(accepted.ok().map(|a| payload(&a.welcome)));
        }
    }
    said
}

fn sealed() -> Vec<Vec<u8>> {
    let views = messages::views();
    let key = crate::targets::seal_key();
    let mut all: Vec<Vec<u8>> = views.iter().map(Codec::to_bytes).collect();
    all.extend(
        views
            .iter()
            .filter_map(|v| seal::seal(&key, [7; 24], &v.to_bytes())),
    );
    all
}

fn maps() -> Vec<Vec<u8>> {
    maps_of().iter().map(Codec::to_bytes).collect()
}

fn maps_of() -> Vec<pando_cluster::ClusterMap> {
    let small = crate::targets::small_map();
    let mut two = small.clone();
    let mut other = two.servers[0].clone();
    other.id.0 = 1;
    two.servers.push(other);
    two.auth = AuthMode::Key;
    two.slots = pando_cluster::ClusterMap::spread(&two.servers);
    let three = pando_cluster::ClusterMap {
        auth: AuthMode::Tls,
        coherence: pando_cluster::Coherence::Lease(pando_cluster::LeaseLength::Fixed(1500)),
        placement: Placement::Coupled,
        ids: pando_types::Ids::Predicted,
        updates: pando_cluster::DirectoryUpdates::ParentFirst,
        ..two.clone()
    };
    let mut third = two.servers[1].clone();
    third.id.0 = 2;
    third.address = "host2:7000".into();
    let grows = two.with_joined(third).expect("a server that is new");
    let shrinks = grows.with_drained(two.servers[0].id).expect("a server of three");
    vec![small, two, three, grows, shrinks]
}

fn cluster_files() -> Vec<Vec<u8>> {
    let server = |id| Server {
        id,
        address: format!("host{id}:7000"),
        metrics: format!("host{id}:8000"),
    };
    let file = ClusterFile {
        format: 1,
        fs: "0f0e0d0c0b0a09080706050403020100".into(),
        epoch: 1,
        profile: Profile {
            name: "pando".into(),
            placement: "per-directory".into(),
            ids: "placed".into(),
            directory_updates: "two-phase-commit".into(),
            coherence: "none".into(),
            store: "rocksdb".into(),
        },
        durability: "sync".into(),
        servers: vec![server(0), server(1)],
        slots: vec![(0, 2048, 0), (2048, 4096, 1)],
        coordinator: 0,
        keeper: Some(0),
        term: 1,
        plan: pando_cluster::PlanText {
            made: 1,
            next: 3,
            leaving: vec![1],
            moves: vec![(2048, 4096, 0)],
        },
        inline_limit: 65_536,
        block_size: 1 << 22,
        blocks: "file:blocks".into(),
        name_bits: 55,
        id_bits: 128,
        auth: "key".into(),
        coord: "zk://a:2181,b:2181/pando".into(),
    };
    let text = file.to_text();
    let flat: String = text.split_whitespace().collect();
    let newer = text.replace("\"format\": 1", "\"format\": 2");
    [text, flat, newer].map(String::into_bytes).to_vec()
}

fn secrets() -> Vec<Vec<u8>> {
    let line = "00112233445566778899aabbccddeeff".repeat(2);
    let texts = [
        line.clone(),
        format!("{line}\n{}\n", line.to_uppercase()),
        format!(" {line} \r\n"),
        format!("{line}\n\n"),
        String::new(),
    ];
    texts.map(String::into_bytes).to_vec()
}

fn paths() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = ["/", "/a/b/c", "a//b/", "./../x/.", "/..../\u{e9}"]
        .map(|p| p.as_bytes().to_vec())
        .to_vec();
    all.push([&b"/"[..], &[b'n'; 255], b"/", &[b'm'; 256]].concat());
    all.push(b"a\0b".to_vec());
    all.push(b"d/".repeat(2048));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::{Batch, DecodeError, Mutation, Record, ReplyWrite};
    use pando_wire::{EntryView, Message, Outcome, PeerAnswer, Response};
    use std::collections::BTreeSet;

    /// Whether there is a seed for every tag that a decoder knows: one that is added needs one.
    fn complete<T: Codec>(of: &str, seeds: impl IntoIterator<Item = T>) {
        let known = |tag: &u8| {
            let bytes = [&[*tag], &[0; 64][..]].concat();
            !matches!(T::from_bytes(&bytes), Err(DecodeError::Tag { of: o, tag: t }) if o == of && t == *tag)
        };
        let known: BTreeSet<u8> = (0..=u8::MAX).filter(known).collect();
        let there: BTreeSet<u8> = seeds.into_iter().map(|s| s.to_bytes()[0]).collect();
        assert!(!known.is_empty());
        assert_eq!(there, known, "tags of {of}");
    }

    #[test]
    fn every_variant_has_a_seed() {
        complete("HelloReply", identities::hello_replies());
        complete("Role", identities::roles());
        complete("Way", identities::ways());
        complete("Denial", identities::denials());
        complete("Scope", messages::statements().into_iter().map(|s| s.scope));
        complete("Users", records::claims().into_iter().map(|c| c.users));
        complete("AuthMode", maps_of().into_iter().map(|m| m.auth));
        complete("AuthRequest", identities::auth_requests());
        complete("AuthError", identities::auth_errors());
        complete("Op", messages::operations(0));
        let ops = messages::operations(0).into_iter().map(messages::ask);
        complete("Request", messages::requests().into_iter().chain(ops));
        let all = messages::all();
        complete("Message", all.iter().filter_map(|m| Message::from_bytes(m).ok()));
        complete("PeerRequest", messages::peer_requests());
        complete("LockWant", messages::wants());
        complete("SplitRequest", splitting::requests());
        complete("SplitAnswer", splitting::answers());
        complete("Answer", messages::answers());
        let results = messages::results();
        let responses = results.iter().filter_map(|r| r.clone().ok());
        complete("Response", responses.clone());
        complete("CutRequest", cuts::requests());
        complete("CutAnswer", cuts::answers().into_iter().filter_map(Result::ok));
        complete("CutError", cuts::answers().into_iter().filter_map(Result::err));
        complete("Refusal", results.iter().filter_map(|r| r.clone().err()));
        let peers = responses.filter_map(|r| match r {
            Response::Peer(answer) => Some(answer),
            _ => None,
        });
        complete("PeerAnswer", peers.clone());
        let votes = peers.clone().filter_map(|p| match p {
            PeerAnswer::Vote(vote) => Some(vote),
            _ => None,
        });
        complete("Vote", votes);
        let account = messages::account();
        complete("Task", account.errands.iter().map(|e| e.what));
        complete("ErrandEnd", account.errands.iter().map(|e| e.end));
        let states = peers.filter_map(|p| match p {
            PeerAnswer::State(state) => Some(state),
            _ => None,
        });
        complete("TxState", states);
        complete("Record", records::records().into_iter().map(|(_, r)| r));
        complete("Mutation", records::changes());
        complete("Layout", messages::views().into_iter().map(|v| v.layout));
    }

    #[test]
    fn seeds_decode() {
        let all = |target, decodes: fn(&[u8]) -> bool| {
            for (n, seed) in of(target).iter().enumerate() {
                assert!(decodes(seed), "{target}: seed {n}");
            }
        };
        all("message", |b| {
            Message::from_bytes(b).is_ok() || Outcome::from_bytes(b).is_ok()
        });
        all("mutation", |b| {
            Mutation::from_bytes(b).is_ok()
                || ReplyWrite::from_bytes(b).is_ok()
                || Batch::from_bytes(b).is_ok()
        });
        all("sealed", |b| {
            EntryView::from_bytes(b).is_ok() || seal::open(&crate::targets::seal_key(), b).is_some()
        });
        assert_eq!(conversation().len(), 4, "a handshake succeeds");
        all("map", |b| pando_cluster::ClusterMap::decode(b).is_ok());
        all("key", |b| pando_format::Key::decode(b).is_ok());
        all("bundle", |b| pando_store::Bundle(b.to_vec()).decode().is_ok());
        all("record", |b| {
            let body = &b[1 + usize::from(b[0])..];
            Record::from_bytes(body).is_ok() || body[0] == 1
        });
    }
}
