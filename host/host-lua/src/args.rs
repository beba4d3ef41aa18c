//! The arguments of host functions: how each kind is read, strictly (no string stands for a number), and spelled.

use std::marker::PhantomData;

use host_graph::{SlotId, Value};
use mlua::{Lua, MultiValue, Result, Table};

use crate::builder::{GraphSlot, GraphValue};
use crate::deadline::Deadline;
use crate::fault::{Raised, calling_place};
use crate::luau::{Luau, Word, spelled};

/// The call whose arguments are read.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) function: &'static str,
}

impl Call<'_> {
    /// An error about the arguments, at the calling line.
    pub(crate) fn wrong(self, what: &str) -> mlua::Error {
        let message = format!("{}: {what}", self.function);
        Raised::Argument(message, calling_place(self.lua)).into_lua()
    }

    /// An argument that does not fit.
    pub(crate) fn refuse(self, name: &str, expected: &str, found: &mlua::Value) -> mlua::Error {
        self.wrong(&format!("`{name}` is {}, expected {expected}", shown(found)))
    }

    /// No more arguments.
    pub(crate) fn end(self, rest: MultiValue) -> Result<()> {
        if rest.iter().all(mlua::Value::is_nil) {
            return Ok(());
        }
        Err(self.refuse("one more argument", "nothing", &rest[0]))
    }
}

/// What a method takes, and what stands under the keys of its options.
pub(crate) trait Argument: Luau + Sized {
    /// Reads an argument; one that was not given is nil.
    fn take(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self>;

    /// Reads an option.
    fn take_option(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self> {
        Self::take(call, name, found)
    }
}

/// An argument that is a value of one kind.
pub(crate) trait Plain: Luau + Sized {
    /// What stands in a list of them, in errors.
    const PLURAL: &'static str = "";

    /// What is expected, in errors.
    fn expected() -> String;

    /// The value, or `None` for one of another kind.
    fn read(lua: &Lua, found: &mlua::Value) -> Option<Self>;
}

impl<T: Plain> Argument for T {
    fn take(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self> {
        T::read(call.lua, &found).ok_or_else(|| call.refuse(name, &T::expected(), &found))
    }
}

impl<T: Plain> Argument for Option<T> {
    fn take(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self> {
        if found.is_nil() {
            return Ok(None);
        }
        let read = T::read(call.lua, &found);
        read.map(Some).ok_or_else(|| call.refuse(name, &format!("{} or nil", T::expected()), &found))
    }

    fn take_option(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self> {
        if found.is_nil() { Ok(None) } else { T::take(call, name, found).map(Some) }
    }
}

macro_rules! plain {
    ($($kind:ty, $expected:literal, $plural:literal, $read:expr;)+) => {
        $(impl Plain for $kind {
            const PLURAL: &'static str = $plural;

            fn expected() -> String {
                $expected.to_owned()
            }

            fn read(_: &Lua, found: &mlua::Value) -> Option<Self> {
                $read(found)
            }
        })+
    };
}

plain! {
    Value, "a graph value", "graph values", as_value;
    SlotId, "a slot", "slots", as_slot;
    usize, "a whole number of at least 0", "whole numbers", as_whole;
    u32, "a whole number of 32 bits", "whole numbers of 32 bits", as_id;
    f32, "a number", "numbers", as_f32;
    bool, "true or false", "truth values", mlua::Value::as_boolean;
    String, "a string", "strings", as_text;
    Layer, "the index of a layer", "layers", |found| as_id(found).map(Layer);
}

/// A layer's index.
pub(crate) struct Layer(pub(crate) u32);

spelled! { Layer => "number"; }

impl<T: Plain> Plain for Vec<T> {
    fn expected() -> String {
        format!("a list of {}", T::PLURAL)
    }

    fn read(lua: &Lua, found: &mlua::Value) -> Option<Self> {
        list_of(lua, found, |item| T::read(lua, item))
    }
}

/// A list, or a buffer of entries of `N` bytes.
pub(crate) struct Packed<T, const N: usize>(pub(crate) Vec<T>);

/// What stands in such a buffer.
pub(crate) trait Entry<const N: usize>: Plain {
    fn decode(bytes: [u8; N]) -> Self;
}

impl Entry<4> for u32 {
    fn decode(bytes: [u8; 4]) -> Self {
        u32::from_le_bytes(bytes)
    }
}

impl<T: Plain, const N: usize> Luau for Packed<T, N> {
    fn luau() -> String {
        format!("{} | buffer", Vec::<T>::luau())
    }
}

impl<T: Entry<N>, const N: usize> Plain for Packed<T, N> {
    fn expected() -> String {
        format!("{}, or a buffer with {N} bytes for each", Vec::<T>::expected())
    }

    fn read(lua: &Lua, found: &mlua::Value) -> Option<Self> {
        let mlua::Value::Buffer(buffer) = found else { return Vec::read(lua, found).map(Packed) };
        let bytes = buffer.to_vec();
        let (entries, rest) = bytes.as_chunks::<N>();
        rest.is_empty().then(|| Packed(entries.iter().copied().map(T::decode).collect()))
    }
}

/// A word of a few, looked up by the method, which has an error of its own for others.
pub(crate) struct Named<W>(pub(crate) String, PhantomData<W>);

impl<W: Luau> Luau for Named<W> {
    fn luau() -> String {
        W::luau()
    }
}

impl<W: Luau> Plain for Named<W> {
    fn expected() -> String {
        String::expected()
    }

    fn read(_: &Lua, found: &mlua::Value) -> Option<Self> {
        as_text(found).map(|text| Named(text, PhantomData))
    }
}

impl<W: Word> Named<W> {
    /// What the word stands for.
    pub(crate) fn find(&self, call: Call<'_>, what: &str) -> Result<W> {
        let wrong = || format!("there is no {what} {:?}; known: {}", self.0, W::listed("", ", "));
        W::find(&self.0).ok_or_else(|| call.wrong(&wrong()))
    }
}

/// Words as the keys of options take them.
macro_rules! words {
    ($($kind:ty: $words:expr;)+) => {
        $(impl $crate::luau::Word for $kind {
            fn words() -> Vec<(&'static str, Self)> {
                $words.into()
            }
        }

        impl $crate::luau::Luau for $kind {
            fn luau() -> String {
                <$kind as $crate::luau::Word>::listed("\"", " | ")
            }
        }

        impl $crate::args::Plain for $kind {
            fn expected() -> String {
                <$kind as $crate::luau::Word>::listed("`", " or ")
            }

            fn read(_: &mlua::Lua, found: &mlua::Value) -> Option<Self> {
                <$kind as $crate::luau::Word>::find(&$crate::args::as_text(found)?)
            }
        })+
    };
}
pub(crate) use words;

/// A value as it came, for the method to look at; `T` is what it should be.
pub(crate) struct Raw<T>(pub(crate) mlua::Value, PhantomData<T>);

impl<T> Raw<T> {
    pub(crate) fn new(value: mlua::Value) -> Self {
        Raw(value, PhantomData)
    }
}

impl<T: Luau> Luau for Raw<T> {
    fn luau() -> String {
        T::luau()
    }
}

impl<T: Luau> Argument for Raw<T> {
    fn take(_: Call<'_>, _: &str, found: mlua::Value) -> Result<Self> {
        Ok(Raw::new(found))
    }
}

impl<T> mlua::IntoLua for Raw<T> {
    fn into_lua(self, _: &Lua) -> Result<mlua::Value> {
        Ok(self.0)
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
pub(crate) fn shown(found: &mlua::Value) -> String {
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
