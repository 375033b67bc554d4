//! The steps of an answer, each with what it takes.

use crate::reviews;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use json_patch::Patch;
use placement::admission::{Verdict, pod};
use placement::keys;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::hint::black_box;
use tower::ServiceExt;

pub(crate) const SIZES: [usize; 3] = [2_000, 10_000, 50_000];

pub(crate) type Step = fn(&Steps);

pub(crate) const ALL: [(&str, Step); 4] = [
    ("parse", Steps::parse),
    ("decide", Steps::decide),
    ("patch", Steps::patch),
    ("answer", Steps::answer),
];

/// What the steps of one size take.
pub(crate) struct Steps {
    text: String,
    pod: Value,
    patch: Patch,
    review: String,
    router: Router,
    runtime: tokio::runtime::Runtime,
}

impl Steps {
    pub(crate) fn of(size: usize) -> Self {
        let pod = reviews::pod(size);
        let Verdict::Allow { patch, .. } = pod::admit(&pod) else {
            unreachable!("a rule admits every pod")
        };
        assert!(!patch.is_empty(), "a pod that is left alone measures nothing");
        Self {
            text: pod.to_string(),
            patch,
            review: reviews::review(&pod),
            pod,
            router: admission::router(admission::Metrics::register(&mut Registry::default())),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    fn parse(&self) {
        black_box(serde_json::from_str::<Value>(&self.text).unwrap());
    }

    fn decide(&self) {
        black_box(pod::admit(&self.pod));
    }

    /// The copy is not part of an answer, which has the document to itself; it is told apart by `parse`.
    fn patch(&self) {
        let mut pod = self.pod.clone();
        json_patch::patch(&mut pod, &self.patch).unwrap();
        black_box((pod, serde_json::to_vec(&self.patch).unwrap()));
    }

    fn answer(&self) {
        let request = Request::post(keys::POD_PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(self.review.clone()))
            .unwrap();
        let response = self
            .runtime
            .block_on(self.router.clone().oneshot(request))
            .unwrap();
        assert!(response.status().is_success());
        black_box(response);
    }
}
