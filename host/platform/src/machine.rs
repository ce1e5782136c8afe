//! Memory, processor and name of the machine.

/// Free and total bytes of the machine's memory, of this process's control group, or of its address space
/// (`ulimit -v`), whichever is the least; `None` where the system does not say.
pub fn memory() -> Option<(u64, u64)> {
    #[cfg(target_os = "macos")]
    return macos::memory();
    #[cfg(windows)]
    return windows::memory();
    #[cfg(not(any(target_os = "macos", windows)))]
    linux::memory()
}

/// What the system calls the processor, such as `Apple M2`; `None` where it does not say.
pub fn processor() -> Option<String> {
    #[cfg(target_os = "macos")]
    let name = macos::text(c"machdep.cpu.brand_string");
    #[cfg(windows)]
    let name = std::env::var("PROCESSOR_IDENTIFIER").ok();
    #[cfg(not(any(target_os = "macos", windows)))]
    let name = linux::processor();
    let name = name.unwrap_or_default();
    let words: Vec<&str> = name.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// What the machine is called in its network; `None` where it has no name.
pub fn host_name() -> Option<String> {
    #[cfg(target_os = "macos")]
    let name = macos::text(c"kern.hostname");
    #[cfg(windows)]
    let name = std::env::var("COMPUTERNAME").ok();
    #[cfg(not(any(target_os = "macos", windows)))]
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.unwrap_or_default().trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// As Linux has it in `/proc` and `/sys`; texts alone, so that its tests run everywhere.
#[cfg_attr(any(target_os = "macos", windows), allow(dead_code))]
mod linux {
    use std::fs::read_to_string;

    pub(super) fn memory() -> Option<(u64, u64)> {
        let machine = read_to_string("/proc/meminfo").ok();
        let machine = machine.and_then(|text| meminfo(&text));
        let read = |file: &str| read_to_string(format!("/sys/fs/cgroup/{file}")).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let group = number("memory.max").zip(number("memory.current"));
        // What it has of files is given back where memory is short, and counts as free of the machine's memory as well.
        let of_files = read("memory.stat").map_or(0, |text| pages_of_files(&text));
        let group =
            group.map(|(most, used)| (most.saturating_sub(used.saturating_sub(of_files)), most));
        let read = |file: &str| read_to_string(format!("/proc/self/{file}")).ok();
        let limited = read("limits")
            .zip(read("status"))
            .and_then(|(limits, status)| address_space(&limits, &status));
        [machine, group, limited].into_iter().flatten().min()
    }

    pub(super) fn processor() -> Option<String> {
        cpu_model(&read_to_string("/proc/cpuinfo").ok()?)
    }

    /// Free and total bytes of a limited address space, from the texts of `/proc/self/limits` and `/proc/self/status`;
    /// `None` of one without a limit.
    fn address_space(limits: &str, status: &str) -> Option<(u64, u64)> {
        let limit = |line: &str| -> Option<u64> {
            let soft = line.strip_prefix("Max address space")?;
            soft.split_whitespace().next()?.parse().ok()
        };
        let most = limits.lines().find_map(limit)?;
        let used = status
            .lines()
            .find_map(|line| line.strip_prefix("VmSize:"))?;
        let used: u64 = used.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some((most.saturating_sub(used.saturating_mul(1024)), most))
    }

    /// Bytes that a control group has of files, from the text of its `memory.stat`.
    fn pages_of_files(text: &str) -> u64 {
        let fields = text.lines().filter_map(|line| line.split_once(' '));
        let of_files = fields.filter(|(field, _)| ["inactive_file", "active_file"].contains(field));
        of_files
            .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
            .sum()
    }

    /// Free and total bytes, from the text of `/proc/meminfo`.
    fn meminfo(text: &str) -> Option<(u64, u64)> {
        let bytes = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field))?;
            let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kilobytes.checked_mul(1024)
        };
        Some((bytes("MemAvailable:")?, bytes("MemTotal:")?))
    }

    /// The model in the text of `/proc/cpuinfo`. ARM's has numbers alone: of who made the core and of which it is.
    fn cpu_model(text: &str) -> Option<String> {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim())
        };
        match field("model name") {
            Some(model) => (!model.is_empty()).then(|| model.to_owned()),
            None => {
                let core = (field("CPU implementer")?, field("CPU part")?);
                let known = ARM_CORES.iter().find(|(numbers, _)| *numbers == core);
                Some(match known {
                    Some((_, name)) => (*name).to_owned(),
                    None => format!("ARM core {} of implementer {}", core.1, core.0),
                })
            }
        }
    }

    /// Cores of servers, by the numbers that their technical reference manuals give `MIDR_EL1`.
    const ARM_CORES: [((&str, &str), &str); 6] = [
        (("0x41", "0xd0c"), "ARM Neoverse N1"),
        (("0x41", "0xd40"), "ARM Neoverse V1"),
        (("0x41", "0xd49"), "ARM Neoverse N2"),
        (("0x41", "0xd4f"), "ARM Neoverse V2"),
        (("0x41", "0xd83"), "ARM Neoverse V3AE"),
        (("0x41", "0xd84"), "ARM Neoverse V3"),
    ];

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_limit_of_the_address_space_is_read() {
            let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max address space         614400000            unlimited            bytes     \n";
            let status = "Name:\thalfgnn\nVmPeak:\t  500 kB\nVmSize:\t  100000 kB\n";
            assert_eq!(
                address_space(limits, status),
                Some((614_400_000 - 102_400_000, 614_400_000))
            );
            let unlimited = limits.replace("614400000", "unlimited");
            assert_eq!(address_space(&unlimited, status), None);
        }

        #[test]
        fn memory_is_read_from_the_texts_of_linux() {
            let text = "MemTotal:       16 kB\nMemFree:         4 kB\nMemAvailable:    8 kB\n";
            assert_eq!(meminfo(text), Some((8 * 1024, 16 * 1024)));
            assert_eq!(meminfo("MemTotal: 16 kB\n"), None);
            assert_eq!(meminfo(""), None);
            let text = "anon 4096\nfile 20\ninactive_anon 1\nactive_file 12\ninactive_file 8\n";
            assert_eq!((pages_of_files(text), pages_of_files("")), (20, 0));
        }

        #[test]
        fn the_model_is_read_from_cpuinfo() {
            let text =
                "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9554 64-Core Processor \n";
            assert_eq!(
                cpu_model(text).as_deref(),
                Some("AMD EPYC 9554 64-Core Processor")
            );
            let arm = |part: &str| {
                cpu_model(&format!(
                    "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: {part}\n"
                ))
            };
            assert_eq!(arm("0xd4f").as_deref(), Some("ARM Neoverse V2"));
            assert_eq!(
                arm("0x001").as_deref(),
                Some("ARM core 0x001 of implementer 0x41")
            );
            assert_eq!(cpu_model("CPU implementer\t: 0x41\n"), None);
            assert_eq!(cpu_model("model name\t:\n"), None);
            assert_eq!(cpu_model(""), None);
        }
    }
}

#[cfg(target_os = "macos")]
mod macos {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    /// The bytes of a variable of the kernel, at most as many as `buffer` has.
    fn variable(name: &CStr, buffer: &mut [u8]) -> Option<usize> {
        let mut bytes = buffer.len();
        // SAFETY: the name ends with a zero byte; at most `bytes` are written to the slice, which has as many; nothing
        // is set.
        let done = unsafe {
            libc::sysctlbyname(
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                &mut bytes,
                null_mut(),
                0,
            )
        };
        (done == 0).then_some(bytes)
    }

    pub(super) fn text(name: &CStr) -> Option<String> {
        let mut buffer = [0; 256];
        let bytes = variable(name, &mut buffer)?;
        let text = CStr::from_bytes_until_nul(&buffer[..bytes]).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    /// A number of four bytes or eight.
    fn number(name: &CStr) -> Option<u64> {
        let mut buffer = [0; 8];
        let bytes = variable(name, &mut buffer)?;
        matches!(bytes, 4 | 8).then(|| u64::from_le_bytes(buffer))
    }

    /// Pages that are free or have what files have count as free.
    pub(super) fn memory() -> Option<(u64, u64)> {
        let total = number(c"hw.memsize")?;
        let pages = number(c"vm.page_free_count")?
            + number(c"vm.page_pageable_external_count").unwrap_or(0);
        let free = pages.saturating_mul(number(c"hw.pagesize")?);
        Some((free.min(total), total))
    }
}

#[cfg(windows)]
mod windows {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

    pub(super) fn memory() -> Option<(u64, u64)> {
        let mut status = MEMORYSTATUSEX {
            dwLength: size_of::<MEMORYSTATUSEX>() as u32,
            ..MEMORYSTATUSEX::default()
        };
        // SAFETY: one struct is written, whose length it says.
        let done = unsafe { GlobalMemoryStatusEx(&mut status) };
        (done != 0).then_some((status.ullAvailPhys, status.ullTotalPhys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_no_more_is_free() {
        let (free, total) = memory().expect("a system that says it");
        assert!(free <= total && total > 64 << 20, "{free} of {total}");
    }

    #[test]
    fn names_are_one_line() {
        for name in [processor(), host_name()].into_iter().flatten() {
            assert!(!name.is_empty() && !name.contains('\n'), "{name}");
            assert_eq!(name.trim(), name);
        }
    }
}
