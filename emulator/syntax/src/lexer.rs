//! PTX text to tokens.
//!
//! An opcode with its modifiers (`ld.global.nc.v4.u32`), a special register (`%tid.x`) and a directive (`.reg`) are one
//! [`Token::Word`] each; the parser splits them at the dots. Comments vanish.

use crate::error::ParseError;

/// Texts longer than this are refused: no kernel comes near it, and every table stays indexable by `u32`.
const MAX_TEXT: usize = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'a> {
    /// An identifier, directive, register or opcode with its modifiers.
    Word(&'a str),
    /// An integer literal; whether it is negative is a [`Token::Punct`] before it.
    Int(u64),
    /// `0f…`: the bits of a float.
    F32(u32),
    /// `0d…`, or a decimal literal: the bits of a double.
    F64(u64),
    /// A quoted string, without its quotes.
    Str(&'a str),
    Punct(u8),
    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lexeme<'a> {
    pub token: Token<'a>,
    pub line: u32,
    pub start: u32,
    pub end: u32,
}

/// What of a text becomes tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bodies {
    Read,
    /// Of a function's body, or a section's, the braces alone.
    Skipped,
}

/// All tokens of `text`, closed by one [`Token::End`].
pub(crate) fn lex(text: &str, bodies: Bodies) -> Result<Vec<Lexeme<'_>>, ParseError> {
    if text.len() > MAX_TEXT {
        return Err(ParseError::new(
            1,
            "",
            format!(
                "the text has {} bytes; at most {MAX_TEXT} are read",
                text.len()
            ),
        ));
    }
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut out: Vec<Lexeme<'_>> = Vec::new();
    let mut depth = 0u32;
    loop {
        lexer.skip_blanks()?;
        let (start, line) = (lexer.at, lexer.line);
        let token = lexer.next()?;
        match token {
            // After `=` it opens initial values.
            Token::Punct(b'{')
                if bodies == Bodies::Skipped
                    && depth == 0
                    && out
                        .last()
                        .is_none_or(|last| last.token != Token::Punct(b'=')) =>
            {
                lexer.skip_body()?;
            }
            Token::Punct(b'{') => depth += 1,
            Token::Punct(b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        out.push(Lexeme {
            token,
            line,
            start: start as u32,
            end: lexer.at as u32,
        });
        if token == Token::End {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error(&self, start: usize, message: &str) -> ParseError {
        let rest = self.text.get(start..).unwrap_or("");
        let shown: String = rest.lines().next().unwrap_or("").chars().take(40).collect();
        ParseError::new(self.line, shown, message)
    }

    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let start = self.at;
                    self.at += 2;
                    while (self.peek(0), self.peek(1)) != (b'*', b'/') {
                        if self.at >= self.bytes.len() {
                            return Err(self.error(start, "this comment is never closed"));
                        }
                        self.line += u32::from(self.bytes[self.at] == b'\n');
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// To the brace that closes the one before the cursor.
    fn skip_body(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        let mut depth = 0u32;
        loop {
            self.skip_plain();
            match self.peek(0) {
                b'{' => depth += 1,
                b'}' if depth == 0 => return Ok(()),
                b'}' => depth -= 1,
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'/' if matches!(self.peek(1), b'/' | b'*') => {
                    self.skip_blanks()?;
                    continue;
                }
                _ if self.at >= self.bytes.len() => {
                    return Err(self.error(start, "this body is never closed"));
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// To the next byte that may open or close something. Bodies are nearly all of a text, so it looks at many bytes at
    /// once.
    fn skip_plain(&mut self) {
        const BYTES: usize = 64;
        let is_special = |byte: &u8| matches!(byte, b'{' | b'}' | b'"' | b'/');
        let start = self.at;
        for chunk in self.bytes[start..].chunks(BYTES) {
            // With a way out of the loop the compiler would make no vectors of it.
            let found = chunk
                .iter()
                .fold(false, |found, byte| found | is_special(byte));
            let plain = found.then(|| chunk.iter().position(is_special)).flatten();
            self.at += plain.unwrap_or(chunk.len());
            if found {
                break;
            }
        }
        let skipped = self.bytes[start..self.at].iter();
        self.line += skipped.filter(|byte| **byte == b'\n').count() as u32;
    }

    fn next(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        if start >= self.bytes.len() {
            return Ok(Token::End);
        }
        match self.bytes[start] {
            b'"' => self.string(),
            b'0'..=b'9' => self.number(),
            b'.' | b'%' | b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_word();
                Ok(Token::Word(&self.text[start..self.at]))
            }
            c @ (b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':'
            | b'+' | b'-' | b'|' | b'!' | b'@' | b'=' | b'*') => {
                self.at += 1;
                Ok(Token::Punct(c))
            }
            _ => Err(self.error(start, "no PTX token begins like this")),
        }
    }

    fn take_word(&mut self) {
        loop {
            match self.peek(0) {
                b'.' | b'%' | b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.at += 1,
                // `.L2::128B`, `.shared::cta`: a label's single colon ends the word.
                b':' if self.peek(1) == b':' && self.peek(2).is_ascii_alphanumeric() => {
                    self.at += 2
                }
                _ => return,
            }
        }
    }

    fn string(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(Token::Str(&self.text[start + 1..self.at - 1]));
                }
                b'\\' if self.peek(1) != b'\n' => self.at += 2,
                _ if self.at >= self.bytes.len() => {
                    return Err(self.error(start, "this string is never closed"));
                }
                b'\n' => return Err(self.error(start, "this string is not closed on its line")),
                _ => self.at += 1,
            }
            // A backslash may have stepped past the end of the text.
            if self.at > self.bytes.len() {
                return Err(self.error(start, "this string is never closed"));
            }
        }
    }

    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        while matches!(self.peek(0), b'.' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9')
            || (matches!(self.peek(0), b'+' | b'-') && self.is_exponent(start))
        {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        let bad = || self.error(start, "this is not a number that PTX knows");
        let hex = |digits: &str, len: usize| {
            (digits.len() == len)
                .then(|| u64::from_str_radix(digits, 16).ok())
                .flatten()
                .ok_or_else(bad)
        };
        let (head, tail) = word.split_at_checked(2).unwrap_or((word, ""));
        match head {
            "0f" | "0F" => return Ok(Token::F32(hex(tail, 8)? as u32)),
            "0d" | "0D" => return Ok(Token::F64(hex(tail, 16)?)),
            _ => {}
        }
        let digits = word.strip_suffix(['U', 'u']).unwrap_or(word);
        let parsed = match head {
            "0x" | "0X" => u64::from_str_radix(&digits[2..], 16),
            "0b" | "0B" => u64::from_str_radix(&digits[2..], 2),
            _ if word.contains(['.', 'e', 'E']) => {
                return word
                    .parse::<f64>()
                    .map(|v| Token::F64(v.to_bits()))
                    .map_err(|_| bad());
            }
            _ if digits.len() > 1 && digits.starts_with('0') => {
                u64::from_str_radix(&digits[1..], 8)
            }
            _ => digits.parse(),
        };
        parsed.map(Token::Int).map_err(|_| bad())
    }

    /// Whether the sign at the cursor belongs to a decimal exponent (`1.5e-3`).
    fn is_exponent(&self, start: usize) -> bool {
        let word = &self.bytes[start..self.at];
        word.contains(&b'.') && matches!(word.last(), Some(b'e' | b'E'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        lex(text, Bodies::Read)
            .unwrap()
            .into_iter()
            .map(|l| l.token)
            .collect()
    }

    #[test]
    fn words_numbers_and_comments() {
        assert_eq!(
            tokens(
                "ld.global.L2::128B %r1,[%rd2+-8]; // tail\n/* a\nb */ 0f3F800000 0x1F 010 7U 1.5e-3"
            ),
            [
                Token::Word("ld.global.L2::128B"),
                Token::Word("%r1"),
                Token::Punct(b','),
                Token::Punct(b'['),
                Token::Word("%rd2"),
                Token::Punct(b'+'),
                Token::Punct(b'-'),
                Token::Int(8),
                Token::Punct(b']'),
                Token::Punct(b';'),
                Token::F32(0x3F80_0000),
                Token::Int(31),
                Token::Int(8),
                Token::Int(7),
                Token::F64(1.5e-3f64.to_bits()),
                Token::End
            ]
        );
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let lexemes = lex("a\n/*\n\n*/b", Bodies::Read).unwrap();
        assert_eq!((lexemes[0].line, lexemes[1].line), (1, 4));
    }

    /// Bodies are skipped many bytes at a time: what closes them, what only seems to, and lines are found wherever they
    /// lie among those.
    #[test]
    fn bodies_are_skipped_to_the_brace_that_closes_them() {
        for blanks in 0..140 {
            let filling = "a/b;\n".repeat(blanks % 7) + &" ".repeat(blanks);
            let body = format!("{filling}{{x}}{filling}\"}}\"//}}\n{filling}/*}}\n*/{filling}");
            let text = format!("f {{{body}}}\nlast");
            let lexemes = lex(&text, Bodies::Skipped).unwrap();
            let tokens: Vec<Token<'_>> = lexemes.iter().map(|lexeme| lexeme.token).collect();
            let (open, close) = (Token::Punct(b'{'), Token::Punct(b'}'));
            let (first, last) = (Token::Word("f"), Token::Word("last"));
            assert_eq!(tokens, [first, open, close, last, Token::End], "{text}");
            let lines = text.matches('\n').count() as u32;
            assert_eq!(lexemes[3].line, lines + 1, "{text}");
            let open_end = &text[..text.len() - "}\nlast".len()];
            let error = lex(open_end, Bodies::Skipped).unwrap_err();
            assert_eq!(error.line, lines, "{open_end}");
        }
    }

    #[test]
    fn what_is_no_token_is_an_error_with_its_line() {
        for (text, line) in [
            ("a\n\"open", 2),
            ("0fxyz", 1),
            ("\n\n§", 3),
            ("/* never", 1),
            ("99999999999999999999", 1),
            ("\"\\", 1),
        ] {
            assert_eq!(lex(text, Bodies::Read).unwrap_err().line, line, "{text:?}");
        }
    }
}
