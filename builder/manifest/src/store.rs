//! Where the files of built kernels are: a folder, or one archive in a file or in memory.

use crate::{ARCHIVE_SUFFIX, FileRecord, Fingerprint, MANIFEST_SUFFIX, Manifest, ManifestError};
use std::fmt;
use std::fs::{self, File};
use std::io::{Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The files of built kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// A folder with a manifest and the files that it names.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The name of the kernels, before [`MANIFEST_SUFFIX`].
        name: String,
    },
    /// An archive in a file.
    Archive(PathBuf),
    /// An archive that is part of the program.
    Embedded(&'static [u8]),
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Store::Folder { folder, .. } => folder.display().fmt(f),
            Store::Archive(path) => path.display().fmt(f),
            Store::Embedded(_) => "built in".fmt(f),
        }
    }
}

impl Store {
    /// The kernels called `name` in `folder`, if there are any: files, or else an archive.
    pub fn in_folder(folder: &Path, name: &str) -> Option<Self> {
        if folder.join(format!("{name}{MANIFEST_SUFFIX}")).is_file() {
            return Some(Store::Folder {
                folder: folder.to_owned(),
                name: name.to_owned(),
            });
        }
        let archive = folder.join(format!("{name}{ARCHIVE_SUFFIX}"));
        archive.is_file().then_some(Store::Archive(archive))
    }

    /// The manifest.
    ///
    /// # Errors
    /// [`ManifestError`] where it cannot be read or is no manifest, with its place.
    pub fn manifest(&self) -> Result<Manifest, ManifestError> {
        let (place, text) = match self {
            Store::Folder { folder, name } => {
                let path = folder.join(format!("{name}{MANIFEST_SUFFIX}"));
                let text = read_file(&path)?;
                (path.display().to_string(), text)
            }
            Store::Archive(path) => (self.to_string(), member(self, open(path)?, is_manifest)?),
            Store::Embedded(bytes) => {
                let text = member(self, Cursor::new(*bytes), is_manifest)?;
                (self.to_string(), text)
            }
        };
        Manifest::parse(&place, &text)
    }

    /// The content of a file that the manifest names.
    ///
    /// # Errors
    /// [`ManifestError`] where it cannot be read, or where it is not the file that the manifest describes.
    pub fn read(&self, record: &FileRecord) -> Result<Vec<u8>, ManifestError> {
        let is_it = |name: &str| name == record.file;
        let content = match self {
            Store::Folder { folder, .. } => read_file(&folder.join(&record.file))?,
            Store::Archive(path) => member(self, open(path)?, is_it)?,
            Store::Embedded(bytes) => member(self, Cursor::new(*bytes), is_it)?,
        };
        if Fingerprint::of(&content) == record.fingerprint {
            return Ok(content);
        }
        let reason = format!(
            "{} is not the file that the manifest describes",
            record.file
        );
        Err(ManifestError::new(self, reason))
    }
}

/// Writes `manifest` and the files that it names, read from `store`, into one compressed archive.
///
/// The bytes depend on the content alone, so an archive of the same kernels is the same archive.
///
/// # Errors
/// [`ManifestError`] where a file cannot be read or the archive cannot be written.
pub fn pack(store: &Store, manifest: &Manifest, name: &str) -> Result<Vec<u8>, ManifestError> {
    let failed = |error: &dyn fmt::Display| ManifestError::new("the archive of the kernels", error);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Xz)
        .compression_level(Some(6));
    let mut put = |name: &str, content: &[u8]| -> Result<(), ManifestError> {
        archive
            .start_file(name, options)
            .map_err(|error| failed(&error))?;
        archive.write_all(content).map_err(|error| failed(&error))
    };
    put(
        &format!("{name}{MANIFEST_SUFFIX}"),
        manifest.to_text().as_bytes(),
    )?;
    for module in manifest.modules.values() {
        let code = module.machine_code.values().map(|record| &record.code);
        for record in module.ptx.values().chain(code) {
            put(&record.file, &store.read(record)?)?;
        }
    }
    let written = archive.finish().map_err(|error| failed(&error))?;
    Ok(written.into_inner())
}

fn is_manifest(name: &str) -> bool {
    name.ends_with(MANIFEST_SUFFIX)
}

fn open(path: &Path) -> Result<File, ManifestError> {
    File::open(path).map_err(|error| ManifestError::new(path.display(), error))
}

fn read_file(path: &Path) -> Result<Vec<u8>, ManifestError> {
    fs::read(path).map_err(|error| ManifestError::new(path.display(), error))
}

/// The content of the first file whose name `is_it` accepts.
fn member(
    store: &Store,
    source: impl Read + Seek,
    is_it: impl Fn(&str) -> bool,
) -> Result<Vec<u8>, ManifestError> {
    /// More than any module has: a damaged archive must not make a program allocate what it says.
    const LARGEST: u64 = 1 << 30;
    let failed = |error: &dyn fmt::Display| ManifestError::new(store, error);
    let mut archive = ZipArchive::new(source).map_err(|error| failed(&error))?;
    let name = {
        let mut names = archive.file_names().flatten();
        names.find(|name| is_it(name)).map(String::from)
    };
    let name = name.ok_or_else(|| failed(&"the archive lacks a file that it should have"))?;
    let file = archive.by_name(&name).map_err(|error| failed(&error))?;
    let mut content = Vec::new();
    let read = file.take(LARGEST).read_to_end(&mut content);
    read.map_err(|error| failed(&error))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeRecord, ModuleRecord};
    use std::collections::BTreeMap;

    /// Kernels of one module in a folder.
    fn folder() -> (tempfile::TempDir, Store, Manifest) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(directory.path().join("k")).expect("a folder");
        let file = |name: &str, content: &str| {
            fs::write(directory.path().join(name), content).expect("the folder takes files");
            FileRecord {
                file: name.to_owned(),
                fingerprint: Fingerprint::of(content),
            }
        };
        let ptx = file("k/a-sm_80.ptx", "ptx");
        let code = CodeRecord {
            ptx: ptx.fingerprint.clone(),
            code: file("k/a-sm_90.cubin", "code"),
        };
        let module = ModuleRecord {
            packaged: true,
            fingerprint: String::new(),
            entries: BTreeMap::new(),
            globals: BTreeMap::new(),
            ptx: BTreeMap::from([("sm_80".to_owned(), ptx)]),
            machine_code: BTreeMap::from([("sm_90".to_owned(), code)]),
        };
        let manifest = Manifest {
            package: "k".to_owned(),
            rustc: String::new(),
            llvm: String::new(),
            fingerprint: String::new(),
            partial: false,
            modules: BTreeMap::from([("a".to_owned(), module)]),
        };
        let path = directory.path().join("k.manifest.json");
        fs::write(path, manifest.to_text()).expect("the folder takes files");
        let store = Store::in_folder(directory.path(), "k").expect("there are kernels");
        (directory, store, manifest)
    }

    #[test]
    fn a_folder_and_its_archive_hold_the_same() {
        let (directory, folder, manifest) = folder();
        let bytes = pack(&folder, &manifest, "k").expect("it can be packed");
        assert_eq!(
            bytes,
            pack(&folder, &manifest, "k").expect("again"),
            "the same bytes"
        );
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        fs::write(elsewhere.join("k.kernels.zip"), &bytes).expect("a file");
        let archive = Store::in_folder(&elsewhere, "k").expect("the archive is there");
        assert!(matches!(archive, Store::Archive(_)));
        let embedded = Store::Embedded(bytes.leak());
        for store in [folder, archive, embedded] {
            assert_eq!(store.manifest().as_ref(), Ok(&manifest));
            let module = &manifest.modules["a"];
            assert_eq!(store.read(&module.ptx["sm_80"]), Ok(b"ptx".to_vec()));
            assert_eq!(
                store.read(&module.machine_code["sm_90"].code),
                Ok(b"code".to_vec())
            );
        }
    }

    #[test]
    fn a_file_that_is_another_or_missing_is_named() {
        let (directory, store, manifest) = folder();
        let record = &manifest.modules["a"].ptx["sm_80"];
        fs::write(directory.path().join(&record.file), "other").expect("a file");
        let error = store
            .read(record)
            .expect_err("it is another file")
            .to_string();
        assert!(error.contains("k/a-sm_80.ptx is not the file"), "{error}");
        fs::remove_file(directory.path().join(&record.file)).expect("it is there");
        let error = store.read(record).expect_err("it is missing").to_string();
        assert!(error.contains("a-sm_80.ptx: "), "{error}");
        assert_eq!(Store::in_folder(directory.path(), "other"), None);
        let damaged = Store::Embedded(b"no archive");
        assert!(damaged.manifest().is_err());
    }
}
