//! Lists and watches one kind, and sends its [`WatchEvent`]s until the receiver is gone.
//!
//! It is not kube-runtime's watcher, whose streaming list starts at resourceVersion "0", which a stale cache of the API server
//! may serve (R4), which hides the versions of lists and bookmarks, by which the host knows that it has seen its own writes
//! (R2), and which copies and parses each line into trees.
//!
//! ```text
//!            +--> streaming list --(end of initial events)--+
//!   no       |         | refused, or silent                 v
//!   position +--> list page by page -------------------> watch from the position --(closed, idle)--> watch again
//!      ^                                                    |
//!      +------------------- version expired (410) ----------+      everything else: wait, then resume from the position
//! ```
//! Lists that follow each other, because a version expires or decreases at once, wait longer and longer. One that breaks off
//! begins again with another `Listing`; its objects so far remain.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use mortise_core::object::{Interner, Kind, Object, ResourceVersion};
use mortise_core::pages::Tokens;
use mortise_core::scope::Slice;
use mortise_core::watch::{WatchError, WatchEvent};
use mortise_core::watch_stream::{self, Decoded, Decoder, End};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use crate::answers::Size;
use crate::audit::newest_version;
use crate::client::{ApiServer, READ_TIMEOUT, request};
use crate::discovery::{Resource, escape};
use crate::failure::Failure;
use crate::page;
use crate::retry::{Lists, Obstacle, Retry, random};
use crate::sink::Sink;
use crate::traffic::Class;

/// How long the API server keeps a watch open, less up to a quarter, so that watches that began together do not end together.
/// A lost permission is noticed when the watch is reopened, so after this time at the latest.
const WATCH_SECONDS: u64 = 290;
/// The shortest `timeoutSeconds` of a watch. One that is closed after it ended normally.
const SHORTEST_WATCH: Duration = Duration::from_secs(WATCH_SECONDS - WATCH_SECONDS / 4);
/// A watch that is silent for this long is reopened. The API server sends a bookmark a minute while its store changes, so two
/// are missing in a quiet cluster, where a request in two minutes is cheap, or on a dead connection, which over HTTP/1.1 nothing
/// else shows before [`WATCH_SECONDS`].
const IDLE: Duration = Duration::from_secs(150);
/// A streaming list that is silent for this long is replaced by a list page by page: an API server without streaming lists
/// ignores the parameters and never ends the list.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// A watch that was open for this long worked, even without events.
const LIVED: Duration = Duration::from_secs(5);
/// An API server that restarts denies everything until it has read its roles. A denial this soon after an outage is retried
/// before it is reported.
const DOUBTFUL_AFTER_OUTAGE: Duration = Duration::from_secs(5);
/// Tries before an unfilled cache of the API server is reported, as when the kind's CRD is new: one and a half seconds by the
/// delays between them.
const STARTING_TRIES: u32 = 4;
/// The objects of a list are sent as one event once their JSON text has this size: some ten small objects, for each of which
/// the receiver takes a few microseconds.
const LISTED_BYTES: usize = 8 << 10;

/// The objects to watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Objects {
    /// Their kind.
    pub kind: Kind,
    /// Their namespace; None: all.
    pub namespace: Option<Arc<str>>,
    /// A label selector; None: all.
    pub selector: Option<Arc<str>>,
    /// The name of a single object; None: all.
    pub name: Option<Arc<str>>,
    /// Objects of one page of a list, which is in memory until the receiver has taken all of them; None: five hundred.
    pub page_objects: Option<usize>,
}

impl From<Slice> for Objects {
    fn from(Slice { kind, namespace, labels }: Slice) -> Self {
        Self { kind, namespace, selector: labels, name: None, page_objects: None }
    }
}

/// Watches objects and sends its events, converted by `wrap`, until the receiver is gone. A slow receiver slows the watch down:
/// only the channel queues events.
///
/// `Failed` is sent when the reason changes, not at every try; the next event after it means that the watch works again.
pub async fn run<S, F>(api: ApiServer, objects: Objects, sink: S, wrap: F)
where
    S: Sink,
    F: Fn(WatchEvent) -> S::Item,
{
    let mut watch = Watch::new(api, objects, sink, wrap);
    loop {
        let began = Instant::now();
        let stop = match watch.attempt().await {
            Ok(never) => match never {},
            Err(stop) => stop,
        };
        let delay = match stop {
            Stop::ReceiverGone => return,
            stop => watch.after(stop, began.elapsed()).await,
        };
        let Ok(delay) = delay else { return };
        tokio::select! {
            () = sleep(delay) => {}
            () = watch.sink.closed() => return,
        }
    }
}

/// Why an attempt ended.
#[derive(Debug)]
enum Stop {
    /// The receiver is gone.
    ReceiverGone,
    /// The API server closed the watch: resume from the position.
    Closed,
    /// It was silent for too long.
    Silent,
    /// The API server no longer knows the position: list again.
    Expired(String),
    /// The last list was a moment ago.
    Listed(Duration),
    /// The API server does not support streaming lists.
    NoStreaming,
    /// A page of a list is too large.
    PageTooLarge,
    /// The stream broke after it had begun.
    Broken(Failure),
    /// A request failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Response(refused) if refused.is_expired() => Self::Expired(refused.message),
            other => Self::Failed(other),
        }
    }
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        match end {
            End::Refused(refused) if refused.is_expired() => Self::Expired(refused.message),
            End::Refused(refused) => Self::Broken(Failure::Response(refused)),
            End::Unreadable(why) => Self::Broken(Failure::Lost(why)),
        }
    }
}

enum Never {}

struct Watch<S, F> {
    api: ApiServer,
    objects: Objects,
    sink: S,
    wrap: F,
    interner: Interner,
    /// All events up to this version were sent. None: a list is needed.
    position: Option<ResourceVersion>,
    /// Objects of the list that are not sent yet: those that came together are sent together.
    listed: Vec<Object>,
    listed_bytes: usize,
    /// The highest version seen.
    newest: ResourceVersion,
    /// Whether etcd may have been restored since.
    is_doubtful: bool,
    /// Whether the API server supports streaming lists, as far as known.
    streaming: bool,
    page_objects: usize,
    /// The last reported failure, until the watch works.
    failed: Option<WatchError>,
    retry: Retry,
    /// When a connection last failed.
    unreachable_at: Option<Instant>,
    lists: Lists,
    /// The stream that is open, or ended last.
    stream: Option<Stream>,
    /// How the next stream is opened, if the last one was.
    class: Class,
    /// [`IDLE`], or what a test can wait for.
    idle: Duration,
}

/// A stream, from the end of its list.
struct Stream {
    class: Class,
    since: Instant,
    bytes: u64,
}

impl<S: Sink, F: Fn(WatchEvent) -> S::Item> Watch<S, F> {
    fn new(api: ApiServer, objects: Objects, sink: S, wrap: F) -> Self {
        let page_objects = objects.page_objects.unwrap_or(page::OBJECTS);
        Self {
            api,
            objects,
            sink,
            wrap,
            interner: Interner::default(),
            position: None,
            listed: Vec::new(),
            listed_bytes: 0,
            newest: ResourceVersion::default(),
            is_doubtful: false,
            streaming: true,
            page_objects,
            failed: None,
            retry: Retry::default(),
            unreachable_at: None,
            lists: Lists::default(),
            stream: None,
            class: Class::Shared,
            idle: IDLE,
        }
    }

    /// Lists if needed, then watches until it ends.
    async fn attempt(&mut self) -> Result<Never, Stop> {
        // In boxes: what is over before the watch begins takes no memory while it is open.
        let resource = Box::pin(self.api.resource(&self.objects.kind)).await?;
        if self.objects.namespace.is_some() && !resource.is_namespaced() {
            return Err(Failure::NotServed(WatchError::no_namespaces(&self.objects.kind).to_string()).into());
        }
        if std::mem::take(&mut self.is_doubtful) {
            Box::pin(self.compare_versions(&resource)).await?;
        }
        let wait = self.lists.wait(Instant::now());
        if self.position.is_none() && wait > Duration::ZERO {
            return Err(Stop::Listed(wait));
        }
        if self.position.is_none() && self.streaming {
            return self.stream_list(&resource).await;
        }
        let from = match self.position {
            Some(version) => version,
            None => Box::pin(self.list(&resource)).await?,
        };
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={}", from.0);
        let body = self.open(&resource, &query).await?;
        self.send(WatchEvent::Progress(from)).await?;
        self.follow(body, false).await
    }

    /// Forgets the position when the API server's newest version is lower than one that was seen.
    async fn compare_versions(&mut self, resource: &Resource) -> Result<(), Stop> {
        let path = self.path(resource, "limit=1");
        let now = newest_version(&self.api, &self.objects.kind, &path).await?;
        if now >= self.newest {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.newest, now);
        self.position = None;
        self.send(WatchEvent::Restored { before, now }).await
    }

    /// Opens a watch that begins with a list of the newest state. Without a resourceVersion the API server waits until its
    /// cache has caught up with etcd, so nothing older than this request is shown (R4).
    async fn stream_list(&mut self, resource: &Resource) -> Result<Never, Stop> {
        let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let body = match self.open(resource, query).await {
            Err(Failure::Response(refused)) if matches!(refused.code, 400 | 422) => return Err(Stop::NoStreaming),
            other => other?,
        };
        self.begin_list(resource).await?;
        self.follow(body, true).await
    }

    async fn begin_list(&mut self, resource: &Resource) -> Result<(), Stop> {
        if !resource.is_namespaced() {
            self.send(WatchEvent::ClusterScoped).await?;
        }
        self.send(WatchEvent::Listing).await
    }

    /// Lists page by page; consistent, because the request has no version.
    async fn list(&mut self, resource: &Resource) -> Result<ResourceVersion, Stop> {
        let (mut token, mut tokens, mut begun) = (String::new(), Tokens::default(), false);
        loop {
            let query = format!("limit={}&continue={}", self.page_objects, escape(&token));
            let path = self.path(resource, &query);
            let response = match self.api.get(&path, page::TIMEOUT, Size::List).await {
                Err(Failure::TooLarge) if let Some(objects) = page::smaller(self.page_objects) => {
                    self.page_objects = objects;
                    return Err(Stop::PageTooLarge);
                }
                other => other?,
            };
            let page = page::read::<&RawValue>(&self.objects.kind, &response.body)?;
            if !std::mem::replace(&mut begun, true) {
                self.begin_list(resource).await?;
            }
            let items = page.items.unwrap_or_default();
            let next = tokens.next(&resource.plural, &page.metadata.r#continue, items.len()).map_err(Failure::Lost)?;
            for item in items {
                match watch_stream::object(&self.objects.kind, item.get().as_bytes(), &mut self.interner) {
                    Ok(object) => self.listed(object).await?,
                    Err(message) => self.send(WatchEvent::Undecodable { message }).await?,
                }
            }
            let Some(next) = next else {
                let version = page::version(&self.objects.kind, &page.metadata.resource_version)?;
                self.position = Some(version);
                self.send(WatchEvent::ListDone(version)).await?;
                return Ok(version);
            };
            token = next;
        }
    }

    async fn open(&mut self, resource: &Resource, query: &str) -> Result<Body, Failure> {
        let seconds = WATCH_SECONDS - random() % (WATCH_SECONDS / 4);
        let path = self.path(resource, &format!("{query}&timeoutSeconds={seconds}"));
        let request = request(Method::GET, &path, None, Bytes::new())?;
        // A watch that cannot be opened on a connection of its own is retried on a shared one.
        let class = std::mem::take(&mut self.class);
        let body = self.api.watch(request, Instant::now() + READ_TIMEOUT, class).await?;
        self.stream = Some(Stream { class, since: Instant::now(), bytes: 0 });
        Ok(body)
    }

    fn path(&self, resource: &Resource, query: &str) -> String {
        let mut path = format!("{}?{query}", resource.collection(self.objects.namespace.as_deref()));
        if let Some(selector) = &self.objects.selector {
            path.push_str("&labelSelector=");
            path.push_str(&escape(selector));
        }
        if let Some(name) = &self.objects.name {
            path.push_str("&fieldSelector=");
            path.push_str(&escape(&format!("metadata.name={name}")));
        }
        path
    }

    /// Sends the events of a stream until it ends.
    async fn follow(&mut self, mut body: Body, listing: bool) -> Result<Never, Stop> {
        let mut decoder = Decoder::new(self.objects.kind.clone(), listing);
        loop {
            while let Some(decoded) = decoder.next(&mut self.interner)? {
                match decoded {
                    Decoded::Listed(object) => self.listed(object).await?,
                    Decoded::Event(event) => {
                        self.advance(&event, decoder.is_listing());
                        self.send(event).await?;
                    }
                }
            }
            self.send_listed().await?;
            let listing = decoder.is_listing();
            let silence = if listing { LIST_SILENCE } else { self.idle };
            match timeout(silence, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        if let Some(stream) = self.stream.as_mut().filter(|_| !listing) {
                            stream.bytes += data.len() as u64;
                        }
                        decoder.push(data);
                    }
                }
                Ok(Some(Err(error))) => return Err(Stop::Broken(Failure::of_client(&error))),
                Ok(None) if listing => {
                    return Err(Stop::Broken(Failure::Lost("the list ended before it was complete".to_owned())));
                }
                Ok(None) => return Err(Stop::Closed),
                Err(_) if listing => return Err(Stop::NoStreaming),
                Err(_) => return Err(Stop::Silent),
            }
        }
    }

    /// Notes up to where an event of a stream brings the watch. Within a list nothing does.
    fn advance(&mut self, event: &WatchEvent, is_listing: bool) {
        match event {
            WatchEvent::ListDone(version) => {
                self.stream.iter_mut().for_each(|stream| stream.since = Instant::now());
                self.position = Some(*version);
            }
            WatchEvent::Progress(version) => self.position = Some(*version),
            WatchEvent::Applied(object) | WatchEvent::Deleted(object) if !is_listing => {
                self.position = Some(object.resource_version);
            }
            _ => {}
        }
    }

    async fn listed(&mut self, object: Object) -> Result<(), Stop> {
        self.listed_bytes += object.json().len();
        self.listed.push(object);
        if self.listed_bytes < LISTED_BYTES { Ok(()) } else { self.send_listed().await }
    }

    async fn send_listed(&mut self) -> Result<(), Stop> {
        if self.listed.is_empty() {
            return Ok(());
        }
        self.listed_bytes = 0;
        let event = WatchEvent::Listed(std::mem::take(&mut self.listed));
        self.sink.send((self.wrap)(event)).await.map_err(|_| Stop::ReceiverGone)
    }

    /// Sends an event, after the objects of the list before it. Every event but those of a list means that the watch works.
    async fn send(&mut self, event: WatchEvent) -> Result<(), Stop> {
        let version = match &event {
            WatchEvent::Applied(object) | WatchEvent::Deleted(object) => Some(object.resource_version),
            WatchEvent::ListDone(version) | WatchEvent::Progress(version) => Some(*version),
            _ => None,
        };
        self.newest = self.newest.max(version.unwrap_or_default());
        match event {
            WatchEvent::Applied(_) | WatchEvent::Deleted(_) | WatchEvent::ListDone(_) => {
                self.failed = None;
                self.retry.reset();
            }
            WatchEvent::Listing | WatchEvent::Restored { .. } | WatchEvent::Progress(_) => self.failed = None,
            _ => {}
        }
        if matches!(event, WatchEvent::ListDone(_)) {
            self.lists.done(Instant::now());
        }
        self.send_listed().await?;
        self.sink.send((self.wrap)(event)).await.map_err(|_| Stop::ReceiverGone)
    }

    /// Handles the end of an attempt, reports a failure, and returns the delay before the next.
    async fn after(&mut self, stop: Stop, lived: Duration) -> Result<Duration, Stop> {
        self.send_listed().await?;
        if lived >= LIVED && self.position.is_some() {
            self.retry.reset();
        }
        if let Some(stream) = self.stream.take() {
            self.class = stream.class.after(stream.bytes, stream.since.elapsed());
            if self.class != stream.class {
                let (kind, class) = (&self.objects.kind, self.class);
                tracing::debug!(%kind, ?class, bytes = stream.bytes, "the watch changes its connection");
            }
        }
        let kind = &self.objects.kind;
        let again = Obstacle::Error { retry_after_ms: 0 };
        let ended_in_time = matches!(stop, Stop::Closed) && lived >= SHORTEST_WATCH;
        let is_closed = ended_in_time || matches!(stop, Stop::Listed(_));
        self.is_doubtful = !is_closed && self.newest > ResourceVersion::default();
        match stop {
            Stop::ReceiverGone => Err(Stop::ReceiverGone),
            Stop::Closed | Stop::Silent if lived >= LIVED => Ok(Duration::ZERO),
            Stop::Closed | Stop::Silent => Ok(self.retry.next(again, random())),
            Stop::Expired(message) => {
                tracing::info!(%kind, "the API server no longer knows the watch's version, listing again: {message}");
                self.position = None;
                // How often it is listed is not for this count.
                self.retry.reset();
                Ok(self.retry.next(again, random()))
            }
            Stop::Listed(wait) => {
                if self.lists.are_many() {
                    let why = WatchError::Unavailable(format!(
                        "{kind} is listed once a minute, because the API server does not keep to the version of its lists: it \
                         expires at once, or the next one is lower, as when several servers with different states answer"
                    ));
                    self.report(why).await?;
                }
                Ok(wait + wait * u32::try_from(random() % 256).unwrap_or(0) / 1_024)
            }
            Stop::NoStreaming => {
                tracing::info!(%kind, "the API server does not support streaming lists, listing page by page");
                self.streaming = false;
                Ok(Duration::ZERO)
            }
            Stop::PageTooLarge => Ok(Duration::ZERO),
            // API servers that restart and load balancers' timeouts break a watch, and resuming from the position loses
            // nothing: it is a failure when that fails too.
            Stop::Broken(failure) if self.retry.failures() == 0 && self.position.is_some() => {
                tracing::debug!(%kind, "the watch broke: {}", failure.message());
                Ok(self.retry.next(again, random()))
            }
            Stop::Broken(failure) | Stop::Failed(failure) => self.after_failure(&failure).await,
        }
    }

    async fn after_failure(&mut self, failure: &Failure) -> Result<Duration, Stop> {
        let error = failure.to_watch_error();
        let after_outage = self.unreachable_at.is_some_and(|at| at.elapsed() < DOUBTFUL_AFTER_OUTAGE);
        let (obstacle, is_reported) = match (failure, &error) {
            (_, WatchError::Denied(_) | WatchError::NotServed(_)) if after_outage => {
                (Obstacle::Error { retry_after_ms: 0 }, false)
            }
            (_, WatchError::Denied(_) | WatchError::NotServed(_)) => (Obstacle::Refused, true),
            (Failure::NotSent(_), _) => {
                self.unreachable_at = Some(Instant::now());
                (Obstacle::Unreachable, true)
            }
            (Failure::Response(refused), _) if refused.is_starting() => {
                (Obstacle::Error { retry_after_ms: 0 }, self.retry.failures() >= STARTING_TRIES)
            }
            (Failure::Response(refused), _) => {
                (Obstacle::Error { retry_after_ms: refused.retry_after_ms.unwrap_or(0) }, true)
            }
            _ => (Obstacle::Error { retry_after_ms: 0 }, true),
        };
        if matches!(error, WatchError::NotServed(_)) {
            // The cached path may be outdated.
            self.api.discovery().forget(&self.objects.kind.api_version);
        }
        if is_reported {
            self.report(error).await?;
        }
        Ok(self.retry.next(obstacle, random()))
    }

    async fn report(&mut self, error: WatchError) -> Result<(), Stop> {
        if self.failed.as_ref() == Some(&error) {
            return Ok(());
        }
        self.failed = Some(error.clone());
        let event = (self.wrap)(WatchEvent::Failed(error));
        self.sink.send(event).await.map_err(|_| Stop::ReceiverGone)
    }
}

#[cfg(test)]
mod tests;
