//! `cargo xtask mutants`: mistakes made on purpose, one at a time, each of which some test must find.
//!
//! A mutant is a piece of text and what stands in its place ([`list`]); it is put into a copy of the working tree under
//! `target/mutants`, which has a target folder of its own ([`scratch`]), and the tests that are said to kill it are run
//! ([`trial`]). What has been tried is noted, so that a run that was broken off goes on where it was.

mod list;
mod record;
mod scratch;
mod trial;

use clap::Args;

use crate::{Failure, setup};
use list::Mutant;
use record::Record;
use scratch::Scratch;
use trial::{Bench, Outcome};

/// Options of `mutants`.
#[derive(Args, Default)]
pub struct Options {
    /// Only this mutant; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only mutants of this area; may be repeated
    #[arg(long, value_name = "AREA")]
    area: Vec<String>,
    /// Say which there are, and try none
    #[arg(long)]
    list: bool,
    /// Forget what an earlier run has found
    #[arg(long)]
    fresh: bool,
}

/// Tries every mutant that was asked for; a failure where one survives or cannot be tried.
pub fn run(options: &Options) -> Result<(), Failure> {
    let all = list::read(&list::folder())?;
    let chosen = choose(&all, options)?;
    if options.list {
        for mutant in &chosen {
            println!("{:<12} {:<44} {}", mutant.area, mutant.name, mutant.killer);
        }
        println!("{} mutants", chosen.len());
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let files = scratch.refresh()?;
    let mut record = Record::open(scratch.folder(), &files, options.fresh)?;
    let mut bench = Bench::new(&scratch, files, setup::toolchain()?);
    for (at, mutant) in chosen.iter().enumerate() {
        if record.outcome(mutant).is_none() {
            eprintln!("== {} ({} of {})", mutant.name, at + 1, chosen.len());
            let (outcome, seconds) = bench.try_out(mutant, &mut record)?;
            eprintln!("== {}: {outcome} after {seconds} s", mutant.name);
            record.note(mutant, &outcome, seconds)?;
        }
    }
    report(&chosen, &record)
}

/// The mutants that were asked for.
fn choose<'a>(all: &'a [Mutant], options: &Options) -> Result<Vec<&'a Mutant>, Failure> {
    if let Some(name) = options
        .only
        .iter()
        .find(|&name| all.iter().all(|mutant| &mutant.name != name))
    {
        return Err(format!("no mutant is called {name}; --list says which there are").into());
    }
    let is_wanted = |mutant: &&Mutant| {
        (options.only.is_empty() || options.only.contains(&mutant.name))
            && (options.area.is_empty() || options.area.contains(&mutant.area))
    };
    let chosen: Vec<&Mutant> = all.iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        return Err("no mutant is of that area; --list says which there are".into());
    }
    Ok(chosen)
}

/// The table at the end.
fn report(chosen: &[&Mutant], record: &Record) -> Result<(), Failure> {
    let mut alive = Vec::new();
    for mutant in chosen {
        let Some((outcome, seconds)) = record.outcome(mutant) else {
            continue;
        };
        let (area, name) = (&mutant.area, &mutant.name);
        println!("{area:<12} {name:<44} {seconds:>6} s  {outcome}");
        if *outcome != Outcome::Killed {
            alive.push(mutant.name.as_str());
        }
    }
    let killed = chosen.len() - alive.len();
    println!("{killed} of {} mutants were killed", chosen.len());
    if alive.is_empty() {
        Ok(())
    } else {
        Err(format!("not killed: {}", alive.join(", ")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;
    use std::collections::BTreeSet;

    /// A mutant whose text has gone tests nothing any more, and one whose text stands twice is put who knows where.
    #[test]
    fn every_mutant_applies() {
        let all = list::read(&list::folder()).expect("the lists are legal");
        assert!(all.len() >= 60, "{} mutants", all.len());
        let names: BTreeSet<&str> = all.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names.len(), all.len(), "a name is given twice");
        let files = scratch::sources(workspace::root()).expect("the tree can be read");
        let wrong: Vec<String> = all
            .iter()
            .filter(|mutant| !mutant.is_of_ptx())
            .filter_map(|mutant| mutant.place(&files).err())
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn what_is_asked_for_is_chosen() {
        let all = list::read(&list::folder()).expect("the lists are legal");
        let options = |only: &[&str], area: &[&str]| Options {
            only: only.iter().map(ToString::to_string).collect(),
            area: area.iter().map(ToString::to_string).collect(),
            ..Options::default()
        };
        let first = all[0].name.as_str();
        let one = choose(&all, &options(&[first], &[])).expect("it is there");
        assert_eq!(one.len(), 1);
        assert!(choose(&all, &options(&["no such mutant"], &[])).is_err());
        assert!(choose(&all, &options(&[], &["no such area"])).is_err());
        assert_eq!(
            choose(&all, &options(&[], &[])).expect("all").len(),
            all.len()
        );
    }
}
