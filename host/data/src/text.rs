//! Text read in blocks of whole lines, which all threads take apart while the next ones are read and unpacked.

use std::io::{self, Read};

use halfgnn_graph::parallel;

use super::error::DataProblem;
use super::input::{BYTE_ORDER_MARK, Input, check_encoding, is_gzip};
use super::message::shown;
use flate2::read::MultiGzDecoder;

/// The bytes of a block, or a little more: the line that it ends in is read to its end.
const BLOCK: usize = 1 << 20;

/// A line longer than this is refused.
const MAX_LINE: usize = 16 << 20;

/// A text: what was read of it and not used yet, and where that stands.
pub(crate) struct Text<'a> {
    source: Box<dyn Read + Send + 'a>,
    /// The bytes of the file, packed or not.
    file_bytes: u64,
    packed: bool,
    /// What the source gave by now, in bytes.
    given: u64,
    /// Read, and not yet given out. Lines end in `\n`, or `\r\n`: a `\r` alone, the line end of old Macs, was replaced.
    left: Vec<u8>,
    ended: bool,
    /// The number of the first line in `left`, from 1.
    line: u64,
}

/// What is wrong with a line of a block.
#[derive(Debug)]
pub(crate) struct LineError {
    /// Where in the block.
    pub at: usize,
    /// What is wrong.
    pub reason: String,
}

/// What a packed text may come to: this much in any case, and more than that by this ratio to what is packed. Deflate
/// goes up to 1032 to 1, which only a text that repeats one line reaches; edge lists are packed 3 to 20 to 1.
const UNPACKED_ALWAYS: u64 = 64 << 20;
const UNPACKED_RATIO: u64 = 200;

/// The most that a text of `packed` bytes may come to once it is unpacked.
fn most_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(UNPACKED_RATIO).max(UNPACKED_ALWAYS)
}

impl<'a> Input<'a> {
    /// The content as text, unpacked where it is gzip.
    pub fn text(self) -> Result<Text<'a>, DataProblem> {
        let len = self.len();
        let (source, packed) = self.unpacked()?;
        Ok(Text::new(source, len, packed))
    }

    /// The bytes, unpacked where they are gzip, and whether they are. What they unpack to is limited.
    pub fn unpacked(mut self) -> Result<(Box<dyn Read + Send + 'a>, bool), DataProblem> {
        let head = self.head(8)?;
        check_encoding(&head)?;
        if !is_gzip(&head) {
            return Ok((Box::new(self), false));
        }
        let left = most_unpacked(self.len());
        let inner = MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, self));
        Ok((Box::new(Unpacked { inner, left }), true))
    }
}

/// What is unpacked, up to a limit.
struct Unpacked<R> {
    inner: MultiGzDecoder<R>,
    left: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!(
                "it unpacks to more than {UNPACKED_RATIO} times its size; if that is meant, unpack it first with gunzip"
            ))
        })?;
        Ok(read)
    }
}

impl<'a> Text<'a> {
    pub fn new(source: Box<dyn Read + Send + 'a>, file_bytes: u64, packed: bool) -> Self {
        Self {
            source,
            file_bytes,
            packed,
            given: 0,
            left: Vec::new(),
            ended: false,
            line: 1,
        }
    }

    /// The most vertices that a file of this size may claim to have, where it lists edges only: a graph of which nearly
    /// all vertices are alone is a mistake in the header, and would be paid for in memory.
    pub fn most_vertices(&self) -> u64 {
        let bytes = if self.packed {
            self.file_bytes.saturating_mul(4)
        } else {
            self.file_bytes
        };
        bytes.saturating_mul(8).max(1 << 20)
    }

    /// The bytes of the file, packed or not.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The number of the line that comes next, from 1.
    pub fn line_number(&self) -> u64 {
        self.line
    }

    /// The next line without its end, or `None` after the last.
    pub fn line(&mut self) -> Result<Option<String>, DataProblem> {
        let Some(line) = self.peek_line()?.map(str::to_string) else {
            return Ok(None);
        };
        let end = memchr::memchr(b'\n', &self.left).map_or(self.left.len(), |end| end + 1);
        self.left.drain(..end);
        self.line += 1;
        Ok(Some(line))
    }

    /// The line that comes next, left where it is.
    pub fn peek_line(&mut self) -> Result<Option<&str>, DataProblem> {
        let mut searched = 0;
        let end = loop {
            if let Some(end) = memchr::memchr(b'\n', &self.left[searched..]) {
                break searched + end;
            }
            // A `\r` at the end becomes a line end where no `\n` follows.
            searched = self.left.len().saturating_sub(1);
            // Short pieces: a header is a few lines, and `line` moves up what is behind it.
            if !self.fill(4096)? {
                break self.left.len();
            }
        };
        if self.left.is_empty() {
            return Ok(None);
        }
        let line = self.left[..end]
            .strip_suffix(b"\r")
            .unwrap_or(&self.left[..end]);
        let number = self.line;
        match std::str::from_utf8(line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(DataProblem::line(number, "it is no text")),
        }
    }

    /// Parses the rest of the text: `parse` gets blocks of whole lines, on all threads; `take` gets its results, in the
    /// text's order.
    pub fn for_each_block<T: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<T, LineError> + Sync,
        mut take: impl FnMut(T) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let size = rayon::current_num_threads() * 2;
        let mut line = self.line;
        let mut batch = self.batch(size)?;
        while !batch.is_empty() {
            let work = |block: &Vec<u8>| (parse(block), memchr::memchr_iter(b'\n', block).count());
            let (parsed, next) = rayon::join(
                || parallel::map(&*batch, |_, block| work(block)),
                || self.batch(size),
            );
            for (block, (parsed, lines)) in batch.iter().zip(parsed) {
                take(parsed.map_err(|error| {
                    let before = memchr::memchr_iter(b'\n', &block[..error.at]).count();
                    DataProblem::line(line + before as u64, error.reason)
                })?)?;
                line += lines as u64;
            }
            batch = next?;
        }
        self.line = line;
        Ok(())
    }

    /// Up to `size` blocks; fewer at the end, none after it.
    fn batch(&mut self, size: usize) -> Result<Vec<Vec<u8>>, DataProblem> {
        let mut batch = Vec::with_capacity(size);
        while batch.len() < size {
            let block = self.block()?;
            if block.is_empty() {
                break;
            }
            batch.push(block);
        }
        Ok(batch)
    }

    /// A block of whole lines; empty at the end.
    fn block(&mut self) -> Result<Vec<u8>, DataProblem> {
        let mut wanted = BLOCK;
        loop {
            while self.left.len() < wanted && self.fill(wanted - self.left.len())? {}
            if self.ended {
                return Ok(std::mem::take(&mut self.left));
            }
            if let Some(end) = memchr::memrchr(b'\n', &self.left) {
                let mut rest = Vec::with_capacity(BLOCK + (BLOCK >> 2));
                rest.extend_from_slice(&self.left[end + 1..]);
                self.left.truncate(end + 1);
                return Ok(std::mem::replace(&mut self.left, rest));
            }
            wanted *= 2;
        }
    }

    /// Reads up to `bytes` more; whether there was anything.
    fn fill(&mut self, bytes: usize) -> Result<bool, DataProblem> {
        if self.ended {
            return Ok(false);
        }
        // No block is refused for its lines together: it is given out as soon as it has a line's end.
        if self.left.len() > MAX_LINE {
            let reason = format!("it is longer than {} MiB", MAX_LINE >> 20);
            return Err(DataProblem::line(self.line, reason));
        }
        let before = self.left.len();
        let read = (&mut self.source)
            .take(bytes as u64)
            .read_to_end(&mut self.left)
            .map_err(|error| self.problem(error))?;
        let is_first = self.given == 0;
        self.given += read as u64;
        self.ended = read < bytes;
        if is_first {
            check_encoding(&self.left)?;
            if self.left.starts_with(BYTE_ORDER_MARK) {
                self.left.drain(..BYTE_ORDER_MARK.len());
            }
        }
        end_lines(&mut self.left, before.saturating_sub(1));
        // What is packed, its unpacker finds out to be cut.
        if self.ended && !self.packed && self.given < self.file_bytes {
            let (given, length) = (self.given, self.file_bytes);
            let reason = format!(
                "it ends after {given} of {length} bytes: it became shorter while it was read"
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason).into());
        }
        Ok(read > 0)
    }

    fn problem(&self, error: io::Error) -> DataProblem {
        if self.packed {
            DataProblem::Gzip {
                reason: error.to_string(),
            }
        } else {
            error.into()
        }
    }
}

/// Makes a `\n` of each `\r` from `start` on that another byte than `\n` follows.
fn end_lines(text: &mut [u8], start: usize) {
    let mut at = start;
    while let Some(found) = memchr::memchr(b'\r', &text[at..]) {
        at += found + 1;
        match text.get(at) {
            None => return,
            Some(b'\n') => {}
            Some(_) => text[at - 1] = b'\n',
        }
    }
}

/// Iterates over a block: fields, lines, numbers.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
    /// Whether a line had more than was read of it.
    pub has_more: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            has_more: false,
        }
    }

    /// The bytes of the block.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Goes past what separates fields: blanks, tabs and `also`.
    pub fn skip_blanks(&mut self, also: u8) {
        while let Some(byte) = self.peek() {
            if byte != b' ' && byte != b'\t' && byte != b'\r' && byte != also {
                return;
            }
            self.at += 1;
        }
    }

    /// Goes past the end of the line.
    pub fn skip_line(&mut self) {
        self.at = match memchr::memchr(b'\n', &self.bytes[self.at..]) {
            Some(end) => self.at + end + 1,
            None => self.bytes.len(),
        };
    }

    /// Whether nothing is left in the line.
    pub fn at_line_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n'))
    }

    /// The bytes up to the next blank, tab, `also` or end of line.
    pub fn field(&mut self, also: u8) -> &'a [u8] {
        let start = self.at;
        while let Some(byte) = self.peek() {
            if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') || byte == also {
                break;
            }
            self.at += 1;
        }
        &self.bytes[start..self.at]
    }

    /// A whole number from 0. `what` it is stands in the error.
    #[inline]
    pub fn whole(&mut self, also: u8, what: &str) -> Result<u64, LineError> {
        let start = self.at;
        let mut value = 0_u64;
        // 19 digits cannot overflow.
        while let Some(digit) = self.peek().map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
            && self.at - start < 19
        {
            value = value * 10 + u64::from(digit);
            self.at += 1;
        }
        let ends = match self.peek() {
            None => true,
            Some(byte) => byte.is_ascii_whitespace() || byte == also,
        };
        if self.at > start && ends {
            return Ok(value);
        }
        self.at = start;
        let field = self.field(also);
        if let Some(value) = std::str::from_utf8(field)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
        {
            return Ok(value);
        }
        Err(self.error(start, format!("'{}' is no {what}", shown(field))))
    }

    pub fn error(&self, at: usize, reason: impl Into<String>) -> LineError {
        LineError {
            at,
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Text<'_> {
        Text::new(Box::new(bytes), bytes.len() as u64, false)
    }

    #[test]
    fn blocks_are_whole_lines_in_order() {
        let lines: Vec<String> = (0..400_000)
            .map(|line| format!("{line} {}", line * 7))
            .collect();
        let all = lines.join("\n"); // several blocks; the last line has no end
        let mut text = text(all.as_bytes());
        assert_eq!(text.line().unwrap().unwrap(), "0 0");
        assert_eq!(text.peek_line().unwrap().unwrap(), "1 7");
        let mut found = Vec::new();
        text.for_each_block(
            |block| Ok(String::from_utf8(block.to_vec()).unwrap()),
            |block| {
                found.extend(block.lines().map(str::to_string));
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(found, lines[1..]);
        assert_eq!(text.line().unwrap(), None);
    }

    #[test]
    fn a_carriage_return_alone_ends_a_line() {
        // Beyond the bytes that are read at a time, and where they end in the middle of an end.
        let lines: Vec<String> = (0..300_000).map(|line| format!("{line} 7")).collect();
        for end in ["\r", "\r\n", "\n"] {
            let all = lines.join(end);
            let mut text = text(all.as_bytes());
            assert_eq!(text.line().unwrap().unwrap(), "0 7");
            let mut found = 1;
            text.for_each_block(
                |block| Ok(memchr::memchr_iter(b'\n', block).count()),
                |lines| {
                    found += lines;
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(found, 299_999, "{end:?}");
        }
        let mut mixed = text(b"a\rb\r\nc\n\rd\r");
        let mut lines = Vec::new();
        while let Some(line) = mixed.line().unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["a", "b", "c", "", "d"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        assert_eq!(text(b"\xef\xbb\xbf1 2").line().unwrap().unwrap(), "1 2");
        let refused = text(b"\xff\xfe1\0").line().unwrap_err().to_string();
        assert_eq!(
            refused,
            "is text in UTF-16, which is not read; save it as UTF-8"
        );
    }

    #[test]
    fn errors_have_the_line_of_the_text() {
        let mut lines = vec!["1 2"; 500_000];
        lines[345_678] = "1 two";
        let all = lines.join("\n");
        let parse = |block: &[u8]| match memchr::memmem::find(block, b"two") {
            Some(at) => Err(LineError {
                at,
                reason: "'two' is no number".into(),
            }),
            None => Ok(()),
        };
        let error = text(all.as_bytes())
            .for_each_block(parse, |()| Ok(()))
            .unwrap_err();
        assert_eq!(error.to_string(), "line 345679: 'two' is no number");
    }

    #[test]
    fn a_text_that_becomes_shorter_is_no_end() {
        let lines = b"1 2\n3 4\n";
        let mut text = Text::new(Box::new(&lines[..]), 9, false);
        let error = text.for_each_block(|_| Ok(()), |()| Ok(())).unwrap_err();
        let expected =
            "cannot be read: it ends after 8 of 9 bytes: it became shorter while it was read";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let endless = Text::new(Box::new(io::repeat(b'7')), 1, false);
        let mut endless = endless;
        let error = endless.for_each_block(|_| Ok(()), |()| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "line 1: it is longer than 16 MiB");
    }

    #[test]
    fn numbers_end_where_u64_ends() {
        let whole = |text: &str| {
            Cursor::new(text.as_bytes())
                .whole(b',', "vertex id")
                .map_err(|error| error.reason)
        };
        assert_eq!(whole("0,"), Ok(0));
        assert_eq!(whole("18446744073709551615 "), Ok(u64::MAX));
        assert_eq!(whole("00000000000000000000000012\n"), Ok(12));
        assert_eq!(
            whole("18446744073709551616").unwrap_err(),
            "'18446744073709551616' is no vertex id"
        );
        assert_eq!(whole("-1").unwrap_err(), "'-1' is no vertex id");
        assert_eq!(whole("1.5").unwrap_err(), "'1.5' is no vertex id");
        assert_eq!(whole("").unwrap_err(), "'' is no vertex id");
    }
}
