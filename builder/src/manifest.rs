//! What the manifest says of a module: read off its PTX.

use std::collections::BTreeMap;
use std::path::Path;

use ptx_syntax::Slot;

pub use halfgnn_manifest::{
    CodeRecord, EntryRecord, FileRecord, GlobalRecord, Manifest, ModuleRecord, Param, Store,
};

use crate::error::BuildError;
use crate::files;
use crate::package::LaunchBounds;
use crate::ptx::Module;

/// The longest variable, in bytes, whose content a manifest has.
const LONGEST_INIT: usize = 64;

/// Writes a manifest, if the file is not the same already.
pub(crate) fn write(manifest: &Manifest, path: &Path) -> Result<(), BuildError> {
    let text = manifest.to_text();
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    files::write_atomically(path, text.as_bytes())
}

/// Reads a manifest.
pub(crate) fn read(path: &Path) -> Result<Manifest, BuildError> {
    let text = std::fs::read(path).map_err(BuildError::io(path))?;
    Manifest::parse(&path.display().to_string(), &text).map_err(BuildError::from)
}

/// The record of a module without files, from its PTX for any architecture.
pub(crate) fn record(module: &Module<'_>, packaged: bool, fingerprint: String) -> ModuleRecord {
    let entries = module.source.entries().map(|entry| {
        let record = EntryRecord {
            params: entry.params.iter().map(param).collect(),
            static_shared: module.static_shared(entry),
            launch_bounds: entry.max_threads.map(|max_threads| LaunchBounds {
                max_threads,
                min_ctas: entry.min_ctas,
            }),
            registers: BTreeMap::new(),
        };
        (entry.name.to_owned(), record)
    });
    let visible = module.source.variables.iter().filter(|it| it.visible);
    let globals = visible.map(|variable| {
        let size = u64::from(variable.size);
        // What the text leaves out of an initial value is zero.
        let zeros = (variable.size as usize).saturating_sub(variable.init.len());
        let bytes = variable
            .init
            .iter()
            .copied()
            .chain(std::iter::repeat_n(0, zeros));
        let has_init =
            variable.initialised && (1..=LONGEST_INIT).contains(&(variable.size as usize));
        let init = has_init.then(|| bytes.map(|byte| format!("{byte:02x}")).collect());
        (variable.name.to_owned(), GlobalRecord { size, init })
    });
    ModuleRecord {
        packaged,
        fingerprint,
        entries: entries.collect(),
        globals: globals.collect(),
        ptx: BTreeMap::new(),
        machine_code: BTreeMap::new(),
    }
}

fn param(slot: &Slot<'_>) -> Param {
    Param {
        size: slot.size,
        align: slot.align,
        ty: slot.ty.to_owned(),
    }
}
