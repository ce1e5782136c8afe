//! Runs PTX on the CPU, lane by lane, and reports what a sanitizer would.
