//! How keys and values are stored, under the names that profiles and signatures use.

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvStorage {
    /// float32.
    PlainF32,
    /// IEEE half.
    PlainF16,
    /// bfloat16.
    PlainBf16,
    /// Affine codes in groups along a head's width, with scales and biases in the dtype of the activations.
    Quantised(KvCodes),
}

/// The codes of [`KvStorage::Quantised`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvCodes {
    /// Bits of a code.
    pub bits: u8,
    /// Elements that share a scale; a head's width is whole groups.
    pub group_size: u8,
}

/// A storage with its signature and its name in profiles.
type Named = (KvStorage, &'static str, &'static str);

const fn quantised(bits: u8, group_size: u8) -> KvStorage {
    KvStorage::Quantised(KvCodes { bits, group_size })
}

const NAMED: [Named; 9] = [
    (KvStorage::PlainF32, "kv:plain:f32", "plain:f32"),
    (KvStorage::PlainF16, "kv:plain:f16", "plain:f16"),
    (KvStorage::PlainBf16, "kv:plain:bf16", "plain:bf16"),
    (quantised(4, 32), "kv:quant:4:32", "quant:4bit-32"),
    (quantised(4, 64), "kv:quant:4:64", "quant:4bit-64"),
    (quantised(4, 128), "kv:quant:4:128", "quant:4bit-128"),
    (quantised(8, 32), "kv:quant:8:32", "quant:8bit-32"),
    (quantised(8, 64), "kv:quant:8:64", "quant:8bit-64"),
    (quantised(8, 128), "kv:quant:8:128", "quant:8bit-128"),
];

impl KvStorage {
    /// Those that hold plain numbers, with their signatures.
    pub const PLAIN: [(KvStorage, &'static str); 3] = [
        (KvStorage::PlainF32, "kv:plain:f32"),
        (KvStorage::PlainF16, "kv:plain:f16"),
        (KvStorage::PlainBf16, "kv:plain:bf16"),
    ];

    /// Every storage.
    pub fn all() -> impl Iterator<Item = KvStorage> {
        NAMED.into_iter().map(|(storage, ..)| storage)
    }

    fn named(self) -> Named {
        NAMED.into_iter().find(|(storage, ..)| *storage == self).unwrap_or((self, "kv:unknown", "unknown"))
    }

    /// The storage's identity: equal strings mean interchangeable caches.
    pub fn signature(self) -> &'static str {
        self.named().1
    }

    /// Its kind and element type, as a profile's `[kv]` names them: `plain:f16`.
    pub fn name(self) -> &'static str {
        self.named().2
    }

    /// Bytes of one element of a plain storage.
    pub fn element_bytes(self) -> Option<usize> {
        match self {
            KvStorage::PlainF32 => Some(4),
            KvStorage::PlainF16 | KvStorage::PlainBf16 => Some(2),
            KvStorage::Quantised(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_signatures_are_told_apart() {
        let of = |name: fn(KvStorage) -> &'static str| {
            let mut names: Vec<&str> = KvStorage::all().map(name).collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        assert_eq!((of(KvStorage::name), of(KvStorage::signature)), (NAMED.len(), NAMED.len()));
        assert!(KvStorage::all().all(|kv| kv.signature() != "kv:unknown"));
        assert!(KvStorage::PLAIN.iter().all(|(kv, signature)| kv.signature() == *signature));
    }
}
