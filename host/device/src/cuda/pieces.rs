//! PTX of several kernels, split so that each can be compiled by itself.
//!
//! The driver compiles a module on one thread, all kernels of it. A run launches some tens of the kernels that there
//! are, so each is compiled when it is first asked for, and several are compiled in parallel.

use std::collections::HashMap;

/// The pieces of a PTX text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    /// What all kernels share: version, target, variables.
    head: String,
    /// The kernels, by name.
    entries: HashMap<String, String>,
    /// The `.file` lines that `.loc` lines refer to.
    tail: String,
}

impl Pieces {
    /// Splits a text. `None` where it has functions other than kernels, which kernels may call, and where it is not
    /// laid out as compilers write PTX: it is then compiled as a whole.
    pub fn split(ptx: &str) -> Option<Self> {
        let (mut head, mut tail) = (String::new(), String::new());
        let mut entries = HashMap::new();
        let mut lines = ptx.split_inclusive('\n');
        while let Some(line) = lines.next() {
            if is_function(line) {
                return None;
            }
            let Some(name) = entry_name(line) else {
                let part = if entries.is_empty() {
                    &mut head
                } else {
                    &mut tail
                };
                part.push_str(line);
                continue;
            };
            let mut text = line.to_owned();
            loop {
                let line = lines
                    .next()
                    .filter(|line| entry_name(line).is_none() && !is_function(line))?;
                text.push_str(line);
                if line.trim_end() == "}" {
                    break;
                }
            }
            entries.insert(name.to_owned(), text);
        }
        // A variable between kernels may be of one of them.
        let is_file = |line: &str| line.trim().is_empty() || line.trim_start().starts_with(".file");
        (!entries.is_empty() && tail.lines().all(is_file)).then_some(Self {
            head,
            entries,
            tail,
        })
    }

    /// The text of one kernel, which is PTX by itself.
    pub fn of(&self, name: &str) -> Option<String> {
        let entry = self.entries.get(name)?;
        Some([&self.head, entry, &self.tail].map(String::as_str).concat())
    }
}

/// The name in `.visible .entry name(`.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix(".visible ")
        .unwrap_or(line)
        .strip_prefix(".entry ")?;
    rest.split(|c: char| c == '(' || c.is_whitespace())
        .next()
        .filter(|name| !name.is_empty())
}

/// Whether a line declares or defines a function that is no kernel.
fn is_function(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('.') && line.split_whitespace().take(3).any(|word| word == ".func")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.global .b8 X[8];\n\n.visible .entry a(\n\t.param .b8 p[8]\n)\n{\n\t{\n\t}\n\tret;\n}\n\
                       .entry b()\n{\n\tret;\n}\n\t.file 1 \"k.rs\"\n";

    #[test]
    fn a_kernel_takes_what_all_share_along() {
        let pieces = Pieces::split(PTX).expect("two kernels");
        let a = pieces.of("a").expect("it is there");
        assert!(
            a.starts_with(".version 8.0") && a.ends_with(".file 1 \"k.rs\"\n"),
            "{a}"
        );
        assert!(
            a.contains(".b8 X[8]") && a.contains("\t}\n\tret;\n}\n") && !a.contains(".entry b"),
            "{a}"
        );
        assert!(pieces.of("b").expect("it is there").contains(".entry b()"));
        assert_eq!(pieces.of("c"), None);
    }

    #[test]
    fn what_may_depend_on_more_stays_whole() {
        for text in [
            "",
            ".version 8.0\n.target sm_80\n",
            ".version 8.0\n.func f()\n{\n\tret;\n}\n.visible .entry a()\n{\n\tret;\n}\n",
            ".visible .entry a()\n{\n\tret;\n}\n.extern .func (.param .b32 r) f;\n",
            ".visible .entry a()\n{\n\tret;\n}\n.shared .b8 x[8];\n.visible .entry b()\n{\n\tret;\n}\n",
            ".visible .entry a()\n{\n\tret;\n",
        ] {
            assert_eq!(Pieces::split(text), None, "{text:?}");
        }
    }
}
