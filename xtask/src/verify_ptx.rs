//! `cargo xtask verify-ptx`: the checks that the builder makes, ptxas for each architecture, and a table of both.

use clap::Args;
use halfgnn_builder::manifest::Manifest;
use halfgnn_builder::ptxas::ARCHS;

use crate::build_ptx;
use crate::{Failure, setup};

/// Options of `verify-ptx`.
#[derive(Args, Default)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Fail where ptxas is not found; by default it is left out, with a note
    #[arg(long)]
    require_ptxas: bool,
    /// Assemble for this architecture, such as sm_90; may be repeated. By default for all six
    #[arg(long = "for", value_name = "ARCH", value_parser = ARCHS)]
    assemble_for: Vec<String>,
}

impl Options {
    /// Assembled for these, by a ptxas that must be there.
    pub fn required_for(archs: &[&str]) -> Self {
        Self {
            require_ptxas: true,
            assemble_for: archs.iter().map(|arch| (*arch).to_owned()).collect(),
            ..Self::default()
        }
    }

    fn assembles_for(&self, arch: &str) -> bool {
        self.assemble_for.is_empty() || self.assemble_for.iter().any(|wanted| wanted == arch)
    }
}

/// Builds, checks and assembles.
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut builder = build_ptx::builder(&options.build)?;
    let mut archs = Vec::new();
    match setup::find_ptxas() {
        Ok(ptxas) => {
            eprintln!("assembled by {ptxas}");
            let wanted = ARCHS.into_iter().filter(|arch| options.assembles_for(arch));
            archs.extend(wanted.filter(|arch| ptxas.knows(arch)));
            builder = builder.assemble(ptxas, archs.iter().copied());
        }
        Err(reasons) if options.require_ptxas => return Err(reasons.join("; ").into()),
        Err(reasons) => eprintln!(
            "not assembled: {} (`cargo xtask setup --ptxas` installs one)",
            reasons.join("; ")
        ),
    }
    let built = builder.build()?;
    print!("{}", table(&built.manifest, &archs));
    Ok(())
}

/// One line for each entry: launch bounds, bytes of static shared memory, registers for each architecture.
fn table(manifest: &Manifest, archs: &[&str]) -> String {
    let mut head = vec!["entry", "threads", "CTAs", "shared"];
    head.extend(archs);
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    let names: std::collections::BTreeSet<&String> = manifest
        .modules
        .values()
        .flat_map(|module| module.entries.keys())
        .collect();
    for name in names {
        let mut records = manifest
            .modules
            .values()
            .filter_map(|module| module.entries.get(name))
            .peekable();
        let Some(first) = records.peek() else {
            continue;
        };
        let bounds = first.launch_bounds;
        let or_dash =
            |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let mut row = vec![
            name.clone(),
            or_dash(bounds.map(|bounds| bounds.max_threads)),
            or_dash(bounds.and_then(|bounds| bounds.min_ctas)),
            first.static_shared.to_string(),
        ];
        let records: Vec<_> = records.collect();
        row.extend(archs.iter().map(|arch| {
            or_dash(
                records
                    .iter()
                    .find_map(|record| record.registers.get(*arch).copied()),
            )
        }));
        rows.push(row);
    }
    aligned(&rows)
}

/// Columns of equal width: the first to the left, the others, numbers, to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = aligned(&[row(["entry", "sm_80"]), row(["sddmm_half8", "32"])]);
        assert_eq!(text, "entry        sm_80\nsddmm_half8     32\n");
    }
}
