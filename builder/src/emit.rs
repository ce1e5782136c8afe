//! The order of the steps from a kernels crate to PTX files that passed their checks, and on to ptxas.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;

use crate::checks;
use crate::compact::compact;
use crate::compile;
use crate::error::BuildError;
use crate::files;
use crate::lower::{self, Arch, Prepared};
use crate::manifest::{Manifest, ModuleRecord};
use crate::package::Package;
use crate::pattern;
use crate::ptx::{self, Module};
use crate::ptxas::Ptxas;
use crate::toolchain::Toolchain;

/// One build: what, with what, for what, and where to.
pub(crate) struct Job<'a> {
    pub package: &'a Package,
    pub toolchain: &'a Toolchain,
    pub archs: &'a [Arch],
    /// The first part of the files' names.
    pub name: &'a str,
    /// Patterns of the entries that are built, if not all are: see [`pattern::is_wanted`].
    pub only: &'a [String],
    /// The folder of intermediate files, shared by the crates that have one target folder.
    pub shared: &'a Path,
    /// The folder of the PTX files.
    pub out: &'a Path,
}

impl Job<'_> {
    pub fn file_name(&self, arch: Arch) -> String {
        format!("{}-{}.ptx", self.name, arch.name())
    }

    /// Whether the manifest has a whole PTX file for every architecture.
    pub fn is_current(&self, manifest: &Manifest) -> bool {
        let has = |arch: &Arch| {
            let record = manifest.modules.get(&arch.name());
            record.is_some_and(|record| self.is_whole(record))
        };
        self.archs.iter().all(has)
    }

    /// Whether a PTX file is still what was built.
    pub fn is_whole(&self, record: &ModuleRecord) -> bool {
        files::fingerprint(&self.out.join(&record.file)).as_ref() == Some(&record.fingerprint)
    }

    /// Compiles, lowers, checks and writes; nothing is written to `out` before all architectures have passed.
    pub fn emit(&self) -> Result<BTreeMap<String, ModuleRecord>, BuildError> {
        let color = io::stderr().is_terminal();
        let (bitcode, messages) =
            compile::compile(self.package, self.toolchain, self.shared, color)?;
        eprint!("{messages}");
        let work = self.work()?;
        let metadata = &self.package.metadata;
        let bounds = |entry: &str| pattern::lookup(&metadata.launch_bounds, entry).copied();
        let name = &self.package.name;
        let prepared = lower::prepare(self.toolchain, name, bitcode, self.only, &work, bounds)?;
        let lowered = in_parallel(self.archs, |arch| self.lower(&prepared, *arch));

        let mut passed = Vec::new();
        for (arch, lowered) in self.archs.iter().zip(lowered) {
            passed.push((*arch, lowered?));
        }
        fs::create_dir_all(self.out).map_err(BuildError::io(self.out))?;
        let mut modules = BTreeMap::new();
        for (arch, (text, record)) in passed {
            files::write_atomically(&self.out.join(&record.file), text.as_bytes())?;
            modules.insert(arch.name(), record);
        }
        Ok(modules)
    }

    /// The PTX for one architecture, if it keeps the rules; if not, it is kept for inspection.
    fn lower(&self, prepared: &Prepared, arch: Arch) -> Result<(String, ModuleRecord), BuildError> {
        let (package, metadata) = (self.package, &self.package.metadata);
        let text = lower::lower(
            self.toolchain,
            &package.name,
            &prepared.ir,
            arch,
            metadata.unroll_threshold,
        )?;
        let renamed = [
            (self.toolchain.library.clone(), ptx::LIBRARY.to_owned()),
            (package.directory.clone(), package.directory_name()),
        ];
        let text = lower::rename_files(&text, &renamed);
        let rejected = || -> Result<PathBuf, BuildError> {
            let path = self
                .work()?
                .join(format!("rejected-{}", self.file_name(arch)));
            files::write_atomically(&path, text.as_bytes())?;
            Ok(path)
        };
        let module = match Module::parse(&text) {
            Ok(module) => module,
            Err(source) => {
                let path = rejected()?;
                return Err(BuildError::Ptx { path, source });
            }
        };
        let rules = |entry: &str| {
            let rules = pattern::lookup(&metadata.checks, entry);
            let rules = rules.filter(|_| pattern::is_wanted(self.only, entry));
            rules.copied().unwrap_or_default()
        };
        let mut faults = checks::check(&module, &prepared.exports, rules);
        if self.only.is_empty() {
            let (bounds, rules) = (metadata.launch_bounds.keys(), metadata.checks.keys());
            faults.extend(checks::unused_patterns(&module, bounds, "launch-bounds"));
            faults.extend(checks::unused_patterns(&module, rules, "checks"));
        }
        if faults.is_empty() {
            let compact = compact(&text);
            let fingerprint = files::Fingerprint::new().add(&compact).hex();
            let record = ModuleRecord::new(self.file_name(arch), fingerprint, &module);
            return Ok((compact, record));
        }
        let path = rejected()?;
        Err(BuildError::Checks { path, faults })
    }

    /// Assembles for the `wanted` architectures of which the manifest does not know the registers yet, each from the
    /// newest PTX that its card would take.
    pub fn assemble(
        &self,
        manifest: &mut Manifest,
        ptxas: &Ptxas,
        wanted: &[String],
    ) -> Result<(), BuildError> {
        let work = self.work()?;
        let mut tasks = Vec::new();
        for arch in wanted.iter().filter(|arch| ptxas.knows(arch)) {
            let number = Arch::parse(arch)?;
            let Some(source) = self
                .archs
                .iter()
                .copied()
                .filter(|built| *built <= number)
                .max()
            else {
                continue;
            };
            let Some(record) = manifest.modules.get(&source.name()) else {
                continue;
            };
            let is_known = record
                .entries
                .values()
                .all(|entry| entry.registers.contains_key(arch));
            if !is_known {
                let cubin = work
                    .join(&record.file)
                    .with_extension(format!("{arch}.cubin"));
                tasks.push((arch, source, self.out.join(&record.file), cubin));
            }
        }
        let checks = &self.package.metadata.checks;
        let spills = |entry: &str| pattern::lookup(checks, entry).map_or(0, |rules| rules.spills);
        let results = in_parallel(&tasks, |(arch, _, ptx, cubin)| {
            ptxas.assemble_allowing(spills, ptx, arch, cubin)
        });
        let mut failed = Vec::new();
        for ((arch, source, ..), usages) in tasks.iter().zip(results) {
            let usages = match usages {
                Ok(usages) => usages,
                Err(BuildError::Ptxas { path, reason }) => {
                    failed.push((path, reason));
                    continue;
                }
                Err(other) => return Err(other),
            };
            let record = manifest.modules.get_mut(&source.name());
            for (name, entry) in record.into_iter().flat_map(|record| &mut record.entries) {
                let registers = usages.get(name).map(|usage| usage.registers);
                entry
                    .registers
                    .extend(registers.map(|registers| ((*arch).clone(), registers)));
            }
        }
        // All architectures at once: a change for one of them is a change for all.
        let reasons: Vec<&str> = failed.iter().map(|(_, reason)| reason.as_str()).collect();
        match failed.first() {
            Some((path, _)) => Err(BuildError::Ptxas {
                path: path.clone(),
                reason: reasons.join("\n  "),
            }),
            None => Ok(()),
        }
    }

    /// The folder of this crate's own intermediate files.
    fn work(&self) -> Result<PathBuf, BuildError> {
        let work = self.shared.join(&self.package.name);
        fs::create_dir_all(&work).map_err(BuildError::io(&work))?;
        Ok(work)
    }
}

/// Does `work` for each item on a thread of its own; the results are in the items' order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let running: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, R>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().map(join).collect()
    })
}
