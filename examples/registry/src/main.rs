//! A program with a registry of its own: everything that `tenon` has, and an implementation that makes models in the
//! program's own way. What a profile names is taken from it exactly, or refused with the reason.
//!
//! ```text
//! cargo run --release -p example-registry -- MODEL 5,9,3
//! ```
//!
//! MODEL is a Llama-like model: a folder with `config.json` and safetensors, or a GGUF file; the numbers are token ids.
//! The program tells what it decided and why, the next token, and then how four other wishes are refused.

mod counting;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use host_plugins::LogSink;
use host_registry::{
    Composition, Explanation, Implementation, Implementations, ModelFacts, Overrides, Parts, Registry,
};
use host_service::{
    Described, Failure, Folders, Host, Located, ModelName, NoProgress, OpenProgress, decide, describe,
    locate, source_of,
};

use counting::Counting;

/// The list of implementations: they make a [`counting::Counted`] of a model whose headers were read.
type Mine = Implementations<Described, counting::Counted>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let tokens =
        |text: String| text.split(',').map(|id| id.trim().parse().ok()).collect::<Option<Vec<u32>>>();
    let (Some(model), Some(Some(tokens))) = (arguments.next(), arguments.next().map(tokens)) else {
        eprintln!("usage: registry MODEL ID,ID,…");
        return ExitCode::from(2);
    };
    match run(&model, &tokens) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.reports().iter().for_each(|report| eprintln!("{report}"));
            ExitCode::FAILURE
        }
    }
}

fn run(model: &str, tokens: &[u32]) -> Result<(), Failure> {
    // Devices, loaders, caches, samplers and the plugins of a folder: what `tenon` has, over profiles of our own.
    let host = Arc::new(Host::load(folders(), LogSink::discard())?);
    let standard = host.registry();
    let mine = Mine::new(vec![version("1.4.0", &host), version("2.0.0", &host)])?;
    // A registry never changes; this is another one.
    let registry = standard.with(Parts { implementations: mine.facts(), ..Parts::default() })?;
    println!("of tenon     {}", titles(standard));
    println!("and ours     {}\n", titles(&registry));

    let located = open_config(&host, model)?;
    serve(&host, &registry, &mine, &located, tokens)?;
    refuse(&host, &registry, &located)?;
    refuse_twice(&host, &registry, &mine)
}

/// Chooses the profile, resolves it, tells the whole decision, and has the model made and asked.
fn serve(
    host: &Host,
    registry: &Registry,
    mine: &Mine,
    located: &Located,
    tokens: &[u32],
) -> Result<(), Failure> {
    let decision = decide(host, located, None)?;
    let explanation = Explanation::new("MODEL", located.format(), located.subject(), &decision);
    let profile = decision.chosen().map_err(Clone::clone)?;
    let composition = registry.resolve(profile, facts(located), &Overrides::default())?;
    print!("{}", explanation.with_composition(&composition));

    // Only now are headers and weights read, for the implementation that was resolved.
    let mut model = open(host, mine, located, &composition)?;
    println!("next token   {}", model.next(tokens)?);
    println!("counted      {} tokens in {} step\n", model.n_tokens(), model.n_steps());
    Ok(())
}

/// Opens what the composition needs and has its implementation make the model.
fn open(
    host: &Host,
    mine: &Mine,
    located: &Located,
    composition: &Composition,
) -> Result<counting::Counted, Failure> {
    mine.select(composition)?;
    let described = describe(host, located, composition)?;
    Ok(mine.create(composition, described)?)
}

/// Wishes that this registry does not meet, and one that only this registry meets.
fn refuse(host: &Host, registry: &Registry, located: &Located) -> Result<(), Failure> {
    for id in ["other-version", "other-build", "either"] {
        let profile = host.profiles().by_id(id)?;
        tell(id, registry.resolve(profile, facts(located), &Overrides::default()));
    }
    let profile = host.profiles().by_id("counting")?;
    tell("tenon alone", host.registry().resolve(profile, facts(located), &Overrides::default()));
    Ok(())
}

/// An id stands in each version once, whoever brings it.
fn refuse_twice(host: &Arc<Host>, registry: &Registry, mine: &Mine) -> Result<(), Failure> {
    tell("the same once more", mine.with(vec![version("1.4.0", host)]));
    let facts = version("2.0.0", host).facts();
    tell("the same in a registry", registry.with(Parts { implementations: vec![facts], ..Parts::default() }));
    // Neither of them grew.
    println!("and ours     {}", titles(registry));
    Ok(())
}

fn tell<T, E: host_core::Reported>(wish: &str, outcome: Result<T, E>) {
    match outcome {
        Ok(_) => println!("== {wish}: it is met\n"),
        Err(error) => println!("== {wish}\n{}\n", error.report()),
    }
}

fn version(version: &str, host: &Arc<Host>) -> Arc<dyn Implementation<Described, counting::Counted>> {
    Arc::new(Counting::new(version, host))
}

/// The implementations of a registry.
fn titles(registry: &Registry) -> String {
    let titles: Vec<String> = registry.parts().implementations.iter().map(|facts| facts.title()).collect();
    if titles.is_empty() { "no implementations".to_owned() } else { titles.join(", ") }
}

/// Where the model lies and what is known of it before a weight file is opened.
fn open_config(host: &Host, model: &str) -> Result<Located, Failure> {
    let source = source_of(host.profiles(), ModelName { model: Some(model), profile: None })?;
    locate(host.machine().store(), host.profiles(), &source, NoProgress::default().fetching())
}

fn facts(located: &Located) -> ModelFacts<'_> {
    let subject = located.subject();
    ModelFacts { config: subject.config, format: located.format(), identity: subject.identity }
}

/// The repository's plugins, those in Lua of which need no build, and the example's profiles.
fn folders() -> Folders {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Folders { plugins: vec![here.join("../../plugins")], profiles: vec![here.join("profiles")] }
}
