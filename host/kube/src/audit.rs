//! A consistent live list of one kind's names, UIDs and versions, which the audit compares with the cache; and the first page
//! of one, by which a watch notices that the API server's versions went backwards.
//!
//! The requests have no resourceVersion, so the API server reads from etcd or from a cache that has caught up with it.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use mortise_core::audit::{Listed, Page, Response};
use mortise_core::object::{Kind, Name, ResourceVersion};
use mortise_core::pages::Tokens;
use mortise_core::scope::Slice;
use serde::Deserialize;
use tokio::time::timeout;

use crate::answers::Size;
use crate::client::{self, ApiServer, request};
use crate::discovery::escape;
use crate::failure::Failure;
use crate::page;
use crate::sink::Sink;

/// Longest a whole list may take. A hundred thousand objects are two hundred pages of a tenth of a second.
const LIST_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a list restarts after its version was compacted, five minutes after it began. Two restarts show that the list is
/// too slow.
const MAX_RESTARTS: u32 = 2;
/// Only metadata, where the server supports it.
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");

/// Lists a slice of a kind live and sends it page by page, converted by `wrap`. A slow receiver slows the list down.
/// Dropping the future ends it.
pub async fn run<S, F>(api: ApiServer, slice: Slice, sink: S, wrap: F)
where
    S: Sink,
    F: Fn(Response) -> S::Item,
{
    let list = timeout(LIST_TIMEOUT, list(&api, &slice, &sink, &wrap));
    let failure = match list.await {
        Ok(Ok(())) => return,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Lost(format!("the list did not end within {} s", LIST_TIMEOUT.as_secs())),
    };
    tracing::warn!(%slice, "the cache could not be audited: {}", failure.message());
    // The receiver may be gone.
    let _ = sink.send(wrap(Response::Failed)).await;
}

async fn list<S, F>(api: &ApiServer, slice: &Slice, sink: &S, wrap: &F) -> Result<(), Failure>
where
    S: Sink,
    F: Fn(Response) -> S::Item,
{
    let Slice { kind, namespace, labels } = slice;
    let resource = api.resource(kind).await?;
    let collection = resource.collection(namespace.as_deref());
    let selector = labels.as_ref().map(|labels| format!("&labelSelector={}", escape(labels))).unwrap_or_default();
    let (mut restarts, mut objects, mut token, mut tokens) = (0, page::OBJECTS, String::new(), Tokens::default());
    let send = async |answer| sink.send(wrap(answer)).await.is_ok();
    if !send(Response::Begun).await {
        return Ok(());
    }
    loop {
        let path = format!("{collection}?limit={objects}&continue={}{selector}", escape(&token));
        let response = match get(api, &path).await {
            Err(Failure::TooLarge) if let Some(smaller) = page::smaller(objects) => {
                objects = smaller;
                continue;
            }
            Err(Failure::Response(refused)) if refused.is_expired() && restarts < MAX_RESTARTS => {
                restarts += 1;
                (token, tokens) = Default::default();
                if !send(Response::Begun).await {
                    return Ok(());
                }
                continue;
            }
            other => other?,
        };
        let (page, next) = read(kind, &response.body)?;
        let next = tokens.next(&resource.plural, &next, page.objects.len()).map_err(Failure::Lost)?;
        if !send(Response::Page(page)).await {
            return Ok(());
        }
        match next {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// The API server's newest version, from a list of one object.
pub(crate) async fn newest_version(api: &ApiServer, kind: &Kind, path: &str) -> Result<ResourceVersion, Failure> {
    let response = get(api, path).await?;
    read(kind, &response.body).map(|(page, _)| page.version)
}

async fn get(api: &ApiServer, path: &str) -> Result<client::Response, Failure> {
    let mut request = request(Method::GET, path, None, Bytes::new())?;
    request.headers_mut().insert(header::ACCEPT, METADATA);
    api.send(request, page::TIMEOUT, Size::List).await
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

/// A page and the next one's continue token.
fn read(kind: &Kind, body: &[u8]) -> Result<(Page, String), Failure> {
    let list = page::read::<Item<'_>>(kind, body)?;
    let items = list.items.unwrap_or_default().into_iter().map(|Item { metadata }| {
        Ok(Listed {
            name: Name::new(&metadata.namespace, &metadata.name),
            uid: (&*metadata.uid).into(),
            version: page::version(kind, &metadata.resource_version)?,
        })
    });
    let next = list.metadata.r#continue.into_owned();
    let page = Page {
        version: page::version(kind, &list.metadata.resource_version)?,
        objects: items.collect::<Result<_, Failure>>()?,
        is_last: next.is_empty(),
    };
    Ok((page, next))
}

#[cfg(test)]
mod tests;
