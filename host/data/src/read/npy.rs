//! numpy's array format (`.npy`; numpy's `lib/format.py` is its specification), read as a stream.
//!
//! ```text
//! \x93NUMPY  major minor  length of the header   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  data
//! 6 bytes    1     1      2 bytes, 4 from 2.0    padded with spaces, ends with a newline
//! ```
//! The crates for it believe the header: they allocate what it promises, or multiply a shape unchecked, before a byte
//! of data is there. A header is a line of fixed grammar, so it is read here, and nothing is allocated for an array
//! until the archive agrees that it has the bytes.

use std::io::Read;

use half::f16;

/// A header longer than this is refused, as numpy does by default (`max_header_size`).
const MAX_HEADER: u32 = 10_000;

/// What an array says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The type of an element, as written.
    pub descr: String,
    /// That type, where it is a number.
    pub dtype: Option<Dtype>,
    /// Whether the first index changes fastest.
    pub fortran_order: bool,
    /// The shape; empty for a single number.
    pub shape: Vec<u64>,
    /// The bytes that magic, version and header take.
    pub bytes: u64,
}

/// The type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    pub kind: Kind,
    /// Bytes: 1, 2, 4 or 8.
    pub size: usize,
    pub big_endian: bool,
}

/// What the bits of a number mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float,
}

/// A number, as wide as its kind goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Header {
    /// The number of elements, or `None` past `u64`.
    pub fn len(&self) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(1_u64, |len, &side| len.checked_mul(side))
    }

    /// Reads magic, version and header.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(source: &mut impl Read) -> Result<Self, String> {
        let mut take =
            |bytes: &mut [u8]| source.read_exact(bytes).map_err(|error| error.to_string());
        let mut start = [0; 8];
        take(&mut start)?;
        if &start[..6] != b"\x93NUMPY" {
            return Err("it does not start with \\x93NUMPY".into());
        }
        let (length, before) = match start[6..] {
            [1, _] => {
                let mut length = [0; 2];
                take(&mut length)?;
                (u16::from_le_bytes(length).into(), 10)
            }
            [2 | 3, _] => {
                let mut length = [0; 4];
                take(&mut length)?;
                (u32::from_le_bytes(length), 12)
            }
            _ => return Err(format!("version {}.{} is unknown", start[6], start[7])),
        };
        if length > MAX_HEADER {
            return Err(format!("it is {length} bytes long, more than {MAX_HEADER}"));
        }
        let mut text = vec![0; length as usize];
        take(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| "it is no text".to_string())?;
        let mut header = Parser { rest: &text }.header()?;
        header.bytes = before + u64::from(length);
        Ok(header)
    }
}

impl Dtype {
    /// The type that numpy writes as `descr`, if it is a number's.
    pub fn parse(descr: &str) -> Option<Self> {
        let (order, rest) = descr.split_at_checked(1)?;
        let (kind, size) = rest.split_at_checked(1)?;
        let big_endian = match order {
            "<" | "|" => false,
            ">" => true,
            _ => return None,
        };
        let (kind, sizes): (_, &[usize]) = match kind {
            "b" => (Kind::Bool, &[1]),
            "i" => (Kind::Signed, &[1, 2, 4, 8]),
            "u" => (Kind::Unsigned, &[1, 2, 4, 8]),
            "f" => (Kind::Float, &[2, 4, 8]),
            _ => return None,
        };
        let size = size.parse().ok().filter(|size| sizes.contains(size))?;
        Some(Self {
            kind,
            size,
            big_endian,
        })
    }

    /// The number in `bytes`, which are `size` many.
    pub fn number(self, bytes: &[u8]) -> Number {
        let mut word = [0_u8; 8];
        for (to, at) in word.iter_mut().zip(0..self.size) {
            *to = bytes[if self.big_endian {
                self.size - 1 - at
            } else {
                at
            }];
        }
        let bits = u64::from_le_bytes(word);
        match (self.kind, self.size) {
            (Kind::Bool, _) => Number::Unsigned(u64::from(bits != 0)),
            (Kind::Unsigned, _) => Number::Unsigned(bits),
            (Kind::Signed, size) => {
                let unused = 64 - 8 * size as u32;
                Number::Signed((bits << unused) as i64 >> unused)
            }
            (Kind::Float, 2) => Number::Float(f16::from_bits(bits as u16).to_f64()),
            (Kind::Float, 4) => Number::Float(f32::from_bits(bits as u32).into()),
            (Kind::Float, _) => Number::Float(f64::from_bits(bits)),
        }
    }

    /// Calls `each` with `len` numbers of `source` and their positions, until it fails.
    ///
    /// # Errors
    /// What `each` said, and what `source` said by way of `io`.
    pub fn for_each<E>(
        self,
        source: &mut impl Read,
        len: u64,
        io: impl Fn(std::io::Error) -> E,
        mut each: impl FnMut(u64, Number) -> Result<(), E>,
    ) -> Result<(), E> {
        const NUMBERS: u64 = 8192;
        let mut buffer = vec![0_u8; NUMBERS as usize * self.size];
        let mut at = 0;
        while at < len {
            let bytes = &mut buffer[..(len - at).min(NUMBERS) as usize * self.size];
            source.read_exact(bytes).map_err(&io)?;
            for number in bytes.chunks_exact(self.size) {
                each(at, self.number(number))?;
                at += 1;
            }
        }
        Ok(())
    }
}

/// Reads the dictionary: three keys in any order, a string, a truth and a tuple of whole numbers.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            let new = match key {
                "descr" => descr.replace(self.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => return Err(format!("the key '{}' is unknown", key.escape_default())),
            };
            if !new {
                return Err(format!("the key '{key}' stands twice"));
            }
            if !self.accept(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err("something follows the dictionary".into());
        }
        let missing = |key| format!("the key '{key}' is missing");
        let descr: String = descr.ok_or_else(|| missing("descr"))?;
        Ok(Header {
            dtype: Dtype::parse(&descr),
            descr,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
            bytes: 0,
        })
    }

    fn accept(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        if self.accept(token) {
            return Ok(());
        }
        let found: String = self.rest.chars().take(10).collect();
        Err(format!(
            "'{token}' is wanted where '{}' stands",
            found.escape_default()
        ))
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.accept('"') {
            '"'
        } else {
            self.expect('\'')?;
            '\''
        };
        let (string, rest) = self.rest.split_once(quote).ok_or("a string does not end")?;
        self.rest = rest;
        Ok(string)
    }

    /// A string; a structured type, which is a list, is taken as its text up to the bracket that closes it.
    fn descr(&mut self) -> Result<String, String> {
        if !self.accept('[') {
            return self.string().map(str::to_string);
        }
        let mut depth = 1_usize;
        let end = self.rest.find(|c: char| {
            depth = match c {
                '[' => depth + 1,
                ']' => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        let (list, rest) = self.rest.split_at(end.ok_or("a list does not end")?);
        self.rest = &rest[1..];
        Ok(format!("[{list}]"))
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (word, truth) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(truth);
            }
        }
        Err("fortran_order is neither True nor False".into())
    }

    fn shape(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.accept(')') {
            self.rest = self.rest.trim_start();
            let end = self.rest.find([',', ')']).ok_or("the shape does not end")?;
            let (side, rest) = self.rest.split_at(end);
            // Python 2 wrote 3L.
            let side = side.trim().trim_end_matches('L');
            let parsed = side
                .parse()
                .map_err(|_| format!("the shape has the side '{}'", side.escape_default()))?;
            shape.push(parsed);
            self.rest = rest;
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(text: &str) -> Result<Header, String> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        Header::read(&mut bytes.as_slice())
    }

    #[test]
    fn reads_what_numpy_writes() {
        // np.save of np.zeros((2, 3), np.float32): 128 bytes before the data.
        let mut file =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
                .to_vec();
        file.resize(127, b' ');
        file.push(b'\n');
        let header = Header::read(&mut file.as_slice()).unwrap();
        let dtype = Some(Dtype {
            kind: Kind::Float,
            size: 4,
            big_endian: false,
        });
        assert_eq!(
            (header.dtype, header.fortran_order, header.bytes),
            (dtype, false, 128)
        );
        assert_eq!(
            (header.shape.as_slice(), header.len()),
            ([2, 3].as_slice(), Some(6))
        );
        for (text, shape) in [
            ("()", &[][..]),
            ("(5,)", &[5]),
            ("(5)", &[5]),
            ("(1, 2L, 3)", &[1, 2, 3]),
        ] {
            let text = format!("{{'shape': {text}, \"descr\": '>i8', 'fortran_order': True}}\n");
            let header = super::tests::header(&text).unwrap();
            assert_eq!(
                (header.shape.as_slice(), header.fortran_order),
                (shape, true)
            );
        }
    }

    #[test]
    fn version_two_has_a_longer_length() {
        let text = "{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }\n";
        let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        assert_eq!(
            Header::read(&mut bytes.as_slice()).unwrap().bytes,
            12 + text.len() as u64
        );
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            Header::read(&mut bytes.as_slice())
                .unwrap_err()
                .contains("4294967295 bytes long")
        );
    }

    #[test]
    fn broken_headers_say_what_is_broken() {
        for (text, reason) in [
            ("", "'{' is wanted"),
            ("{'descr': '<f4'", "'}' is wanted"),
            (
                "{'descr': '<f4', 'fortran_order': False}",
                "the key 'shape' is missing",
            ),
            ("{'descr': '<f4', 'descr': '<f4'}", "stands twice"),
            ("{'colour': 1}", "'colour' is unknown"),
            ("{'shape': (-1,)}", "the side '-1'"),
            (
                "{'shape': (18446744073709551616,)}",
                "the side '18446744073709551616'",
            ),
            ("{'shape': (1", "does not end"),
            ("{'shape': 3}", "'(' is wanted"),
            ("{'fortran_order': maybe}", "neither True nor False"),
            ("{'descr': [('a', '<i4')", "a list does not end"),
            ("{'descr': '<f4", "a string does not end"),
        ] {
            let error = header(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let tail = "{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1";
        assert!(header(tail).unwrap_err().contains("follows"));
        assert!(
            Header::read(&mut &b"PK\x03\x04 and more"[..])
                .unwrap_err()
                .contains("NUMPY")
        );
        assert!(
            Header::read(&mut &b"\x93NUMPY\x09\x00v\x00"[..])
                .unwrap_err()
                .contains("version 9.0")
        );
    }

    #[test]
    fn types_that_are_no_numbers_keep_their_name() {
        for descr in [
            "'|O'",
            "'<U7'",
            "'<c8'",
            "'<f16'",
            "'<M8[ns]'",
            "'='",
            "''",
            "'é8'",
            "[('a', '<i4'), ('b', [1])]",
        ] {
            let header = header(&format!(
                "{{'descr': {descr}, 'fortran_order': False, 'shape': (2,)}}"
            ))
            .unwrap();
            assert_eq!(
                (header.dtype, header.descr.as_str()),
                (None, descr.trim_matches('\''))
            );
        }
    }

    #[test]
    fn a_shape_that_overflows_has_no_length() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}";
        assert_eq!(header(text).unwrap().len(), None);
    }

    #[test]
    fn numbers_of_every_type() {
        let number = |descr: &str, bytes: &[u8]| Dtype::parse(descr).unwrap().number(bytes);
        assert_eq!(number("|b1", &[1]), Number::Unsigned(1));
        assert_eq!(number("|u1", &[255]), Number::Unsigned(255));
        assert_eq!(number("|i1", &[255]), Number::Signed(-1));
        assert_eq!(number("<i2", &(-2_i16).to_le_bytes()), Number::Signed(-2));
        assert_eq!(
            number(">i4", &i32::MIN.to_be_bytes()),
            Number::Signed(i32::MIN.into())
        );
        assert_eq!(
            number("<i8", &i64::MIN.to_le_bytes()),
            Number::Signed(i64::MIN)
        );
        assert_eq!(
            number(">u8", &u64::MAX.to_be_bytes()),
            Number::Unsigned(u64::MAX)
        );
        assert_eq!(
            number("<f2", &f16::from_f32(-1.5).to_le_bytes()),
            Number::Float(-1.5)
        );
        assert_eq!(
            number(">f4", &0.1_f32.to_be_bytes()),
            Number::Float(0.1_f32.into())
        );
        assert_eq!(number("<f8", &0.1_f64.to_le_bytes()), Number::Float(0.1));
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(text in "\\PC{0,60}", tail in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = header(&text);
            let _ = header(&format!("{{'descr': '<f4', {text}"));
            let _ = Header::read(&mut tail.as_slice());
        }
    }
}
