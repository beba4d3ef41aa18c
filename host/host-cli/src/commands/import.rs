//! `tenon import`: any model as a folder of safetensors with its tokenizer.

use host_models::{ModelSource, ModelStore};
use host_weights::Checkpoint;

use super::print;
use crate::args::{FolderArgs, ImportArgs};
use crate::error::Failure;
use crate::exit::Exit;
use crate::model_folder::write_folder;
use crate::open::{fetch, profiles};

pub(crate) fn run(folders: &FolderArgs, args: &ImportArgs) -> Result<Exit, Failure> {
    let source: ModelSource = args.source.parse()?;
    let model = fetch(&ModelStore::open(None)?, &profiles(folders)?, &source)?;
    let checkpoint = Checkpoint::open(&model.path)?;
    write_folder(&checkpoint, &model.path, &args.out, &[])?;
    print(&format!("{}\n", args.out.display()))
}
