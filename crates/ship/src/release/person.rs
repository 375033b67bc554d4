//! A maintainer.

/// A person with a mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) mail: String,
}

impl Person {
    /// Parses `Ann <ann@example.com>`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
        match parts {
            Some((name, mail)) if mail.contains('@') && !text.contains(['"', '\n']) => Ok(Self {
                name: name.trim().to_owned(),
                mail: mail.to_owned(),
            }),
            _ => Err(format!(
                "'{text}' is not a person: write it as Ann <ann@example.com>"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_has_a_name_and_a_mail_address() {
        let ann = Person::parse("Ann Example <ann@example.com>").unwrap();
        assert_eq!(
            (ann.name.as_str(), ann.mail.as_str()),
            ("Ann Example", "ann@example.com")
        );
        for bad in ["Ann", "ann@example.com", "Ann <ann>", "<ann@example.com>"] {
            assert!(Person::parse(bad).is_err(), "{bad}");
        }
    }
}
