//! The syntax that Kubernetes accepts for domains, and for names, keys and values of labels.

/// The longest domain before the slash of a key, and the longest name of most objects.
pub(crate) const LONGEST_DOMAIN: usize = 253;

/// Lowercase DNS labels, separated by dots.
pub(crate) fn is_domain(text: &str) -> bool {
    text.len() <= LONGEST_DOMAIN && text.split('.').all(is_dns_label)
}

/// The part of a key after the slash.
pub(crate) fn is_name(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(end)
        && text.ends_with(end)
        && text.chars().all(|c| end(c) || "-_.".contains(c))
}

/// A name, alone or after a domain and a slash.
pub(crate) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(text),
    }
}

pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_dns_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.starts_with(allowed)
        && text.ends_with(allowed)
        && text.chars().all(|c| allowed(c) || c == '-')
}
