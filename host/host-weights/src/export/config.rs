//! The `config.json` of a written folder: the checkpoint's own, with a `quantization` block where it needs one.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::writer::write_json;
use crate::catalogue::{Catalogue, Encoding};
use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;

/// Writes `config.json`.
pub(super) fn write(checkpoint: &Checkpoint, folder: &Path) -> Result<(), WeightsError> {
    let config = checkpoint.config();
    let mut json = config.json.clone();
    // A checkpoint that came with a block keeps it: it describes the same modules.
    if config.quantization()?.is_none()
        && let Some(block) = block(checkpoint.catalogue())
    {
        json.insert("quantization".to_owned(), block);
    }
    write_json(&Value::Object(json), &folder.join("config.json"))
}

/// The block for the affine modules of a catalogue: the commonest form, and overrides for the others.
fn block(catalogue: &Catalogue) -> Option<Value> {
    let modules: Vec<_> = catalogue
        .iter()
        .filter_map(|info| match info.encoding {
            Encoding::Affine { bits, group_size, .. } => {
                info.name.strip_suffix(".weight").map(|module| (module, (bits, group_size)))
            }
            _ => None,
        })
        .collect();
    let mut counts = BTreeMap::new();
    for (_, form) in &modules {
        *counts.entry(*form).or_insert(0) += 1;
    }
    let (commonest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let fields =
        |(bits, group_size): (u8, usize)| json!({ "group_size": group_size, "bits": bits, "mode": "affine" });
    let overrides = modules.into_iter().filter(|(_, form)| *form != commonest);
    let mut block: Map<String, Value> =
        overrides.map(|(module, form)| (module.to_owned(), fields(form))).collect();
    if let Value::Object(default) = fields(commonest) {
        block.extend(default);
    }
    Some(Value::Object(block))
}
