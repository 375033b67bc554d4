//! What Kubernetes takes as a domain or a name in a key.

/// The longest domain before the slash of a key, and the longest name of most objects.
pub(crate) const LONGEST_DOMAIN: usize = 253;

/// Lowercase labels, separated by dots.
pub(crate) fn is_domain(text: &str) -> bool {
    text.len() <= LONGEST_DOMAIN && text.split('.').all(is_dns_label)
}

/// What follows the slash of a key.
pub(crate) fn is_name(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(end)
        && text.ends_with(end)
        && text.chars().all(|c| end(c) || "-_.".contains(c))
}

fn is_dns_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.starts_with(allowed)
        && text.ends_with(allowed)
        && text.chars().all(|c| allowed(c) || c == '-')
}
