//! The kernels, each one generic function over [`crate::lanes::Lanes`].

pub(crate) mod attention;
pub(crate) mod product;
pub(crate) mod quantise;
pub(crate) mod recurrent;
pub(crate) mod rows;

/// Makes a kernel's entry: picks the form at run time, switches its instructions on and inlines the kernel.
///
/// `entry!(name = kernel(a: A, b: B))` gives `unsafe fn name(simd: Simd, a: A, b: B)`; further type parameters of
/// the kernel stand in square brackets behind its name.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident = $kernel:ident $([$($extra:ty),*])? ($($arg:ident: $type:ty),* $(,)?)) => {
        $(#[$doc])*
        pub(crate) unsafe fn $name(simd: $crate::features::Simd, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $type),*) {
                unsafe { $kernel::<$crate::lanes::Avx512 $($(, $extra)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $type),*) {
                unsafe { $kernel::<$crate::lanes::Avx2 $($(, $extra)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,dotprod,fp16")]
            unsafe fn neon($($arg: $type),*) {
                unsafe { $kernel::<$crate::lanes::Neon $($(, $extra)*)?>($($arg),*) }
            }
            match simd {
                #[cfg(target_arch = "x86_64")]
                $crate::features::Simd::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                $crate::features::Simd::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                $crate::features::Simd::Neon => unsafe { neon($($arg),*) },
                _ => unsafe { $kernel::<$crate::lanes::Portable $($(, $extra)*)?>($($arg),*) },
            }
        }
    };
}
pub(crate) use entry;
