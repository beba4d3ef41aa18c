//! The tokenizer of a model folder: `tokenizer.json` and the files beside it that name its special tokens.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::pipeline::{Pipeline, contained};
use super::special::{SpecialToken, SpecialTokens};
use super::{Model, Tokenizer};
use crate::TextError;
use crate::decoder::Decoder;

/// Reads a folder; see [`Tokenizer::from_folder`].
pub(crate) fn read(folder: &Path) -> Result<Tokenizer, TextError> {
    let files = Files::read(folder)?;
    let path = folder.join("tokenizer.json");
    let text = read_text(&path)?;
    let DecoderOnly { decoder } = serde_json::from_str(&text)
        .map_err(|source| TextError::InvalidJson { path: path.clone(), source })?;
    let decoder = Decoder::from_json(&decoder)?;
    let invalid = |reason| TextError::InvalidTokenizer { from: path.display().to_string(), reason };
    let mut tokenizer = contained(|| tokenizers::Tokenizer::from_bytes(text.as_bytes())).map_err(invalid)?;
    drop(text);
    files.add_tokens(&mut tokenizer)?;
    let n_vocab = n_vocab(&tokenizer);
    let pipeline = Pipeline::new(tokenizer, n_vocab);
    let special = files.special_tokens(&pipeline, &path)?;
    let templates = files.templates()?;
    Ok(Tokenizer { model: Model::Pipeline(Box::new(pipeline)), decoder, special, templates })
}

/// The part of a `tokenizer.json` that is read here; the library keeps its own reading to itself.
#[derive(Deserialize)]
struct DecoderOnly {
    #[serde(default)]
    decoder: Value,
}

/// One more than the largest id.
fn n_vocab(tokenizer: &tokenizers::Tokenizer) -> usize {
    let ids = tokenizer.get_vocab(true).into_values();
    ids.max().map_or(0, |id| id as usize + 1)
}

fn read_text(path: &Path) -> Result<String, TextError> {
    fs::read_to_string(path).map_err(|source| TextError::Unreadable { path: path.to_owned(), source })
}

/// A file's text, or nothing where there is no such file.
fn read_optional(path: &Path) -> Result<Option<String>, TextError> {
    match read_text(path) {
        Err(TextError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// An optional JSON file, and the object in it.
struct File {
    path: PathBuf,
    object: Map<String, Value>,
}

impl File {
    fn read(folder: &Path, name: &str) -> Result<Self, TextError> {
        let path = folder.join(name);
        let Some(text) = read_optional(&path)? else {
            return Ok(File { path, object: Map::new() });
        };
        match serde_json::from_str(&text) {
            Ok(object) => Ok(File { path, object }),
            Err(source) => Err(TextError::InvalidJson { path, source }),
        }
    }

    /// The value of a key that is present and not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn invalid(&self, key: &str, expected: &'static str, found: &Value) -> TextError {
        TextError::InvalidKey {
            path: self.path.clone(),
            key: key.to_owned(),
            expected,
            found: found.to_string(),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, TextError> {
        let value = self.get(key);
        value
            .map(|value| value.as_bool().ok_or_else(|| self.invalid(key, "true or false", value)))
            .transpose()
    }

    /// A token, given as its text or as an object with `content`.
    fn token(&self, key: &str) -> Result<Option<String>, TextError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_str().or_else(|| value["content"].as_str()) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.invalid(key, "a text, or an object with `content`", value)),
        }
    }

    /// One id or a list of ids.
    fn ids(&self, key: &str) -> Result<Option<Vec<u32>>, TextError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = values.iter().map(id).collect();
        ids.map(Some).ok_or_else(|| self.invalid(key, "a token id, or a list of them", value))
    }
}

/// The files beside `tokenizer.json`; each may be absent.
struct Files {
    tokenizer_config: File,
    special_tokens_map: File,
    generation_config: File,
    config: File,
    chat_template_json: File,
    chat_template_jinja: Option<String>,
}

impl Files {
    fn read(folder: &Path) -> Result<Self, TextError> {
        Ok(Files {
            tokenizer_config: File::read(folder, "tokenizer_config.json")?,
            special_tokens_map: File::read(folder, "special_tokens_map.json")?,
            generation_config: File::read(folder, "generation_config.json")?,
            config: File::read(folder, "config.json")?,
            chat_template_json: File::read(folder, "chat_template.json")?,
            chat_template_jinja: read_optional(&folder.join("chat_template.jinja"))?,
        })
    }

    /// Adds the tokens that `tokenizer_config.json` lists, in the order of their ids.
    ///
    /// For a token that `tokenizer.json` has too, the flags listed here win, as in `transformers`.
    fn add_tokens(&self, tokenizer: &mut tokenizers::Tokenizer) -> Result<(), TextError> {
        let (file, key) = (&self.tokenizer_config, "added_tokens_decoder");
        let Some(value) = file.get(key) else { return Ok(()) };
        let invalid =
            || file.invalid(key, "an object from token ids to the tokens that get these ids", value);
        let mut tokens: Vec<(u32, AddedToken)> = Vec::new();
        for (id, token) in value.as_object().ok_or_else(invalid)? {
            let id = id.parse().map_err(|_| invalid())?;
            tokens.push((id, serde_json::from_value(token.clone()).map_err(|_| invalid())?));
        }
        tokens.sort_by_key(|(id, _)| *id);
        let (ids, tokens): (Vec<u32>, Vec<AddedToken>) = tokens.into_iter().unzip();
        contained(|| Ok(tokenizer.add_tokens(&tokens))).map_err(|_| invalid())?;
        let has_its_id =
            |(id, token): (&u32, &AddedToken)| tokenizer.token_to_id(&token.content) == Some(*id);
        if ids.iter().zip(&tokens).all(has_its_id) { Ok(()) } else { Err(invalid()) }
    }

    fn special_tokens(&self, pipeline: &Pipeline, tokenizer_json: &Path) -> Result<SpecialTokens, TextError> {
        let mut special = SpecialTokens {
            bos: self.named("bos_token", pipeline)?,
            eos: self.named("eos_token", pipeline)?,
            unk: self.named("unk_token", pipeline)?,
            pad: self.named("pad_token", pipeline)?,
            named: self.texts()?,
            ..SpecialTokens::default()
        };
        special.stop_ids = self.stop_ids(special.eos.as_ref())?;
        (special.before, special.after) = self.surroundings(&special, pipeline, tokenizer_json)?;
        Ok(special)
    }

    /// A named token, where the vocabulary has it.
    fn named(&self, name: &str, pipeline: &Pipeline) -> Result<Option<SpecialToken>, TextError> {
        let text = match self.tokenizer_config.token(name)? {
            None => self.special_tokens_map.token(name)?,
            text => text,
        };
        Ok(text.and_then(|text| Some(SpecialToken { id: pipeline.id(&text)?, text })))
    }

    /// The texts of all tokens with a name of the form `…_token`.
    fn texts(&self) -> Result<Map<String, Value>, TextError> {
        let mut texts = Map::new();
        for file in [&self.special_tokens_map, &self.tokenizer_config] {
            let names = file.object.keys().filter(|name| name.ends_with("_token"));
            for name in names.filter(|name| !file.object[*name].is_boolean()) {
                if let Some(text) = file.token(name)? {
                    texts.insert(name.clone(), text.into());
                }
            }
        }
        Ok(texts)
    }

    /// What ends a generation: as `transformers` reads it, else the end-of-sequence token.
    fn stop_ids(&self, eos: Option<&SpecialToken>) -> Result<Vec<u32>, TextError> {
        for file in [&self.generation_config, &self.config] {
            if let Some(ids) = file.ids("eos_token_id")? {
                return Ok(ids);
            }
        }
        Ok(eos.iter().map(|token| token.id).collect())
    }

    /// What a prompt starts and ends with.
    fn surroundings(
        &self,
        special: &SpecialTokens,
        pipeline: &Pipeline,
        tokenizer_json: &Path,
    ) -> Result<(Vec<u32>, Vec<u32>), TextError> {
        let adds = [("add_bos_token", &special.bos), ("add_eos_token", &special.eos)];
        let mut flags = Vec::new();
        for (key, token) in adds {
            let flag = self.tokenizer_config.boolean(key)?;
            flags.push((flag, flag.filter(|adds| *adds).and(token.as_ref()).map(|token| token.id)));
        }
        if flags.iter().any(|(flag, _)| flag.is_some()) {
            return Ok((flags[0].1.into_iter().collect(), flags[1].1.into_iter().collect()));
        }
        pipeline.surroundings().map_err(|reason| TextError::InvalidTokenizer {
            from: tokenizer_json.display().to_string(),
            reason,
        })
    }

    /// The chat templates: a file of its own wins over `tokenizer_config.json`.
    fn templates(&self) -> Result<Vec<(String, String)>, TextError> {
        let single = |template: &str| vec![("default".to_owned(), template.to_owned())];
        if let Some(template) = &self.chat_template_jinja {
            return Ok(single(template));
        }
        let key = "chat_template";
        for file in [&self.chat_template_json, &self.tokenizer_config] {
            let Some(value) = file.get(key) else { continue };
            let entry =
                |entry: &Value| Some((entry["name"].as_str()?.into(), entry["template"].as_str()?.into()));
            let templates = match value {
                Value::String(template) => Some(single(template)),
                Value::Array(several) => several.iter().map(entry).collect(),
                _ => None,
            };
            let expected = "a template, or a list of objects with `name` and `template`";
            return templates.ok_or_else(|| file.invalid(key, expected, value));
        }
        Ok(Vec::new())
    }
}
