//! How a class of the host is declared to scripts: once, and both its methods in mlua and its lines in the types for
//! editors come from that.

use host_plugins::ContractVersion;
use mlua::{FromLuaMulti, IntoLuaMulti, Lua, MultiValue, Result, UserDataMethods};

use crate::args::{Argument, Call};
use crate::luau::Luau;

/// Where the declaration of a class goes: [`Registry`] or [`crate::stubs::Writer`].
pub(crate) trait Class<T> {
    /// A method. `names` are those of its arguments, for errors and editors.
    fn method<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        name: &'static str,
        names: A::Names,
        body: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    );

    /// A method that a contract brought. A script of an older one is told so, whatever it passes.
    fn newer<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        since: ContractVersion,
        name: &'static str,
        names: A::Names,
        body: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    ) where
        T: OfContract;

    /// What editors show above the methods that follow.
    fn about(&mut self, _lines: &str) {}

    /// A headline of the types.
    fn section(&mut self, _title: &str) {}
}

/// A thing that knows the contract of its script.
pub(crate) trait OfContract {
    /// Refuses a call that the contract does not have.
    fn need_contract(&self, lua: &Lua, call: &'static str, since: ContractVersion) -> Result<()>;
}

/// Registers methods in mlua.
pub(crate) struct Registry<'a, M>(pub(crate) &'a mut M);

impl<T, M: UserDataMethods<T>> Class<T> for Registry<'_, M> {
    fn method<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        name: &'static str,
        names: A::Names,
        body: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    ) {
        self.0.add_method(name, move |lua, this, values: A::Found| {
            body(lua, this, A::read(Call { lua, function: name }, names, values)?)
        });
    }

    fn newer<A: Arguments, R: IntoLuaMulti + Luau>(
        &mut self,
        since: ContractVersion,
        name: &'static str,
        names: A::Names,
        body: impl Fn(&Lua, &T, A) -> Result<R> + Send + 'static,
    ) where
        T: OfContract,
    {
        self.0.add_method(name, move |lua, this, values: A::Found| {
            this.need_contract(lua, name, since)?;
            body(lua, this, A::read(Call { lua, function: name }, names, values)?)
        });
    }
}

/// The arguments of a method, as a tuple.
pub(crate) trait Arguments: Sized {
    /// A name for each.
    type Names: AsRef<[&'static str]> + Copy + Send + 'static;

    /// What a script passed for each, and what it passed beyond them.
    type Found: FromLuaMulti;

    /// Reads them from first to last, and nothing more.
    fn read(call: Call<'_>, names: Self::Names, found: Self::Found) -> Result<Self>;

    /// The type of each, and whether it may be left out.
    fn spelled() -> Vec<String>;
}

macro_rules! found {
    ($kind:ident) => {
        mlua::Value
    };
}

macro_rules! arguments {
    ($n:literal: $($kind:ident $name:ident $found:ident),*) => {
        impl<$($kind: Argument),*> Arguments for ($($kind,)*) {
            type Names = [&'static str; $n];
            type Found = ($(found!($kind),)* MultiValue,);

            fn read(call: Call<'_>, [$($name),*]: Self::Names, found: Self::Found) -> Result<Self> {
                let ($($found,)* rest,) = found;
                let read = ($($kind::take(call, $name, $found)?,)*);
                call.end(rest)?;
                Ok(read)
            }

            fn spelled() -> Vec<String> {
                vec![$($kind::luau()),*]
            }
        }
    };
}

arguments!(0:);
arguments!(1: A a a_found);
arguments!(2: A a a_found, B b b_found);
arguments!(3: A a a_found, B b b_found, C c c_found);
arguments!(4: A a a_found, B b b_found, C c c_found, D d d_found);
arguments!(6: A a a_found, B b b_found, C c c_found, D d d_found, E e e_found, F f f_found);
