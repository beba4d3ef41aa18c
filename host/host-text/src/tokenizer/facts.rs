//! What the files of a model folder say of its tokenizer, without building it. Only what is asked for is read, and no
//! file twice.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use host_core::{TokenizerFact, TokenizerFacts, TokenizerKey};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use TokenizerFact::{Absent, Count, Text, Unreadable};

const TOKENIZER_JSON: &str = "tokenizer.json";
const CONFIG_JSON: &str = "tokenizer_config.json";
/// The largest file that is read; that of Gemma 3 has 33 MB.
const LIMIT_BYTES: u64 = 256 << 20;

/// What a model folder says of its tokenizer, as far as it is asked. `tokenizer.json` is read for the kind, the number
/// of ids and the digest, `tokenizer_config.json` for the class and for the ids that it adds.
///
/// What a folder does not say, or says in a form that cannot be read, is part of the answer.
pub fn tokenizer_facts(folder: &Path, keys: &BTreeSet<TokenizerKey>) -> TokenizerFacts {
    let files = Files { folder, bytes: OnceCell::new(), tokenizer: OnceCell::new(), config: OnceCell::new() };
    let fact = |key: &TokenizerKey| match key {
        TokenizerKey::Kind => files.kind(),
        TokenizerKey::Pre => Ok(Absent("only a GGUF file names one".to_owned())),
        TokenizerKey::Class => files.class(),
        TokenizerKey::NVocab => files.n_vocab(),
        TokenizerKey::Digest => files.digest(),
    };
    keys.iter().map(|key| (*key, fact(key).unwrap_or_else(|nothing| nothing))).collect()
}

/// What was read, or the answer to every question about it.
type Read<T> = Result<T, TokenizerFact>;

/// The two files, each read when it is first asked for.
struct Files<'a> {
    folder: &'a Path,
    bytes: OnceCell<Read<Vec<u8>>>,
    tokenizer: OnceCell<Read<TokenizerJson>>,
    config: OnceCell<Read<Map<String, Value>>>,
}

/// The part of `tokenizer.json` that is asked about.
#[derive(Deserialize)]
struct TokenizerJson {
    model: ModelJson,
    #[serde(default)]
    added_tokens: Vec<AddedId>,
}

#[derive(Deserialize)]
struct ModelJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: NumberOfIds,
}

#[derive(Deserialize)]
struct AddedId {
    id: u32,
}

impl Files<'_> {
    fn bytes(&self) -> Read<&[u8]> {
        let read = self.bytes.get_or_init(|| read(self.folder, TOKENIZER_JSON));
        read.as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    fn tokenizer(&self) -> Read<&TokenizerJson> {
        let parsed = self.tokenizer.get_or_init(|| parse(TOKENIZER_JSON, self.bytes()?));
        parsed.as_ref().map_err(Clone::clone)
    }

    fn config(&self) -> Read<&Map<String, Value>> {
        let parsed = self.config.get_or_init(|| parse(CONFIG_JSON, &read(self.folder, CONFIG_JSON)?));
        parsed.as_ref().map_err(Clone::clone)
    }

    fn kind(&self) -> Read<TokenizerFact> {
        let kind = self.tokenizer()?.model.kind.clone();
        Ok(kind.map_or_else(|| Absent(format!("{TOKENIZER_JSON} has no `model.type`")), Text))
    }

    fn digest(&self) -> Read<TokenizerFact> {
        let digest = Sha256::digest(self.bytes()?);
        Ok(Text(digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    fn class(&self) -> Read<TokenizerFact> {
        const KEY: &str = "tokenizer_class";
        Ok(match self.config()?.get(KEY) {
            None | Some(Value::Null) => Absent(format!("{CONFIG_JSON} has no `{KEY}`")),
            Some(Value::String(class)) => Text(class.clone()),
            Some(other) => Unreadable(format!("`{KEY}` in {CONFIG_JSON} is {other}, expected a text")),
        })
    }

    /// A folder without `tokenizer_config.json` adds no ids.
    fn n_vocab(&self) -> Read<TokenizerFact> {
        const KEY: &str = "added_tokens_decoder";
        let TokenizerJson { model, added_tokens } = self.tokenizer()?;
        let of_file = added_tokens.iter().map(|token| u64::from(token.id) + 1).fold(model.vocab.0, u64::max);
        let added = match self.config() {
            Ok(config) => config.get(KEY).filter(|value| !value.is_null()),
            Err(Absent(_)) => None,
            Err(unreadable) => return Err(unreadable),
        };
        let Some(added) = added else { return Ok(Count(of_file)) };
        let ids = added.as_object().map(|tokens| tokens.keys().map(|id| id.parse::<u32>()));
        let most =
            ids.and_then(|mut ids| ids.try_fold(of_file, |most, id| Some(most.max(u64::from(id.ok()?) + 1))));
        most.map(Count)
            .ok_or_else(|| Unreadable(format!("`{KEY}` in {CONFIG_JSON} is no object of token ids")))
    }
}

fn read(folder: &Path, name: &str) -> Read<Vec<u8>> {
    let path = folder.join(name);
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Absent(format!("there is no {name}")),
        _ => Unreadable(format!("{name}: {error}")),
    };
    let found = fs::metadata(&path).map_err(unreadable)?.len();
    if found > LIMIT_BYTES {
        return Err(Unreadable(format!("{name} has {found} bytes, at most {LIMIT_BYTES} are read")));
    }
    fs::read(&path).map_err(unreadable)
}

fn parse<'a, T: Deserialize<'a>>(name: &str, bytes: &'a [u8]) -> Read<T> {
    serde_json::from_slice(bytes).map_err(|error| Unreadable(format!("{name}: {error}")))
}

/// One more than the largest id of a vocabulary: an object from texts to ids, or a list with an entry for each id.
/// Nothing of it is kept.
#[derive(Default)]
struct NumberOfIds(u64);

impl<'de> Deserialize<'de> for NumberOfIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = NumberOfIds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from texts to ids, or a list")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NumberOfIds, A::Error> {
                let mut n = 0;
                while let Some((IgnoredAny, id)) = map.next_entry::<IgnoredAny, u32>()? {
                    n = n.max(u64::from(id) + 1);
                }
                Ok(NumberOfIds(n))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NumberOfIds, A::Error> {
                let mut n = 0;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    n += 1;
                }
                Ok(NumberOfIds(n))
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}
