//! `tenon quantize`: a model with quantised weights, by rules, by a plugin, or by measuring.

mod assign;
mod measure;
mod planned;

use std::path::Path;
use std::sync::Arc;

use host_core::Numeric;
use host_core::quant::{Scheme, plan_schemes};
use host_registry::{Overrides, QuantRules, QuantSet};
use host_service::{Host, ModelName, decide, describe_published, resolve};
use host_weights::{Checkpoint, Encoding};
use serde_json::{Map, Value, json};

use self::planned::Planned;
use super::{print, print_json};
use crate::args::{FolderArgs, QuantizeArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::model_folder::{check_free, write_folder};
use crate::open::{load_host, locate};

/// The file of a written folder that holds the rules.
const RULES_FILE: &str = "quantization.toml";

/// Where the schemes come from.
enum How<'a> {
    Rules(Arc<QuantRules>),
    Measured(measure::Settings),
    Plugin(Planned<'a>),
}

impl<'a> How<'a> {
    /// # Errors
    /// Rules or a plugin that are not there, and flags outside their ranges.
    fn of(host: &'a Host, args: &QuantizeArgs) -> Result<How<'a>, Failure> {
        let settings = args.measure.is_some().then(|| measure::Settings::of(args)).transpose()?;
        Ok(match (&args.quant, &args.plugin, settings) {
            (Some(named), _, _) => How::Rules(rules_of(host, named)?),
            (None, Some(id), settings) => How::Plugin(Planned::of(host, id, args, settings)?),
            (None, None, Some(settings)) => How::Measured(settings),
            (None, None, None) => unreachable!("the command line asks for one of them"),
        })
    }
}

/// The rules that were applied, and what else is told of them.
struct Applied {
    rules: Arc<QuantRules>,
    /// Keys of the object of `--json`.
    told: Map<String, Value>,
}

pub(crate) fn run(folders: &FolderArgs, args: &QuantizeArgs) -> Result<Exit, Failure> {
    check_free(&args.out)?;
    let host = load_host(folders)?;
    let how = How::of(&host, args)?;
    let name = ModelName { model: Some(&args.model), profile: args.profile.as_deref() };
    let located = locate(&host, name)?;
    let decision = decide(&host, &located, args.profile.as_deref())?;
    let composition = resolve(&host, &located, &decision, &overrides(args))?;
    let published = describe_published(&host, &located, &composition)?;
    let (published, applied) = match how {
        How::Rules(rules) => (published, Applied { rules, told: Map::new() }),
        How::Measured(settings) => {
            let (published, found) = measure::measure(&host, &located, &composition, published, &settings)?;
            let rules = Arc::new(found.rules(&published.checkpoint, &settings)?);
            let schemes = plan_schemes(&*rules, &published.tensor_facts())?;
            let told = Map::from_iter([("measured".to_owned(), found.summary(&settings, &schemes))]);
            (published, Applied { rules, told })
        }
        How::Plugin(planned) => planned.plan(&host, &located, &composition, published)?,
    };
    let quantised = published.quantised(&*applied.rules)?;
    let files = [(RULES_FILE, applied.rules.text())];
    write_folder(&quantised.checkpoint, &located.model.path, &args.out, &files)?;
    tell(args, applied, &quantised.checkpoint)
}

/// The rules of a file, where that is what the name looks like, else the shipped ones of that name.
fn rules_of(host: &Host, named: &str) -> Result<Arc<QuantRules>, Failure> {
    let path = Path::new(named);
    if path.extension().is_some_and(|extension| extension == "toml") || path.components().count() > 1 {
        return Ok(Arc::new(QuantSet::read(path)?));
    }
    Ok(host.quants().by_id(named)?.clone())
}

/// One sequence in exact arithmetic, as long as what is measured.
fn overrides(args: &QuantizeArgs) -> Overrides {
    if args.measure.is_none() {
        return Overrides::default();
    }
    Overrides {
        numeric: Some(Numeric::Exact),
        kv_dtype: Some("f32".to_owned()),
        n_threads: args.threads,
        context_tokens: Some(args.calibration_tokens),
        max_sequences: Some(1),
        max_step_tokens: Some(args.calibration_tokens.min(measure::STEP_TOKENS)),
        ..Overrides::default()
    }
}

/// Bits a weight of all tensors together.
fn bits_per_weight(checkpoint: &Checkpoint) -> f64 {
    let weights: usize = checkpoint.catalogue().iter().map(|info| info.elements()).sum();
    checkpoint.catalogue().bytes() as f64 * 8.0 / weights as f64
}

fn tell(args: &QuantizeArgs, applied: Applied, checkpoint: &Checkpoint) -> Result<Exit, Failure> {
    let Applied { rules, told } = applied;
    let catalogue = checkpoint.catalogue();
    let bits = bits_per_weight(checkpoint);
    let n_quantised = catalogue.iter().filter(|info| !matches!(info.encoding, Encoding::Dense(_))).count();
    if !args.json {
        let mib = catalogue.bytes() as f64 / f64::from(1 << 20);
        let (n, out) = (catalogue.len(), args.out.display());
        return print(&format!(
            "{out}\n{bits:.3} bits a weight, {mib:.1} MiB, {n_quantised} of {n} tensors as codes, rules `{}`\n",
            rules.id()
        ));
    }
    let mut object = json!({
        "out": args.out.display().to_string(),
        "rules": rules.id(),
        "rules_sha256": rules.digest().to_string(),
        "bits_per_weight": bits,
        "bytes": catalogue.bytes(),
        "weights": catalogue.iter().map(|info| info.elements()).sum::<usize>(),
        "tensors": catalogue.len(),
        "quantised_tensors": n_quantised,
    });
    for (key, value) in told {
        object[key] = value;
    }
    print_json(&object)
}

/// The affine scheme of these widths, or the refusal of a flag.
fn affine(bits: u64, group_size: u64) -> Result<Scheme, Failure> {
    Ok(Scheme::affine(bits, group_size)?)
}

/// A flag with a value outside its range.
fn refused(flag: &'static str, expected: &'static str, found: impl ToString) -> Failure {
    CliError::Value { flag, expected, found: found.to_string() }.into()
}
