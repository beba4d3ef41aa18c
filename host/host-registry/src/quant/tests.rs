//! Rules are read strictly, and the first that matches decides.

use host_core::quant::{QuantProfile, Role, Scheme, TensorFacts};
use host_core::{DType, Reported};

use super::*;

const HEAD: &str = "schema = 1\nid = \"mine\"\nabout = \"a test\"\n";

fn rules(text: &str) -> QuantRules {
    QuantRules::parse("mine.toml", &format!("{HEAD}{text}"))
        .unwrap_or_else(|error| panic!("{}", error.report()))
}

fn tensor(name: &str, role: Role, layer: Option<usize>) -> TensorFacts {
    TensorFacts { role, layer, ..TensorFacts::unused(name.to_owned(), vec![8, 128], DType::F16) }
}

fn model() -> Vec<TensorFacts> {
    vec![
        tensor("model.embed_tokens.weight", Role::Embedding, None),
        tensor("model.layers.0.self_attn.q_proj.weight", Role::AttentionQ, Some(0)),
        tensor("model.layers.0.mlp.down_proj.weight", Role::MlpDown, Some(0)),
        tensor("model.layers.10.mlp.down_proj.weight", Role::MlpDown, Some(10)),
        tensor("model.norm.weight", Role::Norm, None),
    ]
}

#[test]
fn globs_match_whole_names() {
    let cases = [
        ("*", "", true),
        ("*", "a.b", true),
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("*b", "ba", false),
        ("a*b*c", "a.b.b.c", true),
        ("a*b*c", "a.c.b", false),
        ("?.w", "1.w", true),
        ("?.w", "12.w", false),
        ("model.layers.*.mlp.*_proj.weight", "model.layers.12.mlp.down_proj.weight", true),
        ("model.layers.*.mlp.*_proj.weight", "model.layers.12.self_attn.q_proj.weight", false),
        ("**", "x", true),
        ("", "x", false),
        ("*é?", "caféé", true),
    ];
    for (glob, name, expected) in cases {
        assert_eq!(glob::matches(glob, name), expected, "{glob} {name}");
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules(
        "[[rule]]\nmatch = \"*.down_proj.weight\"\nlayers = \"8..\"\nscheme = \"mxfp8\"\n\
         [[rule]]\nmatch = \"*\"\nrole = [\"mlp-down\", \"attention-q\"]\nscheme = { bits = 3, group_size = 128 }\n\
         [[rule]]\nmatch = \"*embed*\"\nscheme = \"nvfp4\"\nmeasured = { bits = 3, kl = 0.5 }\n\
         [[rule]]\nmatch = \"*\"\nscheme = \"keep\"\n",
    );
    let three = Scheme::Affine { bits: 3, group_size: 128 };
    let expected = vec![Scheme::Nvfp4, three, three, Scheme::Mxfp8, Scheme::Keep];
    assert_eq!(rules.plan(&model()), Ok(expected));
}

#[test]
fn what_the_rules_do_not_say_is_refused_at_its_place() {
    let keep = "[[rule]]\nmatch = \"*\"\nscheme = \"keep\"\n";
    let cases = [
        (
            "[[rule]]\nmatch = \"model.layers.*\"\nscheme = \"keep\"\n",
            "quant.unmatched-tensor",
            "model.embed_tokens.weight",
        ),
        (
            &format!("[[rule]]\nmatch = \"lm_head*\"\nscheme = \"keep\"\n{keep}"),
            "quant.idle-rule",
            "mine.toml:4",
        ),
        (
            &format!("{keep}[[rule]]\nmatch = \"*norm*\"\nscheme = \"keep\"\n"),
            "quant.idle-rule",
            "mine.toml:7",
        ),
        ("[[rule]]\nmatch = \"*\"\nscheme = { bits = 4, group_size = 64 }\n", "ok", ""),
    ];
    for (text, code, part) in cases {
        match rules(text).plan(&model()) {
            Ok(_) => assert_eq!(code, "ok", "{text}"),
            Err(report) => {
                assert_eq!(report.code, code, "{report}");
                assert!(report.message.contains(part), "{report}");
            }
        }
    }
    let odd = TensorFacts::unused("odd.weight".to_owned(), vec![4, 96], DType::F32);
    let text = "[[rule]]\nmatch = \"*\"\nscheme = { bits = 4, group_size = 64 }\n";
    let report = rules(text).plan(&[odd]).expect_err("a refusal");
    assert_eq!(report.code, "quant.indivisible");
    assert!(report.message.contains("mine.toml:4") && report.message.contains("odd.weight"), "{report}");
}

#[test]
fn a_text_that_is_no_rules_is_refused_at_its_line() {
    let rule = |text: &str| format!("{HEAD}[[rule]]\n{text}\n");
    let cases = [
        ("schema = 2\n".to_owned(), "profile.schema-version", 1),
        // What the whole text lacks is told at its start.
        (HEAD.to_owned(), "profile.missing-key", 1),
        (rule("match = \"*\""), "profile.missing-key", 4),
        (rule("match = \"*\"\nscheme = \"kep\""), "profile.type", 6),
        (rule("match = \"*\"\nscheme = { bits = 7, group_size = 64 }"), "profile.type", 6),
        (rule("match = \"*\"\nscheme = { bits = 4, group_size = 48 }"), "profile.type", 6),
        (rule("match = \"*\"\nscheme = { bits = 4 }"), "profile.missing-key", 6),
        (
            rule("match = \"*\"\nscheme = { bits = 4, group_size = 64, mode = \"x\" }"),
            "profile.unknown-key",
            6,
        ),
        (rule("match = \"*\"\nlayers = \"4..2\"\nscheme = \"keep\""), "profile.type", 6),
        (rule("match = \"*\"\nlayers = \"..\"\nscheme = \"keep\""), "profile.type", 6),
        (rule("match = \"*\"\nlayers = \"3\"\nscheme = \"keep\""), "profile.type", 6),
        (rule("match = \"*\"\nrole = \"mlp\"\nscheme = \"keep\""), "profile.type", 6),
        (rule("match = \"*\"\nrole = []\nscheme = \"keep\""), "profile.type", 6),
        (rule("mach = \"*\"\nscheme = \"keep\""), "profile.unknown-key", 5),
        (rule("match = \"*\"\nscheme = \"keep\"").replace("mine", "Mine"), "profile.value", 2),
    ];
    for (text, code, line) in cases {
        let error = QuantRules::parse("mine.toml", &text).expect_err(&text);
        let report = error.report();
        assert_eq!(report.code, code, "{text}\n{report}");
        let found = report.place.and_then(|place| place.line).unwrap_or(0);
        assert_eq!(found, line, "{text}\n{}", error.report());
    }
    let seven =
        QuantRules::parse("mine.toml", &rule("match = \"*\"\nscheme = { bits = 7, group_size = 64 }"));
    let text = seven.expect_err("MLX has no 7 bits").report().to_string();
    assert!(text.contains("no affine codes of 7 bits") && text.contains("[2, 3, 4, 5, 6, 8]"), "{text}");
}

#[test]
fn measured_rules_are_read_back() {
    let rule = |name: &str, scheme| QuantRule {
        match_: name.to_owned(),
        role: Some(Roles(vec![Role::MlpUp, Role::MlpDown])),
        layers: Some(LayerRange::one(3)),
        scheme: SchemeText(scheme),
        measured: Some(Measured { bits: 3, kl: 0.012_5 }),
    };
    let written = [rule("*", Scheme::Affine { bits: 5, group_size: 32 }), rule("a \"b\"", Scheme::Mxfp4)];
    let text = rules_text("m", "about", &["a note".to_owned()], &written);
    let read =
        QuantRules::parse("m.toml", &text).unwrap_or_else(|error| panic!("{text}\n{}", error.report()));
    assert_eq!(read.rules().cloned().collect::<Vec<_>>(), written);
    assert!(text.starts_with("# a note\nschema = 1\n"), "{text}");
}

#[test]
fn the_shipped_rules_are_sound() {
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles");
    let set = QuantSet::load(&[profiles]).unwrap_or_else(|errors| panic!("{errors:?}"));
    let ids: Vec<_> = set.iter().map(|rules| rules.id().to_owned()).collect();
    assert_eq!(ids, ["uniform-4bit", "uniform-8bit"]);
    let four = set.by_id("uniform-4bit").expect("shipped").plan(&model()).expect("a plan");
    let expected = Scheme::Affine { bits: 4, group_size: 64 };
    assert_eq!(four, [expected, expected, expected, expected, Scheme::Keep]);
    let unknown = set.by_id("uniform-5bit").expect_err("there is none");
    assert_eq!(unknown.report().code, "quant.unknown-rules");
}
