//! `halfgnn completions` and `halfgnn man`: what a shell and `man` know of the program, from the command line's own
//! definition.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

/// Writes the completions of a shell to stdout.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "halfgnn", &mut script);
    put(&script)
}

/// Writes a man page to stdout, or all of them into a folder.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut program = Cli::command();
    program.build();
    match (&args.dir, &args.command) {
        (Some(folder), _) => write_all(&program, folder),
        (None, None) => put(&page(&program)?),
        (None, Some(name)) => match program.find_subcommand(name) {
            Some(command) => put(&page(command)?),
            None => Err(Failure::Input(format!(
                "man: there is no command `{name}`; `halfgnn --help` lists them"
            ))),
        },
    }
}

/// One file for the program, and one for each command (and each of its commands).
fn write_all(program: &Command, folder: &Path) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::Input(format!("--dir {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refuse)?;
    let mut commands = vec![program];
    while let Some(command) = commands.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        std::fs::write(folder.join(format!("{name}.1")), page(command)?).map_err(refuse)?;
        commands.extend(
            command
                .get_subcommands()
                .filter(|command| command.get_name() != "help"),
        );
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    Man::new(command.clone())
        .render(&mut text)
        .map_err(|error| Failure::Run(format!("man: {error}")))?;
    Ok(text)
}

/// Writes to stdout; a reader who leaves (`| head`) is no failure.
fn put(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_markdown::MarkdownOptions;

    /// The file that the page is written to, by `cargo xtask book`.
    const WRITE: &str = "HALFGNN_WRITE_DOCS";

    /// The page of all commands, from the command line's own definition.
    fn page_of_commands() -> String {
        let options = MarkdownOptions::new()
            .title("Every command and flag".to_owned())
            .show_footer(false)
            .show_table_of_contents(true);
        let mut program = Cli::command();
        // Whatever the machine is that writes it.
        program = program.term_width(100);
        let page = clap_markdown::help_markdown_command_custom(&program, &options);
        let (mut made, mut fenced, mut heading) = (String::new(), false, false);
        for line in page.lines().map(str::trim_end) {
            // Examples and tables of `--help`, which would flow together.
            let indented = line.starts_with("  ") && (fenced || heading);
            if indented != fenced {
                made.push_str(if indented { "```text\n" } else { "```\n" });
                fenced = indented;
            }
            heading = line.ends_with(':') && !line.starts_with(' ');
            made.push_str(line);
            made.push('\n');
        }
        made.trim_end().to_owned() + "\n"
    }

    /// The part of the page that a command has.
    fn section<'a>(page: &'a str, name: &str) -> &'a str {
        let heading = format!("\n## `{name}`\n");
        let (_, rest) = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("no {name}"));
        rest.split("\n## `").next().unwrap_or(rest)
    }

    #[test]
    fn the_page_of_commands_has_every_command_and_flag() {
        let page = page_of_commands();
        // Not built: flags of the whole program are in its own section.
        let program = Cli::command();
        let mut commands = vec![("halfgnn".to_owned(), &program)];
        while let Some((name, command)) = commands.pop() {
            let section = section(&page, &name);
            for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
                let long = flag
                    .get_long()
                    .filter(|long| !["help", "version"].contains(long));
                if let Some(long) = long {
                    assert!(section.contains(&format!("`--{long}")), "{name} --{long}");
                }
            }
            let inner = command.get_subcommands();
            let shown = inner.filter(|of| of.get_name() != "help" && !of.is_hide_set());
            commands.extend(shown.map(|of| (format!("{name} {}", of.get_name()), of)));
        }
        assert_eq!(page.matches("```").count() % 2, 0, "a block is not closed");
        if let Some(place) = std::env::var_os(WRITE) {
            std::fs::write(&place, &page).unwrap_or_else(|error| panic!("{place:?}: {error}"));
        }
    }
}
