//! The timeline as one page that needs no network: the picture, a filter, and the keyboard. Pure.

use super::escape::escaped;
use super::model::Timeline;
use super::svg::{STYLE, key, parts};
use super::title;

const PAGE: &str = include_str!("page.html");
const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub(crate) fn html(timeline: &Timeline) -> String {
    let (axis, lanes) = parts(timeline);
    let missing = timeline
        .missing
        .iter()
        .map(|gap| format!("<li>{}</li>", escaped(gap)));
    let missing: String = missing.collect();
    let missing = if missing.is_empty() {
        String::new()
    } else {
        format!("<div class=\"missing\">Not read, so the picture is incomplete:<ul>{missing}</ul></div>")
    };
    let parts = [
        ("style", format!("{STYLE}{PAGE_STYLE}")),
        ("title", escaped(&title(timeline))),
        ("key", key(timeline)),
        ("axis", axis),
        ("lanes", lanes),
        ("missing", missing),
        ("script", SCRIPT.to_owned()),
    ];
    filled(PAGE, &parts)
}

/// Fills in each `{{part}}` in one pass: a name that looks like a part stays a name.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let mut pieces = template.split("{{");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |page, piece| {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let part = parts.iter().find(|(known, _)| *known == name);
        page + part.map_or("", |(_, text)| text) + rest
    })
}
