//! Syntax to typed programs: one for each kernel, with the functions that it reaches linked in.
//!
//! Functions do not recurse (the text is refused if they do), so every register, call parameter and local variable has
//! one place for the whole kernel, as a linker without a stack would give it.

mod arithmetic;
mod control;
mod floats;
mod memory;
mod modifiers;
mod operand;
mod warp;

use crate::ir::{
    ARENA_BASE, CONSTANT, Constant, Guard, Instruction, Op, Place, Program, SHARED_BASE,
    SharedVariable,
};
use modifiers::Modifiers;
use ptx_syntax::ParseError;
use ptx_syntax::{self as syntax, Function, Operand, Slot, SlotKind, Source, VariableSpace};
use std::collections::HashMap;

type Result<T, E = ParseError> = std::result::Result<T, E>;

/// Instructions that one kernel may have after linking.
const MAX_INSTRUCTIONS: usize = 1 << 24;

/// Names of a text, and what they stand for.
pub(crate) struct Names<'s, 'a> {
    source: &'s Source<'a>,
    functions: HashMap<&'a str, usize>,
    variables: HashMap<&'a str, usize>,
}

impl<'s, 'a> Names<'s, 'a> {
    pub(crate) fn new(source: &'s Source<'a>) -> Result<Self> {
        let mut functions: HashMap<&str, usize> = HashMap::new();
        for (i, f) in source.functions.iter().enumerate() {
            match functions.get(f.name).map(|other| &source.functions[*other]) {
                Some(other) if other.defined && f.defined => {
                    return Err(ParseError::new(
                        f.line,
                        f.name,
                        "this function is defined twice",
                    ));
                }
                Some(other) if other.defined => {}
                _ => {
                    functions.insert(f.name, i);
                }
            }
        }
        let mut variables = HashMap::new();
        for (i, v) in source.variables.iter().enumerate() {
            if variables.insert(v.name, i).is_some() {
                return Err(ParseError::new(
                    v.line,
                    v.name,
                    "this variable is declared twice",
                ));
            }
        }
        Ok(Self {
            source,
            functions,
            variables,
        })
    }

    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.variables.get(name).copied()
    }

    /// Links `root` with everything that it calls.
    pub(crate) fn link(&self, root: usize) -> Result<Program> {
        let order = self.reachable(root)?;
        let mut linker = Linker {
            names: self,
            program: Program::default(),
            frames: HashMap::new(),
            constants: HashMap::new(),
            shared: HashMap::new(),
        };
        let mut starts = 0;
        for &f in &order {
            linker.place(f, &mut starts)?;
        }
        linker.lay_out_shared(&order);
        for &f in &order {
            linker.function(f)?;
        }
        let mut program = linker.program;
        program.orders_blocks = program
            .instructions
            .iter()
            .any(|i| memory::orders_blocks(&i.op));
        Ok(program)
    }

    /// The functions that `root` reaches, itself first.
    fn reachable(&self, root: usize) -> Result<Vec<usize>> {
        let mut order = vec![root];
        let mut edges: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut seen = std::collections::HashSet::from([root]);
        let mut next = 0;
        while next < order.len() {
            let caller = order[next];
            next += 1;
            for i in self.source.functions[caller]
                .body
                .iter()
                .filter(|i| is_call(i.opcode))
            {
                let callee = self.callee(i)?;
                edges.entry(caller).or_default().push(callee);
                if seen.insert(callee) {
                    order.push(callee);
                }
            }
        }
        self.refuse_recursion(&order, &edges)?;
        Ok(order)
    }

    /// A call graph has an order in which callers stand before callees, unless a function recurses.
    fn refuse_recursion(&self, order: &[usize], edges: &HashMap<usize, Vec<usize>>) -> Result<()> {
        let mut incoming: HashMap<usize, usize> = order.iter().map(|f| (*f, 0)).collect();
        for callee in edges.values().flatten() {
            *incoming.entry(*callee).or_default() += 1;
        }
        let mut ready: Vec<usize> = incoming
            .iter()
            .filter(|(_, n)| **n == 0)
            .map(|(f, _)| *f)
            .collect();
        let mut done = 0;
        while let Some(f) = ready.pop() {
            done += 1;
            for callee in edges.get(&f).into_iter().flatten() {
                let n = incoming.entry(*callee).or_default();
                *n -= 1;
                if *n == 0 {
                    ready.push(*callee);
                }
            }
        }
        if done == order.len() {
            return Ok(());
        }
        let f = order
            .iter()
            .map(|f| &self.source.functions[*f])
            .find(|f| incoming[&self.functions[f.name]] > 0);
        let f = f.unwrap_or(&self.source.functions[order[0]]);
        Err(ParseError::new(
            f.line,
            f.name,
            "this function can call itself; recursion is not implemented",
        ))
    }

    fn callee(&self, call: &syntax::Instruction<'a>) -> Result<usize> {
        let name = call.operands.iter().find_map(|o| match o {
            Operand::Name(name, 0) => Some(*name),
            _ => None,
        });
        let shown = self.source.shown(call);
        let name = name.ok_or_else(|| {
            ParseError::new(call.line, shown, "indirect calls are not implemented")
        })?;
        match self.functions.get(name) {
            Some(f) if self.source.functions[*f].is_entry => Err(ParseError::new(
                call.line,
                shown,
                "a kernel cannot be called",
            )),
            Some(f) if self.source.functions[*f].defined => Ok(*f),
            _ => Err(ParseError::new(
                call.line,
                shown,
                format!("the function {name} has no body in this text"),
            )),
        }
    }
}

fn is_call(opcode: &str) -> bool {
    opcode == "call" || opcode.starts_with("call.")
}

/// Where a function's registers and variables lie in the program.
#[derive(Default, Clone)]
struct Frame {
    /// For each register of the function its row, or its predicate.
    registers: Vec<u32>,
    params: Vec<u32>,
    results: Vec<u32>,
    call_slots: Vec<u32>,
    locals: Vec<u32>,
    start: u32,
}

struct Linker<'n, 's, 'a> {
    names: &'n Names<'s, 'a>,
    program: Program,
    frames: HashMap<usize, Frame>,
    constants: HashMap<Constant, u32>,
    /// Addresses of shared variables by their index.
    shared: HashMap<usize, u32>,
}

impl<'s, 'a> Linker<'_, 's, 'a> {
    fn source(&self, f: usize) -> &'s Function<'a> {
        &self.names.source.functions[f]
    }

    /// Gives a function its place: registers, variables, first instruction.
    fn place(&mut self, f: usize, start: &mut usize) -> Result<()> {
        let function = self.source(f);
        let program = &mut self.program;
        let mut frame = Frame {
            start: *start as u32,
            ..Frame::default()
        };
        if function.registers.iter().any(|r| r.bits > 64) {
            return Err(ParseError::new(
                function.line,
                function.name,
                "registers of 128 bits are not implemented",
            ));
        }
        for r in &function.registers {
            if r.bits == 1 {
                frame.registers.push(program.preds);
                program.preds += 1;
            } else {
                frame.registers.push(program.rows.len() as u32);
                program.rows.push(r.bits);
            }
        }
        let error = || {
            ParseError::new(
                function.line,
                function.name,
                "the variables of this function are too large",
            )
        };
        let reserve = |at: &mut u32, slots: &[Slot<'a>]| -> Result<Vec<u32>> {
            slots
                .iter()
                .map(|s| {
                    let offset = at.checked_next_multiple_of(s.align).ok_or_else(error)?;
                    *at = offset
                        .checked_add(s.size)
                        .filter(|end| *end <= 1 << 20)
                        .ok_or_else(error)?;
                    Ok(offset)
                })
                .collect()
        };
        let into = if function.is_entry {
            &mut program.param_bytes
        } else {
            &mut program.arena_bytes
        };
        frame.params = reserve(into, &function.params)?;
        frame.results = reserve(&mut program.arena_bytes, &function.results)?;
        frame.call_slots = reserve(&mut program.arena_bytes, &function.call_slots)?;
        frame.locals = reserve(&mut program.local_bytes, &function.locals)?;
        // One more instruction closes each body: falling off its end returns.
        *start += function.body.len() + 1;
        if *start > MAX_INSTRUCTIONS {
            return Err(ParseError::new(
                function.line,
                function.name,
                format!("more than {MAX_INSTRUCTIONS} instructions"),
            ));
        }
        self.frames.insert(f, frame);
        Ok(())
    }

    /// Places the shared variables that the functions name: static ones first, dynamic memory after them.
    fn lay_out_shared(&mut self, order: &[usize]) {
        let mut used: Vec<usize> = Vec::new();
        for i in order.iter().flat_map(|f| &self.source(*f).body) {
            for name in i.operands.iter().flat_map(Operand::names) {
                match self.names.variable(name) {
                    Some(v)
                        if self.names.source.variables[v].space == VariableSpace::Shared
                            && !used.contains(&v) =>
                    {
                        used.push(v)
                    }
                    _ => {}
                }
            }
        }
        used.sort_unstable();
        let mut at = SHARED_BASE;
        for dynamic in [false, true] {
            for &v in used
                .iter()
                .filter(|v| self.names.source.variables[**v].dynamic == dynamic)
            {
                let variable = &self.names.source.variables[v];
                at = at.next_multiple_of(variable.align);
                self.shared.insert(v, at);
                if !dynamic {
                    let (name, size) = (variable.name.to_owned(), variable.size);
                    self.program.shared.push(SharedVariable {
                        name,
                        offset: at - SHARED_BASE,
                        size,
                    });
                    at += size;
                }
            }
        }
        self.program.static_shared = at - SHARED_BASE;
    }

    fn function(&mut self, f: usize) -> Result<()> {
        let function = self.source(f);
        let frame = self.frames.remove(&f).unwrap_or_default();
        self.program
            .functions
            .push((frame.start, function.name.to_owned()));
        for i in &function.body {
            let mut decoder = Decoder {
                linker: self,
                function,
                frame: &frame,
                instruction: i,
            };
            let op = decoder.decode()?;
            let guard = i.guard.map(|(r, negated)| Guard {
                pred: frame.registers[r as usize],
                negated,
            });
            self.program.instructions.push(Instruction {
                op,
                guard,
                class: op.class(),
            });
            self.program.places.push(Place {
                line: i.line,
                span: i.span,
                loc: i.loc,
            });
        }
        let op = if function.is_entry {
            Op::Exit
        } else {
            Op::Return
        };
        self.program.instructions.push(Instruction {
            op,
            guard: None,
            class: op.class(),
        });
        let last = function
            .body
            .last()
            .map_or((function.line, (0, 0)), |i| (i.line, i.loc));
        self.program.places.push(Place {
            line: last.0,
            span: (0, 0),
            loc: last.1,
        });
        self.frames.insert(f, frame);
        Ok(())
    }

    fn constant(&mut self, c: Constant) -> u32 {
        let constants = &mut self.program.constants;
        CONSTANT
            | *self.constants.entry(c).or_insert_with(|| {
                constants.push(c);
                constants.len() as u32 - 1
            })
    }
}

/// One instruction on its way to an [`Op`].
struct Decoder<'d, 'n, 's, 'a> {
    linker: &'d mut Linker<'n, 's, 'a>,
    function: &'s Function<'a>,
    frame: &'d Frame,
    instruction: &'s syntax::Instruction<'a>,
}

impl<'s, 'a> Decoder<'_, '_, 's, 'a> {
    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(
            self.instruction.line,
            self.linker.names.source.shown(self.instruction),
            message,
        )
    }

    fn decode(&mut self) -> Result<Op> {
        let mut m = Modifiers::new(self.instruction.opcode);
        let base = m.base;
        let op = if let Some(op) = self.arithmetic(base, &mut m)? {
            op
        } else if let Some(op) = self.memory(base, &mut m)? {
            op
        } else if let Some(op) = self.control(base, &mut m)? {
            op
        } else if let Some(op) = self.warp(base, &mut m)? {
            op
        } else {
            return Err(self.error(format!("the instruction {base} is not implemented")));
        };
        match m.left() {
            None => Ok(op),
            Some(left) => {
                Err(self.error(format!("the modifier .{left} of {base} is not implemented")))
            }
        }
    }

    /// The address of a function's variable in its own space.
    fn slot_address(&self, kind: SlotKind, index: u32) -> u32 {
        let i = index as usize;
        match kind {
            SlotKind::Param if self.function.is_entry => self.frame.params[i],
            SlotKind::Param => ARENA_BASE + self.frame.params[i],
            SlotKind::Result => ARENA_BASE + self.frame.results[i],
            SlotKind::Call => ARENA_BASE + self.frame.call_slots[i],
            SlotKind::Local => crate::ir::LOCAL_BASE + self.frame.locals[i],
        }
    }
}
