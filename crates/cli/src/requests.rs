//! Requests to the API server, each with a deadline. [`writes`] has the requests that change an object.
//!
//! A request that fails is a [`RequestError`]: the command prints the rest of its answer, and the error as a sentence.

pub(crate) mod writes;

use crate::target::NameError;
use jiff::Timestamp;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::Status;
use kube::{Client, Error, Resource};
use placement::messages;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};
use std::time::Duration;

/// Objects per page of a list.
const PAGE: u32 = 500;
/// Runs per page. A run can have 1.5 MiB, and the Job `release-all` has 512 MiB.
const PAGE_OF_RUNS: u32 = 50;

/// The answer of a request, or the reason why there is none.
pub(crate) type RequestResult<T> = Result<T, RequestError>;

/// A request in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestAttributes {
    pub(crate) verb: &'static str,
    /// The plural, followed by a dot and the group, except for the core group.
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    /// `None`: all namespaces, or a resource without namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) namespaced: bool,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The user lacks the right.
    Forbidden(RequestAttributes),
    /// The cluster has no such resource.
    NotServed(RequestAttributes),
    /// There was no answer before the deadline.
    Late(RequestAttributes, Duration),
    /// The object changed since it was read, so nothing was written.
    Changed(RequestAttributes),
    /// Any other error, with the message of the API server.
    Failed(RequestAttributes, String),
    /// The object exists, but cannot be parsed.
    Unreadable(String),
}

impl fmt::Display for RequestAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None if self.namespaced => f.write_str(" in all namespaces"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(attributes) => write!(f, "you lack the right to {attributes}"),
            Self::NotServed(attributes) => write!(f, "this cluster does not know {}", attributes.resource),
            Self::Late(attributes, limit) => {
                write!(f, "no answer within {}s to: {attributes}", limit.as_secs())
            }
            Self::Changed(attributes) => {
                write!(f, "could not {attributes}: it was changed meanwhile; try again")
            }
            Self::Failed(attributes, cause) => write!(f, "could not {attributes}: {cause}"),
            Self::Unreadable(what) => f.write_str(what),
        }
    }
}

impl From<NameError> for RequestError {
    fn from(unnamed: NameError) -> Self {
        Self::Unreadable(unnamed.to_string())
    }
}

/// The API server, and the deadline of a request.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) limit: Option<Duration>,
}

/// A resource in a namespace, or in the cluster.
pub(crate) struct ResourceClient<K> {
    api: Api<K>,
    limit: Option<Duration>,
    attributes: RequestAttributes,
}

impl Server {
    /// A resource of one namespace.
    pub(crate) fn within<K>(&self, namespace: &str) -> ResourceClient<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let api = Api::namespaced(self.client.clone(), namespace);
        self.place::<K>(api, Some(namespace), true)
    }

    /// A resource of one namespace, or of all namespaces.
    pub(crate) fn reach<K>(&self, namespace: Option<&str>) -> ResourceClient<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match namespace {
            Some(namespace) => self.within(namespace),
            None => self.place::<K>(Api::all(self.client.clone()), None, true),
        }
    }

    /// A resource without namespaces.
    pub(crate) fn cluster<K>(&self) -> ResourceClient<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        self.place::<K>(Api::all(self.client.clone()), None, false)
    }

    /// A resource without namespaces and without a type in this program.
    pub(crate) fn cluster_of(&self, kind: &ApiResource) -> ResourceClient<DynamicObject> {
        ResourceClient {
            api: Api::all_with(self.client.clone(), kind),
            limit: self.limit,
            attributes: RequestAttributes {
                verb: "get",
                resource: format!("{}.{}", kind.plural, kind.group),
                name: None,
                namespace: None,
                namespaced: false,
            },
        }
    }

    fn place<K: Resource<DynamicType = ()>>(
        &self,
        api: Api<K>,
        namespace: Option<&str>,
        namespaced: bool,
    ) -> ResourceClient<K> {
        ResourceClient {
            api,
            limit: self.limit,
            attributes: RequestAttributes {
                verb: "get",
                resource: resource::<K>(),
                name: None,
                namespace: namespace.map(str::to_owned),
                namespaced,
            },
        }
    }

    /// The time of the API server, which also sets the times in objects. Without a date in the answer: the local time.
    pub(crate) async fn clock(&self) -> RequestResult<Timestamp> {
        let attributes = RequestAttributes {
            verb: "get",
            resource: "/version".to_owned(),
            name: None,
            namespace: None,
            namespaced: false,
        };
        let request = http::Request::get("/version").body(kube::client::Body::empty());
        let request = request.map_err(|error| RequestError::Failed(attributes.clone(), error.to_string()))?;
        let response = answer(self.limit, attributes, self.client.send(request)).await?;
        let date = response.headers().get(http::header::DATE);
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok());
        Ok(date.map_or_else(Timestamp::now, |date| date.timestamp()))
    }

    /// Sends any other request with the deadline.
    pub(crate) async fn answer<T>(
        &self,
        attributes: RequestAttributes,
        call: impl Future<Output = Result<T, Error>>,
    ) -> RequestResult<T> {
        answer(self.limit, attributes, call).await
    }
}

impl<K> ResourceClient<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    /// One object; `None` if it does not exist.
    pub(crate) async fn get(&self, name: &str) -> RequestResult<Option<K>> {
        let attributes = self.attributes("get", Some(name));
        let call = async {
            match self.api.get(name).await {
                Err(Error::Api(status)) if self.is_absent(&status) => Ok(None),
                found => found.map(Some),
            }
        };
        answer(self.limit, attributes, call).await
    }

    /// Whether the object does not exist. A cluster without Tekton answers a request for a run with another 404; for other kinds, a
    /// missing kind means the same as a missing object.
    fn is_absent(&self, status: &Status) -> bool {
        status.is_not_found() && (status.reason == "NotFound" || !self.is_of_runs())
    }

    fn is_of_runs(&self) -> bool {
        self.attributes.resource.starts_with("pipelineruns.")
    }

    /// All objects that match, page by page.
    pub(crate) async fn list(&self, matching: ListParams) -> RequestResult<Vec<K>> {
        self.collect(matching, Some).await
    }

    /// What `keep` keeps of each object that matches.
    pub(crate) async fn collect<T>(
        &self,
        matching: ListParams,
        keep: impl Fn(K) -> Option<T>,
    ) -> RequestResult<Vec<T>> {
        let mut params = matching.limit(if self.is_of_runs() { PAGE_OF_RUNS } else { PAGE });
        let mut found = Vec::new();
        loop {
            let attributes = self.attributes("list", None);
            let page = answer(self.limit, attributes, self.api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(&keep));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Creates an object as a dry run.
    pub(crate) async fn dry_create(&self, object: &K) -> RequestResult<K>
    where
        K: Serialize,
    {
        self.created(object, true).await
    }

    /// Creates an object that the API server answers and does not store, such as an access review.
    pub(crate) async fn create(&self, attributes: &K) -> RequestResult<K>
    where
        K: Serialize,
    {
        self.created(attributes, false).await
    }

    async fn created(&self, object: &K, dry_run: bool) -> RequestResult<K>
    where
        K: Serialize,
    {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let attributes = self.attributes("create", None);
        answer(self.limit, attributes, self.api.create(&params, object)).await
    }

    /// The request with this verb, for error texts.
    pub(crate) fn attributes(&self, verb: &'static str, name: Option<&str>) -> RequestAttributes {
        RequestAttributes {
            verb,
            name: name.map(str::to_owned),
            ..self.attributes.clone()
        }
    }

    /// For watches.
    pub(crate) fn api(self) -> Api<K> {
        self.api
    }
}

fn resource<K: Resource<DynamicType = ()>>() -> String {
    match K::group(&()) {
        group if group.is_empty() => K::plural(&()).into_owned(),
        group => format!("{}.{group}", K::plural(&())),
    }
}

async fn answer<T>(
    limit: Option<Duration>,
    attributes: RequestAttributes,
    call: impl Future<Output = Result<T, Error>>,
) -> RequestResult<T> {
    let answered = match limit {
        Some(limit) => tokio::time::timeout(limit, call)
            .await
            .map_err(|_| RequestError::Late(attributes.clone(), limit))?,
        None => call.await,
    };
    answered.map_err(|error| request_error(attributes, &error))
}

/// The [`RequestError`] that follows from an error of the client.
pub(crate) fn request_error(attributes: RequestAttributes, error: &Error) -> RequestError {
    match error {
        Error::Api(status) if status.code == 403 => forbidden(attributes, &status.message),
        Error::Api(status) if status.code == 404 && ["get", "list"].contains(&attributes.verb) => {
            RequestError::NotServed(attributes)
        }
        Error::Api(status) if is_change(attributes.verb, status) => RequestError::Changed(attributes),
        Error::Api(status) => RequestError::Failed(attributes, status.message.clone()),
        other => RequestError::Failed(attributes, chain(other)),
    }
}

/// Whether another client changed the object first. The API server answers 422 to a patch whose test fails, and also to a patch that a
/// policy rejects: their messages differ. It answers 409 to the UID of another object.
fn is_change(verb: &str, status: &Status) -> bool {
    match (verb, status.code) {
        ("patch", 404 | 409) | ("delete", 409) => true,
        ("patch", 422) => messages::is_guard_failed(&status.message),
        _ => false,
    }
}

fn forbidden(attributes: RequestAttributes, message: &str) -> RequestError {
    if messages::is_right_missing(message) {
        RequestError::Forbidden(attributes)
    } else {
        RequestError::Failed(attributes, message.to_owned())
    }
}

/// The error with its causes. The innermost cause helps the user: connection refused, unknown host, expired certificate.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests;
