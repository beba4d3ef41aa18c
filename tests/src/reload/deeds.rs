//! What an operator, an editor and a bad day do to the folders. Each is followed by a sound state again.

use std::fs;
use std::thread;
use std::time::Duration;

use super::bed::{Bed, COMPONENT, component, component_manifest, forced, profile, profile_of_component};

/// One change of the folders; `n` makes it differ from the ones before.
pub struct Deed {
    /// For messages.
    pub name: &'static str,
    /// Whether a service must load what it leaves.
    pub is_good: bool,
    /// Does it.
    pub run: fn(&Bed, usize),
}

const SERVED: &str = "profiles/served.toml";
const PLUGIN: &str = "plugins/forced/forced.lua";

const WASM: &str = "plugins/forced-wasm/plugin.wasm";
const WASM_MANIFEST: &str = "plugins/forced-wasm/plugin.toml";

/// Tokens of the tiny model that are text: offsets are added to these.
fn token(n: usize) -> usize {
    20 + n % 150
}

fn offset(n: usize) -> usize {
    n % 50
}

/// All of them, in the order of a bad day.
pub const DEEDS: &[Deed] = &[
    good("a profile is renamed over", |bed, n| bed.replace(SERVED, &profile("served", token(n)))),
    bad("a profile is no TOML", |bed, n| bed.write(SERVED, &format!("schema = 1\nid = \"served\n# {n}"))),
    good("a profile is mended where it stands", |bed, n| bed.write(SERVED, &profile("served", token(n)))),
    good("a plugin is another one", |bed, n| bed.write(PLUGIN, &forced("sound", offset(n)))),
    bad("a policy never returns", |bed, n| bed.write(PLUGIN, &forced("slow", offset(n)))),
    good("a plugin is mended", |bed, n| bed.replace(PLUGIN, &forced("sound", offset(n)))),
    bad("a policy traps", |bed, n| bed.write(PLUGIN, &forced("traps", offset(n)))),
    good("a plugin is mended again", |bed, n| bed.replace(PLUGIN, &forced("sound", offset(n)))),
    good("a policy traps later than any check sees", |bed, n| {
        bed.write(PLUGIN, &forced("traps late", offset(n)));
    }),
    good("that plugin is mended", |bed, n| bed.replace(PLUGIN, &forced("sound", offset(n)))),
    bad("a key is misspelt", |bed, n| {
        bed.write(SERVED, &profile("served", token(n)).replace("max_sequences", "max_sequence"));
    }),
    good("a profile comes in two pieces", |bed, n| {
        let text = profile("served", token(n));
        bed.write(SERVED, &text[..text.len() / 2]);
        thread::sleep(Duration::from_millis(4));
        bed.write(SERVED, &text);
    }),
    bad("a profile is deleted", |bed, _| fs::remove_file(bed.path(SERVED)).expect("it was there")),
    good("a profile is made again", |bed, n| bed.write(SERVED, &profile("served", token(n)))),
    bad("a profile is renamed", |bed, _| {
        fs::rename(bed.path(SERVED), bed.path("profiles/away")).expect("it was there");
    }),
    good("a profile is renamed back", |bed, _| {
        fs::rename(bed.path("profiles/away"), bed.path(SERVED)).expect("it was there");
    }),
    bad("a script is cut", |bed, n| {
        let text = forced("sound", offset(n));
        bed.write(PLUGIN, &text[..text.len() - 20]);
    }),
    good("a script is whole", |bed, n| bed.write(PLUGIN, &forced("sound", offset(n)))),
    bad("a plugin's folder is gone", |bed, _| {
        fs::rename(bed.path("plugins/forced"), bed.path("forced-away")).expect("it was there");
    }),
    good("a plugin's folder is replaced", |bed, n| {
        fs::rename(bed.path("forced-away"), bed.path("plugins/forced")).expect("it was there");
        bed.write(PLUGIN, &forced("sound", offset(n)));
    }),
    bad("another plugin's manifest is cut", |bed, n| {
        bed.write("plugins/other-18/plugin.toml", &format!("id = \"other-18\"\n# {n}\n"));
    }),
    good("another plugin is whole", |bed, n| {
        let whole = fs::read_to_string(bed.path("plugins/other-17/plugin.toml")).expect("a manifest");
        bed.write(
            "plugins/other-18/plugin.toml",
            &format!("{}# {n}\n", whole.replace("other-17", "other-18")),
        );
    }),
    bad("another profile names a plugin that is not there", |bed, _| {
        bed.write("profiles/other-07.toml", &profile("other-07", 7).replace("\"forced\"", "\"forsed\""));
    }),
    good("another profile is mended", |bed, n| {
        bed.replace("profiles/other-07.toml", &profile("other-07", token(n)))
    }),
    bad("two profiles have one id", |bed, _| bed.write("profiles/twin.toml", &profile("served", 1))),
    good("the twin is gone", |bed, _| fs::remove_file(bed.path("profiles/twin.toml")).expect("it was there")),
    // The same with a component, which the served profile names from here on.
    good("a profile names a component", |bed, n| {
        bed.replace(SERVED, &profile_of_component("served", token(n)))
    }),
    good("a component is another one", |bed, n| bed.write(WASM, &component("sound", offset(n)))),
    bad("a component is cut", |bed, n| {
        let bytes = component("sound", offset(n));
        bed.write(WASM, &bytes[..bytes.len() / 2]);
    }),
    good("a component is whole", |bed, n| bed.write(WASM, &component("sound", offset(n)))),
    bad("a component traps", |bed, n| bed.write(WASM, &component("traps", offset(n)))),
    good("a component is mended", |bed, n| bed.replace(WASM, &component("sound", offset(n)))),
    bad("a component never returns", |bed, n| bed.write(WASM, &component("slow", offset(n)))),
    good("a component is mended again", |bed, n| bed.replace(WASM, &component("sound", offset(n)))),
    good("a component traps later than any check sees", |bed, n| {
        bed.replace(WASM, &component("traps late", offset(n)));
    }),
    good("that component is mended", |bed, n| bed.replace(WASM, &component("sound", offset(n)))),
    good("a component is another version", |bed, n| {
        bed.replace(WASM, &component("sound", offset(n)));
        bed.replace(WASM_MANIFEST, &component_manifest(&format!("1.{n}.0")));
    }),
    bad("a component is a version that no profile names", |bed, _| {
        bed.replace(WASM_MANIFEST, &component_manifest("2.0.0"));
    }),
    good("it is one that the profile names", |bed, _| {
        bed.replace(WASM_MANIFEST, &component_manifest("1.0.0"))
    }),
    bad("a component is deleted", |bed, _| fs::remove_file(bed.path(WASM)).expect("it was there")),
    good("a component is made again", |bed, n| bed.write(WASM, &component("sound", offset(n)))),
    bad("a component's folder is renamed", |bed, _| {
        fs::rename(bed.path(COMPONENT), bed.path("component-away")).expect("it was there");
    }),
    good("a component's folder is renamed back", |bed, _| {
        fs::rename(bed.path("component-away"), bed.path(COMPONENT)).expect("it was there");
    }),
    good("a profile names the script again", |bed, n| bed.replace(SERVED, &profile("served", token(n)))),
];

const fn good(name: &'static str, run: fn(&Bed, usize)) -> Deed {
    Deed { name, is_good: true, run }
}

const fn bad(name: &'static str, run: fn(&Bed, usize)) -> Deed {
    Deed { name, is_good: false, run }
}
