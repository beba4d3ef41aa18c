//! The options of a rotation: what all types take, and what each takes besides.

use host_graph::{RopeFrequencies, RopeLayout, RopeSpec};
use mlua::Result;

use crate::args::{Argument, Call, words};
use crate::luau::{Field, Record, spelled};
use crate::options::{OptionTable, Options, options};

/// Declares the types of rotation with what each takes.
macro_rules! rope_types {
    ($($kind:ident $word:literal { $($field:ident: $option:ty,)* },)+) => {
        #[derive(Clone, Copy)]
        pub(crate) enum RopeType {
            Default,
            $($kind,)+
        }

        words! { RopeType: [("default", RopeType::Default), $(($word, RopeType::$kind)),+]; }

        options! { $($kind { $($field: $option,)* })+ }

        impl RopeType {
            /// Those that take more than the others.
            const MORE: &[RopeType] = &[$(RopeType::$kind),+];

            /// Its word, what it takes besides what all take, and the types of that.
            fn takes(self) -> (&'static str, &'static [&'static str], Vec<Field>) {
                match self {
                    RopeType::Default => ("default", &[], Vec::new()),
                    $(RopeType::$kind => ($word, $kind::KEYS, $kind::fields()),)+
                }
            }
        }
    };
}

rope_types! {
    Linear "linear" { factor: f32, },
    Llama3 "llama3" {
        factor: f32,
        low_freq_factor: f32,
        high_freq_factor: f32,
        original_max_position_embeddings: f32,
    },
    Yarn "yarn" {
        factor: f32,
        beta_fast: f32,
        beta_slow: f32,
        original_max_position_embeddings: f32,
        truncate: Option<bool>,
    },
    LongRope "longrope" { factors: Vec<f32>, },
    Proportional "proportional" { factor: f32, full_dims: usize, },
}

words! { RopeLayout: [("split_halves", RopeLayout::SplitHalves), ("interleaved", RopeLayout::Interleaved)]; }

options! {
    Rotation {
        dims: usize,
        theta: f32,
        layout: Option<RopeLayout>,
        rope_type = "type": Option<RopeType>,
        attention_factor: Option<f32>,
        mrope_section: Option<Vec<usize>>,
    }
}

spelled! { RopeSpec => "Rope"; }

/// One record: what a type alone takes may be absent in it.
impl Record for RopeSpec {
    const NAME: Option<&'static str> = Some("Rope");

    fn fields() -> Vec<Field> {
        let mut fields = Rotation::fields();
        let mut takes = "default".to_owned();
        for (word, keys, more) in RopeType::MORE.iter().map(|of| of.takes()) {
            takes += &format!("; {word}: {}", keys.join(", "));
            for field in more {
                if fields.iter().all(|known| known.name != field.name) {
                    fields.push(Field { luau: format!("{}?", field.luau.trim_end_matches('?')), ..field });
                }
            }
        }
        fields
            .iter_mut()
            .filter(|field| field.name == "type")
            .for_each(|field| field.about.clone_from(&takes));
        fields
    }
}

impl Argument for RopeSpec {
    /// Options of a type that another type was given are refused, not dropped.
    fn take(call: Call<'_>, name: &str, found: mlua::Value) -> Result<Self> {
        let known: Vec<_> = RopeSpec::fields().iter().map(|field| field.name).collect();
        let options = Options::open(call, name, &found, &known)?;
        let rotation = Rotation::read(&options)?;
        let rope_type = rotation.rope_type.unwrap_or(RopeType::Default);
        let (word, keys, _) = rope_type.takes();
        options.only(&[Rotation::KEYS, keys], &format!("nothing for type {word}"))?;
        let frequencies = match rope_type {
            RopeType::Default => RopeFrequencies::Default,
            RopeType::Linear => RopeFrequencies::Linear { factor: Linear::read(&options)?.factor },
            RopeType::Llama3 => {
                let Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } =
                    Llama3::read(&options)?;
                RopeFrequencies::Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position_embeddings,
                }
            }
            RopeType::Yarn => {
                let yarn = Yarn::read(&options)?;
                RopeFrequencies::Yarn {
                    factor: yarn.factor,
                    beta_fast: yarn.beta_fast,
                    beta_slow: yarn.beta_slow,
                    original_max_position_embeddings: yarn.original_max_position_embeddings,
                    truncate: yarn.truncate.unwrap_or(true),
                }
            }
            RopeType::LongRope => RopeFrequencies::LongRope { factors: LongRope::read(&options)?.factors },
            RopeType::Proportional => {
                let Proportional { factor, full_dims } = Proportional::read(&options)?;
                RopeFrequencies::Proportional { factor, full_dims }
            }
        };
        Ok(RopeSpec {
            dims: rotation.dims,
            theta: rotation.theta,
            layout: rotation.layout.unwrap_or(RopeLayout::SplitHalves),
            frequencies,
            attention_factor: rotation.attention_factor.unwrap_or(1.0),
            mrope_section: rotation.mrope_section.unwrap_or_default(),
        })
    }
}
