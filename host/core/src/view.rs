//! What one guest call can read: the declared part of one snapshot, a fixed time, a configuration, what was rejected of
//! earlier outcomes, and the replies to HTTP requests.
//!
//! A [`View`] records every read as a dependency with a hash of its result (W1, W2). The snapshot does not change
//! during the call (R1). Only the declared part of a declared kind is visible, and kinds of declared patterns (G4). A kind
//! that is not listed is an error, and at a dynamic one the call ends; neither is ever an empty list (R4, R5). Nothing here
//! knows wasm: native tests use views too.

use std::sync::Arc;

use thiserror::Error;

use crate::budget::Budget;
use crate::dependencies::dependency::{self, ResultHash, UNFINISHED};
use crate::dependencies::recorder::Recorder;
use crate::dependencies::{Dependencies, Dependency};
use crate::dynamic_kind::{KindState, KindStates};
use crate::http::{Replied, Reply, Request};
use crate::kind_pattern::{KindPattern, is_kind};
use crate::left_out::{MAX_OWNED, Owned};
use crate::object::owner::Owner;
use crate::object::{Kind, Object, ObjectRef};
use crate::plan::Prepared;
use crate::projection::Projection;
use crate::query::{CompiledQuery, Query, QueryCache};
use crate::rejection::Rejection;
use crate::scope::Scope;
use crate::store::{Answer, KeptAnswer, Snapshot};

#[cfg(test)]
mod tests;

/// Bytes of a JSON array beside its objects, each with a comma: the last comma is a bracket.
const BRACKETS: u64 = 1;

/// What a plugin may read, shared by all calls of one controller.
#[derive(Debug)]
pub struct Access {
    /// The kinds its manifest declares: primary, owned and read.
    pub readable: Vec<Kind>,
    /// Patterns of the kinds that a call may name at run time.
    patterns: Vec<KindPattern>,
    /// Those whose children are tracked.
    tracked: Vec<Kind>,
    /// The scopes of those of which only a part is declared.
    narrowed: Vec<(Kind, Arc<Scope>)>,
    /// What is seen of those of which the plugin may not read all that is declared. The rest is as if it did not exist.
    visible: Vec<(Kind, Arc<Scope>)>,
    /// Bytes that one read may return.
    pub read_bytes: u64,
    /// Queries are parsed once for all calls.
    compiled: QueryCache,
}

impl Access {
    /// Access to these kinds, with at most `read_bytes` bytes per read.
    pub fn new(readable: Vec<Kind>, read_bytes: u64) -> Self {
        let (patterns, tracked, narrowed, visible, compiled) = Default::default();
        Self { readable, patterns, tracked, narrowed, visible, read_bytes, compiled }
    }

    /// Access to the kinds of these patterns, which calls name at run time.
    #[must_use]
    pub fn with_patterns(self, patterns: Vec<KindPattern>) -> Self {
        Self { patterns, ..self }
    }

    /// Access with children of these kinds in any namespace.
    #[must_use]
    pub fn with_tracked(self, tracked: Vec<Kind>) -> Self {
        Self { tracked, ..self }
    }

    /// Access to a part of these kinds alone.
    #[must_use]
    pub fn with_narrowed(self, narrowed: Vec<(Kind, Arc<Scope>)>) -> Self {
        Self { narrowed, ..self }
    }

    /// Access that shows a part of these kinds alone, without a word about the rest.
    #[must_use]
    pub fn with_visible(self, visible: Vec<(Kind, Arc<Scope>)>) -> Self {
        Self { visible, ..self }
    }

    /// What is declared of a kind; None: every object.
    fn declared(&self, kind: &Kind) -> Option<&Arc<Scope>> {
        self.narrowed.iter().find(|(narrowed, _)| narrowed == kind).map(|(_, scope)| scope)
    }

    /// What is seen of a kind; None: every object.
    fn scope(&self, kind: &Kind) -> Option<&Arc<Scope>> {
        self.visible.iter().find(|(visible, _)| visible == kind).map(|(_, scope)| scope).or(self.declared(kind))
    }

    /// Whether an object is seen.
    pub fn shows(&self, object: &Object) -> bool {
        self.scope(&object.kind).is_none_or(|scope| scope.contains(object))
    }

    /// Bytes of parsed queries in memory.
    pub fn bytes(&self) -> usize {
        self.compiled.bytes()
    }
}

/// The error of a read, which is returned to the guest and is not a fault of it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub enum AccessError {
    /// The manifest does not declare this kind, or not in this namespace.
    Undeclared(String),
    /// The kind is not synced.
    Denied(String),
    /// The result has more bytes than this.
    #[error("the result is larger than {0} bytes: narrow the query or ask for fewer fields")]
    TooLarge(u64),
    /// A malformed selector, field path or kind.
    Invalid(String),
    /// The API server does not serve this dynamic kind.
    NotServed(String),
    /// The host has no view of this dynamic kind. It ends the call, and no guest sees this: see [`CallResult::Waits`].
    ///
    /// [`CallResult::Waits`]: crate::contract::CallResult::Waits
    #[error("the call waits for the host to list {0}")]
    Waits(Kind),
}

/// What one guest call can read.
#[derive(Clone, Debug)]
pub struct View {
    snapshot: Snapshot,
    primary: Arc<Object>,
    access: Arc<Access>,
    now_unix_ms: u64,
    config: Arc<str>,
    rejected: Arc<[Rejection]>,
    replies: Arc<[Replied]>,
    kinds: KindStates,
    wanted: Option<Arc<Prepared>>,
    reads: Recorder,
}

impl View {
    /// A view for one call with `primary`.
    pub fn new(
        snapshot: Snapshot,
        primary: Arc<Object>,
        access: Arc<Access>,
        now_unix_ms: u64,
        config: Arc<str>,
    ) -> Self {
        let reads = Recorder::new(&primary);
        let (rejected, replies, kinds, wanted) = Default::default();
        Self { snapshot, primary, access, now_unix_ms, config, rejected, replies, kinds, wanted, reads }
    }

    /// The view of an object whose last outcome is known. Only which objects a read leaves out depends on it.
    #[must_use]
    pub fn with_wanted(self, wanted: Option<Arc<Prepared>>) -> Self {
        Self { wanted, ..self }
    }

    /// The view of an object of whose outcomes this was rejected.
    #[must_use]
    pub fn with_rejected(self, rejected: Arc<[Rejection]>) -> Self {
        Self { rejected, ..self }
    }

    /// The view of an object whose HTTP requests have these replies.
    #[must_use]
    pub fn with_replies(self, replies: Arc<[Replied]>) -> Self {
        Self { replies, ..self }
    }

    /// The view of a plugin whose dynamic kinds have these states.
    #[must_use]
    pub fn with_kinds(self, kinds: KindStates) -> Self {
        Self { kinds, ..self }
    }

    /// The reconciled object as passed to the call.
    pub fn primary(&self) -> &Arc<Object> {
        &self.primary
    }

    /// One object as JSON text; None if it does not exist. The reconciled object is an input of every call, so reading
    /// it adds no dependency.
    pub fn get(&mut self, target: &ObjectRef, fields: &[String]) -> Result<Option<Arc<str>>, AccessError> {
        let is_primary = target.name == self.primary.name && target.kind == self.primary.kind;
        if is_primary && fields.is_empty() {
            return Ok(Some(self.primary.json().clone()));
        }
        let kind = self.readable(&target.kind, &[&target.name.namespace])?;
        let fields = self.projection(fields)?;
        let scope = self.access.scope(&kind).cloned();
        let object = match is_primary {
            true => Some(&self.primary),
            false => self.snapshot.get(&kind, &target.name).filter(|object| dependency::is_in(&scope, object)),
        };
        let answer = object.map(|object| fields.answer(object));
        let too_large = answer.as_ref().is_some_and(|(text, _)| text.len() as u64 > self.access.read_bytes);
        let hash =
            if too_large { UNFINISHED } else { dependency::hash_of_one(object.map(|object| &**object), &fields) };
        if !is_primary {
            let target = ObjectRef { kind, name: target.name.clone() };
            self.reads.record(Dependency::Get { target, scope, fields: fields.clone() }, hash, &self.snapshot, 1);
        }
        if too_large {
            return Err(AccessError::TooLarge(self.access.read_bytes));
        }
        Ok(answer.map(|(text, _)| text))
    }

    /// The children of the reconciled object of a kind, and what else it controls: one JSON array, ordered by name.
    pub fn owned(&mut self, kind: &Kind, fields: &[String]) -> Result<String, AccessError> {
        let kind = self.readable::<&str>(kind, &[])?;
        let fields = self.projection(fields)?;
        let budget = Budget::unlimited();
        let owner = Owner::of(&self.primary, self.access.tracked.contains(&kind));
        let scope = self.access.scope(&kind).cloned();
        let mut objects = self.snapshot.owned_within(&kind, &owner, &budget);
        objects.retain(|object| dependency::is_in(&scope, object));
        let most_bytes = self.access.read_bytes;
        let (mut text, mut hash) = match objects.len() > MAX_OWNED {
            true => (Err(AccessError::TooLarge(most_bytes)), UNFINISHED),
            false => array(objects.iter().copied(), &fields, most_bytes),
        };
        if text.is_err() {
            let home = &*self.primary.name.namespace;
            let wanted = self.wanted.as_ref().and_then(|wanted| wanted.children.as_ref());
            let wanted = wanted.map(|children| children.iter().map(|child| &child.target).collect());
            let owned = Owned { kind: &kind, objects, home, wanted, most_bytes: most_bytes.saturating_sub(BRACKETS) };
            if let Some((shown, left_out)) = owned.fit(|object| fields.answer(object).0.len() + 1) {
                text = array(shown.into_iter(), &fields, most_bytes).0;
                self.reads.record_left_out(left_out);
            }
            hash = UNFINISHED;
        }
        let dependency = Dependency::Owned { kind, owner, scope, fields };
        self.reads.record(dependency, hash, &self.snapshot, budget.spent());
        text
    }

    /// The objects that a query selects: one JSON array, ordered by namespace and name. Calls that ask the same share
    /// the answer.
    pub fn list(&mut self, query: &Query) -> Result<String, AccessError> {
        let (_, query) = self.query(query)?;
        let fits = |answer: &KeptAnswer| answer.text.len() as u64 <= self.access.read_bytes;
        if let Some(KeptAnswer { text, hash, looks }) = self.snapshot.kept_answer(&query).filter(fits) {
            self.reads.record(Dependency::List(query), hash, &self.snapshot, looks);
            return Ok(String::from(&*text));
        }
        let budget = Budget::unlimited();
        let mut objects = 0;
        let selected = self.snapshot.select_within(&query, &budget).inspect(|_| objects += 1);
        let (text, hash) = array(selected, &query.fields, self.access.read_bytes);
        let looks = budget.spent();
        if let Ok(text) = &text {
            self.snapshot.keep_answer(&query, Answer { text, hash, objects, looks });
        }
        self.reads.record(Dependency::List(query), hash, &self.snapshot, looks);
        text
    }

    /// The names of the objects that a query selects, ordered by namespace and name.
    pub fn keys(&mut self, query: &Query) -> Result<Vec<ObjectRef>, AccessError> {
        let (kind, query) = self.query(query)?;
        let budget = Budget::unlimited();
        let objects = self.snapshot.select_within(&query, &budget);
        let mut hash = ResultHash::default();
        let mut bytes = 0;
        let mut keys = Vec::new();
        for object in objects {
            bytes += kind.api_version.len() + kind.kind.len() + object.name.namespace.len() + object.name.name.len();
            if bytes as u64 > self.access.read_bytes {
                self.reads.record(Dependency::Keys(query.clone()), UNFINISHED, &self.snapshot, budget.spent());
                return Err(AccessError::TooLarge(self.access.read_bytes));
            }
            hash.add_name(&object.name);
            keys.push(ObjectRef { kind: kind.clone(), name: object.name.clone() });
        }
        self.reads.record(Dependency::Keys(query.clone()), hash.hash(), &self.snapshot, budget.spent());
        Ok(keys)
    }

    /// The number of the objects that a query selects.
    pub fn count(&mut self, query: &Query) -> Result<u32, AccessError> {
        let (_, query) = self.query(query)?;
        let budget = Budget::unlimited();
        let count = self.snapshot.select_within(&query, &budget).count();
        let dependency = Dependency::Count(query);
        self.reads.record(dependency, dependency::hash_of_number(count as u64), &self.snapshot, budget.spent());
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The time of the call in Unix milliseconds. Reading it makes it an input of the call.
    pub fn now_unix_ms(&mut self) -> u64 {
        self.reads.record(Dependency::Now, dependency::hash_of_number(self.now_unix_ms), &self.snapshot, 1);
        self.now_unix_ms
    }

    /// The plugin's configuration as JSON text. Reading it makes it an input of the call.
    pub fn config(&mut self) -> Arc<str> {
        self.reads.record(Dependency::Config, dependency::hash_of(&*self.config), &self.snapshot, 1);
        self.config.clone()
    }

    /// What was rejected of the object's outcomes. Reading it makes it an input of the call.
    pub fn rejected(&mut self) -> Arc<[Rejection]> {
        self.reads.record(Dependency::Rejected, dependency::hash_of(&*self.rejected), &self.snapshot, 1);
        Arc::clone(&self.rejected)
    }

    /// The reply to an HTTP request with the same content. Reading it makes all replies an input of the call.
    pub fn response(&mut self, request: &Request) -> Option<Arc<Reply>> {
        self.reads.record(Dependency::Replies, dependency::hash_of(&*self.replies), &self.snapshot, 1);
        if self.replies.is_empty() {
            return None;
        }
        let fingerprint = request.fingerprint();
        let known = self.replies.iter().find(|known| known.fingerprint == fingerprint)?;
        self.reads.record_reply(fingerprint);
        Some(Arc::clone(&known.reply))
    }

    /// The reads of the call, with a hash of each result.
    pub fn into_dependencies(self) -> Dependencies {
        self.reads.finish()
    }

    fn projection(&self, fields: &[String]) -> Result<Projection, AccessError> {
        self.access.compiled.projection(fields).map_err(|error| AccessError::Invalid(error.to_string()))
    }

    /// A query, narrowed to what the plugin sees, and its kind.
    fn query(&mut self, query: &Query) -> Result<(Kind, Arc<CompiledQuery>), AccessError> {
        let kind = self.readable(&query.kind, &query.namespaces)?;
        let scope = self.access.scope(&kind).map(|scope| &**scope);
        let compiled = self.access.compiled.query(query, scope);
        Ok((kind, compiled.map_err(|error| AccessError::Invalid(error.to_string()))?))
    }

    /// The declared or dynamic kind that equals this one, if these namespaces of it are declared; it shares its strings with
    /// all other calls.
    fn readable<N: AsRef<str>>(&mut self, kind: &Kind, namespaces: &[N]) -> Result<Kind, AccessError> {
        let Some(declared) = self.access.readable.iter().find(|declared| *declared == kind) else {
            return self.dynamic(kind);
        };
        let scope = self.access.declared(declared);
        let is_listed = match scope {
            Some(scope) => self.snapshot.has_listed(declared, scope),
            None => self.snapshot.has_listed(declared, &Scope::default()),
        };
        if !is_listed {
            return Err(AccessError::Denied(format!(
                "the host has no complete view of {kind}: it has not listed the kind yet, or may not list it"
            )));
        }
        let mut named = namespaces.iter().map(AsRef::as_ref);
        if let Some((scope, foreign)) =
            scope.and_then(|scope| Some((scope, named.find(|it| !scope.has_namespace(it))?)))
        {
            return Err(AccessError::Undeclared(format!(
                "the plugin's manifest declares {kind} {scope}, and not in {foreign:?}: add it to the namespaces there"
            )));
        }
        Ok(declared.clone())
    }

    /// A kind of a pattern, if the host has listed it. Its state is an input of the call.
    fn dynamic(&mut self, kind: &Kind) -> Result<Kind, AccessError> {
        let patterns = &self.access.patterns;
        if !patterns.iter().any(|pattern| pattern.matches(kind)) {
            return Err(undeclared(kind, patterns));
        }
        if !is_kind(kind) {
            let why = format!("{:?} with {:?} cannot name a kind", kind.api_version, kind.kind);
            return Err(AccessError::Invalid(why));
        }
        let (kind, state) = match self.kinds.get_key_value(kind) {
            Some((known, state)) => (known.clone(), state.clone()),
            None => (kind.clone(), KindState::default()),
        };
        self.reads.record(Dependency::Kind(kind.clone()), state.hash(), &self.snapshot, 1);
        match state {
            KindState::Current if self.snapshot.has_listed(&kind, &Scope::default()) => Ok(kind),
            KindState::NotServed(message) => Err(AccessError::NotServed(message)),
            _ => Err(AccessError::Waits(kind)),
        }
    }
}

fn undeclared(kind: &Kind, patterns: &[KindPattern]) -> AccessError {
    let shown: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    let no_pattern = match shown.as_slice() {
        [] => String::new(),
        shown => format!(", and it is none of {}, which have no Secrets", shown.join(", ")),
    };
    AccessError::Undeclared(format!(
        "the plugin's manifest does not declare {kind}{no_pattern}: add it to what the controller owns or reads"
    ))
}

/// One JSON array with the kept fields of each object, and its hash.
fn array<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    fields: &Projection,
    most_bytes: u64,
) -> (Result<String, AccessError>, u64) {
    let mut text = String::from("[");
    let mut hashes = ResultHash::default();
    let mut objects = objects.peekable();
    let expected = objects.size_hint().0;
    while let Some(object) = objects.next() {
        let (json, hash) = fields.answer(object);
        if (text.len() + json.len()) as u64 + 1 > most_bytes {
            return (Err(AccessError::TooLarge(most_bytes)), UNFINISHED);
        }
        if text.len() == 1 {
            // Objects of one kind have similar sizes, so the first is a good estimate.
            text.reserve(((json.len() + 1) * expected).min(usize::try_from(most_bytes).unwrap_or(usize::MAX)));
        }
        text.push_str(&json);
        hashes.add(hash);
        if objects.peek().is_some() {
            text.push(',');
        }
    }
    text.push(']');
    (Ok(text), hashes.hash())
}
