//! How messages show text from outside: from a file, another library or a driver.

/// The text with its control characters escaped, which could end a line or control a terminal.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_debug()),
            false => shown.push(character),
        }
    }
    shown
}

/// The same; of a text of any length its first 600 characters and its last 200.
pub fn shortened(text: &str) -> String {
    const BEGIN: usize = 600;
    const END: usize = 200;
    let length = text.chars().count();
    if length <= BEGIN + END {
        return escaped(text);
    }
    let begin = text.chars().take(BEGIN);
    let end = text.chars().skip(length - END);
    escaped(&begin.chain(['…']).chain(end).collect::<String>())
}

/// A field as a message shows it.
pub(crate) fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    let mut short: String = text.chars().take(20).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(
            escaped("größer \"als\\ \r\n\u{1b}[31m"),
            r#"größer "als\ \r\n\u{1b}[31m"#
        );
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let long = format!("{}{}", "é".repeat(1000), "z".repeat(200));
        assert_eq!(
            shortened(&long),
            format!("{}…{}", "é".repeat(600), "z".repeat(200))
        );
        let short = "é".repeat(800);
        assert_eq!(shortened(&short), short);
        assert_eq!(shortened("a\nb"), r"a\nb");
    }
}
