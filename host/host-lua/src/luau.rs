//! How the host's types are spelled in Luau, for editors.

use host_graph::{SlotId, Value};
use mlua::{Lua, LuaString, Result, Variadic};

/// A type that crosses to a script or comes from it.
pub(crate) trait Luau {
    /// Its spelling where it is used.
    fn luau() -> String;
}

macro_rules! spelled {
    ($($($kind:ty),+ => $luau:literal;)+) => {
        $($(impl $crate::luau::Luau for $kind {
            fn luau() -> String {
                $luau.to_owned()
            }
        })+)+
    };
}
pub(crate) use spelled;

spelled! {
    () => "()";
    bool => "boolean";
    u32, u64, usize, f32, f64 => "number";
    String, LuaString, &'static str => "string";
    Value => "GraphValue";
    SlotId => "Slot";
    Never => "never";
}

/// What a method gives that always raises.
pub(crate) enum Never {}

impl mlua::IntoLua for Never {
    fn into_lua(self, _: &Lua) -> Result<mlua::Value> {
        match self {}
    }
}

impl<T: Luau> Luau for Option<T> {
    fn luau() -> String {
        let luau = T::luau();
        if luau.starts_with('"') { format!("({luau})?") } else { format!("{luau}?") }
    }
}

impl<T: Luau> Luau for Vec<T> {
    fn luau() -> String {
        format!("{{ {} }}", T::luau())
    }
}

impl<T: Luau> Luau for Variadic<T> {
    fn luau() -> String {
        format!("...{}", T::luau())
    }
}

impl<A: Luau, B: Luau> Luau for (A, B) {
    fn luau() -> String {
        format!("({}, {})", A::luau(), B::luau())
    }
}

/// A word of a few, and what each stands for.
pub(crate) trait Word: Sized {
    /// All of them.
    fn words() -> Vec<(&'static str, Self)>;

    /// What a word stands for.
    fn find(word: &str) -> Option<Self> {
        Self::words().into_iter().find(|(known, _)| *known == word).map(|(_, value)| value)
    }

    /// The words, each in these quotes, with something between them.
    fn listed(quote: &str, between: &str) -> String {
        let words: Vec<_> = Self::words().iter().map(|(word, _)| format!("{quote}{word}{quote}")).collect();
        words.join(between)
    }
}

/// A key of a table.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) luau: String,
    /// What editors show above it.
    pub(crate) about: String,
}

/// A table with known keys.
pub(crate) trait Record {
    /// The name of its type, where it has one.
    const NAME: Option<&'static str>;

    /// Its keys, in order.
    fn fields() -> Vec<Field>;
}

/// The type of a table where it is used.
pub(crate) fn spell_record<T: Record>() -> String {
    T::NAME.map_or_else(
        || {
            let fields = T::fields();
            let all: Vec<_> = fields.iter().map(|field| format!("{}: {}", field.name, field.luau)).collect();
            format!("{{ {} }}", all.join(", "))
        },
        str::to_owned,
    )
}

/// Declares a struct whose fields are the keys of a table: `name = "key": Type` where the key is a word of Rust.
macro_rules! record {
    ($(#[doc = $of_type:literal])* $name:ident $(as $alias:literal)? {
        $($(#[doc = $about:literal])* $field:ident $(= $key:literal)?: $kind:ty,)+
    }) => {
        $(#[doc = $of_type])*
        pub(crate) struct $name {
            $($(#[doc = $about])* pub(crate) $field: $kind,)+
        }

        impl $crate::luau::Record for $name {
            const NAME: Option<&'static str> = $crate::luau::alias!($($alias)?);

            fn fields() -> Vec<$crate::luau::Field> {
                vec![$($crate::luau::Field {
                    name: $crate::luau::key!($field $($key)?),
                    luau: <$kind as $crate::luau::Luau>::luau(),
                    about: concat!($($about),*).trim().to_owned(),
                }),+]
            }
        }
    };
}
pub(crate) use record;

/// A struct that is given to a script as a table.
macro_rules! given {
    ($(#[doc = $of_type:literal])* $name:ident as $alias:literal {
        $($(#[doc = $about:literal])* $field:ident: $kind:ty,)+
    }) => {
        $crate::luau::record! {
            $(#[doc = $of_type])* $name as $alias { $($(#[doc = $about])* $field: $kind,)+ }
        }

        $crate::luau::spelled! { $name => $alias; }

        impl mlua::IntoLua for $name {
            fn into_lua(self, lua: &mlua::Lua) -> mlua::Result<mlua::Value> {
                let table = lua.create_table()?;
                $(table.set(stringify!($field), self.$field)?;)+
                Ok(mlua::Value::Table(table))
            }
        }
    };
}
pub(crate) use given;

macro_rules! alias {
    () => {
        None
    };
    ($alias:literal) => {
        Some($alias)
    };
}
pub(crate) use alias;

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(crate) use key;

/// Words that have a type of their own.
macro_rules! named_words {
    ($($kind:ty as $name:literal: $words:expr;)+) => {
        $(impl $crate::luau::Word for $kind {
            fn words() -> Vec<(&'static str, Self)> {
                $words.into()
            }
        }

        $crate::luau::spelled! { $kind => $name; })+
    };
}
pub(crate) use named_words;
