//! The program on every system: paths, line ends, files that others have open, and interrupts. Run natively, by qemu
//! and by Wine.

mod common;

use common::{events, halfgnn, names, refused, text};
use std::io::Read;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const VERTICES: usize = 40;

/// A folder to train in, with the tables `team/people.csv` and `knows.csv`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("team")).unwrap();
        place.tables("\n");
        place
    }

    /// Writes two rings of people as tables whose lines end as given.
    fn tables(&self, end: &str) {
        let mut people = format!("id,f,g,label,split{end}");
        let mut knows = format!("source,target{end}");
        for person in 0..VERTICES {
            let team = person / 20;
            let split = ["train", "val", "test", "test"][person % 4];
            let label = ["red", "blue"][team];
            people += &format!("p{person},{team},0.{},{label},{split}{end}", person % 3);
            let next = team * 20 + (person + 1) % 20;
            knows += &format!("p{person},p{next}{end}");
        }
        std::fs::write(self.path("team/people.csv"), people).unwrap();
        std::fs::write(self.path("knows.csv"), knows).unwrap();
    }

    /// The absolute path of a file in the folder, as the system writes it.
    fn path(&self, name: &str) -> PathBuf {
        let names = name.split('/');
        names.fold(self.0.path().to_owned(), |path, name| path.join(name))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = halfgnn(arguments);
        command.current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        output
    }

    /// The bits of the loss of five epochs on a dataset.
    fn losses(&self, dataset: &str) -> Vec<u64> {
        let train = ["train", "--device", "cpu", "--dataset", dataset];
        // Of counts of words gnn-benchmark's files are otherwise normalized, and tables are not.
        let options = ["--epochs", "5", "--normalize-features=false"];
        let output = self.run(&[&train[..], &options, &["--json", "-"]].concat());
        let events = events(&output.stdout);
        let epochs = events.iter().filter(|event| event["event"] == "epoch");
        let losses = epochs.map(|epoch| epoch["loss"].as_f64().unwrap().to_bits());
        losses.collect()
    }

    /// The names in the folder.
    fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

/// Two tables, as `--dataset` takes them.
fn pair(nodes: &Path, edges: &Path) -> String {
    format!("{},{}", nodes.display(), edges.display())
}

#[test]
fn help_is_plain_text_and_an_unknown_flag_is_refused() {
    let output = halfgnn(&["--help"]).output().unwrap();
    assert!(output.status.success());
    let help = text(&output.stdout);
    assert!(
        help.contains("Usage: halfgnn") && help.contains("train"),
        "{help}"
    );
    assert!(!help.contains('\u{1b}'), "it is not a terminal: {help}");
    let output = halfgnn(&["train", "--nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = text(&output.stderr);
    assert!(error.contains("'--nonsense'"), "{error}");
    assert!(!error.contains('\u{1b}'), "it is not a terminal: {error}");
}

/// On Windows absolute paths have a drive letter with a colon, which recipes and options of samplers have as well.
#[test]
fn tables_are_named_by_paths_of_the_system() {
    let place = Place::new();
    let (people, knows) = (place.path("team/people.csv"), place.path("knows.csv"));
    let absolute = pair(&people, &knows);
    if std::env::consts::OS == "windows" {
        assert!(absolute.contains(":\\"), "{absolute}");
    }
    let expected = place.losses(&absolute);
    assert_eq!(expected.len(), 5);
    let relative = format!("team{MAIN_SEPARATOR}people.csv,knows.csv");
    assert_eq!(place.losses(&relative), expected);
    assert_eq!(place.losses("team/people.csv,knows.csv"), expected);
    // What is not there is named as it was typed.
    let missing = place.path("team/none.csv");
    let dataset = pair(&missing, &knows);
    let arguments = ["train", "--device", "cpu", "--dataset", &dataset];
    let output = place.command(&arguments).output().unwrap();
    refused(&output, 2, &[&missing.display().to_string()]);
}

#[test]
fn tables_with_line_ends_of_windows_are_the_same_tables() {
    let place = Place::new();
    let expected = place.losses("team/people.csv,knows.csv");
    place.tables("\r\n");
    assert_eq!(place.losses("team/people.csv,knows.csv"), expected);
    let edges = |end: &str| {
        std::fs::write(place.path("edges.txt"), format!("0 1{end}1 2{end}2 0{end}")).unwrap();
        place.run(&["dataset", "convert", "edges.txt", "edges.csr"]);
        std::fs::read(place.path("edges.csr")).unwrap()
    };
    assert_eq!(edges("\n"), edges("\r\n"));
}

/// What is converted is trained on to the same losses, and a model that was saved predicts.
#[test]
fn files_are_converted_saved_and_read_again() {
    let place = Place::new();
    let tables = pair(&place.path("team/people.csv"), &place.path("knows.csv"));
    let expected = place.losses(&tables);
    let (converted, model) = (place.path("graph.npz"), place.path("model.safetensors"));
    let (converted, model) = (converted.to_str().unwrap(), model.to_str().unwrap());
    place.run(&["dataset", "convert", &tables, converted]);
    assert_eq!(place.losses(converted), expected);
    let on_cpu = ["--device", "cpu", "--dataset", &tables];
    let train = ["train", "--epochs", "100", "--save", model];
    place.run(&[&train[..], &on_cpu].concat());
    let predict = ["predict", "--model", model, "--out", "classes.csv"];
    place.run(&[&predict[..], &on_cpu].concat());
    let classes = std::fs::read_to_string(place.path("classes.csv")).unwrap();
    assert_eq!(classes.lines().count(), VERTICES + 1);
    let has = |id: &str, class: &str| {
        let mut lines = classes.lines();
        let line = lines.find(|line| line.starts_with(&format!("{id},")));
        assert!(line.is_some_and(|line| line.contains(class)), "{classes}");
    };
    has("p3", "red");
    has("p37", "blue");
    let all = [
        "classes.csv",
        "graph.npz",
        "knows.csv",
        "model.safetensors",
        "team",
    ];
    assert_eq!(place.names(), all);
}

/// As a program that shows a checkpoint does while the next is written. Some file systems of Windows, and Wine, replace
/// no file that is open: there the old one stays whole.
#[test]
fn a_model_is_saved_over_one_that_is_being_read() {
    let place = Place::new();
    let save = |epochs: &str| {
        let train = ["train", "--device", "cpu", "--epochs", epochs];
        let files = ["--dataset", "team/people.csv,knows.csv", "--save", "model"];
        let output = place.command(&[&train[..], &files].concat()).output();
        output.unwrap()
    };
    let model = || std::fs::read(place.path("model")).unwrap();
    assert!(save("1").status.success());
    let before = model();
    let mut reader = std::fs::File::open(place.path("model")).unwrap();
    let output = save("2");
    if output.status.success() {
        assert!(model() != before);
    } else {
        assert_eq!(std::env::consts::OS, "windows");
        let error = text(&output.stderr);
        let last = error.lines().last().unwrap();
        assert!(last.contains("model: cannot be written"), "{error}");
        assert!(model() == before, "the old model is whole");
    }
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == before, "the reader has what it opened");
    assert_eq!(place.names(), ["knows.csv", "model", "team"]);
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next_one() {
    let place = Place::new();
    let mut ended = halfgnn(&["--version"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    ended.wait().unwrap();
    let left = |number: u32| format!(".halfgnn-{number}-abc.part");
    // On Windows no other process has the number as long as `ended` is there.
    let (dead, living) = (left(ended.id()), left(std::process::id()));
    for name in [&dead, &living] {
        std::fs::write(place.path(name), "1").unwrap();
    }
    let output = place.run(&["dataset", "convert", "team/people.csv,knows.csv", "x.npz"]);
    let mut expected = vec![&*living, "knows.csv", "team", "x.npz"];
    // Elsewhere it cannot be found out which processes run.
    if matches!(std::env::consts::OS, "linux" | "windows") {
        assert!(text(&output.stderr).contains(&dead), "it is named");
    } else {
        expected.push(&dead);
    }
    expected.sort_unstable();
    assert_eq!(place.names(), expected);
    drop(ended);
}

/// Ranks that are processes of this host meet by a file, named by an absolute path.
#[test]
fn two_processes_train_as_two_threads_do() {
    let place = Place::new();
    let dataset = ["--dataset", "team/people.csv,knows.csv"];
    let train = ["train", "--device", "cpu", "--epochs", "5", "--json", "-"];
    let losses = |output: &Output| -> Vec<f64> {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let events = events(&output.stdout);
        let epochs = events.iter().filter(|event| event["event"] == "epoch");
        epochs
            .map(|epoch| epoch["loss"].as_f64().unwrap())
            .collect()
    };
    let threads = place.run(&[&train[..], &dataset, &["--ranks", "2"]].concat());
    let rendezvous = format!("local:{}", place.path("meet").display());
    let processes = ["0", "1"].map(|rank| {
        let mut command = place.command(&[&train[..], &dataset].concat());
        command.args(["--rendezvous", &rendezvous]);
        command.env("RANK", rank).env("WORLD_SIZE", "2");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    let [first, second] = processes.map(|process| process.wait_with_output().unwrap());
    assert_eq!(losses(&first), losses(&threads));
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(second.stdout.is_empty());
}

/// Interrupts a process as Ctrl-C in its terminal does.
#[cfg(unix)]
fn interrupt(process: &Child) {
    let number = process.id().to_string();
    let sent = Command::new("kill").args(["-INT", &number]).status();
    assert!(sent.unwrap().success());
}

/// Interrupts a process as Ctrl-C in its console does. Another process of this program does it, which leaves its own
/// console for that one.
#[cfg(windows)]
fn interrupt(process: &Child) {
    let number = process.id().to_string();
    let mut sender = Command::new(std::env::current_exe().unwrap());
    sender.args([
        "--exact",
        "an_interrupt_ends_a_run_with_its_model_and_summary",
    ]);
    let status = sender.env(INTERRUPTED, number).status().unwrap();
    assert_eq!(status.code(), Some(SENT));
}

/// The number of the process to interrupt, set for the process that does it.
#[cfg(windows)]
const INTERRUPTED: &str = "HALFGNN_TEST_INTERRUPTED";

/// The exit status of a process that has sent an interrupt.
#[cfg(windows)]
const SENT: i32 = 70;

/// Interrupts the process that [`INTERRUPTED`] names, where it is set, and ends this one.
#[cfg(windows)]
fn send_interrupt() {
    use windows_sys::Win32::System::Console::{
        AttachConsole, CTRL_C_EVENT, FreeConsole, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
    };
    let Ok(number) = std::env::var(INTERRUPTED) else {
        return;
    };
    let number = number.parse().unwrap();
    // SAFETY: all take numbers, or no function. Ctrl-C goes to all processes of a console, of which this one ignores
    // it.
    let sent = unsafe {
        SetConsoleCtrlHandler(None, 1);
        FreeConsole();
        AttachConsole(number) != 0 && GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0) != 0
    };
    std::process::exit(if sent { SENT } else { 1 });
}

/// Has a process be one that [`interrupt`] reaches: on Windows, one with a console of its own that has no window.
fn can_be_interrupted(command: &mut Command) -> &mut Command {
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::Threading::CREATE_NO_WINDOW;
        std::os::windows::process::CommandExt::creation_flags(command, CREATE_NO_WINDOW);
    }
    command
}

#[test]
fn an_interrupt_ends_a_run_with_its_model_and_summary() {
    #[cfg(windows)]
    send_interrupt();
    let place = Place::new();
    let train = [
        "train", "--device", "cpu", "--save", "model", "--json", "runs",
    ];
    let dataset = ["--dataset", "team/people.csv,knows.csv"];
    let mut command = place.command(&[&train[..], &dataset].concat());
    command.args(["--epochs", "4000000"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = can_be_interrupted(&mut command).spawn().unwrap();
    let start = Instant::now();
    let events_of = || std::fs::read(place.path("runs")).unwrap_or_default();
    while events_of().iter().filter(|&&byte| byte == b'\n').count() < 6 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended");
        assert!(start.elapsed() < Duration::from_secs(120), "no epochs");
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("stopping after the step under way"), "{said}");
    let events = events(&events_of());
    assert_eq!(events.last().unwrap()["event"], "summary");
    assert_eq!(place.names(), ["knows.csv", "model", "runs", "team"]);
}
