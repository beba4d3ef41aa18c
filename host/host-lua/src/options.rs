//! The table of options that ends a call: keys of known kinds. No unknown option passes.

use mlua::Result;

use crate::args::{Argument, Call, as_text, shown};
use crate::luau::Record;

/// What a call was given by name.
pub(crate) struct Options<'a> {
    call: Call<'a>,
    given: Vec<(&'static str, mlua::Value)>,
}

impl<'a> Options<'a> {
    /// Looks at the table, or at nil for an empty one.
    pub(crate) fn open(
        call: Call<'a>,
        name: &str,
        found: &mlua::Value,
        known: &[&'static str],
    ) -> Result<Self> {
        let mut given = Vec::new();
        match found {
            mlua::Value::Nil => {}
            mlua::Value::Table(table) => table.for_each(|key: mlua::Value, value: mlua::Value| {
                let text = as_text(&key);
                let name = known.iter().find(|name| text.as_deref() == Some(**name));
                given.push((*name.ok_or_else(|| no_option(call, &key, known))?, value));
                Ok(())
            })?,
            other => return Err(call.refuse(name, "a table", other)),
        }
        Ok(Options { call, given })
    }

    /// What stands under a key.
    pub(crate) fn get<A: Argument>(&self, name: &'static str) -> Result<A> {
        A::take_option(self.call, name, self.found(name).cloned().unwrap_or(mlua::Value::Nil))
    }

    fn found(&self, name: &str) -> Option<&mlua::Value> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// Refuses what was given under other keys than these.
    pub(crate) fn only(&self, known: &[&[&str]], expected: &str) -> Result<()> {
        match self.given.iter().find(|(name, _)| !known.iter().any(|known| known.contains(name))) {
            Some((name, found)) => Err(self.call.refuse(name, expected, found)),
            None => Ok(()),
        }
    }
}

fn no_option(call: Call<'_>, found: &mlua::Value, known: &[&str]) -> mlua::Error {
    call.wrong(&format!("there is no option {}; known: {}", shown(found), known.join(", ")))
}

/// Options as a struct; [`options!`] declares them.
pub(crate) trait OptionTable: Record + Sized {
    /// What may be given.
    const KEYS: &'static [&'static str];

    /// Reads each key.
    fn read(options: &Options<'_>) -> Result<Self>;
}

/// Declares a struct of options, which is an argument. An `Option` may be absent.
macro_rules! options {
    ($($(#[doc = $of_type:literal])* $name:ident $(as $alias:literal)? {
        $($(#[doc = $about:literal])* $field:ident $(= $key:literal)?: $kind:ty,)+
    })+) => {
        $($crate::luau::record! {
            $(#[doc = $of_type])* $name $(as $alias)? {
                $($(#[doc = $about])* $field $(= $key)?: $kind,)+
            }
        }

        impl $crate::options::OptionTable for $name {
            const KEYS: &'static [&'static str] = &[$($crate::luau::key!($field $($key)?)),+];

            fn read(options: &$crate::options::Options<'_>) -> mlua::Result<Self> {
                Ok($name { $($field: options.get($crate::luau::key!($field $($key)?))?),+ })
            }
        }

        impl $crate::luau::Luau for $name {
            fn luau() -> String {
                let luau = $crate::luau::spell_record::<$name>();
                let fields = <$name as $crate::luau::Record>::fields();
                // A table of which nothing is needed may be left out.
                if fields.iter().all(|field| field.luau.ends_with('?')) { format!("{luau}?") } else { luau }
            }
        }

        impl $crate::args::Argument for $name {
            fn take(call: $crate::args::Call<'_>, name: &str, found: mlua::Value) -> mlua::Result<Self> {
                use $crate::options::{OptionTable, Options};
                Self::read(&Options::open(call, name, &found, Self::KEYS)?)
            }
        })+
    };
}
pub(crate) use options;
