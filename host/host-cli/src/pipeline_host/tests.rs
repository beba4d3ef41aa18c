//! Two runs on one engine: neither waits for the other's script.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use host_lua::{LuaPipeline, PipelineOutcome, PipelineRun};
use host_plugins::pipeline::{PipelineBudget, PipelineError, PipelineSource, Script};
use host_service::Opened;

use super::*;
use crate::args::{ComposeArgs, FolderArgs, ModelArgs};
use crate::open::{load_host, open};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn told<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{:?}", failure.reports()))
}

/// A tiny model with plugins in Lua, which need no build.
fn model() -> impl Fn() -> EngineModel {
    let profiles = tempfile::tempdir().expect("a folder");
    let llama = fs::read_to_string(workspace().join("profiles/llama.toml")).expect("it is shipped");
    let llama = llama.replace("plugin = \"llama\"", "plugin = \"llama-lua\"");
    fs::write(profiles.path().join("llama.toml"), llama).expect("a file");
    let folders =
        FolderArgs { plugins: vec![workspace().join("plugins")], profiles: vec![profiles.path().to_owned()] };
    let host = Arc::new(told(load_host(&folders)));
    let source = workspace().join("tests/fixtures/tiny-mlx-q8-g64").display().to_string();
    let args = ModelArgs { model: Some(source.clone()), profile: None };
    let compose = ComposeArgs { threads: Some("1".parse().expect("a number")), ..ComposeArgs::default() };
    let Opened { composition, tokenizer, engine, .. } = told(open(&host, &args, &compose));
    let n_vocab = engine.executable().n_vocab();
    let driver = Arc::new(Driver::start(engine).expect("a thread"));
    move || EngineModel {
        host: Arc::clone(&host),
        names: vec![source.clone()],
        driver: Arc::clone(&driver),
        tokenizer: Arc::clone(&tokenizer),
        composition: composition.clone(),
        n_vocab,
        policy: None,
    }
}

fn run(
    model: EngineModel,
    text: &str,
    cancel: &Arc<AtomicBool>,
    mut emit: impl FnMut(&str) + Send + 'static,
) -> Result<PipelineOutcome, PipelineError> {
    let main = Script { name: "main.lua".to_owned(), text: text.to_owned() };
    let budget = PipelineBudget {
        burst_ms: 60_000,
        lua_ms: 60_000,
        wall_ms: 20_000,
        lua_memory_bytes: 16 << 20,
        host_calls: 100_000,
        tasks: 8,
        output_bytes: 1 << 20,
        log_bytes: 1 << 10,
    };
    LuaPipeline::open(PipelineSource::new(main, BTreeMap::new()))?.run(PipelineRun {
        host: Box::new(EngineHost::new(model, SamplingArgs { seed: Some(1), ..SamplingArgs::default() })),
        args: BTreeMap::new(),
        budget,
        cancel: Arc::clone(cancel),
        emit: Box::new(move |text| {
            emit(text);
            true
        }),
        log: Box::new(|_| ()),
    })
}

#[test]
fn a_script_that_computes_holds_up_nobody_elses_tokens() {
    let model = model();
    let quick = "function main()
        local tasks = {}
        for i = 1, 3 do tasks[i] = spawn(function() return model():generate('hello', { max_tokens = 60 }).text end) end
        local texts = join_all(tasks)
        return { texts[1], texts[2], texts[3] }
    end";
    let never = Arc::new(AtomicBool::new(false));
    let alone = run(model(), quick, &never, |_| ()).expect("a good script").value;
    // Its own generation runs in the same batch, and nobody takes its tokens.
    let busy = "function main()
        local stream = model():stream('hello', { max_tokens = 100 })
        emit('busy')
        while true do end
    end";
    let (begun, begins) = mpsc::channel();
    let cancel = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let begins_busy = model();
        let stop = &cancel;
        let slow =
            scope.spawn(move || run(begins_busy, busy, stop, move |text| drop(begun.send(text.to_owned()))));
        assert_eq!(begins.recv().as_deref(), Ok("busy"));
        let beside = run(model(), quick, &never, |_| ());
        let still_busy = !slow.is_finished();
        cancel.store(true, Ordering::Relaxed);
        let slow = slow.join().expect("no panic");
        assert_eq!(beside.expect("its tokens come").value, alone, "the same in company as alone");
        assert!(still_busy && matches!(slow, Err(PipelineError::Cancelled)), "{slow:?}");
    });
}
