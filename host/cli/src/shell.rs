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

    /// Set to write the page anew.
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

    #[test]
    fn the_page_of_commands_says_what_the_program_says() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let made = page_of_commands();
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(place, &made).unwrap();
        }
        let there = std::fs::read_to_string(place).unwrap();
        let differs = made
            .lines()
            .zip(there.lines())
            .find(|(made, there)| made != there);
        assert!(
            made == there,
            "docs/cli.md is of another program: {differs:?}; write it anew: \
             {WRITE}=1 cargo test -p halfgnn-cli --bin halfgnn page_of_commands"
        );
    }
}
