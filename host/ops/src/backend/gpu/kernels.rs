//! A module of PTX and its entries, compared with the launch contract.

use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use halfgnn_contract::{FINGERPRINT, FINGERPRINT_SYMBOL, Param, entries, param_bytes};
use ptx_syntax::Slot;
use std::collections::HashMap;

/// The kernels that the launch contract names, loaded.
#[derive(Debug)]
pub struct Kernels<D: Driver> {
    functions: HashMap<&'static str, D::Function>,
    /// Absent of those that launch nothing.
    module: Option<D::Module>,
}

impl<D: Driver> Kernels<D> {
    /// Compares `ptx` with the contract and loads it.
    pub fn load(driver: &D, ptx: &str) -> Result<Self, Error> {
        check(ptx)?;
        Self::of_module(driver, driver.load(ptx)?)
    }

    fn of_module(driver: &D, module: D::Module) -> Result<Self, Error> {
        let functions = entries()
            .map(|entry| Ok((entry.name, driver.function(&module, entry.name)?)))
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            functions,
            module: Some(module),
        })
    }

    /// The same, which are looked up and not launched.
    pub fn silent(&self) -> Self {
        Self {
            functions: self.functions.clone(),
            module: None,
        }
    }

    /// Whether nothing is launched.
    pub fn is_silent(&self) -> bool {
        self.module.is_none()
    }

    /// What the contract names, of a driver that launches nothing and so needs no PTX.
    pub fn of_contract(driver: &D) -> Result<Self, Error> {
        Self::of_module(driver, driver.load("")?)
    }

    /// Launches the entry `name`; nothing where the grid is empty.
    ///
    /// # Safety
    /// Every device address in `params` lies in a buffer that the operator's caller lends, as long as the kernel's
    /// contract asks for.
    pub unsafe fn launch<P: Param>(
        &self,
        driver: &D,
        name: &'static str,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        if config.grid.contains(&0) {
            return Ok(());
        }
        let function = self.functions.get(name).ok_or_else(|| {
            Error::Contract(format!("the launch contract names no kernel `{name}`"))
        })?;
        if self.is_silent() {
            return Ok(());
        }
        // SAFETY: `check` compared the size of the entry's parameter with the contract's, and the fingerprint its
        // fields; addresses are the caller's promise. Buffers outlive the launch because a driver frees in the order
        // of its stream.
        Ok(unsafe { driver.launch(function, config, param_bytes(params)) }?)
    }
}

/// Says why `ptx` is not what this crate was built with.
fn check(ptx: &str) -> Result<(), Error> {
    let source = ptx_syntax::outline(ptx)
        .map_err(|error| Error::Contract(format!("this is no PTX that can be read: {error}")))?;
    let bytes = source.variable(FINGERPRINT_SYMBOL).map(|it| &it.init[..]);
    let found = bytes.and_then(|bytes| bytes.try_into().ok());
    match found.map(u64::from_le_bytes) {
        Some(found) if found == FINGERPRINT => {}
        Some(found) => {
            return Err(Error::Contract(format!(
                "the PTX was built from other sources than this program: its contract is {found:#018x}, the program's is \
                 {FINGERPRINT:#018x}"
            )));
        }
        None => {
            return Err(Error::Contract(format!(
                "the PTX has no `{FINGERPRINT_SYMBOL}`: it is not this crate's"
            )));
        }
    }
    let found: HashMap<&str, &[Slot<'_>]> = source
        .entries()
        .map(|entry| (entry.name, &entry.params[..]))
        .collect();
    for entry in entries() {
        match found.get(entry.name) {
            None => {
                return Err(Error::Contract(format!(
                    "the PTX has no kernel `{}`",
                    entry.name
                )));
            }
            Some([slot]) if slot.size as usize == entry.param_bytes => {}
            Some(slots) => {
                let sizes: Vec<u32> = slots.iter().map(|slot| slot.size).collect();
                return Err(Error::Contract(format!(
                    "kernel `{}` takes parameters of {sizes:?} bytes, this program passes one of {}",
                    entry.name, entry.param_bytes
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// PTX that has what the contract asks for, and bodies that do nothing.
    fn ptx(fingerprint: u64, mut size: impl FnMut(&str, usize) -> Option<usize>) -> String {
        let bytes = fingerprint
            .to_le_bytes()
            .map(|byte| byte.to_string())
            .join(", ");
        let mut text = format!(
            ".version 8.0\n.target sm_80\n.visible .global .align 8 .b8 {FINGERPRINT_SYMBOL}[8] = {{{bytes}}};\n"
        );
        for entry in entries() {
            if let Some(bytes) = size(entry.name, entry.param_bytes) {
                let name = entry.name;
                write!(text, ".visible .entry {name}(\n\t.param .align 8 .b8 {name}_param_0[{bytes}]\n)\n{{\n\tret;\n}}\n")
                    .expect("a string takes all");
            }
        }
        text
    }

    fn message(ptx: &str) -> String {
        check(ptx).expect_err("the PTX does not fit").to_string()
    }

    #[test]
    fn what_fits_is_accepted() {
        check(&ptx(FINGERPRINT, |_, bytes| Some(bytes))).expect("the contract's own entries");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert!(
            message(&ptx(FINGERPRINT ^ 1, |_, bytes| Some(bytes)))
                .contains("built from other sources")
        );
        assert!(message(".version 8.0 .target sm_80").contains("not this crate's"));
        assert!(message("half a fi").contains("PTX line 1"));
        let victim = entries().last().expect("the contract has entries");
        let without = ptx(FINGERPRINT, |name, bytes| {
            (name != victim.name).then_some(bytes)
        });
        assert!(message(&without).contains(&format!("no kernel `{}`", victim.name)));
        let other = ptx(FINGERPRINT, |name, bytes| {
            Some(if name == victim.name {
                bytes + 8
            } else {
                bytes
            })
        });
        let message = message(&other);
        assert!(
            message.contains(victim.name)
                && message.contains(&(victim.param_bytes + 8).to_string())
        );
        assert!(message.contains("cargo xtask build-ptx"));
    }
}
