//! Hashes that detect changes.

/// FNV-1a, 64 bits, over length-prefixed parts. It detects mistakes, not an adversary.
///
/// ```
/// use halfgnn_manifest::Fingerprint;
///
/// let hash = |parts: &[&str]| parts.iter().fold(Fingerprint::new(), |hash, part| hash.with(part)).hex();
/// assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The hash of nothing.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds one part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        let length = (part.len() as u64).to_le_bytes();
        for &byte in length.iter().chain(part) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    /// The hash with one more part.
    #[must_use]
    pub fn with(mut self, part: impl AsRef<[u8]>) -> Self {
        self.add(part);
        self
    }

    /// Sixteen hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }

    /// The hash of a file's content.
    pub fn of(content: impl AsRef<[u8]>) -> String {
        Self::new().with(content).hex()
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}
