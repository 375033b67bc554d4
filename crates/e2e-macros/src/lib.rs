//! `#[e2e_test]`: registers a function with the harness of the end-to-end tests.
//!
//! `#[tokio::test]` registers with libtest, which runs tests in the order of their names and reports nothing at the
//! end. The function is kept as it is, so errors in it have their usual places.

use proc_macro::{TokenStream, TokenTree};

/// Marks an end-to-end test, with any of these options:
/// - `first`: it takes long, and is started early.
/// - `autoscaler`: it needs one, and is started last where the autoscalers still have to be built.
/// - `real_node`: it is ignored where there can be no real node, and with other versions than the default ones.
/// - `webhook`: it is about the webhook, and is ignored where policies replace it.
/// - `policies`: it needs admission policies, and is ignored where the API server is too old to evaluate them.
/// - `second`: `cargo test-all` runs it, and `cargo test` does not. It repeats a behaviour, or needs another build.
/// - `nightly`: only `cargo test-nightly` runs it.
#[proc_macro_attribute]
pub fn e2e_test(options: TokenStream, function: TokenStream) -> TokenStream {
    let options: Vec<_> = options.into_iter().filter_map(word).collect();
    let unknown = options.iter().find(|option| !OPTIONS.contains(&option.as_str()));
    let registration = match (unknown, call_of(&function)) {
        (None, Some((name, call))) => registration(&name, &call, &options),
        (Some(option), _) => error(&format!("{option} is none of {OPTIONS:?}")),
        (None, None) => error("only a function can be a test"),
    };
    registration.into_iter().chain(function).collect()
}

const OPTIONS: [&str; 7] = [
    "first",
    "autoscaler",
    "real_node",
    "webhook",
    "policies",
    "second",
    "nightly",
];

/// The function's name, and how it is called.
fn call_of(function: &TokenStream) -> Option<(String, String)> {
    let words: Vec<_> = function.clone().into_iter().filter_map(word).collect();
    let keyword = words.iter().position(|word| word == "fn")?;
    let name = words.get(keyword + 1)?.clone();
    let call = if words[..keyword].contains(&"async".to_owned()) {
        format!("crate::support::harness::block_on({name}())")
    } else {
        format!("{name}()")
    };
    Some((name, call))
}

fn word(token: TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}

fn registration(name: &str, call: &str, options: &[String]) -> TokenStream {
    let [first, autoscaler, real_node, webhook, policies, second, nightly] =
        OPTIONS.map(|option| options.iter().any(|given| given == option));
    parsed(&format!(
        "::inventory::submit! {{ crate::support::harness::Test {{
            path: concat!(module_path!(), \"::{name}\"),
            first: {first},
            autoscaler: {autoscaler},
            real_node: {real_node},
            webhook: {webhook},
            policies: {policies},
            level: crate::support::level::Level::of({second}, {nightly}),
            run: || {call},
        }} }}"
    ))
}

fn error(message: &str) -> TokenStream {
    parsed(&format!("compile_error!({message:?});"))
}

fn parsed(code: &str) -> TokenStream {
    code.parse().unwrap_or_default()
}
