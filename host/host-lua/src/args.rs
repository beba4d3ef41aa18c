//! The arguments of host functions, read strictly: no string stands for a number, no unknown option passes.

use host_graph::{SlotId, Value};
use mlua::{Lua, MultiValue, Result, Table};

use crate::builder::{GraphSlot, GraphValue};
use crate::deadline::Deadline;
use crate::fault::{Raised, calling_place};

/// The positional arguments of one call, taken from first to last.
pub(crate) struct Args<'a> {
    lua: &'a Lua,
    function: &'static str,
    values: MultiValue,
}

impl<'a> Args<'a> {
    pub(crate) fn new(lua: &'a Lua, function: &'static str, values: MultiValue) -> Self {
        Args { lua, function, values }
    }

    fn refuse(&self, name: &str, expected: &str, found: &mlua::Value) -> mlua::Error {
        let found = shown(found);
        let message = format!("{}: `{name}` is {found}, expected {expected}", self.function);
        Raised::Argument(message, calling_place(self.lua)).into_lua()
    }

    fn next(&mut self) -> mlua::Value {
        self.values.pop_front().unwrap_or(mlua::Value::Nil)
    }

    /// A graph value.
    pub(crate) fn value(&mut self, name: &str) -> Result<Value> {
        let found = self.next();
        as_value(&found).ok_or_else(|| self.refuse(name, "a graph value", &found))
    }

    /// A graph value or nil.
    pub(crate) fn optional_value(&mut self, name: &str) -> Result<Option<Value>> {
        let found = self.next();
        if found.is_nil() {
            return Ok(None);
        }
        as_value(&found).map(Some).ok_or_else(|| self.refuse(name, "a graph value or nil", &found))
    }

    /// A list of graph values.
    pub(crate) fn values(&mut self, name: &str) -> Result<Vec<Value>> {
        let found = self.next();
        let list = list_of(self.lua, &found, as_value);
        list.ok_or_else(|| self.refuse(name, "a list of graph values", &found))
    }

    /// A slot.
    pub(crate) fn slot(&mut self, name: &str) -> Result<SlotId> {
        let found = self.next();
        as_slot(&found).ok_or_else(|| self.refuse(name, "a slot", &found))
    }

    /// A whole number of at least 0.
    pub(crate) fn whole(&mut self, name: &str) -> Result<usize> {
        let found = self.next();
        as_whole(&found).ok_or_else(|| self.refuse(name, "a whole number of at least 0", &found))
    }

    /// A list of whole numbers.
    pub(crate) fn wholes(&mut self, name: &str) -> Result<Vec<usize>> {
        let found = self.next();
        list_of(self.lua, &found, as_whole)
            .ok_or_else(|| self.refuse(name, "a list of whole numbers", &found))
    }

    /// A layer's index.
    pub(crate) fn layer(&mut self, name: &str) -> Result<u32> {
        let found = self.next();
        let layer = as_whole(&found).and_then(|n| u32::try_from(n).ok());
        layer.ok_or_else(|| self.refuse(name, "the index of a layer", &found))
    }

    /// A token id, or another whole number of 32 bits.
    pub(crate) fn id(&mut self, name: &str) -> Result<u32> {
        let found = self.next();
        as_id(&found).ok_or_else(|| self.refuse(name, "a whole number of 32 bits", &found))
    }

    /// A list of token ids.
    pub(crate) fn ids(&mut self, name: &str) -> Result<Vec<u32>> {
        self.list(name, "a list of whole numbers of 32 bits", as_id)
    }

    /// A list of things that `read` reads.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl Fn(&mlua::Value) -> Option<T>,
    ) -> Result<Vec<T>> {
        let found = self.next();
        list_of(self.lua, &found, read).ok_or_else(|| self.refuse(name, expected, &found))
    }

    /// The same, or a buffer of entries of `N` bytes that `decode` reads.
    pub(crate) fn list_or_buffer<T, const N: usize>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl Fn(&mlua::Value) -> Option<T>,
        decode: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let found = self.next();
        let read = match &found {
            mlua::Value::Buffer(buffer) => {
                let bytes = buffer.to_vec();
                let (entries, rest) = bytes.as_chunks::<N>();
                rest.is_empty().then(|| entries.iter().copied().map(decode).collect())
            }
            list => list_of(self.lua, list, read),
        };
        let expected = || format!("{expected}, or a buffer with {N} bytes for each");
        read.ok_or_else(|| self.refuse(name, &expected(), &found))
    }

    /// A number, rounded once to float32.
    pub(crate) fn number(&mut self, name: &str) -> Result<f32> {
        let found = self.next();
        as_number(&found).map(|n| n as f32).ok_or_else(|| self.refuse(name, "a number", &found))
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Result<String> {
        let found = self.next();
        as_text(&found).ok_or_else(|| self.refuse(name, "a string", &found))
    }

    /// A string or nil.
    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>> {
        let found = self.next();
        if found.is_nil() {
            return Ok(None);
        }
        as_text(&found).map(Some).ok_or_else(|| self.refuse(name, "a string or nil", &found))
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>> {
        let found = self.next();
        list_of(self.lua, &found, as_text).ok_or_else(|| self.refuse(name, "a list of strings", &found))
    }

    /// Anything, checked by the caller.
    pub(crate) fn any(&mut self) -> mlua::Value {
        self.next()
    }

    /// The table of options that ends the call, and the end of the arguments.
    pub(crate) fn options(mut self, known: &'static [&'static str]) -> Result<Options<'a>> {
        let found = self.next();
        let mut given = Vec::new();
        match &found {
            mlua::Value::Nil => {}
            mlua::Value::Table(table) => table.for_each(|key: mlua::Value, value: mlua::Value| {
                let text = key.as_string().map(mlua::LuaString::as_bytes);
                let name = text.and_then(|text| known.iter().find(|name| name.as_bytes() == &*text));
                given.push((*name.ok_or_else(|| self.no_option(&key, known))?, value));
                Ok(())
            })?,
            other => return Err(self.refuse("options", "a table", other)),
        }
        let options = Options { lua: self.lua, function: self.function, given };
        self.end()?;
        Ok(options)
    }

    fn no_option(&self, found: &mlua::Value, known: &[&str]) -> mlua::Error {
        let (found, known) = (shown(found), known.join(", "));
        let message = format!("{}: there is no option {found}; known: {known}", self.function);
        Raised::Argument(message, calling_place(self.lua)).into_lua()
    }

    /// No more arguments.
    pub(crate) fn end(mut self) -> Result<()> {
        let is_over = self.values.iter().all(mlua::Value::is_nil);
        if is_over {
            return Ok(());
        }
        let found = self.next();
        Err(self.refuse("one more argument", "nothing", &found))
    }
}

/// Named options.
pub(crate) struct Options<'a> {
    lua: &'a Lua,
    function: &'static str,
    given: Vec<(&'static str, mlua::Value)>,
}

impl Options<'_> {
    /// The option, or `None` when it is absent.
    fn optional<T>(
        &self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&mlua::Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(found) = self.any(name) else { return Ok(None) };
        match read(found) {
            Some(value) => Ok(Some(value)),
            None => Err(self.refuse(name, expected, found)),
        }
    }

    fn refuse(&self, name: &str, expected: &str, found: &mlua::Value) -> mlua::Error {
        let message = format!("{}: `{name}` is {}, expected {expected}", self.function, shown(found));
        Raised::Argument(message, calling_place(self.lua)).into_lua()
    }

    fn required<T>(&self, name: &'static str, expected: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| self.refuse(name, expected, &mlua::Value::Nil))
    }

    /// A required number, rounded once to float32.
    pub(crate) fn number(&self, name: &'static str) -> Result<f32> {
        self.required(name, "a number", self.optional_number(name)?)
    }

    /// A number, rounded once to float32.
    pub(crate) fn optional_number(&self, name: &'static str) -> Result<Option<f32>> {
        Ok(self.optional(name, "a number", as_number)?.map(|n| n as f32))
    }

    /// A required whole number.
    pub(crate) fn whole(&self, name: &'static str) -> Result<usize> {
        self.required(name, "a whole number of at least 0", self.optional_whole(name)?)
    }

    /// A whole number.
    pub(crate) fn optional_whole(&self, name: &'static str) -> Result<Option<usize>> {
        self.optional(name, "a whole number of at least 0", as_whole)
    }

    /// A truth value.
    pub(crate) fn optional_bool(&self, name: &'static str) -> Result<Option<bool>> {
        self.optional(name, "true or false", mlua::Value::as_boolean)
    }

    /// A list of whole numbers.
    pub(crate) fn optional_wholes(&self, name: &'static str) -> Result<Option<Vec<usize>>> {
        self.optional(name, "a list of whole numbers", |found| list_of(self.lua, found, as_whole))
    }

    /// A required list of numbers, each rounded once to float32.
    pub(crate) fn numbers(&self, name: &'static str) -> Result<Vec<f32>> {
        let expected = "a list of numbers";
        let read = |found: &mlua::Value| list_of(self.lua, found, |item| as_number(item).map(|n| n as f32));
        self.required(name, expected, self.optional(name, expected, read)?)
    }

    /// A required string.
    pub(crate) fn text(&self, name: &'static str) -> Result<String> {
        self.required(name, "a string", self.optional_text(name)?)
    }

    /// A string.
    pub(crate) fn optional_text(&self, name: &'static str) -> Result<Option<String>> {
        self.optional(name, "a string", as_text)
    }

    /// One of some words, the first when absent.
    pub(crate) fn word<T: Copy>(&self, name: &'static str, words: &[(&str, T)]) -> Result<T> {
        let listed: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let read = |found: &mlua::Value| {
            let text = as_text(found)?;
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
        };
        Ok(self.optional(name, &listed.join(" or "), read)?.unwrap_or(words[0].1))
    }

    /// A graph value.
    pub(crate) fn optional_value(&self, name: &'static str) -> Result<Option<Value>> {
        self.optional(name, "a graph value", as_value)
    }

    /// A required slot.
    pub(crate) fn slot(&self, name: &'static str) -> Result<SlotId> {
        self.required(name, "a slot", self.optional(name, "a slot", as_slot)?)
    }

    /// Whatever is given.
    pub(crate) fn any(&self, name: &str) -> Option<&mlua::Value> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// An option that does not fit.
    pub(crate) fn misfit<T>(&self, name: &'static str, expected: &str, found: &mlua::Value) -> Result<T> {
        Err(self.refuse(name, expected, found))
    }
}

fn as_value(found: &mlua::Value) -> Option<Value> {
    found.as_userdata()?.borrow::<GraphValue>().ok().map(|value| value.0)
}

fn as_slot(found: &mlua::Value) -> Option<SlotId> {
    found.as_userdata()?.borrow::<GraphSlot>().ok().map(|slot| slot.0)
}

pub(crate) fn as_number(found: &mlua::Value) -> Option<f64> {
    match found {
        mlua::Value::Integer(n) => Some(*n as f64),
        mlua::Value::Number(n) => Some(*n),
        _ => None,
    }
}

pub(crate) fn as_whole(found: &mlua::Value) -> Option<usize> {
    let number = as_number(found)?;
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then_some(number as usize)
}

pub(crate) fn as_id(found: &mlua::Value) -> Option<u32> {
    u32::try_from(as_whole(found)?).ok()
}

pub(crate) fn as_f32(found: &mlua::Value) -> Option<f32> {
    as_number(found).map(|number| number as f32)
}

pub(crate) fn as_text(found: &mlua::Value) -> Option<String> {
    Some(found.as_string()?.to_str().ok()?.to_owned())
}

/// Entries that are read between two looks at the time.
const LOOK: usize = 4_096;

/// What a list holds; `None` for what is no list of such things, and when the time is over, which the hook's end
/// tells of.
pub(crate) fn list_of<T>(
    lua: &Lua,
    found: &mlua::Value,
    read: impl Fn(&mlua::Value) -> Option<T>,
) -> Option<Vec<T>> {
    let table = found.as_table()?;
    let mut list: Vec<Option<T>> = Vec::new();
    list.resize_with(table.raw_len(), || None);
    let mut n = 0_usize;
    each_of(table, |key, value| {
        *list.get_mut(key)? = Some(read(value)?);
        n += 1;
        (!n.is_multiple_of(LOOK) || !is_over(lua)).then_some(())
    })?;
    list.into_iter().collect()
}

/// Looks at the entries of a list, in any order, each with its index from 0; `None` as soon as `look` gives it, or where
/// a key is no index.
pub(crate) fn each_of(table: &Table, mut look: impl FnMut(usize, &mlua::Value) -> Option<()>) -> Option<()> {
    let ended = || mlua::Error::RuntimeError(String::new());
    let looked = table.for_each(|key: mlua::Value, value: mlua::Value| {
        let index = as_whole(&key).and_then(|key| key.checked_sub(1));
        index.and_then(|index| look(index, &value)).ok_or_else(ended)
    });
    looked.ok()
}

fn is_over(lua: &Lua) -> bool {
    lua.app_data_ref::<Deadline>().is_some_and(|deadline| deadline.is_over())
}

/// A value as an error shows it, short.
fn shown(found: &mlua::Value) -> String {
    match found {
        mlua::Value::String(text) => {
            let text = text.to_string_lossy();
            let short: String = text.chars().take(40).collect();
            format!("{short:?}")
        }
        mlua::Value::Integer(n) => n.to_string(),
        mlua::Value::Number(n) => n.to_string(),
        mlua::Value::Boolean(truth) => truth.to_string(),
        mlua::Value::Nil => "nil".to_owned(),
        mlua::Value::UserData(data) if data.is::<GraphValue>() => "a graph value".to_owned(),
        mlua::Value::UserData(data) if data.is::<GraphSlot>() => "a slot".to_owned(),
        mlua::Value::Buffer(buffer) => format!("a buffer of {} bytes", buffer.len()),
        other => format!("a {}", other.type_name()),
    }
}
