//! `#[e2e_test]`: registers a function with the harness of the end-to-end tests.
//!
//! `#[tokio::test]` registers with libtest, which runs tests in the order of their names and reports nothing at the end. The
//! function itself stays unchanged, so compiler errors point to the usual places.

use proc_macro::{TokenStream, TokenTree};

/// Marks an end-to-end test, with any of these options:
/// - `first`: the test takes long, and is started early.
/// - `autoscaler`: the test needs an autoscaler, and is started last if the autoscalers must be built first.
/// - `real_node`: the test is ignored where a real node is impossible, and with other versions than the default ones.
/// - `webhook`: the test covers the webhook, and is ignored where policies replace the webhook.
/// - `policies`: the test needs admission policies, and is ignored where the API server is too old to evaluate them.
/// - `second`: `cargo test-all` runs the test, and `cargo test` does not. The test repeats a behaviour, or needs another
///   build.
/// - `nightly`: only `cargo test-nightly` runs the test.
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

/// The function's name, and the expression that calls the function.
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
            level: crate::support::level::Level::new({second}, {nightly}),
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
