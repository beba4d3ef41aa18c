//! What tests of this crate share: stores in temporary folders, zip archives of any shape, a progress log.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

use crate::files;
use crate::progress::{Progress, Step};
use crate::store::{ModelStore, Settings};

/// Settings that reach nothing outside the folder.
pub(crate) fn settings(cache: &Path) -> Settings {
    Settings {
        cache: cache.to_path_buf(),
        python: "there-is-no-such-python".to_owned(),
        hub_endpoint: "http://127.0.0.1:9".to_owned(),
        hub_token: None,
        hub_retry_wait: Duration::from_millis(1),
    }
}

pub(crate) fn store(cache: &Path) -> ModelStore {
    ModelStore::with_settings(settings(cache))
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    files::hex(&Sha256::digest(bytes))
}

/// A short name of the error's kind: its code.
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, crate::ModelsError>) -> &'static str {
    use host_core::Reported;
    outcome.expect_err("an error was expected").report().code
}

/// Every call as one word with its numbers.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<String>);

impl Progress for Log {
    fn begin(&mut self, step: &Step, total_bytes: Option<u64>) {
        self.0.push(format!("begin {step:?} {total_bytes:?}"));
    }
    fn total(&mut self, total_bytes: u64) {
        self.0.push(format!("total {total_bytes}"));
    }
    fn advance(&mut self, done_bytes: u64) {
        self.0.push(format!("advance {done_bytes}"));
    }
    fn end(&mut self) {
        self.0.push("end".to_owned());
    }
}

/// A well-formed wheel with these members, deflated.
pub(crate) fn write_wheel(path: &Path, members: &[(&str, &[u8])]) -> PathBuf {
    let mut writer = zip::ZipWriter::new(File::create(path).unwrap());
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, data) in members {
        writer.start_file(*name, options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap();
    path.to_path_buf()
}

/// A member of a zip archive written byte by byte, so that it may lie.
pub(crate) struct RawMember<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) unix_mode: u32,
    pub(crate) flags: u16,
    pub(crate) declared_bytes: u32,
}

impl<'a> RawMember<'a> {
    pub(crate) fn plain(name: &'a str, data: &'a [u8]) -> RawMember<'a> {
        RawMember { name, data, unix_mode: 0o100_644, flags: 0, declared_bytes: data.len() as u32 }
    }
}

/// An archive of stored members, exactly as told.
pub(crate) fn raw_zip(members: &[RawMember]) -> Vec<u8> {
    let (mut body, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let offset = body.len() as u32;
        let mut common = Vec::new();
        put16(&mut common, &[20, member.flags, 0, 0, 0]);
        put32(&mut common, &[crc32(member.data), member.data.len() as u32, member.declared_bytes]);
        put16(&mut common, &[member.name.len() as u16, 0]);
        put32(&mut body, &[0x0403_4b50]);
        body.extend_from_slice(&common);
        body.extend_from_slice(member.name.as_bytes());
        body.extend_from_slice(member.data);
        put32(&mut directory, &[0x0201_4b50]);
        put16(&mut directory, &[(3 << 8) | 20]);
        directory.extend_from_slice(&common);
        put16(&mut directory, &[0, 0, 0]);
        put32(&mut directory, &[member.unix_mode << 16, offset]);
        directory.extend_from_slice(member.name.as_bytes());
    }
    let (start, size, count) = (body.len() as u32, directory.len() as u32, members.len() as u16);
    body.extend_from_slice(&directory);
    put32(&mut body, &[0x0605_4b50]);
    put16(&mut body, &[0, 0, count, count]);
    put32(&mut body, &[size, start]);
    put16(&mut body, &[0]);
    body
}

fn put16(out: &mut Vec<u8>, values: &[u16]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn put32(out: &mut Vec<u8>, values: &[u32]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    !data.iter().fold(!0, step)
}
