//! The blocks of commands and YAML in the documentation, and the tests that execute them.

use super::kubectl::workspace;
use std::fs;
use std::path::Path;

/// Lines of a block below this line are not executed. The reason follows.
pub(crate) const NOT_EXECUTED: &str = "# not executed by a test";
/// A block with this line is executed by a nightly test only.
const NIGHTLY: &str = "# executed by a nightly test";

/// Creates the files `ca.crt` and `ca.key` of a user's CA.
pub(crate) const CREATE_CA: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -subj /CN=ca -out ca.crt";

/// Pages, headings, and the tests that execute the blocks between this heading and the next one.
pub(crate) const EXECUTED: [(&str, &str, &str); 50] = [
    ("README.md", "# pod-affinity", PAGES),
    ("README.md", "## Install", PAGES),
    ("README.md", "## Install", SHIP),
    ("README.md", "## A first run", PAGES),
    ("certs/README.md", "## cert-manager", SHIP),
    ("certs/README.md", "## Your own CA", "docs_pages::the_certificate"),
    ("certs/README.md", "## Your own CA", SHIP),
    ("docs/authors.md", "## Put a run on one node", PAGES),
    ("docs/cli.md", "# The command line tool", PAGES),
    ("docs/cli.md", "### Shell completion", PAGES),
    ("docs/cli.md", "### explain as data", PAGES),
    ("docs/cli.md", "## timeline", PAGES),
    ("docs/cli.md", "## cost", PAGES),
    ("docs/cli.md", "## wait", PAGES),
    (
        "docs/concepts.md",
        "## Opt in by namespace",
        "opt_in_by_namespace::a_run_without_the_label",
    ),
    ("docs/helm.md", "## Install with Helm", HELM),
    ("docs/helm.md", "### Policies or webhook", HELM),
    ("docs/helm.md", "## Upgrade with Helm", HELM),
    ("docs/helm.md", "## Adopt an installation", HELM),
    ("docs/helm.md", "## Uninstall with Helm", HELM),
    ("docs/install.md", "## From a release", PAGES),
    ("docs/install.md", "## From a clone", SHIP),
    ("docs/install.md", "## On kind", "real_node::runs::a_labelled_run"),
    ("docs/install.md", "## Variants", SHIP),
    ("docs/install.md", "### Combine components", KUSTOMIZE),
    ("docs/install.md", "## Check", PAGES),
    ("docs/integrations.md", "### Add the label by a policy", PAGES),
    ("docs/integrations.md", "## Network policies", PAGES),
    (
        "docs/integrations.md",
        "## Required labels and other policies",
        PAGES,
    ),
    ("docs/nodes.md", "## Drains and upgrades", PAGES),
    ("docs/operation.md", "### Alerts and dashboard", KUSTOMIZE),
    ("docs/operation.md", "### One run", SWITCH_OFF),
    ("docs/operation.md", "### One namespace", SWITCH_OFF),
    ("docs/operation.md", "### Everything", SWITCH_OFF),
    (
        "docs/operation.md",
        "### With admission policies",
        "install_docs::uninstalling_policies",
    ),
    (
        "docs/operation.md",
        "### With the webhook",
        "install_docs::uninstalling_as_the_page_says",
    ),
    ("docs/plan.md", "### Caps", PAGES),
    (
        "docs/releasing.md",
        "## Verify a release",
        "ship::release::a_signed_release",
    ),
    ("docs/runbooks/", "## Diagnosis", PAGES),
    ("docs/troubleshooting.md", "# Troubleshooting", PAGES),
    ("examples/node-local/README.md", "## Volumes", NODE_LOCAL),
    ("examples/node-local/README.md", "## A run", NODE_LOCAL),
    (
        "examples/node-local/README.md",
        "## Use a volume again",
        NODE_LOCAL,
    ),
    (
        "overlays/policies/README.md",
        "# Admission policies instead of the webhook",
        SHIP,
    ),
    ("overlays/policies/README.md", "## What is different", KUSTOMIZE),
    (
        "overlays/policies/README.md",
        "### From the webhook to policies",
        SWITCH,
    ),
    (
        "overlays/policies/README.md",
        "### From policies to the webhook",
        SWITCH,
    ),
    ("config/components/warm-nodes/README.md", "# Warm nodes", SHIP),
    ("config/components/warm-nodes/README.md", "## Settings", KUSTOMIZE),
    (
        "config/components/warm-nodes/README.md",
        "## CapacityBuffer",
        "warm_nodes::with_karpenter_a_capacity",
    ),
];

const HELM: &str = "helm_lifecycle::";
const KUSTOMIZE: &str = "docs_pages::the_kustomization";
const NODE_LOCAL: &str = "volumes_node_local::";
const PAGES: &str = "docs_pages::the_commands_of_the_pages";
const SHIP: &str = "ship::cluster::the_manifests";
const SWITCH: &str = "policies_switch::a_switch_to_policies";
const SWITCH_OFF: &str = "install_docs::each_way_to_switch_it_off";

/// A fenced block.
pub(crate) struct Block {
    pub(crate) page: String,
    pub(crate) heading: String,
    pub(crate) language: String,
    /// The part of the block that is executed.
    pub(crate) text: String,
    pub(crate) nightly: bool,
}

impl Block {
    pub(crate) fn is_of(&self, page: &str, heading: &str) -> bool {
        self.page.starts_with(page) && self.heading == heading && !self.text.is_empty()
    }

    pub(crate) fn is_executed(&self) -> bool {
        EXECUTED
            .iter()
            .any(|(page, heading, _)| self.is_of(page, heading))
    }
}

/// The executed parts of the blocks below a heading of a page, or of all pages in a folder.
pub(crate) fn blocks(page: &str, heading: &str) -> Vec<String> {
    let mut found = all_blocks();
    found.retain(|block| block.is_of(page, heading));
    assert!(
        !found.is_empty() && found.iter().all(Block::is_executed),
        "{page}, {heading}"
    );
    found.into_iter().map(|block| block.text).collect()
}

/// The only block below a heading.
pub(crate) fn block(page: &str, heading: &str) -> String {
    let [block] = blocks(page, heading).try_into().unwrap();
    block
}

/// The paths of all pages in the repository.
pub(crate) fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in [
        "",
        "certs",
        "chart",
        "docs",
        "docs/benchmarks",
        "docs/runbooks",
        "examples",
        "examples/node-local",
        "overlays/policies",
        "config/components/warm-nodes",
    ] {
        for entry in fs::read_dir(workspace().join(folder)).unwrap() {
            let page = Path::new(folder).join(entry.unwrap().file_name());
            if page.extension().is_some_and(|ending| ending == "md") {
                pages.push(page.into_os_string().into_string().unwrap());
            }
        }
    }
    pages.sort();
    pages
}

pub(crate) fn all_blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

fn blocks_of(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(workspace().join(page)).unwrap();
    let (mut blocks, mut heading) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((indent, language)) = line.split_once("```") {
            let inside = lines.by_ref().take_while(|line| line.trim() != "```");
            let inside: Vec<_> = inside
                .map(|line| line.strip_prefix(indent).unwrap_or(line))
                .collect();
            blocks.push(Block {
                page: page.to_owned(),
                heading: heading.clone(),
                language: language.to_owned(),
                text: executed(&inside),
                nightly: inside.contains(&NIGHTLY),
            });
        } else if line.starts_with('#') {
            line.clone_into(&mut heading);
        }
    }
    blocks
}

fn executed(lines: &[&str]) -> String {
    let executed = lines.iter().take_while(|line| !line.starts_with(NOT_EXECUTED));
    let commands = executed.filter(|line| **line != NIGHTLY);
    commands.map(|line| format!("{line}\n")).collect()
}
