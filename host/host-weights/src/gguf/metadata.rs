//! The metadata of a GGUF file: keys with typed values, borrowed from the file.

use std::collections::BTreeMap;
use std::fmt;

use super::cursor::Cursor;
use super::fault::GgufFault;

/// Most keys.
pub(super) const KEY_COUNT_LIMIT: u64 = 1 << 16;
/// Longest key, as the format says.
const KEY_LIMIT_BYTES: u64 = 65_535;
/// Longest text.
const TEXT_LIMIT_BYTES: u64 = 16 << 20;
/// Most elements of an array.
const ARRAY_LIMIT: u64 = 1 << 24;
/// Deepest nesting of arrays.
const DEPTH_LIMIT: usize = 4;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::Text,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    fn read(cursor: &mut Cursor<'_>) -> Result<ValueType, GgufFault> {
        let found = cursor.u32("the type of a value")?;
        ValueType::ALL.get(found as usize).copied().ok_or(GgufFault::UnknownValueType { found })
    }

    /// Bytes of a value, where they are fixed.
    const fn size_bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::Text | ValueType::Array => None,
        }
    }
}

/// One value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Any unsigned width.
    Unsigned(u64),
    /// Any signed width.
    Signed(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(&'a str),
    /// An array, still packed.
    Array(Array<'a>),
}

/// An array whose elements are known to lie in the file.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// The type of the elements.
    pub kind: ValueType,
    /// How many there are.
    pub len: usize,
    elements: Cursor<'a>,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::F32(value) => write!(f, "{value:?}"),
            Value::F64(value) => write!(f, "{value:?}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Text(text) => write!(f, "{:?}", text.chars().take(80).collect::<String>()),
            Value::Array(array) => write!(f, "an array of {} {:?}", array.len, array.kind),
        }
    }
}

impl<'a> Value<'a> {
    fn read(cursor: &mut Cursor<'a>, kind: ValueType, depth: usize) -> Result<Value<'a>, GgufFault> {
        const WHAT: &str = "a value";
        Ok(match kind {
            ValueType::U8 => Value::Unsigned(cursor.u8(WHAT)?.into()),
            ValueType::I8 => Value::Signed((cursor.u8(WHAT)? as i8).into()),
            ValueType::U16 => Value::Unsigned(cursor.u16(WHAT)?.into()),
            ValueType::I16 => Value::Signed((cursor.u16(WHAT)? as i16).into()),
            ValueType::U32 => Value::Unsigned(cursor.u32(WHAT)?.into()),
            ValueType::I32 => Value::Signed((cursor.u32(WHAT)? as i32).into()),
            ValueType::U64 => Value::Unsigned(cursor.u64(WHAT)?),
            ValueType::I64 => Value::Signed(cursor.u64(WHAT)? as i64),
            ValueType::F32 => Value::F32(f32::from_bits(cursor.u32(WHAT)?)),
            ValueType::F64 => Value::F64(f64::from_bits(cursor.u64(WHAT)?)),
            ValueType::Bool => match cursor.u8(WHAT)? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                found => return Err(GgufFault::NotABool { found }),
            },
            ValueType::Text => Value::Text(cursor.text(TEXT_LIMIT_BYTES, "a text")?),
            ValueType::Array => Value::Array(Array::read(cursor, depth)?),
        })
    }
}

impl<'a> Array<'a> {
    /// Steps over an array and remembers where its elements lie.
    fn read(cursor: &mut Cursor<'a>, depth: usize) -> Result<Array<'a>, GgufFault> {
        if depth == DEPTH_LIMIT {
            return Err(GgufFault::TooMany {
                what: "nested arrays",
                limit: DEPTH_LIMIT as u64,
                found: depth as u64 + 1,
            });
        }
        let kind = ValueType::read(cursor)?;
        let count = cursor.u64("the length of an array")?;
        if count > ARRAY_LIMIT {
            return Err(GgufFault::TooMany { what: "array elements", limit: ARRAY_LIMIT, found: count });
        }
        let elements = cursor.clone();
        match kind.size_bytes() {
            Some(size) => {
                cursor.take(count * size, "the elements of an array")?;
            }
            None => {
                for _ in 0..count {
                    match kind {
                        ValueType::Text => {
                            cursor.text_bytes(TEXT_LIMIT_BYTES, "a text of an array").map(drop)?
                        }
                        _ => Array::read(cursor, depth + 1).map(drop)?,
                    }
                }
            }
        }
        Ok(Array { kind, len: count as usize, elements })
    }

    /// The elements, each read when it is asked for.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, GgufFault>> + use<'a> {
        let (kind, mut cursor) = (self.kind, self.elements.clone());
        // The whole array was stepped over at its own depth, so elements need no further bound than the limit.
        (0..self.len).map(move |_| Value::read(&mut cursor, kind, 1))
    }
}

/// All keys of a file.
#[derive(Clone, Debug, Default)]
pub struct Metadata<'a> {
    values: BTreeMap<&'a str, Entry<'a>>,
}

/// A value with the bytes of its whole entry: key, type and value as they are stored.
#[derive(Clone, Debug)]
struct Entry<'a> {
    value: Value<'a>,
    stored: &'a [u8],
}

impl<'a> Metadata<'a> {
    pub(super) fn read(cursor: &mut Cursor<'a>, count: u64) -> Result<Metadata<'a>, GgufFault> {
        let mut values = BTreeMap::new();
        for _ in 0..count {
            let at = cursor.at();
            let key = cursor.text(KEY_LIMIT_BYTES, "a metadata key")?;
            let kind = ValueType::read(cursor)?;
            let value = Value::read(cursor, kind, 0)?;
            let entry = Entry { value, stored: cursor.since(at) };
            if values.insert(key, entry).is_some() {
                return Err(GgufFault::DuplicateKey { key: key.to_owned() });
            }
        }
        Ok(Metadata { values })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.values.get(key).map(|entry| &entry.value)
    }

    /// The bytes of each entry whose key begins so, in the order of the keys.
    pub(super) fn entries(&self, prefix: &'static str) -> impl Iterator<Item = &'a [u8]> + '_ {
        let from = self.values.range(prefix..);
        from.take_while(move |(key, _)| key.starts_with(prefix)).map(|(_, entry)| entry.stored)
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.values.keys().copied()
    }

    /// A count, if the key is there.
    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, GgufFault> {
        self.typed(key, "a whole number", |value| match value {
            Value::Unsigned(value) => usize::try_from(*value).ok(),
            Value::Signed(value) => usize::try_from(*value).ok(),
            _ => None,
        })
    }

    /// A finite float, if the key is there.
    pub(super) fn float(&self, key: &str) -> Result<Option<f32>, GgufFault> {
        self.typed(key, "a finite float", |value| match value {
            Value::F32(value) => Some(*value).filter(|value| value.is_finite()),
            Value::F64(value) => Some(*value as f32).filter(|value| value.is_finite()),
            _ => None,
        })
    }

    /// A truth value, if the key is there.
    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, GgufFault> {
        self.typed(key, "a truth value", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A text, if the key is there.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, GgufFault> {
        self.typed(key, "a text", |value| match value {
            Value::Text(text) => Some(*text),
            _ => None,
        })
    }

    /// An array, if the key is there.
    pub(super) fn array(&self, key: &str) -> Result<Option<Array<'a>>, GgufFault> {
        self.typed(key, "an array", |value| match value {
            Value::Array(array) => Some(array.clone()),
            _ => None,
        })
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufFault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = || GgufFault::WrongValue { key: key.to_owned(), expected, found: value.to_string() };
        read(value).ok_or_else(found).map(Some)
    }
}
