//! What binary files of our own start with.

/// Eight letters that say what is in a file, and the version of its form, of which a build reads one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub letters: &'static [u8; 8],
    pub version: u32,
}

impl Signature {
    pub const BYTES: usize = 12;

    /// As it lies in the file.
    pub fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(self.letters);
        bytes[8..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// That a file starts with it, or else which field is not so, and why.
    pub fn check(self, found: &[u8; Self::BYTES]) -> Result<(), (&'static str, String)> {
        if found[..8] != self.letters[..] {
            let letters = String::from_utf8_lossy(self.letters);
            return Err(("magic", format!("it is not {letters}")));
        }
        let version = u32::from_le_bytes(std::array::from_fn(|at| found[8 + at]));
        match version == self.version {
            true => Ok(()),
            false => {
                let reason = format!("it is {version}, and this build reads {}", self.version);
                Err(("version", reason))
            }
        }
    }
}
