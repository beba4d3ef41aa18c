//! The command line of profiles: checked, watched, gone back to.

use clap::{Args, Subcommand};

use super::{ComposeArgs, ModelArgs};

pub(crate) const PROFILES_EXAMPLES: &str = "\
Examples:
  tenon profiles check
  tenon profiles watch --profile smollm2-135m
  tenon profiles history
  tenon profiles rollback 4f1c
  tenon profiles schema > profile.schema.json

A generation is everything that requests are served with: profiles, rules, plugins, what they resolve to. Its id is a
hash over all of it.

The numbers of reloading stand in service/reload.toml: that of the first folder of profiles that has one, else the
program's own, in the profiles that it was installed with. `tenon profiles check` tells which file that is.";

const CHECK_EXAMPLES: &str = "\
Reads every profile, set of rules and plugin; loads the plugins' code, opens each policy with its profile's params and
has it take a step; resolves what each profile names. With --model or --profile the model is prepared too, weights
included. All errors are told at once.

Exit codes: 0 it would serve, 1 something cannot be read, 2 the command line is wrong, 3 a service would refuse it.";

const WATCH_EXAMPLES: &str = "\
Keeps a service over the folders and prints what it does: each generation that begins to serve with what changed, each
refusal with every error. A refused change leaves what serves as it is. Good generations are stored in the cache folder.

With --json each line is one object: event (started, last-good, swapped, refused, mended, taken-back, ended, drained,
not-stored), generation, and what the event brings (changes, reports, took_ms, swap_ms, …).

Exit codes: 1 the folders cannot be read or watched, 2 the command line is wrong, 3 the folders would be refused,
130 ended by Ctrl-C.";

const HISTORY_EXAMPLES: &str = "\
The newest comes first. Files that a rollback found in the folders and replaced are stored too, as `replaced`.";

const ROLLBACK_EXAMPLES: &str = "\
Checks the stored generation as if it were new, stores what lies in the folders, and puts the generation's files back.
Every service over these folders loads them like any other change.

Exit codes: 0 the folders are as they were then, 1 a file cannot be read or written, 2 there is no such generation,
3 this program would refuse it; nothing is changed then.";

#[derive(Args, Debug)]
pub(crate) struct ProfilesArgs {
    #[command(subcommand)]
    pub(crate) command: ProfilesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesCommand {
    /// Print the JSON Schema of profiles, for editors
    Schema,
    /// Tell whether the folders would serve, and everything that is wrong with them
    #[command(after_help = CHECK_EXAMPLES)]
    Check(ProfilesCheckArgs),
    /// Reload the folders whenever they change, and tell what became of it
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(ProfilesWatchArgs),
    /// List the generations that were stored
    #[command(after_help = HISTORY_EXAMPLES)]
    History {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Put a stored generation back into the folders
    #[command(after_help = ROLLBACK_EXAMPLES)]
    Rollback {
        /// The first digits of its id
        #[arg(value_name = "ID")]
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ProfilesCheckArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProfilesWatchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    /// Where the folders do not load at the start, serve the newest good generation that was stored, and say so
    #[arg(long)]
    pub(crate) last_good: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl ProfilesCommand {
    /// Whether errors, too, are to be one JSON object.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            ProfilesCommand::Schema => false,
            ProfilesCommand::Check(args) => args.json,
            ProfilesCommand::Watch(args) => args.json,
            ProfilesCommand::History { json } | ProfilesCommand::Rollback { json, .. } => *json,
        }
    }
}
