//! Every question one call asked of its snapshot, its clock and its configuration, with a hash of each answer.
//!
//! What a call read is what wakes it (W1): the driver keeps the keys under their [`Interest`]s, looks up those of a
//! [`Change`], and asks [`ReadSet::touches`] whether an answer really became another one. And a call whose answers all
//! hash as before need not be repeated (W2): [`ReadSet::holds`] asks every question again without putting any JSON
//! together. `view.rs` records; nothing here knows a guest or a queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::object::{Kind, Name, Object, ObjectRef};
use crate::projection::Projection;
use crate::query::CompiledQuery;
use crate::store::{Change, Snapshot};

#[cfg(test)]
mod tests;

/// Questions that one read set remembers one by one. With more, it remembers the kinds that were read, and any change of
/// those counts: who asks a thousand things about a kind, one by one, has read most of what there is of it.
pub const MAX_QUESTIONS: usize = 1_000;
/// Bytes of the questions that one read set remembers one by one, with the same end. Read sets are kept for each
/// reconciled object, and what stands in them is the guest's choice: a thousand `get`s take some 150 KiB, the few
/// questions of most plugins less than one.
pub const MAX_QUESTION_BYTES: usize = 256 << 10;
/// What a shared text takes beside its characters: two counters.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();

/// The hash of an answer that the host did not finish, because it was too large. It never holds.
pub(crate) const UNFINISHED: u64 = 0;
/// The hash of "there is no such object".
const ABSENT: u64 = 1;

/// One question.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Question {
    /// One whole object.
    Get(ObjectRef),
    /// The objects of a kind whose controller has this UID.
    Owned {
        /// Which kind.
        kind: Kind,
        /// The controller's metadata.uid.
        owner_uid: Arc<str>,
        /// Which of their fields.
        fields: Projection,
    },
    /// The objects that a query selects.
    List(Arc<CompiledQuery>),
    /// Their names alone.
    Keys(Arc<CompiledQuery>),
    /// The time.
    Now,
    /// The plugin's configuration.
    Config,
}

/// What a question is about, as a key to look questions up by. A question has one interest at most, a change several.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Interest {
    /// One object.
    Object(ObjectRef),
    /// The objects of a kind with a controller of this UID.
    Owner(Arc<str>, Kind),
    /// The objects of a kind with a label of this key and value.
    Label(Kind, Arc<str>, Arc<str>),
    /// The objects of a kind in a namespace.
    Namespace(Kind, Arc<str>),
    /// All objects of a kind.
    Kind(Kind),
}

/// What a call was or would be given.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The frozen view.
    pub snapshot: &'a Snapshot,
    /// The reconciled object.
    pub primary: &'a Object,
    /// The time.
    pub now_unix_ms: u64,
    /// The plugin's configuration as JSON text.
    pub config: &'a str,
}

/// Every question of one call, each once.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    /// The reconciled object's content: every call is given it, asked or not.
    primary_hash: u64,
    questions: Vec<(Question, u64)>,
    /// Kinds that count as read whole, with the number of their changes; see [`MAX_QUESTIONS`] and
    /// [`MAX_QUESTION_BYTES`].
    whole_kinds: Vec<(Kind, u64)>,
}

impl ReadSet {
    /// The questions, in the order in which they were first asked, with the hashes of their answers.
    pub fn questions(&self) -> &[(Question, u64)] {
        &self.questions
    }

    /// [`Object::content_hash`] of the reconciled object that the call was given.
    pub fn primary_hash(&self) -> u64 {
        self.primary_hash
    }

    /// What the questions take in memory, where what several share counts for each.
    pub fn bytes(&self) -> usize {
        self.questions.iter().map(|(question, _)| question.bytes()).sum()
    }

    /// Whether a call with these inputs would read what this one has read: the reconciled object is the same but for its
    /// resourceVersion, and every answer hashes as before. A set that asked for the time stops holding when time moves.
    pub fn holds(&self, inputs: &Inputs<'_>) -> bool {
        self.primary_hash == inputs.primary.content_hash() && self.answers_hold(inputs)
    }

    /// As [`Self::holds`], without comparing the reconciled object.
    pub fn answers_hold(&self, inputs: &Inputs<'_>) -> bool {
        self.whole_kinds.iter().all(|(kind, changes)| inputs.snapshot.changes(kind) == *changes)
            && self
                .questions
                .iter()
                .all(|(question, hash)| *hash != UNFINISHED && question.answer_hash(inputs) == *hash)
    }

    /// Whether this snapshot answers some question about objects otherwise. To be asked when a call returns: what changed
    /// while it ran had no read set yet that it could touch, so nobody was woken for it. Time and configuration do not
    /// count, nor answers that were too large: those would differ each time.
    pub fn is_outdated(&self, snapshot: &Snapshot) -> bool {
        self.whole_kinds.iter().any(|(kind, changes)| snapshot.changes(kind) != *changes)
            || self
                .questions
                .iter()
                .filter(|(_, hash)| *hash != UNFINISHED)
                .any(|(question, hash)| question.hash_of_objects(snapshot).is_some_and(|current| current != *hash))
    }

    /// Whether a change makes the answer to some question another one.
    pub fn touches(&self, change: &Change) -> bool {
        let Some(object) = change.object() else { return false };
        self.whole_kinds.iter().any(|(kind, _)| *kind == object.kind)
            || self.questions.iter().any(|(question, _)| question.is_touched(change))
    }

    /// What to look this set up by; a change that touches it has one of these among its own.
    pub fn interests(&self) -> impl Iterator<Item = Interest> {
        let of_kinds = self.whole_kinds.iter().map(|(kind, _)| Interest::Kind(kind.clone()));
        self.questions.iter().filter_map(|(question, _)| question.interest()).chain(of_kinds)
    }
}

impl Change {
    /// Every interest that this change could be the answer to: those of the object before and after it, each once.
    pub fn interests(&self) -> Vec<Interest> {
        let mut interests = Vec::new();
        let Some(object) = self.object() else { return interests };
        let kind = &object.kind;
        interests.push(Interest::Object(object.reference()));
        interests.push(Interest::Namespace(kind.clone(), object.name.namespace.clone()));
        interests.push(Interest::Kind(kind.clone()));
        let owner = |object: &Object| object.controller.as_ref().map(|controller| controller.uid.clone());
        if let Some(after) = &self.after {
            interests.extend(owner(after).map(|uid| Interest::Owner(uid, kind.clone())));
            interests.extend(after.labels.iter().map(|label| label_interest(kind, label)));
        }
        if let Some(before) = &self.before {
            let after = self.after.as_deref();
            let gone = owner(before).filter(|uid| after.and_then(owner).as_ref() != Some(uid));
            interests.extend(gone.map(|uid| Interest::Owner(uid, kind.clone())));
            let kept = |(key, value): &(Arc<str>, Arc<str>)| after.and_then(|after| after.label(key)) == Some(&**value);
            interests
                .extend(before.labels.iter().filter(|label| !kept(label)).map(|label| label_interest(kind, label)));
        }
        interests
    }
}

fn label_interest(kind: &Kind, (key, value): &(Arc<str>, Arc<str>)) -> Interest {
    Interest::Label(kind.clone(), key.clone(), value.clone())
}

impl Question {
    /// What it reads besides the time and the configuration.
    fn kind(&self) -> Option<&Kind> {
        match self {
            Self::Get(target) => Some(&target.kind),
            Self::Owned { kind, .. } => Some(kind),
            Self::List(query) | Self::Keys(query) => Some(&query.kind),
            Self::Now | Self::Config => None,
        }
    }

    /// What it takes in memory, with its hash. Kinds are shared with the plugin's manifest.
    fn bytes(&self) -> usize {
        let of_text = |text: &str| text.len() + COUNTERS_BYTES;
        let below = match self {
            Self::Get(target) => of_text(&target.name.namespace) + of_text(&target.name.name),
            Self::Owned { owner_uid, fields, .. } => of_text(owner_uid) + fields.bytes(),
            Self::List(query) | Self::Keys(query) => query.bytes(),
            Self::Now | Self::Config => 0,
        };
        size_of::<(Self, u64)>() + below
    }

    /// The narrowest key under which a change of the answer can be found.
    fn interest(&self) -> Option<Interest> {
        match self {
            Self::Get(target) => Some(Interest::Object(target.clone())),
            Self::Owned { kind, owner_uid, .. } => Some(Interest::Owner(owner_uid.clone(), kind.clone())),
            Self::List(query) | Self::Keys(query) => {
                let kind = query.kind.clone();
                let label = query.selector.required().next();
                Some(match (label, &query.namespace) {
                    (Some((key, value)), _) => Interest::Label(kind, key.into(), value.into()),
                    (None, Some(namespace)) => Interest::Namespace(kind, namespace.clone()),
                    (None, None) => Interest::Kind(kind),
                })
            }
            Self::Now | Self::Config => None,
        }
    }

    fn answer_hash(&self, inputs: &Inputs<'_>) -> u64 {
        match self {
            Self::Now => hash_of_time(inputs.now_unix_ms),
            Self::Config => hash_of_text(inputs.config),
            // Every other question is about objects.
            _ => self.hash_of_objects(inputs.snapshot).unwrap_or(UNFINISHED),
        }
    }

    /// The hash of an answer that a snapshot gives; None for questions that are not about objects.
    fn hash_of_objects(&self, snapshot: &Snapshot) -> Option<u64> {
        let mut answer = Answer::default();
        match self {
            Self::Get(target) => {
                return Some(hash_of_one(snapshot.get(&target.kind, &target.name).map(|object| &**object)));
            }
            Self::Owned { kind, owner_uid, fields } => {
                snapshot.owned(kind, owner_uid).for_each(|object| answer.add(fields.projected_hash(object)));
            }
            Self::List(query) => {
                snapshot.select(query).for_each(|object| answer.add(query.fields.projected_hash(object)));
            }
            Self::Keys(query) => snapshot.select(query).for_each(|object| answer.add_name(&object.name)),
            Self::Now | Self::Config => return None,
        }
        Some(answer.hash())
    }

    fn is_touched(&self, change: &Change) -> bool {
        match self {
            Self::Get(target) => {
                differs(change, |object| object.kind == target.kind && object.name == target.name, Object::content_hash)
            }
            Self::Owned { kind, owner_uid, fields } => {
                let is_owned = |object: &Object| {
                    object.kind == *kind && object.controller.as_ref().is_some_and(|owner| owner.uid == *owner_uid)
                };
                differs(change, is_owned, |object| fields.projected_hash(object))
            }
            Self::List(query) => {
                differs(change, |object| query.matches(object), |object| query.fields.projected_hash(object))
            }
            Self::Keys(query) => differs(change, |object| query.matches(object), |_| ABSENT),
            Self::Now | Self::Config => false,
        }
    }
}

/// Whether an object entered or left an answer, or stayed in it with another hash.
fn differs(change: &Change, is_in: impl Fn(&Object) -> bool, hash: impl Fn(&Object) -> u64) -> bool {
    let before = change.before.as_deref().filter(|object| is_in(object));
    let after = change.after.as_deref().filter(|object| is_in(object));
    match (before, after) {
        (None, None) => false,
        (Some(before), Some(after)) => hash(before) != hash(after),
        _ => true,
    }
}

pub(crate) fn hash_of_one(object: Option<&Object>) -> u64 {
    object.map_or(ABSENT, Object::content_hash)
}

pub(crate) fn hash_of_time(now_unix_ms: u64) -> u64 {
    let mut answer = Answer::default();
    answer.add(now_unix_ms);
    answer.hash()
}

pub(crate) fn hash_of_text(text: &str) -> u64 {
    let mut answer = Answer::default();
    text.hash(&mut answer.0);
    answer.hash()
}

/// The hash of an answer of several objects, in their order.
#[derive(Default)]
pub(crate) struct Answer(DefaultHasher);

impl Answer {
    /// A projection is all that the guest sees of an object, so its hash stands for the object: two that give the same
    /// text are the same to the guest.
    pub(crate) fn add(&mut self, projected_hash: u64) {
        self.0.write_u64(projected_hash);
    }

    pub(crate) fn add_name(&mut self, name: &Name) {
        name.hash(&mut self.0);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.finish().max(ABSENT + 1)
    }
}

fn hash_of(question: &Question) -> u64 {
    let mut hasher = DefaultHasher::new();
    question.hash(&mut hasher);
    hasher.finish()
}

/// Questions that are compared one by one. Most calls ask one or two, and need no table to tell them apart.
const FEW_QUESTIONS: usize = 8;

/// Collects a read set while a call runs.
#[derive(Debug)]
pub(crate) struct Recorder {
    reads: ReadSet,
    /// What the questions take, see [`MAX_QUESTION_BYTES`].
    bytes: usize,
    /// Where a question with this hash stands, once there are more than [`FEW_QUESTIONS`].
    places: HashMap<u64, usize, BuildHasherDefault<DefaultHasher>>,
}

impl Recorder {
    pub(crate) fn new(primary: &Object) -> Self {
        let reads = ReadSet { primary_hash: primary.content_hash(), ..ReadSet::default() };
        Self { reads, bytes: 0, places: HashMap::default() }
    }

    /// Adds a question that is new; within a frozen snapshot a repeated one has the same answer.
    pub(crate) fn record(&mut self, question: Question, answer_hash: u64, snapshot: &Snapshot) {
        if !self.reads.whole_kinds.is_empty()
            && let Some(kind) = question.kind()
        {
            self.add_whole_kind(kind.clone(), snapshot);
            return;
        }
        if self.knows(&question) {
            return;
        }
        let bytes = self.bytes + question.bytes();
        let is_about_objects = question.kind().is_some();
        if is_about_objects && (self.reads.questions.len() >= MAX_QUESTIONS || bytes > MAX_QUESTION_BYTES) {
            self.collapse(&question, snapshot);
            return;
        }
        self.bytes = bytes;
        self.reads.questions.push((question, answer_hash));
        match self.reads.questions.len() {
            0..=FEW_QUESTIONS => {}
            len if self.places.is_empty() => {
                let questions = &self.reads.questions[..len];
                self.places.extend(questions.iter().enumerate().map(|(place, (each, _))| (hash_of(each), place)));
            }
            len => _ = self.places.insert(hash_of(&self.reads.questions[len - 1].0), len - 1),
        }
    }

    /// Whether a question was asked before.
    fn knows(&self, question: &Question) -> bool {
        let questions = &self.reads.questions;
        if questions.len() <= FEW_QUESTIONS {
            return questions.iter().any(|(known, _)| known == question);
        }
        self.places.get(&hash_of(question)).is_some_and(|place| questions[*place].0 == *question)
    }

    /// Gives up remembering questions one by one, those that were asked and the one that is one too many.
    fn collapse(&mut self, last: &Question, snapshot: &Snapshot) {
        let (of_kinds, others) =
            std::mem::take(&mut self.reads.questions).into_iter().partition(|(question, _)| question.kind().is_some());
        self.reads.questions = others;
        self.places.clear();
        let of_kinds: Vec<(Question, u64)> = of_kinds;
        for kind in of_kinds.iter().map(|(question, _)| question).chain([last]).filter_map(Question::kind) {
            self.add_whole_kind(kind.clone(), snapshot);
        }
    }

    fn add_whole_kind(&mut self, kind: Kind, snapshot: &Snapshot) {
        if self.reads.whole_kinds.iter().all(|(known, _)| *known != kind) {
            let changes = snapshot.changes(&kind);
            self.reads.whole_kinds.push((kind, changes));
        }
    }

    pub(crate) fn finish(mut self) -> ReadSet {
        // Sets are kept for every object, so they hold no room to grow.
        self.reads.questions.shrink_to_fit();
        self.reads
    }
}
