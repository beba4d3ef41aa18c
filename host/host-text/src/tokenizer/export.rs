//! A tokenizer as the files that `transformers` and other programs read.

use serde_json::{Map, Value, json};

use super::sentence_piece::SentencePiece;
use super::special::{Kind, SpecialTokens};
use super::{Model, Tokenizer};
use crate::TextError;

impl Tokenizer {
    /// This tokenizer as a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TextError::InvalidTokenizer`] when the pipeline cannot be written.
    pub fn to_tokenizer_json(&self) -> Result<String, TextError> {
        match &self.model {
            Model::Pipeline(pipeline) => pipeline
                .to_json()
                .map_err(|reason| TextError::InvalidTokenizer { from: "its parts".into(), reason }),
            Model::SentencePiece(pieces) => Ok(sentence_piece_json(pieces, &self.special).to_string()),
        }
    }

    /// The `tokenizer_config.json` that belongs to it: special tokens and chat templates.
    pub fn tokenizer_config_json(&self) -> String {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        config.insert("clean_up_tokenization_spaces".into(), false.into());
        config.insert("add_bos_token".into(), (!self.special.before.is_empty()).into());
        config.insert("add_eos_token".into(), (!self.special.after.is_empty()).into());
        config.extend(self.special.named.clone());
        match &self.templates[..] {
            [] => {}
            [(_, template)] => {
                config.insert("chat_template".into(), template.clone().into());
            }
            several => {
                let several =
                    several.iter().map(|(name, template)| json!({"name": name, "template": template}));
                config.insert("chat_template".into(), several.collect());
            }
        }
        format!("{:#}\n", Value::Object(config))
    }

    /// The `generation_config.json` that belongs to it: the tokens that start and end a generation.
    pub fn generation_config_json(&self) -> String {
        let mut config = Map::new();
        if let Some(bos) = self.bos_id() {
            config.insert("bos_token_id".into(), bos.into());
        }
        match self.stop_ids() {
            [] => {}
            [id] => {
                config.insert("eos_token_id".into(), (*id).into());
            }
            ids => {
                config.insert("eos_token_id".into(), ids.into());
            }
        }
        if let Some(pad) = &self.special.pad {
            config.insert("pad_token_id".into(), pad.id.into());
        }
        format!("{:#}\n", Value::Object(config))
    }
}

/// The post-processor that puts the prompt's first and last tokens around it, if it has any.
pub(super) fn template_processing(special: &SpecialTokens) -> Option<Value> {
    let named = |ids: &[u32], token: &Option<super::SpecialToken>| {
        token.iter().filter(|token| ids.contains(&token.id)).cloned().collect::<Vec<_>>()
    };
    let (before, after) = (named(&special.before, &special.bos), named(&special.after, &special.eos));
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let mark = |token: &super::SpecialToken, type_id: u32| json!({"SpecialToken": {"id": token.text, "type_id": type_id}});
    let sequence = |id: &str, type_id: u32| -> Vec<Value> {
        let text = json!({"Sequence": {"id": id, "type_id": type_id}});
        let before = before.iter().map(|token| mark(token, type_id));
        before.chain([text]).chain(after.iter().map(|token| mark(token, type_id))).collect()
    };
    let tokens: Map<String, Value> = before
        .iter()
        .chain(&after)
        .map(|token| {
            (token.text.clone(), json!({"id": token.text, "ids": [token.id], "tokens": [token.text]}))
        })
        .collect();
    Some(json!({
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": ([sequence("A", 0), sequence("B", 1)].concat()),
        "special_tokens": tokens,
    }))
}

fn sentence_piece_json(model: &SentencePiece, special: &SpecialTokens) -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(model),
        "normalizer": normalizer(model.adds_space_prefix()),
        "pre_tokenizer": null,
        "post_processor": template_processing(special),
        "decoder": decoder(model.adds_space_prefix()),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": special.unk.as_ref().map(|token| &token.text),
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": model.has_bytes(),
            "ignore_merges": false,
            "vocab": texts(model).map(|(id, text)| (text.to_owned(), id.into())).collect::<Map<String, Value>>(),
            "merges": merges(model),
        },
    })
}

/// Ids and texts; of pieces with the same text, the first.
fn texts(model: &SentencePiece) -> impl Iterator<Item = (u32, &str)> {
    let ids = 0..model.kinds.len() as u32;
    ids.filter_map(|id| Some((id, model.pieces.text(id)?)))
        .filter(|(id, text)| model.pieces.id(text) == Some(*id))
}

fn added_tokens(model: &SentencePiece) -> Value {
    let added = |(id, text): (u32, &str)| {
        let kind = model.kinds[id as usize];
        let is_added = matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined) && !text.is_empty();
        is_added.then(|| {
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": kind != Kind::UserDefined,
            })
        })
    };
    texts(model).filter_map(added).collect()
}

fn normalizer(adds_space_prefix: bool) -> Value {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    match adds_space_prefix {
        true => json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}),
        false => replace,
    }
}

fn decoder(strips_space: bool) -> Value {
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if strips_space {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": decoders})
}

/// Every way to make a piece of two others, in the order in which they are tried.
fn merges(model: &SentencePiece) -> Value {
    let is_spelled = |id: u32| matches!(model.kinds[id as usize], Kind::Normal | Kind::UserDefined);
    let is_part = |text: &str| model.pieces.id(text).is_some_and(is_spelled);
    let mut merges: Vec<(f32, usize, usize, &str, &str)> = Vec::new();
    for (id, text) in texts(model).filter(|(id, _)| is_spelled(*id)) {
        let n_characters = text.chars().count();
        for (n_left, (middle, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(middle);
            if is_part(left) && is_part(right) {
                merges.push((model.scores[id as usize], n_left, n_characters - n_left, left, right));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (b.1, b.2).cmp(&(a.1, a.2))));
    merges.into_iter().map(|(.., left, right)| json!([left, right])).collect()
}
