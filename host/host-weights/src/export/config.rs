//! The `config.json` of a written folder: the checkpoint's own, with a `quantization` block where it needs one.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::writer::write_json;
use crate::catalogue::{Catalogue, Encoding};
use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;
use crate::quantization::BLOCK_KEYS;

/// Bits, group size and mode of a module.
type Form = (u8, usize, &'static str);

/// Writes `config.json`.
pub(super) fn write(checkpoint: &Checkpoint, folder: &Path) -> Result<(), WeightsError> {
    let config = checkpoint.config();
    let mut json = config.json.clone();
    // A checkpoint that came with a block keeps it while it describes the same modules.
    if checkpoint.is_recoded() || config.quantization()?.is_none() {
        remove_blocks(&mut json);
        json.extend(block(checkpoint.catalogue()).map(|block| ("quantization".to_owned(), block)));
    }
    write_json(&Value::Object(json), &folder.join("config.json"))
}

/// Removes the blocks that described the weights before.
fn remove_blocks(json: &mut Map<String, Value>) {
    BLOCK_KEYS.into_iter().for_each(|key| drop(json.remove(key)));
    if let Some(text) = json.get_mut("text_config").and_then(Value::as_object_mut) {
        BLOCK_KEYS.into_iter().for_each(|key| drop(text.remove(key)));
    }
}

/// The block for the quantised modules of a catalogue: the commonest form, and overrides for the others.
fn block(catalogue: &Catalogue) -> Option<Value> {
    let modules: Vec<_> = catalogue
        .iter()
        .filter_map(|info| {
            let module = info.name.strip_suffix(".weight")?;
            Some((module, form(info.encoding)?))
        })
        .collect();
    let mut counts = BTreeMap::new();
    for (_, form) in &modules {
        *counts.entry(*form).or_insert(0) += 1;
    }
    let (commonest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let fields =
        |(bits, group_size, mode): Form| json!({ "group_size": group_size, "bits": bits, "mode": mode });
    let overrides = modules.into_iter().filter(|(_, form)| *form != commonest);
    let mut block: Map<String, Value> =
        overrides.map(|(module, form)| (module.to_owned(), fields(form))).collect();
    if let Value::Object(default) = fields(commonest) {
        block.extend(default);
    }
    Some(Value::Object(block))
}

fn form(encoding: Encoding) -> Option<Form> {
    match encoding {
        Encoding::Affine { bits, group_size, .. } => Some((bits, group_size, "affine")),
        Encoding::FloatGroups { mode, group_size } => Some((mode.bits(), group_size, mode.name())),
        Encoding::Dense(_) => None,
    }
}
