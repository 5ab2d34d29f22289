//! How much of the API server's responses is in memory at once. Each has a bound by what it can be; beyond the first
//! bytes, it needs room among those that are large, of which each group has some, and beyond a MiB among the largest,
//! which have room together, however many groups there are. A response comes in piece by piece; its bytes come out,
//! with the room that they keep. It must not know what is in them.
//!
//! An aggregated API server is somebody's program. What it does with its responses concerns the requests of its group.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::limiter::{Limiter, Limits, Permit};

/// Bytes that each response may have without room: more than nearly all objects and all reviews. Some hundred requests are
/// in flight at once, and one for each plugin and kind.
const SMALL_BYTES: usize = 64 << 10;
/// Bytes of an object. The API server takes 3 MiB of a request, and etcd stores 1.5 MiB of an object unless its flag says
/// more; JSON has more bytes than the form that built-in kinds are stored in.
const OBJECT_BYTES: usize = 8 << 20;
/// Bytes of a page: five hundred objects of 32 KiB. One with more is read again with fewer objects.
const LIST_BYTES: usize = 16 << 20;
/// Large responses to requests for objects at once: one of each group and version, and these, of which a group has half.
const OBJECTS: Limits<Group> = Limits { own: |_| 1, shared: 4, of_one: 2, saved: |_| None };
/// Pages at once, from their request until their objects are taken over: as above.
const LISTS: Limits<Group> = Limits { own: |_| 1, shared: 4, of_one: 2, saved: |_| None };

/// Bytes of a large response that its group's place has room for: a ConfigMap has a MiB, and nearly all pages less.
const OWN_BYTES: usize = 1 << 20;
/// Objects with more at once, and pages: 32 MiB and 64 MiB of all groups together.
const LARGEST_AT_ONCE: usize = 4;
/// How long one of them may take from then on: at 3 MiB a second, the largest page. So one without an end keeps
/// others waiting no longer.
const LARGEST_WITHIN: Duration = Duration::from_secs(5);

/// "/apis/apps/v1".
type Group = Arc<str>;

/// What a response can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// A review, or a word.
    Small,
    /// An object, or a document of a group.
    Object,
    /// A page of a list.
    List,
}

impl Size {
    fn max_bytes(self) -> usize {
        match self {
            Self::Small => SMALL_BYTES,
            Self::Object => OBJECT_BYTES,
            Self::List => LIST_BYTES,
        }
    }
}

/// Room for a large response.
#[derive(Debug)]
pub(crate) struct Room {
    _permit: Permit<Group>,
    /// Of a response that is among the largest.
    largest: Option<OwnedSemaphorePermit>,
}

/// The room for large responses.
pub(crate) struct Answers {
    objects: Limiter<Group>,
    lists: Limiter<Group>,
    largest_objects: Arc<Semaphore>,
    largest_lists: Arc<Semaphore>,
}

impl Default for Answers {
    fn default() -> Self {
        let largest = || Arc::new(Semaphore::new(LARGEST_AT_ONCE));
        let (largest_objects, largest_lists) = (largest(), largest());
        Self { objects: Limiter::new(OBJECTS), lists: Limiter::new(LISTS), largest_objects, largest_lists }
    }
}

impl Answers {
    /// Room for the response to a list, which is large mostly; for another one None.
    pub(crate) async fn before(&self, path: &str, size: Size) -> Option<Room> {
        if size != Size::List {
            return None;
        }
        Some(Room { _permit: self.lists.enter(group(path)).await, largest: None })
    }

    /// Reads a response to its end.
    pub(crate) async fn read(
        &self,
        body: &mut (impl BodyExt<Data = Bytes, Error = kube::Error> + Unpin),
        path: &str,
        size: Size,
        mut room: Option<Room>,
        mut deadline: Instant,
    ) -> Result<(Bytes, Option<Room>), Failure> {
        let mut first = Bytes::new();
        let mut rest = Vec::new();
        loop {
            let frame = match timeout_at(deadline, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(Failure::of_client(&error)),
                Err(_) if is_largest(size, room.as_ref()) => return Err(Failure::TooLarge),
                Err(_) => return Err(Failure::Lost("the response did not end in time".to_owned())),
            };
            let Ok(data) = frame.into_data() else { continue };
            let bytes = first.len() + rest.len() + data.len();
            if bytes > size.max_bytes() {
                return Err(Failure::TooLarge);
            }
            if bytes > SMALL_BYTES && room.is_none() {
                room = Some(self.room(path, deadline).await?);
            }
            if bytes > OWN_BYTES
                && let Some(room) = room.as_mut().filter(|room| room.largest.is_none())
            {
                room.largest = Some(self.largest(size, deadline).await?);
                deadline = deadline.min(Instant::now() + LARGEST_WITHIN);
            }
            // Most responses are one chunk and need no copy.
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                make_room(&mut rest, bytes, size.max_bytes());
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
        }
        Ok((if rest.is_empty() { first } else { rest.into() }, room))
    }

    async fn room(&self, path: &str, deadline: Instant) -> Result<Room, Failure> {
        let group = group(path);
        let why = || Failure::Lost(format!("the rest of the response was not read: other large ones of {group} are"));
        let permit = timeout_at(deadline, self.objects.enter(Arc::clone(&group))).await.map_err(|_| why())?;
        Ok(Room { _permit: permit, largest: None })
    }

    /// A page that finds no room among the largest is asked for with fewer objects, which its group's place has room
    /// for.
    async fn largest(&self, size: Size, deadline: Instant) -> Result<OwnedSemaphorePermit, Failure> {
        let (places, why) = match size {
            Size::List => (&self.largest_lists, Failure::TooLarge),
            Size::Small | Size::Object => {
                let why = "the rest of the response was not read: other ones of more than a MiB are";
                (&self.largest_objects, Failure::Lost(why.to_owned()))
            }
        };
        let permit = timeout_at(deadline, Arc::clone(places).acquire_owned()).await.map_err(|_| why)?;
        Ok(permit.expect("nobody closes it"))
    }
}

/// Makes room for so many bytes in all, and a quarter more, so that a response in small pieces is moved a few times; but for
/// no more than it may have.
fn make_room(text: &mut Vec<u8>, bytes: usize, most: usize) {
    if bytes > text.capacity() {
        let capacity = bytes.max((bytes + bytes / 4).min(most));
        text.reserve_exact(capacity - text.len());
    }
}

/// Whether a page has more than its group's place has room for.
fn is_largest(size: Size, room: Option<&Room>) -> bool {
    size == Size::List && room.is_some_and(|room| room.largest.is_some())
}

/// The group and version of a path: "/apis/apps/v1" of "/apis/apps/v1/namespaces/default/deployments", "/api/v1".
fn group(path: &str) -> Group {
    let members = if path.starts_with("/apis/") { 4 } else { 3 };
    let end = path.match_indices(['/', '?']).nth(members - 1).map_or(path.len(), |(at, _)| at);
    path[..end].into()
}

#[cfg(test)]
mod tests;
