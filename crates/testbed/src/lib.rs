//! A real control plane on one machine, for tests and demonstrations: etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler, KWOK nodes, Tekton, and on request the cluster autoscaler, an OCI registry and one real node.
//!
//! All parts listen on 127.0.0.1, keep their state in one temporary folder, and end with the value that started them or with its
//! process, for any reason. Only the real node has a kubelet and runs containers.

mod admission;
mod admission_check;
pub mod apply;
mod audit;
pub mod autoscaler;
mod binaries;
mod control_plane;
mod deployment;
mod environment;
mod error;
mod faults;
mod foreign;
mod front;
mod go;
mod guard;
pub mod karpenter;
mod kubeconfig;
mod kueue;
pub mod kwok;
mod namespace;
mod options;
pub mod order;
pub mod pace;
mod part;
mod pki;
mod plane;
mod ports;
pub mod probe;
pub mod product;
pub mod program;
mod progress;
pub mod real_node;
mod recipe;
mod recycle;
pub mod runs;
mod scheduler;
mod stages;
mod start;
mod store;
pub mod tekton;
mod testbed;
pub mod usage;
mod versions;
pub mod wait;

pub use admission::Admission;
pub use autoscaler::NodeGroup;
pub use binaries::{autoscalers_are_built, build_all, build_autoscalers, build_for_autoscaler, releases};
pub use error::{Error, Result};
pub use faults::{Fault, Faults};
pub use foreign::{Definitions, Helm, crane, flux, promtool, tektons_examples};
pub use kwok::Nodes;
pub use options::{Audit, Cores, Limits, Options, Settings};
pub use part::Part;
pub use recycle::Baseline;
pub use testbed::{CpuTimes, Testbed, interrupted};
pub use versions::{Kubernetes, Tekton, Versions};
