//! `cargo xtask tables`: tables of pages, generated from results.
//!
//! A line `<!-- table: NAME -->` of a page stands before a table. `docs/results/tables.toml` has its columns, and
//! `docs/results/NAME.jsonl` its figures, in the form that `halfgnn bench --json` writes: a line of the machine and the command, then
//! a line for each figure.

mod cell;
mod records;

use std::fs;
use std::path::Path;

use clap::Args;
use toml_edit::{DocumentMut, Item};

use crate::{Failure, workspace};
use cell::Template;
use records::{Record, Rows};

/// Where the results and the tables' columns are.
const RESULTS: &str = "docs/results";

/// What stands before a generated table.
const MARK: (&str, &str) = ("<!-- table: ", " -->");

/// Options of `tables`.
#[derive(Args)]
pub struct Options {
    /// Write nothing: fail where a table is not that of the results
    #[arg(long)]
    check: bool,
}

impl Options {
    /// Options that write nothing.
    pub fn checked() -> Self {
        Self { check: true }
    }
}

/// Writes the tables of all pages, or checks them.
///
/// # Errors
/// Results that cannot be read, a table without results or columns, and with `--check` each table that is out of date.
pub fn run(options: &Options) -> Result<(), Failure> {
    let root = workspace::root();
    let tables = Tables::read(&root.join(RESULTS))?;
    let mut used = Vec::new();
    let mut old = Vec::new();
    for file in workspace::files()? {
        let path = root.join(&file);
        if file.extension().is_none_or(|end| end != "md") || !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let made = tables
            .fill(&text, &mut used)
            .map_err(|why| format!("{}: {why}", file.display()))?;
        if made != text {
            old.push(file.display().to_string());
            if !options.check {
                fs::write(&path, made)?;
            }
        }
    }
    let is_unused = |table: &&Table| !used.contains(&table.name);
    if let Some(table) = tables.0.iter().find(is_unused) {
        return Err(format!(
            "{RESULTS}/tables.toml: no page has the table `{}`",
            table.name
        )
        .into());
    }
    match options.check && !old.is_empty() {
        true => Err(format!(
            "{}: the tables are not those of {RESULTS}; `cargo xtask tables` writes them",
            old.join(", ")
        )
        .into()),
        false => Ok(()),
    }
}

/// The page of the commands: each row of each table with its machine.
///
/// # Errors
/// Results that cannot be read.
pub fn commands() -> Result<String, Failure> {
    let tables = Tables::read(&workspace::root().join(RESULTS))?;
    let mut page = "# Commands of the figures\n\nEach row of the tables of [Performance](performance.md), with its machine and command.\n".to_owned();
    for table in &tables.0 {
        page.push_str(&format!(
            "\n## {}\n\n| row | machine | command |\n|---|---|---|\n",
            table.title
        ));
        for row in table.rows.0.iter().filter(|row| !row.is_summary) {
            page.push_str(&line(
                [row.name.clone(), row.machines(), row.commands()].into_iter(),
            ));
        }
    }
    Ok(page)
}

/// A table's name, title, columns and rows.
struct Table {
    name: String,
    title: String,
    columns: Vec<Column>,
    rows: Rows,
}

/// A column: its title, its cell of a row, and its cell of a row that sums up others.
struct Column {
    title: String,
    cell: Template,
    summary: Template,
}

/// All tables.
struct Tables(Vec<Table>);

impl Tables {
    /// Reads `tables.toml` of a folder, and the results of each table.
    fn read(folder: &Path) -> Result<Self, Failure> {
        let columns: DocumentMut = fs::read_to_string(folder.join("tables.toml"))?.parse()?;
        let tables = columns.iter().map(|(name, item)| {
            let file = format!("{name}.jsonl");
            let results = fs::read_to_string(folder.join(&file));
            let results = results.map_err(|error| format!("{file}: {error}"))?;
            let records = records::read(&results).map_err(|why| format!("{file}:{why}"))?;
            Table::new(name, item, records)
        });
        let tables = tables.collect::<Result<_, String>>();
        Ok(Self(tables.map_err(|why| format!("{RESULTS}/{why}"))?))
    }

    /// A page with its tables generated. The names of its tables are added to `used`.
    fn fill(&self, page: &str, used: &mut Vec<String>) -> Result<String, String> {
        let mut made = String::new();
        let mut lines = page.split_inclusive('\n').peekable();
        while let Some(line) = lines.next() {
            made.push_str(line);
            let name = line.trim_end().strip_prefix(MARK.0);
            let Some(name) = name.and_then(|rest| rest.strip_suffix(MARK.1)) else {
                continue;
            };
            let table = self.0.iter().find(|table| table.name == name);
            let table =
                table.ok_or_else(|| format!("{RESULTS}/tables.toml has no table `{name}`"))?;
            made.push_str(&table.markdown()?);
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
            used.push(name.to_owned());
        }
        Ok(made)
    }
}

impl Table {
    fn new(name: &str, item: &Item, records: Vec<Record>) -> Result<Self, String> {
        let texts = |item: Option<&Item>| {
            let array = item.and_then(Item::as_array)?;
            array
                .iter()
                .map(|text| text.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        let key = texts(item.get("key"))
            .ok_or_else(|| format!("tables.toml: {name} has no `key`, a list of fields"))?;
        let columns = item.get("columns").and_then(Item::as_array);
        let columns = columns.ok_or_else(|| format!("tables.toml: {name} has no `columns`"))?;
        let column = |column: &toml_edit::Value| {
            let parts: Option<Vec<&str>> = column
                .as_array()?
                .iter()
                .map(toml_edit::Value::as_str)
                .collect();
            let (title, cell, summary) = match parts?[..] {
                [title, cell] => (title, cell, ""),
                [title, cell, summary] => (title, cell, summary),
                _ => return None,
            };
            Some(Column {
                title: title.to_owned(),
                cell: Template::parse(cell)?,
                summary: Template::parse(summary)?,
            })
        };
        let parsed = columns.iter().enumerate().map(|(at, of)| {
            let wrong = "is not [title, cell] or [title, cell, summary], with figures in braces";
            column(of).ok_or_else(|| format!("tables.toml: {name}: column {} {wrong}", at + 1))
        });
        let title = item.get("title").and_then(Item::as_str);
        let title = title.ok_or_else(|| format!("tables.toml: {name} has no `title`"))?;
        Ok(Self {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: parsed.collect::<Result<_, _>>()?,
            rows: Rows::of(records, &key),
        })
    }

    /// The table as a page has it.
    fn markdown(&self) -> Result<String, String> {
        let titles = self.columns.iter().map(|column| column.title.clone());
        let mut text = line(titles);
        text.push('|');
        text.push_str(&"---|".repeat(self.columns.len()));
        text.push('\n');
        for row in &self.rows.0 {
            let cells = self.columns.iter().map(|column| {
                let template = if row.is_summary {
                    &column.summary
                } else {
                    &column.cell
                };
                let filled = template.fill(&row.records);
                filled.map_err(|why| {
                    format!(
                        "table {}, {}, column {}: {why}",
                        self.name, row.name, column.title
                    )
                })
            });
            text.push_str(&line(cells.collect::<Result<Vec<_>, _>>()?.into_iter()));
        }
        Ok(text)
    }
}

/// A line of a table.
fn line(cells: impl Iterator<Item = String>) -> String {
    let cells = cells.map(|cell| match cell.is_empty() {
        true => " |".to_owned(),
        false => format!(" {cell} |"),
    });
    format!("|{}\n", cells.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = r#"
        title = "SpMM"
        key = ["graph", "features"]
        columns = [
            ["graph", "{graph}", "**mean**"],
            ["F", "{features}", "{features}"],
            ["half", "{event=spmm,precision=half:ms:4}"],
            ["float (peer)", "{event=spmm,precision=float:ms:4} ({precision=float:peers.cusparse half.ms:.1})"],
            ["faster", "", "**{event=speedup:geometric_mean:.2}**"],
        ]
    "#;

    const RESULTS: &str = r#"{"event":"machine","command":"halfgnn bench spmm","gpus":[{"name":"H200"}]}
{"event":"spmm","graph":"road","features":64,"precision":"half","ms":0.1234567}
{"event":"spmm","graph":"road","features":64,"precision":"float","ms":11.191,"peers":[{"peer":"cusparse","precision":"half","ms":3.06}]}
{"event":"spmm","graph":"kron","features":64,"precision":"half","ms":2.0}
{"event":"speedup","features":64,"geometric_mean":3.236}
"#;

    fn tables(columns: &str, results: &str) -> Result<Tables, String> {
        let columns: DocumentMut = columns.parse().unwrap();
        let records = records::read(results)?;
        Ok(Tables(vec![Table::new(
            "spmm",
            columns.as_item(),
            records,
        )?]))
    }

    #[test]
    fn a_page_gets_the_tables_of_the_results() {
        let tables = tables(COLUMNS, RESULTS).unwrap();
        let page = "# A\nText.\n<!-- table: spmm -->\n| old |\n|---|\n\nMore.\n";
        let made = "# A\nText.\n<!-- table: spmm -->\n\
                    | graph | F | half | float (peer) | faster |\n|---|---|---|---|---|\n\
                    | road | 64 | 0.123 | 11.19 (3.1) | |\n\
                    | kron | 64 | 2.000 | | |\n\
                    | **mean** | 64 | | | **3.24** |\n\nMore.\n";
        let mut used = Vec::new();
        assert_eq!(tables.fill(page, &mut used).unwrap(), made);
        assert_eq!(tables.fill(made, &mut used).unwrap(), made);
        assert_eq!(used, ["spmm", "spmm"]);
        let unknown = tables
            .fill("<!-- table: sddmm -->\n", &mut used)
            .unwrap_err();
        assert!(unknown.contains("no table `sddmm`"), "{unknown}");
    }

    #[test]
    fn a_row_has_its_machine_and_command() {
        let tables = tables(COLUMNS, RESULTS).unwrap();
        let row = &tables.0[0].rows.0[0];
        let several = RESULTS.replace(
            "[{\"name\":\"H200\"}]",
            "[{\"name\":\"A\"},{\"name\":\"A\"}]",
        );
        let records = records::read(&several).unwrap();
        assert_eq!(records[0].source.machine, "2 × A");
        assert_eq!(row.name, "road, 64");
        assert_eq!(
            (row.machines(), row.commands()),
            ("H200".to_owned(), "`halfgnn bench spmm`".to_owned())
        );
    }

    #[test]
    fn what_is_wrong_with_columns_and_results_is_said() {
        let why = |columns: &str, results: &str| match tables(columns, results) {
            Ok(tables) => tables
                .fill("<!-- table: spmm -->\n", &mut Vec::new())
                .unwrap_err(),
            Err(why) => why,
        };
        let without_machine = RESULTS.split_once('\n').unwrap().1;
        let half = r#"{"event":"spmm","graph":"road","features":64,"precision":"half","ms":1}"#;
        for (columns, results, words) in [
            ("columns = []", RESULTS, "no `key`"),
            ("key = [\"graph\"]", RESULTS, "no `columns`"),
            ("key = []\ncolumns = []", RESULTS, "no `title`"),
            (
                "title = \"a\"\nkey = []\ncolumns = [[\"a\"]]",
                RESULTS,
                "not [title, cell]",
            ),
            (
                "title = \"a\"\nkey = []\ncolumns = [[\"a\", \"{b\"]]",
                RESULTS,
                "not [title, cell]",
            ),
            (
                COLUMNS,
                without_machine,
                "1: a figure before any line of a machine",
            ),
            (
                COLUMNS,
                "{\"event\":\"machine\",\"gpus\":[{}]}\n",
                "1: the machine's line has no `command`",
            ),
            (
                COLUMNS,
                "{\"event\":\"machine\",\"command\":\"x\"}\n",
                "1: the machine's line has neither `cpu` nor `gpus`",
            ),
            (COLUMNS, "[1]\n", "1: not an object"),
            (
                COLUMNS,
                &format!("{RESULTS}{half}\n"),
                "2 records have event=spmm,precision=half",
            ),
            (
                &COLUMNS.replace(
                    "{event=spmm,precision=half:ms:4}",
                    "{precision=half:ms:4} {precision=half:none}",
                ),
                RESULTS,
                "has precision=half:ms and not",
            ),
            (
                &COLUMNS.replace("half:ms:4", "half:graph:4"),
                RESULTS,
                "`road` is no number",
            ),
        ] {
            let why = why(columns, results);
            assert!(why.contains(words), "{why}, not {words}");
        }
    }

    #[test]
    fn the_tables_of_the_pages_are_those_of_the_results() {
        if let Err(fault) = run(&Options::checked()) {
            panic!("{fault}");
        }
    }
}
