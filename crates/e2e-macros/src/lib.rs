//! `#[e2e_test]`: registers a function with the harness of the end-to-end tests.
//!
//! `#[tokio::test]` registers with libtest, which runs tests in the order of their names and reports nothing at the
//! end. The function is kept as it is, so errors in it have their usual places.

use proc_macro::{TokenStream, TokenTree};

/// Marks an end-to-end test. With `#[e2e_test(first)]` it is started before all others, because it takes long.
#[proc_macro_attribute]
pub fn e2e_test(options: TokenStream, function: TokenStream) -> TokenStream {
    let registration = match (options.to_string().as_str(), call_of(&function)) {
        ("", Some((name, call))) => registration(&name, &call, false),
        ("first", Some((name, call))) => registration(&name, &call, true),
        (_, Some(_)) => error("the only option is `first`"),
        (_, None) => error("only a function can be a test"),
    };
    registration.into_iter().chain(function).collect()
}

/// The function's name, and how it is called.
fn call_of(function: &TokenStream) -> Option<(String, String)> {
    let words: Vec<_> = function.clone().into_iter().filter_map(word).collect();
    let keyword = words.iter().position(|word| word == "fn")?;
    let name = words.get(keyword + 1)?.clone();
    let call = if words[..keyword].contains(&"async".to_owned()) {
        format!("crate::harness::block_on({name}())")
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

fn registration(name: &str, call: &str, first: bool) -> TokenStream {
    parsed(&format!(
        "::inventory::submit! {{ crate::harness::Test {{
            path: concat!(module_path!(), \"::{name}\"),
            first: {first},
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
