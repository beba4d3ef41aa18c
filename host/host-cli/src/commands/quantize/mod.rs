//! `tenon quantize`: a model with quantised weights, by rules that are given or made by measuring.

mod assign;
mod measure;

use std::path::Path;
use std::sync::Arc;

use host_core::Numeric;
use host_core::quant::Scheme;
use host_registry::{Overrides, QuantRules, QuantSet};
use host_weights::{Checkpoint, Encoding};
use serde_json::{Value, json};

use super::{print, print_json};
use crate::args::{FolderArgs, ModelArgs, QuantizeArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::host::Host;
use crate::model_folder::{check_free, write_folder};
use crate::open::{decide, describe_published, locate, resolve, source_of};

/// The file of a written folder that holds the rules.
const RULES_FILE: &str = "quantization.toml";

pub(crate) fn run(folders: &FolderArgs, args: &QuantizeArgs) -> Result<Exit, Failure> {
    check_free(&args.out)?;
    let host = Host::load(folders)?;
    let given = args.quant.as_deref().map(|named| rules_of(&host, named)).transpose()?;
    let model = ModelArgs { model: Some(args.model.clone()), profile: args.profile.clone() };
    let located = locate(&host.store, &host.profiles, &source_of(&host.profiles, &model)?)?;
    let decision = decide(&host, &located, args.profile.as_deref())?;
    let composition = resolve(&host, &located, &decision, &overrides(args))?;
    let published = describe_published(&host, &located, &composition)?;
    let (published, rules, measured) = match given {
        Some(rules) => (published, rules, Value::Null),
        None => {
            let settings = measure::Settings::of(args)?;
            let (published, result) = measure::measure(&host, &located, &composition, published, &settings)?;
            (published, Arc::new(result.rules), result.summary)
        }
    };
    let quantised = published.quantised(&*rules)?;
    write_folder(&quantised.checkpoint, &located.model.path, &args.out, &[(RULES_FILE, rules.text())])?;
    tell(args, &rules, &quantised.checkpoint, measured)
}

/// The rules of a file, where that is what the name looks like, else the shipped ones of that name.
fn rules_of(host: &Host, named: &str) -> Result<Arc<QuantRules>, Failure> {
    let path = Path::new(named);
    if path.extension().is_some_and(|extension| extension == "toml") || path.components().count() > 1 {
        return Ok(Arc::new(QuantSet::read(path)?));
    }
    Ok(host.quants.by_id(named)?.clone())
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

fn tell(
    args: &QuantizeArgs,
    rules: &QuantRules,
    checkpoint: &Checkpoint,
    measured: Value,
) -> Result<Exit, Failure> {
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
    if !measured.is_null() {
        object["measured"] = measured;
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
