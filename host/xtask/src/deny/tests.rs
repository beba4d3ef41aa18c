use super::*;

const HOME: &str = "registry+https://registry.example/index";

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let allows =
        |id: &str| matches!(id, "MIT" | "Apache-2.0" | "BSD-3-Clause" | "Apache-2.0 WITH LLVM-exception");
    let cases = [
        ("MIT", Some(true)),
        ("GPL-3.0", Some(false)),
        ("MIT OR GPL-3.0", Some(true)),
        ("MIT AND GPL-3.0", Some(false)),
        ("MIT/Apache-2.0", Some(true)),
        ("GPL-3.0 / GPL-2.0", Some(false)),
        ("(GPL-3.0 OR MIT) AND BSD-3-Clause", Some(true)),
        ("GPL-3.0 OR MIT AND BSD-3-Clause", Some(true)),
        ("GPL-3.0 AND MIT OR BSD-3-Clause", Some(true)),
        ("GPL-3.0 AND (MIT OR BSD-3-Clause)", Some(false)),
        ("Apache-2.0 WITH LLVM-exception", Some(true)),
        ("MIT WITH LLVM-exception", Some(false)),
        ("", None),
        ("MIT MIT", None),
        ("MIT OR", None),
        ("(MIT", None),
        ("MIT)", None),
        ("OR MIT", None),
    ];
    for (expression, expected) in cases {
        assert_eq!(licence::is_allowed(expression, &allows), expected, "{expression}");
    }
}

const RULES: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["MIT"]
exceptions = [{ crate = "weak", allow = ["MPL-2.0"] }]
[bans]
skip = [{ crate = "old@0.1", reason = "needed by another" }]
"#;

fn check(packages: &[(&str, &str, &str, &str)], expected: &[&str]) {
    let rules = Rules::read(&RULES.parse().unwrap()).unwrap();
    let package = |&(name, version, licence, source): &(&str, &str, &str, &str)| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: (!licence.is_empty()).then(|| licence.to_owned()),
        source: source.to_owned(),
    };
    assert_eq!(rules.check(&packages.iter().map(package).collect()), expected);
}

#[test]
fn each_rule_has_its_fault() {
    let old = ("old", "0.1.7", "MIT", HOME);
    check(&[old, ("old", "0.2.0", "MIT", HOME), ("weak", "1.0.0", "MPL-2.0", HOME)], &[]);
    check(&[old, ("a", "1.0.0", "GPL-3.0", HOME)], &["licence: a 1.0.0 is under `GPL-3.0`"]);
    check(&[old, ("a", "1.0.0", "", HOME)], &["licence: a 1.0.0 names none"]);
    check(
        &[old, ("a", "1.0.0", "MIT", "git+https://example.org")],
        &["source: a comes from git+https://example.org"],
    );
    let twice = [old, ("a", "1.0.0", "MIT", HOME), ("a", "2.0.0", "MIT", HOME)];
    check(&twice, &["duplicate: a 1.0.0 and 2.0.0"]);
    check(&[("old", "0.10.0", "MIT", HOME)], &["deny.toml: nothing is old@0.1 any more"]);
}

#[test]
fn only_what_a_target_needs_is_read() {
    let metadata = serde_json::json!({
        "resolve": { "nodes": [{ "id": "a" }, { "id": "own" }] },
        "packages": [
            { "id": "a", "name": "a", "version": "1.0.0", "license": "MIT", "source": HOME },
            { "id": "b", "name": "b", "version": "1.0.0", "license": "MIT", "source": HOME },
            { "id": "own", "name": "own", "version": "0.1.0", "license": null, "source": null },
        ],
    });
    let names: Vec<String> =
        read_metadata(&metadata).unwrap().into_iter().map(|package| package.name).collect();
    assert_eq!(names, ["a"]);
    assert!(read_metadata(&serde_json::json!({})).is_err());
}
