//! Which files of a repository or package are the model; a function of names alone.

use std::collections::BTreeMap;

use crate::error::ModelsError;
use crate::source::has_gguf_extension;

/// The files that make up a model, by their index in the list of names that was chosen from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A folder model: each file with its name inside the folder.
    Folder(Vec<(usize, String)>),
    /// One GGUF file, from one member or from parts to be joined in this order.
    Gguf {
        /// The file's last name, without `.partNN`.
        name: String,
        /// The members to join.
        parts: Vec<usize>,
    },
}

/// Chooses the model among `names` (paths with `/`) of what `origin` names.
///
/// With `file`, the one GGUF file of that path or last name. Without it, the one folder that holds
/// `config.json` and safetensors; where there is none, the one GGUF file.
pub(crate) fn choose(names: &[String], file: Option<&str>, origin: &str) -> Result<Choice, ModelsError> {
    let ggufs = gguf_candidates(names);
    if let Some(file) = file {
        let hits = ggufs.iter().filter(|(path, _)| **path == file || last_name(path) == file).collect();
        return one_gguf(hits, origin, || ModelsError::FileAbsent {
            origin: origin.to_owned(),
            file: file.to_owned(),
            choices: ggufs.keys().map(|path| path.to_string()).collect(),
        });
    }
    let folders = model_folders(names);
    match folders.as_slice() {
        [] => one_gguf(ggufs.iter().collect(), origin, || ModelsError::NoModel {
            origin: origin.to_owned(),
            seen: names.to_vec(),
        }),
        [folder] => Ok(Choice::Folder(folder_files(names, folder))),
        several => Err(ambiguous(origin, several.iter().map(|folder| folder.to_string()).collect())),
    }
}

/// Whether a folder model has a use for the file of this name.
pub(crate) fn is_model_file(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "preprocessor_config.json",
        "processor_config.json",
        "quantize_config.json",
    ];
    NAMES.contains(&name) || name.ends_with(".safetensors")
}

/// GGUF files by path; each with its members and their part numbers.
type Candidates<'a> = BTreeMap<&'a str, Vec<(u32, usize)>>;

fn gguf_candidates(names: &[String]) -> Candidates<'_> {
    let mut candidates = Candidates::new();
    for (index, name) in names.iter().enumerate() {
        if has_gguf_extension(name) {
            candidates.entry(name).or_default().push((0, index));
        } else if let Some((stem, part)) = split_part(name) {
            // Parts lie in different packages, hence in different folders: their last name joins them.
            candidates.entry(last_name(stem)).or_default().push((part, index));
        }
    }
    candidates
}

/// `NAME.gguf.part07` is part 7 of `NAME.gguf`.
fn split_part(name: &str) -> Option<(&str, u32)> {
    let (stem, digits) = name.rsplit_once(".part")?;
    let all_digits =
        !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    (all_digits && has_gguf_extension(stem)).then(|| digits.parse().ok().map(|part| (stem, part)))?
}

fn one_gguf(
    hits: Vec<(&&str, &Vec<(u32, usize)>)>,
    origin: &str,
    none: impl FnOnce() -> ModelsError,
) -> Result<Choice, ModelsError> {
    match hits.as_slice() {
        [] => Err(none()),
        [(path, members)] => joined(path, members, origin),
        several => Err(ambiguous(origin, several.iter().map(|(path, _)| path.to_string()).collect())),
    }
}

fn joined(path: &str, members: &[(u32, usize)], origin: &str) -> Result<Choice, ModelsError> {
    if is_shard(&path.to_ascii_lowercase(), ".gguf") {
        return Err(ModelsError::GgufShards { origin: origin.to_owned(), file: path.to_owned() });
    }
    let mut members = members.to_vec();
    members.sort_unstable();
    let first = members.first().map_or(0, |(part, _)| *part);
    let numbers: Vec<u32> = members.iter().map(|(part, _)| *part).collect();
    let expected: Vec<u32> = (first..).take(members.len()).collect();
    if first > 1 || numbers != expected {
        return Err(ModelsError::Parts { origin: origin.to_owned(), file: path.to_owned(), found: numbers });
    }
    let name = last_name(path).to_owned();
    Ok(Choice::Gguf { name, parts: members.into_iter().map(|(_, index)| index).collect() })
}

/// Folders (`""` is the root) that hold `config.json` and at least one safetensors file.
fn model_folders(names: &[String]) -> Vec<&str> {
    let holds_weights =
        |folder: &str| names.iter().any(|name| parent(name) == folder && name.ends_with(".safetensors"));
    let configs = names.iter().filter(|name| last_name(name) == "config.json");
    configs.map(|name| parent(name)).filter(|folder| holds_weights(folder)).collect()
}

fn folder_files(names: &[String], folder: &str) -> Vec<(usize, String)> {
    let here = |wanted: &str| names.iter().any(|name| parent(name) == folder && last_name(name) == wanted);
    // Some repositories carry the same weights a second time under another name; the index or the plain
    // name tells which set `config.json` means.
    let is_listed_shard = |name: &str| is_shard(name, ".safetensors") && !name.starts_with("consolidated");
    let has_shards = names.iter().any(|name| parent(name) == folder && is_listed_shard(last_name(name)));
    let keep_weights = |name: &str| {
        if here("model.safetensors.index.json") && has_shards {
            is_listed_shard(name)
        } else if here("model.safetensors") {
            name == "model.safetensors"
        } else {
            true
        }
    };
    let keep = |name: &str| is_model_file(name) && (!name.ends_with(".safetensors") || keep_weights(name));
    let files = names.iter().enumerate().filter(|(_, name)| parent(name) == folder && keep(last_name(name)));
    files.map(|(index, name)| (index, last_name(name).to_owned())).collect()
}

/// Whether a name is one of a numbered set: `NAME-00001-of-00002.safetensors`.
fn is_shard(name: &str, extension: &str) -> bool {
    let numbered = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.strip_suffix(extension).and_then(|stem| stem.rsplit_once("-of-"));
    stem.is_some_and(|(head, total)| {
        numbered(total) && head.rsplit_once('-').is_some_and(|(_, number)| numbered(number))
    })
}

fn ambiguous(origin: &str, mut choices: Vec<String>) -> ModelsError {
    choices.sort();
    ModelsError::Ambiguous { origin: origin.to_owned(), choices }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn last_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests;
