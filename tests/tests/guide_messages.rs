//! The messages that the author's guide quotes are what the program prints, letter by letter.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;

use tests::places::workspace;
use tests::program::{Ended, Tenon};

/// A plugin, the cases it is tested with (none: it is checked), and the code of what is quoted.
struct Scene {
    code: &'static str,
    id: &'static str,
    kind: &'static str,
    sdk: &'static str,
    script: &'static str,
    cases: &'static str,
}

const ONE_STEP: &str = "[[case]]\nabout = \"one step\"\nprompt = \"ab\"\nstep = [{}]\n";

/// The guide's first plugin with this line in `step`, and what `describe` may say.
macro_rules! no_stutter {
    ($line:literal) => {
        concat!(
            "-- no-stutter.lua: a token never follows itself.\n",
            "local Policy = {}\nPolicy.__index = Policy\n\n",
            "function open(params, vocabulary)\n    params:refuse_unknown({})\n",
            "    return setmetatable({}, Policy)\nend\n\n",
            "function Policy:step(step)\n    ",
            $line,
            "\nend\n"
        )
    };
}

const BIGRAM: &str = "\
-- bigram.lua: each token predicts the next through one norm.
function build(config, g)
    config:refuse_unknown({ \"hidden_size\", \"vocab_size\", \"rms_norm_eps\" })

    local h = g:embedding(g:tokens(), \"model.embed_tokens.weight\")
    h = g:rms_norm(h, \"model.norm.weight\", config:number(\"rms_norm_eps\"))
    return g:linear(h, \"lm_head.weight\")
end
";

const FORGETFUL: &str = "\
local Policy = {}
Policy.__index = Policy

function describe()
    return { supports_rollback = true }
end

function open(params, vocabulary)
    return setmetatable({}, Policy)
end

function Policy:step(step)
    local accepted = step:accepted()
    self.last = accepted[#accepted] or self.last
    step:bias({ self.last }, { -math.huge })
end

function Policy:rollback(n) end
";

const SCENES: [Scene; 9] = [
    Scene {
        code: "plugin.time-budget",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.2",
        script: no_stutter!("while true do end"),
        cases: ONE_STEP,
    },
    Scene {
        code: "plugin.not-granted",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.2",
        script: concat!("function describe() return { needs = \"full-logits\" } end\n", no_stutter!("")),
        cases: ONE_STEP,
    },
    Scene {
        code: "policy.not-granted",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.2",
        script: no_stutter!("local ids = step:top(5)"),
        cases: ONE_STEP,
    },
    Scene {
        code: "plugin.contract-version",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.9",
        script: no_stutter!(""),
        cases: "",
    },
    Scene {
        code: "plugin.unsupported-config",
        id: "bigram",
        kind: "model-graph",
        sdk: "0.2",
        script: BIGRAM,
        cases: "[[case]]\nabout = \"x\"\nconfig = { rms_norm_eps = 1e-5, logit_scale = 2.0 }\nlayers = 0\n",
    },
    Scene {
        code: "graph.missing-tensor",
        id: "bigram",
        kind: "model-graph",
        sdk: "0.2",
        script: BIGRAM,
        cases: "[[case]]\nabout = \"x\"\nconfig = { rms_norm_eps = 1e-5 }\nlayers = 0\n\
                [case.tensors]\n\"model.embed_tokens.weight\" = [10, 4]\n\"model.norm.weight\" = [4]\n",
    },
    Scene {
        code: "plugin.syntax",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.2",
        script: no_stutter!("local accepted = step:accepted("),
        cases: "",
    },
    Scene {
        code: "plugin.foreign-import",
        id: "no-stutter",
        kind: "sampling-policy",
        sdk: "0.2",
        script: "",
        cases: "",
    },
    Scene {
        code: "author.rollback",
        id: "forgetful",
        kind: "sampling-policy",
        sdk: "0.2",
        script: FORGETFUL,
        cases: "[[case]]\nabout = \"one step\"\nprompt = \"ab\"\nstep = [{ bias = [[\"b\", -inf]] }]\n",
    },
];

impl Scene {
    /// Plays it in a folder of its own.
    fn play(&self, tenon: &Tenon) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(self.id);
        fs::create_dir_all(at.join("tests")).unwrap();
        let (runtime, entry, bytes) = match self.script {
            "" => ("wasm", "plugin.wasm".to_owned(), clock()),
            script => ("lua", format!("{}.lua", self.id), script.as_bytes().to_vec()),
        };
        let manifest = format!(
            "id = \"{}\"\nversion = \"1.0.0\"\nkind = \"{}\"\nruntime = \"{runtime}\"\nentry = \"{entry}\"\nsdk = \"{}\"\n",
            self.id, self.kind, self.sdk
        );
        fs::write(at.join("plugin.toml"), manifest).unwrap();
        fs::write(at.join(entry), bytes).unwrap();
        fs::write(at.join("tests/cases.toml"), self.cases).unwrap();
        let command = if self.cases.is_empty() { "check" } else { "test" };
        let mut program = tenon.command();
        program.current_dir(folder.path()).args(["plugin", command, self.id]);
        Ended::of(program.output().unwrap())
    }
}

/// A component that asks for the time.
fn clock() -> Vec<u8> {
    let api = "(@custom \"tenon:api\" \"\\00\\00\\00\\02\\00\\00sampling-policy\")";
    let import = "(import \"wasi:clocks/monotonic-clock@0.2.0\" (instance))";
    wat::parse_str(format!("(component {api} {import})")).unwrap()
}

#[test]
fn the_guide_quotes_what_the_program_prints() {
    let Some(tenon) = Tenon::find() else { return };
    let guide = fs::read_to_string(workspace().join("plugin-sdk/README.md")).unwrap();
    let quoted: Vec<&str> =
        guide.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let code = |text: &str| text.strip_prefix("error[").unwrap().split(']').next().unwrap().to_owned();
    let codes: BTreeSet<String> = quoted.iter().map(|text| code(text)).collect();
    assert_eq!(codes, SCENES.iter().map(|scene| scene.code.to_owned()).collect(), "what is quoted is played");
    for scene in SCENES {
        let ended = scene.play(&tenon);
        let printed = ended.stdout + &ended.stderr;
        let expected = quoted.iter().find(|text| code(text) == scene.code).unwrap();
        assert!(printed.contains(expected), "{}: the program prints\n{printed}", scene.code);
    }
}
