use std::sync::mpsc;
use std::thread;

use super::*;
use crate::fixtures::{Log, code, sha256, store, write_wheel};

/// A cached source as if it had been fetched.
fn cached(store: &ModelStore, text: &str, files: &[(&str, &[u8])]) -> ModelSource {
    let source: ModelSource = text.parse().unwrap();
    let slot = store.slot(&source);
    fs::create_dir_all(slot.partial.join(MODEL)).unwrap();
    for (name, data) in files {
        fs::write(slot.partial.join(MODEL).join(name), data).unwrap();
    }
    let names = files.iter().map(|(name, _)| name.to_string()).collect();
    let staged = Staged { names, main: Some(files[0].0.to_owned()), ..Staged::default() };
    let records = verify(&source, &slot.partial.join(MODEL), &staged, &Pins::NONE, &mut ()).unwrap();
    slot.publish(&source, staged, records).unwrap();
    source
}

#[test]
fn a_cached_model_is_opened_by_sizes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let source = cached(&store, "pip:m==1", &[("m.gguf", b"weights")]);
    let model = store.fetch(&source, &Pins::NONE, &mut ()).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), b"weights");
    assert_eq!(model.size_bytes(), 7);
    assert_eq!(model.files[0].sha256.as_deref(), Some(sha256(b"weights").as_str()));
    // Another content of the same size: a look at sizes does not see it, by design.
    fs::write(&model.path, b"WEIGHTS").unwrap();
    assert!(store.get(&source).unwrap().is_some());
    fs::write(&model.path, b"weight").unwrap();
    assert_eq!(code(store.get(&source)), "models.altered");
    fs::remove_file(&model.path).unwrap();
    assert_eq!(code(store.fetch(&source, &Pins::NONE, &mut ())), "models.altered");
}

#[test]
fn pins_are_compared_with_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let source = cached(&store, "pip:m==1", &[("m.gguf", b"weights")]);
    let pins = |file: &str, sha256: String| Pins::new([(file, sha256)]).unwrap();
    assert!(store.fetch(&source, &pins("m.gguf", sha256(b"weights").to_uppercase()), &mut ()).is_ok());
    assert_eq!(code(store.fetch(&source, &pins("m.gguf", sha256(b"others")), &mut ())), "models.checksum");
    assert_eq!(
        code(store.fetch(&source, &pins("n.gguf", sha256(b"weights")), &mut ())),
        "models.pin-unknown"
    );
    assert_eq!(code(Pins::new([("m.gguf", "abc")])), "models.pin-form");
    assert_eq!(code(Pins::new([("a", sha256(b"1")), ("a", sha256(b"2"))])), "models.pin-form");
}

#[test]
fn local_models_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("cache"));
    let gguf = folder.path().join("m.gguf");
    fs::write(&gguf, b"weights").unwrap();
    let source = ModelSource::GgufFile(gguf.clone());
    let model = store.fetch(&source, &Pins::NONE, &mut ()).unwrap();
    assert_eq!((model.path, model.files[0].sha256.clone()), (gguf.clone(), None));
    let right = Pins::new([("m.gguf", sha256(b"weights"))]).unwrap();
    assert!(store.fetch(&source, &right, &mut ()).unwrap().files[0].sha256.is_some());
    let wrong = Pins::new([("m.gguf", sha256(b"others"))]).unwrap();
    assert_eq!(code(store.fetch(&source, &wrong, &mut ())), "models.checksum");
    assert!(gguf.exists(), "a user's own file is never deleted");
    let absent = Pins::new([("n.gguf", sha256(b"others"))]).unwrap();
    assert_eq!(code(store.fetch(&source, &absent, &mut ())), "models.pin-unknown");
    assert!(!folder.path().join("cache").exists());
}

#[test]
fn a_local_folder_needs_its_config_and_weights() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("cache"));
    let model = folder.path().join("model");
    let source = ModelSource::Folder(model.clone());
    let fetch = || store.fetch(&source, &Pins::NONE, &mut ());
    assert_eq!(code(fetch()), "models.absent");
    fs::create_dir(&model).unwrap();
    assert_eq!(code(fetch()), "models.not-a-model-folder");
    fs::write(model.join("config.json"), b"{}").unwrap();
    assert_eq!(code(fetch()), "models.not-a-model-folder");
    fs::write(model.join("model.safetensors"), b"w").unwrap();
    fs::write(model.join("notes.txt"), b"n").unwrap();
    let names: Vec<String> = fetch().unwrap().files.into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["config.json", "model.safetensors"]);
    let file = ModelSource::GgufFile(model.join("x.gguf"));
    assert_eq!(code(store.fetch(&file, &Pins::NONE, &mut ())), "models.absent");
}

#[test]
fn the_mend_of_an_absent_folder_knows_the_hub() {
    use host_core::Reported;
    let folder = tempfile::tempdir().unwrap();
    let source: ModelSource = "HuggingFaceTB/SmolLM2".parse().unwrap();
    let error = store(folder.path()).fetch(&source, &Pins::NONE, &mut ()).unwrap_err();
    let mend = error.report().mend.unwrap();
    assert_eq!(mend, "check the path; for a repository of the hub write `hf:HuggingFaceTB/SmolLM2`");
}

#[test]
fn listing_and_removing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    assert_eq!(store.list().unwrap().models, []);
    let b = cached(&store, "pip:b==1", &[("b.gguf", b"bb")]);
    let a = cached(&store, "pip:a==1", &[("a.gguf", b"aaa")]);
    let damaged = cached(&store, "pip:c==1", &[("c.gguf", b"c")]);
    fs::write(store.slot(&damaged).folder.join("source.json"), "{").unwrap();
    fs::create_dir_all(store.folder().join("pip+d==1+000000000000.partial/model")).unwrap();
    let listing = store.list().unwrap();
    let sources: Vec<&ModelSource> = listing.models.iter().map(|model| &model.source).collect();
    assert_eq!(sources, [&a, &b]);
    assert_eq!(listing.damaged.len(), 1);
    assert!(store.remove(&a).unwrap() >= 3);
    assert_eq!(code(store.remove(&a)), "models.not-fetched");
    assert!(store.remove(&damaged).is_ok(), "a damaged model can be removed");
    assert_eq!(code(store.remove(&ModelSource::GgufFile("x.gguf".into()))), "models.not-cached");
    assert_eq!(store.list().unwrap().models.len(), 1);
}

#[test]
fn a_damaged_record_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let source = cached(&store, "pip:m==1", &[("m.gguf", b"weights")]);
    let path = store.slot(&source).folder.join("source.json");
    let sound = fs::read_to_string(&path).unwrap();
    assert!(sound.contains("\"source\": \"pip:m==1\""), "{sound}");
    let damages: [(&str, &str); 7] = [
        ("\"schema\": 1", "\"schema\": 2"),
        ("\"source\": \"pip:m==1\"", "\"source\": \"pip:m==2\""),
        ("\"source\": \"pip:m==1\"", "\"source\": \"nothing\""),
        ("\"name\": \"m.gguf\"", "\"name\": \"../m.gguf\""),
        ("\"main\": \"m.gguf\"", "\"main\": \"../../x\""),
        ("\"main\"", "\"other\""),
        ("\"sha256\": \"", "\"sha256\": \"zz"),
    ];
    for (from, to) in damages {
        let damaged = sound.replace(from, to);
        assert_ne!(damaged, sound, "{from}");
        fs::write(&path, damaged).unwrap();
        assert_eq!(code(store.get(&source)), "models.record", "{from} -> {to}");
    }
}

#[test]
fn a_second_process_waits_and_then_finds_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let source: ModelSource = "pip:m==1".parse().unwrap();
    let held = store.slot(&source).lock(&mut ()).unwrap();
    let (started, waits) = mpsc::channel();
    let waiting = thread::spawn({
        let (store, source) = (store.clone(), source.clone());
        move || {
            struct Tell(mpsc::Sender<Step>);
            impl Progress for Tell {
                fn begin(&mut self, step: &Step, _: Option<u64>) {
                    self.0.send(step.clone()).unwrap();
                }
                fn total(&mut self, _: u64) {}
                fn advance(&mut self, _: u64) {}
                fn end(&mut self) {}
            }
            store.fetch(&source, &Pins::NONE, &mut Tell(started))
        }
    });
    assert_eq!(waits.recv_timeout(Duration::from_secs(30)).unwrap(), Step::Waiting);
    cached(&store, "pip:m==1", &[("m.gguf", b"weights")]);
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap().size_bytes(), 7);
}

#[test]
fn settings_come_from_flag_then_variable_then_platform() {
    let read = |cache: Option<&str>, variables: &[(&str, &str)]| {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        Settings::from_variables(cache.map(PathBuf::from), find)
    };
    assert_eq!(read(Some("/a"), &[("TENON_CACHE", "/b")]).unwrap().cache, PathBuf::from("/a"));
    assert_eq!(read(None, &[("TENON_CACHE", "/b")]).unwrap().cache, PathBuf::from("/b"));
    assert!(read(None, &[]).unwrap().cache.ends_with("tenon") || cfg!(windows));
    assert_eq!(read(None, &[("TENON_PYTHON", "py")]).unwrap().python, "py");
    let hub = read(None, &[("HF_ENDPOINT", "http://h/"), ("HF_TOKEN", " t\n")]).unwrap();
    assert_eq!((hub.hub_endpoint.as_str(), hub.hub_token.as_deref()), ("http://h", Some("t")));
    assert!(!format!("{hub:?}").contains("\"t\""), "the token is never shown");
    for name in ["TENON_CACHE", "TENON_PYTHON", "HF_ENDPOINT", "HF_TOKEN"] {
        assert_eq!(code(read(None, &[(name, " ")])), "models.variable", "{name}");
    }
    assert_eq!(code(read(None, &[("HF_ENDPOINT", "ftp://h")])), "models.variable");
}

#[test]
fn folder_names_are_readable_and_apart() {
    let long = format!("pip:{}==1", "a".repeat(300));
    for text in ["hf:a/b", "hf:a/b:x.gguf", "pip:a==1", &long] {
        let slug = slug(text);
        assert!(slug.len() < 100 && !slug.contains(['/', ':', '\\']), "{slug}");
    }
    assert!(slug("hf:a/b").starts_with("hf+a+b+"));
    assert_ne!(slug("hf:a/b"), slug("hf:a+b"));
    assert_ne!(slug(&long), slug(&format!("{long}+b==1")));
}

#[test]
fn a_full_disk_and_a_forbidden_folder_have_their_own_words() {
    let full = ModelsError::io("write", Path::new("/x"), std::io::ErrorKind::StorageFull.into());
    assert_eq!(code(Err::<(), _>(full)), "models.disk-full");
    let quota = ModelsError::io("write", Path::new("/x"), std::io::ErrorKind::QuotaExceeded.into());
    assert_eq!(code(Err::<(), _>(quota)), "models.disk-full");
    // The cache folder is a file: it cannot be made.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let outcome = store(&file).fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ());
    assert_eq!(code(outcome), "models.io");
}

#[test]
fn hashing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_wheel(&folder.path().join("x"), &[]);
    fs::write(&path, vec![1; (1 << 20) + 5]).unwrap();
    let mut log = Log::default();
    let record = files::hash(&path, "x", &mut log).unwrap();
    assert_eq!(record.size_bytes, (1 << 20) + 5);
    assert_eq!(
        log.0,
        ["begin Verifying { name: \"x\" } Some(1048581)", "advance 1048576", "advance 1048581", "end"]
    );
}
