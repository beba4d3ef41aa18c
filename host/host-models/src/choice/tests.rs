use super::*;
use crate::fixtures::code;

/// `Ok` is the files in order with their new names; `Err` the code of the refusal.
fn check(names: &[&str], file: Option<&str>, expected: Result<&[&str], &str>) {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let outcome = choose(&names, file, "hf:a/b");
    match expected {
        Err(expected) => assert_eq!(code(outcome), expected, "{names:?} {file:?}"),
        Ok(expected) => {
            let found: Vec<String> = match outcome.unwrap_or_else(|error| panic!("{names:?}: {error}")) {
                Choice::Folder(files) => {
                    files.into_iter().map(|(index, name)| format!("{}>{name}", names[index])).collect()
                }
                Choice::Gguf { name, parts } => {
                    parts.iter().map(|part| format!("{}>{name}", names[*part])).collect()
                }
            };
            assert_eq!(found, expected, "{names:?} {file:?}");
        }
    }
}

#[test]
fn a_safetensors_folder_is_taken_with_what_belongs_to_it() {
    check(
        &["README.md", "config.json", "model.safetensors", "tokenizer.json", "pytorch_model.bin", "x.gguf"],
        None,
        Ok(&[
            "config.json>config.json",
            "model.safetensors>model.safetensors",
            "tokenizer.json>tokenizer.json",
        ]),
    );
    check(
        &["pkg/data/config.json", "pkg/data/w.safetensors", "pkg/other.safetensors"],
        None,
        Ok(&["pkg/data/config.json>config.json", "pkg/data/w.safetensors>w.safetensors"]),
    );
}

#[test]
fn weights_that_are_there_twice_are_taken_once() {
    check(
        &["config.json", "model.safetensors", "consolidated.safetensors"],
        None,
        Ok(&["config.json>config.json", "model.safetensors>model.safetensors"]),
    );
    check(
        &[
            "config.json",
            "consolidated-00001-of-00001.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ],
        None,
        Ok(&[
            "config.json>config.json",
            "model-00001-of-00002.safetensors>model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors>model-00002-of-00002.safetensors",
            "model.safetensors.index.json>model.safetensors.index.json",
        ]),
    );
}

#[test]
fn gguf_files_must_be_named_where_there_are_several() {
    check(&["a/x.gguf", "a/__init__.py"], None, Ok(&["a/x.gguf>x.gguf"]));
    check(&["x.gguf", "y.gguf"], None, Err("models.ambiguous"));
    check(&["x.gguf", "y.gguf"], Some("y.gguf"), Ok(&["y.gguf>y.gguf"]));
    check(&["q4/x.gguf", "q8/x.gguf"], Some("x.gguf"), Err("models.ambiguous"));
    check(&["q4/x.gguf", "q8/x.gguf"], Some("q8/x.gguf"), Ok(&["q8/x.gguf>x.gguf"]));
    check(&["config.json", "model.safetensors", "x.gguf"], Some("x.gguf"), Ok(&["x.gguf>x.gguf"]));
    check(&["x.gguf"], Some("z.gguf"), Err("models.file-absent"));
    check(&["README.md", "config.json"], None, Err("models.no-model"));
    check(&[], None, Err("models.no-model"));
    check(
        &["a/config.json", "a/m.safetensors", "b/config.json", "b/m.safetensors"],
        None,
        Err("models.ambiguous"),
    );
    check(&["x-00001-of-00002.gguf"], None, Err("models.gguf-shards"));
}

#[test]
fn parts_are_joined_in_order_and_without_a_gap() {
    let parts = ["p2/m.gguf.part01", "p1/m.gguf.part00", "p3/m.gguf.part02"];
    let joined = ["p1/m.gguf.part00>m.gguf", "p2/m.gguf.part01>m.gguf", "p3/m.gguf.part02>m.gguf"];
    check(&parts, None, Ok(&joined));
    check(&parts, Some("m.gguf"), Ok(&joined));
    check(&["m.gguf.part1", "m.gguf.part2"], None, Ok(&["m.gguf.part1>m.gguf", "m.gguf.part2>m.gguf"]));
    check(&["m.gguf.part9", "m.gguf.part10"], None, Err("models.parts"));
    check(&["m.gguf.part00", "m.gguf.part02"], None, Err("models.parts"));
    check(&["m.gguf.part01", "n/m.gguf.part01"], None, Err("models.parts"));
    check(&["m.gguf.part", "m.gguf.partx", "m.bin.part00"], None, Err("models.no-model"));
}
