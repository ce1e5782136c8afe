//! Processes: how one ended, and whether one runs.

use std::process::ExitStatus;

/// The signal that ended a process; `None` of one that ended by itself, and on Windows, which has exit statuses alone.
pub fn signal(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    {
        let _ = status;
        None
    }
}

/// Whether a process of this number runs; true where that cannot be found out.
pub fn is_running(number: u32) -> bool {
    #[cfg(windows)]
    {
        use windows_sys::Win32::Foundation::{CloseHandle, ERROR_INVALID_PARAMETER, GetLastError};
        use windows_sys::Win32::System::Threading::{
            GetExitCodeProcess, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION,
        };
        /// `STILL_ACTIVE`: a process that has ended is there as long as one handle of it is open.
        const RUNS: u32 = 259;
        // SAFETY: takes any number; gives a handle that is closed below, or null.
        let process = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, number) };
        if process.is_null() {
            // SAFETY: reads a variable of this thread.
            return unsafe { GetLastError() } != ERROR_INVALID_PARAMETER;
        }
        let mut code = RUNS;
        // SAFETY: the handle is open, and one number is written; it is closed once.
        unsafe {
            GetExitCodeProcess(process, &mut code);
            CloseHandle(process);
        }
        code == RUNS
    }
    #[cfg(not(windows))]
    {
        let processes = std::path::Path::new("/proc");
        !processes.join("self").exists() || processes.join(number.to_string()).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process that ends at once.
    fn ended() -> (u32, ExitStatus) {
        let program = match std::env::consts::OS {
            "windows" => "hostname",
            _ => "true",
        };
        let mut child = Command::new(program).stdout(Stdio::null()).spawn().unwrap();
        (child.id(), child.wait().unwrap())
    }

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        assert!(is_running(std::process::id()));
        let (number, status) = ended();
        assert!(status.success());
        assert_eq!(signal(status), None);
        // Where processes cannot be listed, all are believed to run.
        let known = cfg!(any(target_os = "linux", windows));
        assert_eq!(is_running(number), !known);
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_was_killed_has_a_signal() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(signal(child.wait().unwrap()), Some(9));
    }
}
