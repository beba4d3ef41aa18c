//! Which plugin a profile names: narrowed by id, kind, version, runtime and digest, one must be left.

use host_plugins::Kind;

use crate::nearest::nearest;
use crate::profile::PluginRef;
use crate::refusal::Fault;
use crate::registry::PluginFacts;

/// Narrows the plugins step by step; `Err` names the key of the profile that none of them satisfies.
pub(crate) fn select_plugin<'a>(
    wanted: &PluginRef,
    kind: Kind,
    plugins: &'a [PluginFacts],
) -> Result<&'a PluginFacts, (&'static str, Fault)> {
    let plugin = wanted.plugin.clone();
    let titles = |plugins: &[&PluginFacts]| plugins.iter().map(|plugin| plugin.title()).collect::<Vec<_>>();
    let builds = |plugins: &[&PluginFacts]| {
        plugins.iter().map(|plugin| format!("{} {}", plugin.title(), plugin.digest)).collect::<Vec<_>>()
    };
    let named: Vec<&PluginFacts> = plugins.iter().filter(|known| known.id == plugin).collect();
    let Some(first) = named.first() else {
        let known: Vec<&PluginFacts> = plugins.iter().collect();
        let near = nearest(&plugin, plugins.iter().map(|plugin| plugin.id.as_str()));
        return Err(("plugin", Fault::PluginMissing { plugin, nearest: near, known: titles(&known) }));
    };
    let of_kind = keep(&named, |known| known.kind == kind);
    if of_kind.is_empty() {
        return Err((
            "plugin",
            Fault::PluginKind { plugin, expected: kind.name(), found: first.kind.name() },
        ));
    }
    let in_range = keep(&of_kind, |known| wanted.version.matches(&known.version));
    if in_range.is_empty() {
        let range = wanted.version.to_string();
        return Err(("version", Fault::PluginVersion { plugin, range, found: titles(&of_kind) }));
    }
    let of_runtime = keep(&in_range, |known| {
        wanted.runtime.as_ref().is_none_or(|runtime| known.runtime.name() == runtime)
    });
    if of_runtime.is_empty() {
        let runtime = wanted.runtime.clone().unwrap_or_default();
        return Err(("runtime", Fault::PluginRuntime { plugin, runtime, found: titles(&in_range) }));
    }
    let pinned = keep(&of_runtime, |known| wanted.digest.is_none_or(|digest| known.digest == digest));
    match (pinned.as_slice(), wanted.digest) {
        ([one], _) => Ok(one),
        ([], Some(expected)) => {
            Err(("digest", Fault::PluginDigest { plugin, expected, found: builds(&of_runtime) }))
        }
        _ => Err(("version", Fault::PluginAmbiguous { plugin, found: builds(&pinned) })),
    }
}

fn keep<'a>(plugins: &[&'a PluginFacts], holds: impl Fn(&PluginFacts) -> bool) -> Vec<&'a PluginFacts> {
    plugins.iter().copied().filter(|plugin| holds(plugin)).collect()
}
