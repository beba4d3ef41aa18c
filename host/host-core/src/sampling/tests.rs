use super::{Breaker, Sampler, SamplingChain, SamplingSettings};

fn names(settings: &SamplingSettings) -> Vec<&'static str> {
    settings.samplers().iter().map(Sampler::name).collect()
}

fn everything() -> SamplingSettings {
    SamplingSettings {
        temperature: 0.7,
        top_k: 40,
        top_p: 0.9,
        min_p: 0.05,
        xtc_probability: 0.5,
        xtc_threshold: 0.1,
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.3,
        dry_multiplier: 0.8,
        dry_base: 1.75,
        dry_allowed_length: 2,
        logit_bias: vec![(3, -1.0)],
        ..SamplingSettings::GREEDY
    }
}

#[test]
fn the_flat_settings_have_one_order() {
    let penalties = ["logit_bias", "repetition", "presence", "frequency", "dry"];
    let filters = ["top_p", "min_p", "xtc", "top_k", "temperature"];
    assert_eq!(names(&everything()), [&penalties[..], &filters].concat());
    let greedy = SamplingSettings { temperature: 0.0, ..everything() };
    assert_eq!(
        names(&greedy),
        [&penalties[..], &["temperature"]].concat(),
        "the most likely token is not dropped"
    );
    assert_eq!(names(&SamplingSettings::GREEDY), ["temperature"]);
    let plain = SamplingSettings { temperature: 1.0, ..SamplingSettings::GREEDY };
    assert!(names(&plain).is_empty(), "what changes nothing has no link");
}

#[test]
fn a_setting_out_of_range_is_named_as_the_user_wrote_it() {
    let base = everything();
    let cases = [
        ("temperature", SamplingSettings { temperature: -0.1, ..base.clone() }),
        ("temperature", SamplingSettings { temperature: f32::NAN, ..base.clone() }),
        ("top_p", SamplingSettings { top_p: 0.0, ..base.clone() }),
        ("top_p", SamplingSettings { top_p: 1.5, ..base.clone() }),
        ("min_p", SamplingSettings { min_p: 1.1, ..base.clone() }),
        ("xtc_probability", SamplingSettings { xtc_probability: 2.0, ..base.clone() }),
        ("xtc_threshold", SamplingSettings { xtc_threshold: 0.6, ..base.clone() }),
        ("repetition_penalty", SamplingSettings { repetition_penalty: -1.0, ..base.clone() }),
        ("presence_penalty", SamplingSettings { presence_penalty: f32::INFINITY, ..base.clone() }),
        ("frequency_penalty", SamplingSettings { frequency_penalty: f32::NAN, ..base.clone() }),
        ("dry_multiplier", SamplingSettings { dry_multiplier: -1.0, ..base.clone() }),
        ("dry_base", SamplingSettings { dry_base: 0.5, ..base.clone() }),
        ("dry_allowed_length", SamplingSettings { dry_allowed_length: 0, ..base.clone() }),
        ("logit_bias", SamplingSettings { logit_bias: vec![(1, f32::INFINITY)], ..base.clone() }),
    ];
    for (name, settings) in cases {
        assert_eq!(settings.check().map_err(|error| error.name), Err(name), "{settings:?}");
    }
    assert_eq!(base.check(), Ok(()));
}

#[test]
fn samplers_out_of_range_are_named() {
    let curve = |points: &[(f32, f32)]| Sampler::Curve { points: points.to_vec() };
    let hlg = |width| Sampler::Hlg {
        gain: 1.0,
        width,
        shoulder: 4.0,
        toe: 6.0,
        pivot: super::Pivot::Top,
        offset: 6.0,
    };
    let cases = [
        (Sampler::MinP { p: 0.1, min_keep: 0 }, "min_keep"),
        (Sampler::TypicalP { p: 0.0 }, "p"),
        (Sampler::TopNSigma { n: -1.0 }, "n"),
        (Sampler::MirostatV1 { tau: 5.0, eta: 0.1, m: 1 }, "m"),
        (Sampler::MirostatV2 { tau: -5.0, eta: 0.1 }, "tau"),
        (Sampler::DynamicTemperature { temperature: 1.0, range: -1.0, exponent: 1.0 }, "range"),
        (hlg(0.0), "width"),
        (Sampler::HlgEotf { peak_luminance: 0.0 }, "peak_luminance"),
        (curve(&[(1.0, 1.0)]), "points"),
        (curve(&[(1.0, 1.0), (1.0, 2.0)]), "points"),
        (curve(&[(1.0, 50.0), (10.0, 2.0)]), "points"),
        (curve(&[(1.0, 1.0), (101.0, 2.0)]), "points"),
    ];
    for (sampler, name) in cases {
        let error = sampler.check().expect_err("out of range");
        assert_eq!((error.sampler, error.name), (Some(sampler.name()), name), "{sampler:?}");
    }
    assert_eq!(curve(&[(100.0, 100.0), (0.0, 0.0)]).check(), Ok(()), "sorted by x before it is judged");
}

#[test]
fn texts_among_breakers_become_ids() {
    let settings = SamplingSettings {
        dry_sequence_breakers: vec![Breaker::Text("\n".into()), Breaker::Id(7), Breaker::Text("x".into())],
        ..everything()
    };
    let mut chain = SamplingChain::from(settings);
    chain.resolve(|text| if text == "\n" { vec![9, 7, 3] } else { Vec::new() });
    let found = chain.samplers.iter().find_map(|sampler| match sampler {
        Sampler::Dry { sequence_breakers, .. } => Some(sequence_breakers.clone()),
        _ => None,
    });
    assert_eq!(found, Some(vec![Breaker::Id(3), Breaker::Id(7), Breaker::Id(9)]));
}
