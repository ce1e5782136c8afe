//! The PTX emulator as a driver.
