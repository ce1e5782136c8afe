//! Python's pickles (`pickletools.py` is their specification), as far as arrays, sparse matrices and dictionaries of
//! numbers need them, and nothing is ever executed: a call in the stream becomes a [`Call`], which remembers what would
//! have been called with what.
//!
//! The crates for pickles give plain values only. They forget the arguments of a call once its state follows, and with
//! them the type of an array's numbers. They also copy what a stream refers to again, so a short stream can fill the
//! memory. Here values lie in one list and refer to each other by number.

use std::borrow::Cow;
use std::collections::HashMap;

use super::npy::Dtype;
use crate::message::shown;

/// A value of the stream. What is not a number lies among the nodes of its [`Pickle`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Node(u32),
}

#[derive(Debug)]
enum Node<'a> {
    /// Bytes, and the strings of Python 2, which are bytes as well.
    Bytes(Cow<'a, [u8]>),
    Text(Cow<'a, str>),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A function or a class, without the module, which was renamed over the years.
    Global(&'a str),
    Call(Call),
    /// What stands for a value that is kept elsewhere, in files of torch's: a tuple that says where.
    Persistent(Value),
}

/// What would have been called, and what its result was given.
#[derive(Debug, Clone)]
struct Call {
    function: Value,
    arguments: Value,
    state: Option<Value>,
    items: Vec<(Value, Value)>,
}

/// A stream that was read whole.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    nodes: Vec<Node<'a>>,
    root: Value,
}

/// An array of numbers, as numpy pickles it.
#[derive(Debug)]
pub(super) struct Array<'p> {
    pub shape: Vec<u64>,
    pub dtype: Dtype,
    pub fortran_order: bool,
    pub data: Cow<'p, [u8]>,
}

impl<'a> Pickle<'a> {
    /// Reads a stream.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        let root = machine.run()?;
        let nodes = machine.nodes;
        Ok(Self { nodes, root })
    }

    /// The value that was pickled.
    pub fn root(&self) -> Value {
        self.root
    }

    fn node(&self, value: Value) -> Option<&Node<'a>> {
        match value {
            Value::Node(at) => self.nodes.get(at as usize),
            _ => None,
        }
    }

    /// The items of a tuple or list.
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::Tuple(items) | Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a dictionary, `defaultdict`s and `OrderedDict`s included.
    pub fn pairs(&self, value: Value) -> Option<&[(Value, Value)]> {
        match self.node(value)? {
            Node::Dict(pairs) => Some(pairs),
            Node::Call(call)
                if self.calls(call, "defaultdict") || self.calls(call, "OrderedDict") =>
            {
                Some(&call.items)
            }
            _ => None,
        }
    }

    /// A whole number from 0.
    pub fn whole(&self, value: Value) -> Option<u64> {
        match value {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The state of an object of a class, as a dictionary, and the entry of it that is called `field`.
    pub fn field(&self, object: Value, class: &str, field: &str) -> Result<Value, String> {
        let state = match self.node(object) {
            Some(Node::Call(call)) if self.calls(call, class) => call.state,
            _ => return Err(format!("it is no {class}")),
        };
        let Some(Node::Dict(fields)) = state.and_then(|state| self.node(state)) else {
            return Err(format!("the {class} has no fields"));
        };
        let found = fields.iter().find(|(name, _)| self.says(*name, field));
        found
            .map(|&(_, value)| value)
            .ok_or_else(|| format!("the {class} has no field {field}"))
    }

    /// The pairs of a dictionary whose keys are texts; others are left out.
    pub fn named(&self, value: Value) -> Option<Vec<(String, Value)>> {
        let pairs = self.pairs(value)?.iter();
        let named = pairs.filter_map(|&(name, value)| Some((self.text(name)?.into_owned(), value)));
        Some(named.collect())
    }

    /// The state of an object of any class, as a dictionary; `None` of what is no object, or was given none.
    pub fn state(&self, object: Value) -> Option<Vec<(String, Value)>> {
        match self.node(object)? {
            Node::Call(call) => self.named(call.state?),
            _ => None,
        }
    }

    /// The function that would have been called, and its arguments.
    pub fn call(&self, value: Value) -> Option<(&str, &[Value])> {
        match self.node(value)? {
            Node::Call(call) => Some((self.global(call.function)?, self.items(call.arguments)?)),
            _ => None,
        }
    }

    /// The name of a function or a class.
    pub fn global(&self, value: Value) -> Option<&'a str> {
        match self.node(value)? {
            Node::Global(name) => Some(*name),
            _ => None,
        }
    }

    /// What is said of a value that is kept elsewhere.
    pub fn persistent(&self, value: Value) -> Option<Value> {
        match self.node(value)? {
            Node::Persistent(value) => Some(*value),
            _ => None,
        }
    }

    /// A text.
    pub fn word(&self, value: Value) -> Option<String> {
        self.text(value).map(Cow::into_owned)
    }

    /// What a value is, for a message.
    pub fn describe(&self, value: Value) -> String {
        match self.node(value) {
            None => "a number or a truth".into(),
            Some(Node::Bytes(_) | Node::Text(_)) => "a text".into(),
            Some(Node::Tuple(_) | Node::List(_)) => "a list".into(),
            Some(Node::Dict(_)) => "a dictionary".into(),
            Some(Node::Global(name)) => format!("the name {}", shown(name.as_bytes())),
            Some(Node::Persistent(_)) => "a storage".into(),
            Some(Node::Call(call)) => match self.global(call.function) {
                Some(name) => format!("what {} makes", shown(name.as_bytes())),
                None => "an object".into(),
            },
        }
    }

    /// An array of numbers.
    pub fn array(&self, value: Value) -> Result<Array<'_>, String> {
        const WHOLE: &str = "it is no whole array of numpy's";
        let state = match self.node(value) {
            Some(Node::Call(call)) if self.calls(call, "_reconstruct") => call.state,
            _ => return Err("it is no array of numpy's, or in a protocol past 4".into()),
        };
        let Some(&[_, shape, dtype, fortran_order, data]) =
            state.and_then(|state| self.items(state))
        else {
            return Err(WHOLE.into());
        };
        let sides = self.items(shape).ok_or(WHOLE)?;
        let shape = sides
            .iter()
            .map(|&side| self.whole(side))
            .collect::<Option<Vec<u64>>>();
        let data = match self.node(data) {
            Some(Node::Bytes(bytes)) => Cow::Borrowed(bytes.as_ref()),
            Some(Node::Call(call)) => Cow::Owned(self.encoded(call).ok_or(WHOLE)?),
            _ => return Err(WHOLE.into()),
        };
        let array = Array {
            shape: shape.ok_or(WHOLE)?,
            dtype: self.dtype(dtype)?,
            fortran_order: fortran_order == Value::Bool(true) || fortran_order == Value::Int(1),
            data,
        };
        let len = array
            .shape
            .iter()
            .try_fold(1_u64, |len, &side| len.checked_mul(side));
        let promised = len.and_then(|len| len.checked_mul(array.dtype.size as u64));
        if promised != Some(array.data.len() as u64) {
            let (shape, held) = (&array.shape, array.data.len());
            return Err(format!(
                "an array of shape {shape:?} has {held} bytes, which do not fit"
            ));
        }
        Ok(array)
    }

    /// `dtype('f4', …)`, whose state has the order of bytes.
    fn dtype(&self, value: Value) -> Result<Dtype, String> {
        let Some(Node::Call(call)) = self.node(value) else {
            return Err("an array has no type".into());
        };
        let name = self
            .items(call.arguments)
            .and_then(|arguments| arguments.first());
        let order = call
            .state
            .and_then(|state| self.items(state))
            .and_then(|state| state.get(1));
        let name = name.and_then(|&name| self.text(name)).unwrap_or_default();
        let order = order
            .and_then(|&order| self.text(order))
            .unwrap_or_default();
        let order = if order == "=" { "<".into() } else { order };
        let descr = format!("{order}{name}");
        Dtype::parse(&descr)
            .filter(|_| self.calls(call, "dtype"))
            .ok_or_else(|| {
                format!(
                    "an array is of type '{}', which is no number's",
                    shown(descr.as_bytes())
                )
            })
    }

    /// The bytes of `_codecs.encode(text, 'latin1')`, as which Python 3 pickles bytes in protocols that have none.
    fn encoded(&self, call: &Call) -> Option<Vec<u8>> {
        let &[text, codec] = self.items(call.arguments)? else {
            return None;
        };
        let Node::Text(text) = self.node(text)? else {
            return None;
        };
        if !self.calls(call, "encode") || !self.says(codec, "latin1") {
            return None;
        }
        text.chars()
            .map(|letter| u8::try_from(u32::from(letter)).ok())
            .collect()
    }

    fn text(&self, value: Value) -> Option<Cow<'_, str>> {
        match self.node(value)? {
            Node::Text(text) => Some(Cow::Borrowed(text)),
            Node::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    fn says(&self, value: Value, wanted: &str) -> bool {
        self.text(value).is_some_and(|text| text == wanted)
    }

    /// Whether a call is of a function or class of this name, in whatever module: it is not called.
    fn calls(&self, call: &Call, wanted: &str) -> bool {
        matches!(self.node(call.function), Some(Node::Global(name)) if *name == wanted)
    }
}

/// The machine whose program a pickle is: a stack, marks on it, and a memo of values that come again.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node<'a>>,
    stack: Vec<Value>,
    /// Lengths of the stack where `MARK` was.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Value, String> {
        loop {
            let start = self.at;
            let [op] = self.take()?;
            if op == b'.' {
                return self.pop();
            }
            self.step(op)
                .map_err(|reason| format!("{reason} (at byte {start})"))?;
        }
    }

    #[rustfmt::skip] // an opcode a line
    fn step(&mut self, op: u8) -> Result<(), String> {
        match op {
            b'\x80' => self.take::<1>().map(|_| ()),             // PROTO
            b'\x95' => self.take::<8>().map(|_| ()),             // FRAME
            b'(' => { self.marks.push(self.stack.len()); Ok(()) }
            b'0' => self.pop().map(|_| ()),
            b'1' => self.pop_mark().map(|_| ()),
            b'2' => { let top = self.top()?; self.push(top) }

            b'N' => self.push(Value::None),
            b'\x88' => self.push(Value::Bool(true)),
            b'\x89' => self.push(Value::Bool(false)),
            b'K' => { let [byte] = self.take()?; self.push(Value::Int(byte.into())) }
            b'M' => { let bytes = self.take()?; self.push(Value::Int(u16::from_le_bytes(bytes).into())) }
            b'J' => { let bytes = self.take()?; self.push(Value::Int(i32::from_le_bytes(bytes).into())) }
            b'\x8a' => { let [len] = self.take()?; self.long(len.into()) }
            b'\x8b' => { let len = u32::from_le_bytes(self.take()?); self.long(len.into()) }
            b'I' | b'L' => self.decimal(),
            b'F' => {
                let line = self.line()?;
                let number = line.parse().map_err(|_| format!("'{}' is no number", shown(line.as_bytes())))?;
                self.push(Value::Float(number))
            }
            b'G' => { let bytes = self.take()?; self.push(Value::Float(f64::from_be_bytes(bytes))) }

            b'U' | b'C' => { let [len] = self.take()?; self.string(len.into()) }
            b'T' | b'B' => { let len = u32::from_le_bytes(self.take()?); self.string(len.into()) }
            b'\x8e' => { let len = u64::from_le_bytes(self.take()?); self.string(len) }
            b'S' => { let line = self.line()?; let bytes = unquoted(line)?; self.push_node(Node::Bytes(bytes.into())) }
            b'\x8c' => { let [len] = self.take()?; self.unicode(len.into()) }
            b'X' => { let len = u32::from_le_bytes(self.take()?); self.unicode(len.into()) }
            b'\x8d' => { let len = u64::from_le_bytes(self.take()?); self.unicode(len) }

            b')' => self.push_node(Node::Tuple(Vec::new())),
            b']' => self.push_node(Node::List(Vec::new())),
            b'}' => self.push_node(Node::Dict(Vec::new())),
            b'\x85' => self.tuple(1),
            b'\x86' => self.tuple(2),
            b'\x87' => self.tuple(3),
            b't' => { let items = self.pop_mark()?; self.push_node(Node::Tuple(items)) }
            b'l' => { let items = self.pop_mark()?; self.push_node(Node::List(items)) }
            b'd' => { let pairs = paired(&self.pop_mark()?)?; self.push_node(Node::Dict(pairs)) }
            b'a' => { let item = self.pop()?; self.append(&[item]) }
            b'e' => { let items = self.pop_mark()?; self.append(&items) }
            b's' => { let value = self.pop()?; let key = self.pop()?; self.set_items(&[(key, value)]) }
            b'u' => { let pairs = paired(&self.pop_mark()?)?; self.set_items(&pairs) }

            b'c' => { self.line()?; let name = self.line()?; self.push_node(Node::Global(name)) }
            b'\x93' => self.stack_global(),
            b'Q' => { let value = self.pop()?; self.push_node(Node::Persistent(value)) }
            b'R' | b'\x81' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.push_node(Node::Call(Call { function, arguments, state: None, items: Vec::new() }))
            }
            b'b' => self.build(),

            b'q' => { let [at] = self.take()?; self.put(at.into()) }
            b'r' => { let at = u32::from_le_bytes(self.take()?); self.put(at.into()) }
            b'p' => { let at = self.place()?; self.put(at) }
            b'\x94' => self.put(self.memo.len() as u64),
            b'h' => { let [at] = self.take()?; self.get(at.into()) }
            b'j' => { let at = u32::from_le_bytes(self.take()?); self.get(at.into()) }
            b'g' => { let at = self.place()?; self.get(at) }
            _ => Err(format!("opcode {op:#04x} stands for more than arrays, lists and dictionaries")),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, _) = self.bytes[self.at..]
            .split_first_chunk()
            .ok_or_else(ended)?;
        self.at += N;
        Ok(*bytes)
    }

    fn take_slice(&mut self, len: u64) -> Result<&'a [u8], String> {
        let left = &self.bytes[self.at..];
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= left.len())
            .ok_or_else(ended)?;
        self.at += len;
        Ok(&left[..len])
    }

    /// The text up to the end of the line.
    fn line(&mut self) -> Result<&'a str, String> {
        let left = &self.bytes[self.at..];
        let end = memchr::memchr(b'\n', left).ok_or_else(ended)?;
        self.at += end + 1;
        std::str::from_utf8(&left[..end]).map_err(|_| "a line is no text".into())
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: Node<'a>) -> Result<(), String> {
        let at = u32::try_from(self.nodes.len()).map_err(|_| "there are too many values")?;
        self.nodes.push(node);
        self.push(Value::Node(at))
    }

    /// The topmost value above the last mark.
    fn top(&self) -> Result<Value, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).unwrap_or_default();
        above
            .last()
            .copied()
            .ok_or_else(|| "a value is missing".into())
    }

    fn pop(&mut self) -> Result<Value, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, len: usize) -> Result<(), String> {
        let mut items = vec![Value::None; len];
        for item in items.iter_mut().rev() {
            *item = self.pop()?;
        }
        self.push_node(Node::Tuple(items))
    }

    /// A number of `len` bytes in two's complement.
    fn long(&mut self, len: u64) -> Result<(), String> {
        let bytes = self.take_slice(len)?;
        if bytes.len() > 8 {
            return Err(format!("a number has {len} bytes, more than 8"));
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut word = [if negative { 0xff } else { 0 }; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(word)))
    }

    fn decimal(&mut self) -> Result<(), String> {
        let line = self.line()?;
        self.push(match line {
            "00" => Value::Bool(false),
            "01" => Value::Bool(true),
            _ => {
                let number = line.strip_suffix('L').unwrap_or(line).parse();
                Value::Int(
                    number.map_err(|_| format!("'{}' is no number", shown(line.as_bytes())))?,
                )
            }
        })
    }

    fn string(&mut self, len: u64) -> Result<(), String> {
        let bytes = self.take_slice(len)?;
        self.push_node(Node::Bytes(bytes.into()))
    }

    fn unicode(&mut self, len: u64) -> Result<(), String> {
        let bytes = self.take_slice(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a text is no text")?;
        self.push_node(Node::Text(text.into()))
    }

    fn node_mut(&mut self, value: Value) -> Option<&mut Node<'a>> {
        match value {
            Value::Node(at) => self.nodes.get_mut(at as usize),
            _ => None,
        }
    }

    fn append(&mut self, items: &[Value]) -> Result<(), String> {
        let list = self.top()?;
        match self.node_mut(list) {
            Some(Node::List(list)) => list.extend(items),
            _ => return Err("something is appended to what is no list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, pairs: &[(Value, Value)]) -> Result<(), String> {
        let dict = self.top()?;
        match self.node_mut(dict) {
            Some(Node::Dict(dict)) => dict.extend(pairs),
            Some(Node::Call(call)) => call.items.extend(pairs),
            _ => return Err("an item is set of what is no dictionary".into()),
        }
        Ok(())
    }

    fn build(&mut self) -> Result<(), String> {
        let (state, object) = (self.pop()?, self.top()?);
        match self.node_mut(object) {
            Some(Node::Call(call)) => call.state = Some(state),
            _ => return Err("a state is given to what is no object".into()),
        }
        Ok(())
    }

    fn stack_global(&mut self) -> Result<(), String> {
        let (name, module) = (self.pop()?, self.pop()?);
        let text = |value| match value {
            Value::Node(at) => match &self.nodes[at as usize] {
                Node::Text(Cow::Borrowed(text)) => Some(*text),
                _ => None,
            },
            _ => None,
        };
        let (Some(_), Some(name)) = (text(module), text(name)) else {
            return Err("a name is no text".into());
        };
        self.push_node(Node::Global(name))
    }

    fn put(&mut self, at: u64) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(at, top);
        Ok(())
    }

    fn get(&mut self, at: u64) -> Result<(), String> {
        let value = self.memo.get(&at).copied();
        self.push(value.ok_or_else(|| format!("value {at} was never put aside"))?)
    }

    fn place(&mut self) -> Result<u64, String> {
        let line = self.line()?;
        line.parse()
            .map_err(|_| format!("'{}' is no place", shown(line.as_bytes())))
    }
}

fn ended() -> String {
    "it ends in the middle".into()
}

fn paired(items: &[Value]) -> Result<Vec<(Value, Value)>, String> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a key has no value".into());
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

/// The bytes of a string as Python's `repr` writes it, which protocol 0 has.
fn unquoted(line: &str) -> Result<Vec<u8>, String> {
    let quoted = |quote| line.strip_prefix(quote)?.strip_suffix(quote);
    let inner = quoted('\'')
        .or_else(|| quoted('"'))
        .ok_or("a string has no quotes")?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().ok_or("a string ends in an escape")? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => match (digit_of(&mut rest), digit_of(&mut rest)) {
                (Some(high), Some(low)) => high * 16 + low,
                _ => return Err("a string has a broken escape".into()),
            },
            plain @ (b'\\' | b'\'' | b'"') => plain,
            _ => return Err("a string has an escape that is unknown".into()),
        });
    }
    Ok(bytes)
}

fn digit_of(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let digit = char::from(rest.next()?).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests;
