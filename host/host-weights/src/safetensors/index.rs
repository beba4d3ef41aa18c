//! Which safetensors files a model folder has, and which tensors each must hold.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::{Map, Value};

use super::folder::FolderFault;
use crate::config::read_json_object;
use crate::error::WeightsError;
use crate::json::kind;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The files of a folder by name, each with the tensors that the index places there; `None` without an index.
pub(super) type Shards = BTreeMap<String, Option<Vec<String>>>;

/// Finds the files of a model folder. None of them is opened.
pub(super) fn find_shards(folder: &Path) -> Result<Shards, WeightsError> {
    let fault = |source| WeightsError::Folder { folder: folder.to_owned(), source };
    let (single, index) = (folder.join(SINGLE).exists(), folder.join(INDEX).exists());
    if !index {
        return match single {
            true => Ok(BTreeMap::from([(SINGLE.to_owned(), None)])),
            false => Err(fault(FolderFault::NoWeights)),
        };
    }
    let shards = shards_of(&read_json_object(&folder.join(INDEX))?).map_err(fault)?;
    if single && !shards.contains_key(SINGLE) {
        return Err(fault(FolderFault::TwoModels));
    }
    match shards.keys().find(|shard| !folder.join(shard).exists()) {
        Some(shard) => Err(fault(FolderFault::MissingShard { shard: shard.clone() })),
        None => Ok(shards),
    }
}

/// Turns the `weight_map` of an index (tensor to file) into the tensors of each file.
pub(super) fn shards_of(index: &Map<String, Value>) -> Result<Shards, FolderFault> {
    let map = match index.get("weight_map") {
        Some(Value::Object(map)) if !map.is_empty() => map,
        found => return Err(FolderFault::NoWeightMap { found: found.map_or("nothing", kind) }),
    };
    let mut shards = Shards::new();
    for (tensor, file) in map {
        let name = file.as_str().filter(|name| is_plain_file_name(name));
        let name =
            name.ok_or_else(|| FolderFault::ShardName { tensor: tensor.clone(), found: file.to_string() })?;
        shards.entry(name.to_owned()).or_default().get_or_insert_default().push(tensor.clone());
    }
    Ok(shards)
}

/// Whether the name stays in its folder.
fn is_plain_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
        && !name.contains(['/', '\\', '\0'])
        && name.ends_with(".safetensors")
}
