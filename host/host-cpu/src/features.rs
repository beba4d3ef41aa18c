//! Which instructions this machine has.

use std::fmt;

/// The form of the kernels, best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Simd {
    /// Plain Rust, for any machine.
    Portable,
    /// Arm NEON with dot products.
    Neon,
    /// x86 AVX2, FMA and F16C.
    Avx2,
    /// x86 AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
}

impl Simd {
    /// Every form that this machine can run, best first.
    pub fn available() -> Vec<Simd> {
        let mut forms = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let has_512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni");
            let has_2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if has_512 && has_2 {
                forms.push(Simd::Avx512);
            }
            if has_2 {
                forms.push(Simd::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("dotprod")
            && std::arch::is_aarch64_feature_detected!("fp16")
        {
            forms.push(Simd::Neon);
        }
        forms.push(Simd::Portable);
        forms
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Simd::Portable => "portable",
            Simd::Neon => "neon",
            Simd::Avx2 => "avx2",
            Simd::Avx512 => "avx512",
        })
    }
}
