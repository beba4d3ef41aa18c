//! Schemes by a plugin: which one, what it is called with, and its plan as rules.

use std::sync::Arc;

use host_core::quant::{Scheme, TensorFacts, plan_schemes};
use host_registry::{Composition, PluginFacts, QuantRef, QuantRule, QuantRules, SchemeText, rules_text};
use host_service::{Described, Host, Located, plugin_quant};
use serde_json::{Map, Value, json};

use super::measure::{self, Settings, kept};
use super::{Applied, refused};
use crate::args::QuantizeArgs;
use crate::error::Failure;

/// A plugin that was found, and what is asked of it.
pub(super) struct Planned<'a> {
    plugin: &'a PluginFacts,
    params: Map<String, Value>,
    /// What is measured for it first.
    settings: Option<Settings>,
}

impl<'a> Planned<'a> {
    /// # Errors
    /// A plugin that is not there, or is for something else.
    pub(super) fn of(
        host: &'a Host,
        id: &str,
        args: &QuantizeArgs,
        settings: Option<Settings>,
    ) -> Result<Self, Failure> {
        let params = args.plugin_params.clone().unwrap_or_default();
        let wanted = QuantRef::any_version(id.to_owned(), params);
        let plugin = host.registry().quant_plugin(&wanted).map_err(|(_, fault)| fault)?;
        Ok(Planned { plugin, params: wanted.params, settings })
    }

    /// Measures where that was asked for, and asks the plugin.
    ///
    /// # Errors
    /// The plugin's refusal or fault, a plan that the tensors cannot take, and those of [`measure::measure`].
    pub(super) fn plan(
        self,
        host: &Host,
        located: &Located,
        composition: &Composition,
        published: Described,
    ) -> Result<(Described, Applied), Failure> {
        let Planned { plugin, mut params, settings } = self;
        let (mut published, mut measured, mut notes) = (published, None, Vec::new());
        if let Some(settings) = &settings {
            let (same, found) = measure::measure(host, located, composition, published, settings)?;
            published = same;
            add(&mut params, found.params(settings)?)?;
            notes.extend(found.notes(settings));
            measured = Some((found, settings));
        }
        notes.extend([
            format!("Planned by the plugin {}, {}, with these params:", plugin.title(), plugin.digest),
            Value::Object(params.clone()).to_string(),
        ]);
        let facts = published.tensor_facts();
        let profile = plugin_quant(host, composition, plugin, &params, &published)?;
        let schemes = plan_schemes(&profile, &facts)?;
        let measured = measured.map(|(found, settings)| found.summary(settings, &schemes));
        let mut told: Map<String, Value> =
            measured.into_iter().map(|summary| ("measured".to_owned(), summary)).collect();
        let about = format!("Planned by {}", plugin.title());
        let text = rules_text("planned", &about, &notes, &as_rules(&facts, &schemes));
        let rules = Arc::new(QuantRules::parse("planned rules", &text)?);
        told.insert(
            "plugin".to_owned(),
            json!({ "id": plugin.id, "version": plugin.version.to_string(),
            "runtime": plugin.runtime.name(), "digest": plugin.digest.to_string(), "params": params }),
        );
        Ok((published, Applied { rules, told }))
    }
}

/// What was measured beside what was given; neither takes the other's place.
fn add(params: &mut Map<String, Value>, measured: Map<String, Value>) -> Result<(), Failure> {
    if let Some((key, _)) = measured.iter().find(|(key, _)| params.contains_key(*key)) {
        return Err(refused("--plugin-params", "no key that --measure gives itself", format!("`{key}`")));
    }
    params.extend(measured);
    Ok(())
}

/// A rule for each tensor that is not kept, and one that keeps the rest.
fn as_rules(facts: &[TensorFacts], schemes: &[Scheme]) -> Vec<QuantRule> {
    let changed = facts.iter().zip(schemes).filter(|(_, scheme)| **scheme != Scheme::Keep);
    let mut rules: Vec<_> = changed
        .map(|(tensor, scheme)| QuantRule { scheme: SchemeText(*scheme), ..kept(tensor.name.clone()) })
        .collect();
    if rules.len() < facts.len() {
        rules.push(kept("*".to_owned()));
    }
    rules
}

#[cfg(test)]
mod tests {
    use host_core::DType;
    use host_core::quant::QuantProfile;

    use super::*;

    #[test]
    fn rules_made_of_a_plan_give_it_again() {
        let tensor = |name: &str| TensorFacts::unused(name.to_owned(), vec![4, 64], DType::F16);
        let facts = ["a.weight", "b.weight", "a.b.weight"].map(tensor);
        let four = Scheme::Affine { bits: 4, group_size: 32 };
        for schemes in
            [[four, Scheme::Keep, Scheme::Mxfp8], [Scheme::Keep; 3], [Scheme::Nvfp4, four, Scheme::Mxfp4]]
        {
            let text = rules_text("planned", "about", &[], &as_rules(&facts, &schemes));
            let rules = QuantRules::parse("planned", &text).expect("sound rules");
            assert_eq!(rules.plan(&facts), Ok(schemes.to_vec()), "{text}");
        }
    }

    #[test]
    fn what_is_measured_is_not_given() {
        let object = |value: Value| value.as_object().cloned().expect("an object");
        let mut params = object(json!({ "own": 1 }));
        add(&mut params, object(json!({ "kl": {} }))).expect("other keys");
        assert_eq!(Value::Object(params.clone()), json!({ "own": 1, "kl": {} }));
        assert!(add(&mut params, object(json!({ "kl": {} }))).is_err());
    }
}
