//! Terminals.

use std::io::{self, IsTerminal};

/// Whether stderr is a terminal that takes ANSI sequences. Of a console of Windows they are asked for here; one older
/// than Windows 10 takes none.
pub fn stderr_takes_ansi() -> bool {
    if !io::stderr().is_terminal() {
        return false;
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::AsRawHandle;
        use windows_sys::Win32::System::Console::{
            ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, SetConsoleMode,
        };
        let handle = io::stderr().as_raw_handle();
        let mut mode = 0;
        // SAFETY: the handle is the process's own, and one number is written.
        if unsafe { GetConsoleMode(handle, &mut mode) } == 0 {
            return false;
        }
        // SAFETY: as above; a console that does not know the mode refuses it.
        unsafe { SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0 }
    }
    #[cfg(not(windows))]
    std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}
