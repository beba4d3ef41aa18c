//! A pipeline's sources, read once: a run looks at no file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use host_core::Place;

use super::PipelineError;

/// A script is read by people.
const SOURCE_BYTES: u64 = 1 << 20;
/// Modules of one pipeline.
const MODULES: usize = 256;
/// Files and folders that are looked at to find them.
const ENTRIES: usize = 10_000;
/// Folders below the pipeline's.
const DEPTH: usize = 8;
/// Beyond this Lua's messages cut the name.
const NAME_BYTES: usize = 200;

/// One source and the name that errors give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// As the user named the file.
    pub name: String,
    /// The text.
    pub text: String,
}

/// A pipeline and the modules that it may require.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSource {
    main: Script,
    /// By the name that `require` takes: `steps/rank`.
    modules: BTreeMap<String, Script>,
}

impl PipelineSource {
    /// A pipeline from texts. A name stands for one script only.
    pub fn new(main: Script, modules: BTreeMap<String, Script>) -> Self {
        PipelineSource { main, modules }
    }

    /// Reads a script and, where it speaks of `require`, every `.lua` and `.luau` file of its folder.
    ///
    /// Links are not followed, and names that `require` cannot spell are passed by.
    ///
    /// # Errors
    /// [`PipelineError::Read`], [`PipelineError::Source`].
    pub fn read(path: &Path) -> Result<Self, PipelineError> {
        let main = script(path)?;
        let mut modules = BTreeMap::new();
        if main.text.contains("require") {
            let folder = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            };
            Walk { main: path, n_entries: 0, modules: &mut modules }.folder(&folder, "", 0)?;
        }
        Ok(PipelineSource { main, modules })
    }

    /// The script with `main`.
    pub fn main(&self) -> &Script {
        &self.main
    }

    /// A module, by the name that `require` takes.
    pub fn module(&self, name: &str) -> Option<&Script> {
        self.modules.get(name)
    }

    /// The names that `require` takes.
    pub fn module_names(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Whether errors give one of the scripts this name.
    pub fn has_script(&self, name: &str) -> bool {
        self.scripts().any(|script| script.name == name)
    }

    /// A line of a script, with its text; `None` for a name that no script has.
    pub fn place(&self, name: &str, line: u32) -> Option<Box<Place>> {
        let script = self.scripts().find(|script| script.name == name)?;
        let excerpt = (line as usize).checked_sub(1).and_then(|i| script.text.lines().nth(i));
        let (file, excerpt) = (name.to_owned(), excerpt.map(str::to_owned));
        Some(Box::new(Place { file, line: Some(line), column: None, excerpt, width: 0 }))
    }

    fn scripts(&self) -> impl Iterator<Item = &Script> {
        std::iter::once(&self.main).chain(self.modules.values())
    }

    /// Whether `require` could spell the name: words of `[a-z0-9_]` with single slashes between.
    pub fn is_module_name(name: &str) -> bool {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        name.split('/').all(is_word)
    }
}

fn script(path: &Path) -> Result<Script, PipelineError> {
    let refused = |message: String, expected: String| PipelineError::Source {
        path: path.to_owned(),
        message,
        expected,
    };
    let read =
        |error: std::io::Error| PipelineError::Read { path: path.to_owned(), message: error.to_string() };
    let found = fs::metadata(path).map_err(read)?.len();
    if found > SOURCE_BYTES {
        return Err(refused(format!("{found} bytes"), format!("a script of at most {SOURCE_BYTES} bytes")));
    }
    let text = String::from_utf8(fs::read(path).map_err(read)?)
        .map_err(|error| refused(error.to_string(), "UTF-8 text".to_owned()))?;
    Ok(Script { name: shown(path), text })
}

/// The path as it was given, or its last part where Lua would cut it.
fn shown(path: &Path) -> String {
    let whole = path.display().to_string();
    if whole.len() <= NAME_BYTES && !whole.contains(['\n', ':']) {
        return whole;
    }
    let last = path.file_name().map(|name| name.to_string_lossy().replace(['\n', ':'], "_"));
    last.unwrap_or_default().chars().take(NAME_BYTES / 4).collect()
}

struct Walk<'a> {
    main: &'a Path,
    n_entries: usize,
    modules: &'a mut BTreeMap<String, Script>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), PipelineError> {
        let read = |error: std::io::Error| PipelineError::Read {
            path: folder.to_owned(),
            message: error.to_string(),
        };
        let too_much = || PipelineError::Source {
            path: folder.to_owned(),
            message: "too much lies in the pipeline's folder".to_owned(),
            expected: format!("a folder of its own, with at most {MODULES} modules and {ENTRIES} entries"),
        };
        for entry in fs::read_dir(folder).map_err(read)? {
            let entry = entry.map_err(read)?;
            self.n_entries += 1;
            if self.n_entries > ENTRIES || self.modules.len() > MODULES {
                return Err(too_much());
            }
            let (path, kind) = (entry.path(), entry.file_type().map_err(read)?);
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let name = format!("{prefix}{stem}");
            let is_main = depth == 0 && path.file_name() == self.main.file_name();
            if !PipelineSource::is_module_name(&name) || is_main {
                continue;
            }
            if kind.is_dir() && path.extension().is_none() && depth < DEPTH {
                self.folder(&path, &format!("{name}/"), depth + 1)?;
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "lua" || end == "luau") {
                let script = script(&path)?;
                if let Some(other) = self.modules.get(&name) {
                    return Err(PipelineError::Source {
                        message: format!("`{}` is the same module", other.name),
                        expected: "one file a module".to_owned(),
                        path,
                    });
                }
                self.modules.insert(name, script);
            }
        }
        Ok(())
    }
}
