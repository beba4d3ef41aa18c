//! Every form of the lanes gives the bits of the plain one; `exp`, `silu` and `tanh` keep their bounds.

use super::*;
use crate::features::Simd;

/// What the operations are tried on.
#[derive(Debug)]
struct Case {
    floats: [[f32; LANES]; 3],
    halves: [u16; LANES],
    ints: [[i32; LANES]; 2],
    u: [u8; 64],
    s: [u8; 64],
    lo: usize,
    hi: usize,
}

/// A name and the bits of 16 lanes for each operation.
type Results = Vec<(&'static str, [u32; LANES])>;

/// A function of mod.rs.
#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Silu,
    Tanh,
}

/// One form, entered with its instructions switched on.
struct Form {
    simd: Simd,
    results: unsafe fn(&Case) -> Results,
    apply: unsafe fn(Function, &mut [f32]),
    load_n: unsafe fn(*const f32, usize) -> [f32; LANES],
    store_n: unsafe fn(*mut f32, &[f32; LANES], usize),
}

macro_rules! form {
    ($form:ident $(, $features:literal)?) => {{
        $(#[target_feature(enable = $features)])?
        unsafe fn results(case: &Case) -> Results {
            unsafe { results_of::<$form>(case) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn apply(function: Function, x: &mut [f32]) {
            unsafe { apply_of::<$form>(function, x) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn load_n(from: *const f32, n: usize) -> [f32; LANES] {
            unsafe { stored::<$form>(<$form>::load_n(from, n)) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn store_n(to: *mut f32, x: &[f32; LANES], n: usize) {
            unsafe { <$form>::store_n(to, <$form>::load(x.as_ptr()), n) }
        }
        Form { simd: Simd::$form, results, apply, load_n, store_n }
    }};
}

/// The forms of this processor family, the plain one last.
fn known() -> Vec<Form> {
    vec![
        #[cfg(target_arch = "x86_64")]
        form!(Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"),
        #[cfg(target_arch = "x86_64")]
        form!(Avx2, "avx2,fma,f16c"),
        #[cfg(target_arch = "aarch64")]
        form!(Neon, "dotprod,fp16"),
        form!(Portable),
    ]
}

/// The forms that this machine can run; says which it cannot.
fn forms() -> Vec<Form> {
    let available = Simd::available();
    let (run, skipped): (Vec<Form>, Vec<Form>) =
        known().into_iter().partition(|form| available.contains(&form.simd));
    for form in skipped {
        eprintln!("skipped: this machine has no {}", form.simd);
    }
    run
}

#[inline(always)]
unsafe fn stored<V: Lanes>(x: V::F) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    unsafe { V::store(out.as_mut_ptr(), x) };
    out
}

/// The bits of floats. Finite numbers may give what is no number; which bits that has is left open.
#[inline(always)]
unsafe fn floats<V: Lanes>(x: V::F) -> [u32; LANES] {
    unsafe { stored::<V>(x) }.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}

#[inline(always)]
unsafe fn ints<V: Lanes>(x: V::I) -> [u32; LANES] {
    unsafe { stored::<V>(V::from_bits(x)) }.map(f32::to_bits)
}

fn first_lane(bits: u32) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    lanes[0] = bits;
    lanes
}

#[inline(always)]
unsafe fn results_of<V: Lanes>(case: &Case) -> Results {
    unsafe {
        let mut results = float_results::<V>(case);
        results.extend(memory_results::<V>(case));
        results.extend(int_results::<V>(case));
        results
    }
}

#[inline(always)]
unsafe fn float_results<V: Lanes>(case: &Case) -> Results {
    unsafe {
        let [a, b, c] = [0, 1, 2].map(|i| case.floats[i].as_ptr());
        let (a, b, c) = (V::load(a), V::load(b), V::load(c));
        vec![
            ("splat", floats::<V>(V::splat(case.floats[0][0]))),
            ("add", floats::<V>(V::add(a, b))),
            ("sub", floats::<V>(V::sub(a, b))),
            ("mul", floats::<V>(V::mul(a, b))),
            ("div", floats::<V>(V::div(a, b))),
            ("fma", floats::<V>(V::fma(a, b, c))),
            ("max", floats::<V>(V::max(a, b))),
            ("min", floats::<V>(V::min(a, b))),
            ("abs", floats::<V>(V::abs(a))),
            ("round", floats::<V>(V::round(a))),
            ("reduce_add", first_lane(V::reduce_add(a).to_bits())),
            // Which of +0 and -0 is the largest is left open; adding +0 makes them one.
            ("reduce_max", first_lane((V::reduce_max(a) + 0.0).to_bits())),
            ("keep", floats::<V>(V::keep(a, case.lo, case.hi, case.floats[1][0]))),
        ]
    }
}

#[inline(always)]
unsafe fn memory_results<V: Lanes>(case: &Case) -> Results {
    unsafe {
        let (a, b) = (V::load(case.floats[0].as_ptr()), V::load(case.floats[1].as_ptr()));
        let mut partial = case.floats[1];
        V::store_n(partial.as_mut_ptr(), a, case.hi);
        let mut halves = [0_u16; LANES];
        V::store_f16(halves.as_mut_ptr(), a);
        let mut narrow = [0_i8; LANES];
        let small = case.ints[0].map(|x| x % 128);
        V::store_i8(narrow.as_mut_ptr(), V::load_i(small.as_ptr().cast()));
        let mut all = case.floats[0];
        V::store(all.as_mut_ptr(), b);
        vec![
            ("load_n", floats::<V>(V::load_n(case.floats[0].as_ptr(), case.hi))),
            ("load_f16", floats::<V>(V::load_f16(case.halves.as_ptr()))),
            ("load_bf16", floats::<V>(V::load_bf16(case.halves.as_ptr()))),
            ("store", all.map(f32::to_bits)),
            ("store_n", partial.map(f32::to_bits)),
            ("store_f16", halves.map(u32::from)),
            ("store_i8", narrow.map(|x| x as u32)),
        ]
    }
}

#[inline(always)]
unsafe fn int_results<V: Lanes>(case: &Case) -> Results {
    unsafe {
        let (x, y) = (V::load_i(case.ints[0].as_ptr().cast()), V::load_i(case.ints[1].as_ptr().cast()));
        let (u, s) = (V::load_i(case.u.as_ptr()), V::load_i(case.s.as_ptr()));
        let below_128 = case.u.map(|byte| byte & 127);
        let narrow = V::load_i(below_128.as_ptr());
        let acc = V::shr::<2>(x);
        // Every integer that a float holds exactly.
        let small = V::shr::<8>(x);
        vec![
            ("splat_i32", ints::<V>(V::splat_i32(case.ints[0][0]))),
            ("splat_u8", ints::<V>(V::splat_u8(case.u[0]))),
            ("load_i", ints::<V>(u)),
            ("load_table", ints::<V>(V::load_table(case.s.as_ptr()))),
            ("add_i32", ints::<V>(V::add_i32(x, y))),
            ("sub_i32", ints::<V>(V::sub_i32(x, y))),
            ("reduce_add_i32", first_lane(V::reduce_add_i32(x) as u32)),
            ("and", ints::<V>(V::and(x, y))),
            ("or", ints::<V>(V::or(x, y))),
            ("shl 0", ints::<V>(V::shl::<0>(x))),
            ("shl 4", ints::<V>(V::shl::<4>(x))),
            ("shl 31", ints::<V>(V::shl::<31>(x))),
            ("shr 0", ints::<V>(V::shr::<0>(x))),
            ("shr 4", ints::<V>(V::shr::<4>(x))),
            ("shr 31", ints::<V>(V::shr::<31>(x))),
            ("lookup", ints::<V>(V::lookup(V::load_table(case.s.as_ptr()), u))),
            ("dot4 narrow", ints::<V>(V::dot4::<false>(acc, narrow, s))),
            ("dot4 wide", ints::<V>(V::dot4::<true>(acc, u, s))),
            ("from_i32", floats::<V>(V::from_i32(x))),
            ("to_i32", ints::<V>(V::to_i32(V::from_i32(V::sub_i32(small, V::splat_i32(1 << 23)))))),
        ]
    }
}

#[inline(always)]
unsafe fn apply_of<V: Lanes>(function: Function, x: &mut [f32]) {
    for x in x.chunks_exact_mut(LANES) {
        unsafe {
            let lanes = V::load(x.as_ptr());
            let y = match function {
                Function::Exp => exp::<V>(lanes),
                Function::Silu => silu::<V>(lanes),
                Function::Tanh => tanh::<V>(lanes),
            };
            V::store(x.as_mut_ptr(), y);
        }
    }
}

/// Numbers that look random and are the same in each run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 32) as u32
    }

    /// Any number, edges and plain sizes more often than their share of the bit patterns.
    fn float(&mut self) -> f32 {
        const EDGES: [f32; 16] = [
            0.0,
            0.5,
            1.0,
            1.5,
            2.5,
            8_388_607.5,
            2_147_483_648.0,
            65_504.0,
            65_520.0,
            2.980_232_2e-8,
            8.940_697e-8,
            f32::MIN_POSITIVE,
            1e-40,
            1e-45,
            f32::MAX,
            f32::INFINITY,
        ];
        let (pick, bits) = (self.next(), self.next());
        let sign = if pick >> 31 == 1 { -1.0 } else { 1.0 };
        match pick % 5 {
            0 => sign * EDGES[bits as usize % EDGES.len()],
            1 => sign * bits as f32 / 2_f32.powi(28),
            2 => sign * f32::from_bits(0x3000_0000 + bits % 0x2000_0000),
            // Halfway between two halves.
            3 => sign * f32::from_bits((0x3000_0000 + bits % 0x2000_0000) & !0x1fff | 0x1000),
            _ => number(bits),
        }
    }

    fn case(&mut self) -> Case {
        let (lo, hi) = (self.next() as usize % (LANES + 1), self.next() as usize % (LANES + 1));
        Case {
            floats: [(); 3].map(|()| std::array::from_fn(|_| self.float())),
            halves: std::array::from_fn(|_| self.next() as u16),
            ints: [(); 2].map(|()| std::array::from_fn(|_| self.next() as i32)),
            u: std::array::from_fn(|_| self.next() as u8),
            s: std::array::from_fn(|_| self.next() as u8),
            lo,
            hi,
        }
    }
}

/// The float with these bits, made small where it would be no number.
fn number(bits: u32) -> f32 {
    let x = f32::from_bits(bits);
    if x.is_nan() { f32::from_bits(bits & 0x80ff_ffff) } else { x }
}

fn check(forms: &[Form], case: &Case) {
    let expected = unsafe { results_of::<Portable>(case) };
    for form in forms {
        let found = unsafe { (form.results)(case) };
        for ((name, expected), (_, found)) in expected.iter().zip(&found) {
            assert!(expected == found, "{} {name}: {found:x?} for {expected:x?} of {case:x?}", form.simd);
        }
    }
}

#[test]
fn all_forms_give_the_same_bits() {
    let (forms, mut random) = (forms(), Random(1));
    let n = if cfg!(miri) { 20 } else { 20_000 };
    for _ in 0..n {
        check(&forms, &random.case());
    }
}

#[test]
fn all_masks_give_the_same_bits() {
    let (forms, mut random) = (forms(), Random(2));
    let step = if cfg!(miri) { 5 } else { 1 };
    for lo in (0..=LANES).step_by(step) {
        for hi in 0..=LANES {
            check(&forms, &Case { lo, hi, ..random.case() });
        }
    }
}

#[test]
fn all_pairs_of_bytes_give_the_same_products() {
    let (forms, mut random) = (forms(), Random(3));
    let step = if cfg!(miri) { 51 } else { 1 };
    for u in (0..=255).step_by(step) {
        for block in (0..16).step_by(step) {
            // Four equal products a lane: the largest sums that there are.
            let s = std::array::from_fn(|i| 16 * block + i as u8 / 4);
            check(&forms, &Case { u: [u; 64], s, ..random.case() });
        }
    }
}

#[test]
fn all_halves_give_the_same_floats() {
    let (forms, mut random) = (forms(), Random(4));
    let step = if cfg!(miri) { 16_001 } else { 16 };
    for start in (0..=u16::MAX).step_by(step) {
        let halves = std::array::from_fn(|i| start.wrapping_add(i as u16));
        check(&forms, &Case { halves, ..random.case() });
    }
}

/// A page of memory with none behind it.
#[cfg(all(unix, not(miri)))]
struct PageEdge {
    start: *mut u8,
    page_bytes: usize,
}

#[cfg(all(unix, not(miri)))]
impl PageEdge {
    fn new() -> PageEdge {
        // SAFETY: a fresh mapping of two pages, whose second one is then closed.
        unsafe {
            let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
            let start = libc::mmap(std::ptr::null_mut(), 2 * page_bytes, access, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(start.cast::<u8>().add(page_bytes).cast(), page_bytes, libc::PROT_NONE),
                0
            );
            PageEdge { start: start.cast(), page_bytes }
        }
    }

    /// Where the last `n` floats of the page begin.
    fn last(&self, n: usize) -> *mut f32 {
        // SAFETY: within the page.
        unsafe { self.start.add(self.page_bytes - 4 * n).cast() }
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for PageEdge {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`.
        unsafe { libc::munmap(self.start.cast(), 2 * self.page_bytes) };
    }
}

#[test]
#[cfg(all(unix, not(miri)))]
fn partial_loads_and_stores_touch_nothing_else() {
    let edge = PageEdge::new();
    let x: [f32; LANES] = std::array::from_fn(|i| i as f32 + 1.0);
    for form in forms() {
        for n in 0..=LANES {
            let to = edge.last(n);
            let before = unsafe { to.sub(1) };
            unsafe { before.write(-1.0) };
            unsafe { (form.store_n)(to, &x, n) };
            let expected: [f32; LANES] = std::array::from_fn(|i| if i < n { x[i] } else { 0.0 });
            assert_eq!(unsafe { (form.load_n)(to, n) }, expected, "{} {n}", form.simd);
            assert_eq!(unsafe { before.read() }, -1.0, "{} {n}", form.simd);
        }
    }
}

/// How many f32 steps at `exact` lie between it and `y`.
fn ulps(y: f32, exact: f64) -> f64 {
    let exponent = ((exact.abs().to_bits() >> 52) as i32 - 1023).max(-126);
    (f64::from(y) - exact).abs() / 2_f64.powi(exponent - 23)
}

/// About four million numbers from all bit patterns, in order of these, and the rim of each range.
fn sweep() -> Vec<f32> {
    const RIMS: [f32; 8] = [-87.3, 88.3, -88.3, 0.25, -0.25, 15.0, 0.0, f32::MAX];
    let step = if cfg!(miri) { 10_000_019 } else { 1021 };
    let mut x: Vec<f32> = (0..=u32::MAX).step_by(step).map(number).collect();
    for rim in RIMS {
        x.extend([rim, rim.next_down(), rim.next_up()]);
    }
    x.extend([-0.0, f32::INFINITY, f32::NEG_INFINITY]);
    x.resize(x.len().next_multiple_of(LANES), 1.0);
    x
}

/// The largest error, in units of the last place, over those inputs of the sweep that `within` admits.
/// All forms must give the same bits everywhere.
fn worst(function: Function, exact: fn(f64) -> f64, within: fn(f32) -> bool) -> f64 {
    let x = sweep();
    let mut expected = x.clone();
    unsafe { apply_of::<Portable>(function, &mut expected) };
    for form in forms() {
        let mut y = x.clone();
        unsafe { (form.apply)(function, &mut y) };
        for ((x, y), expected) in x.iter().zip(&y).zip(&expected) {
            assert_eq!(
                y.to_bits(),
                expected.to_bits(),
                "{} {function:?} of {x}: {y} for {expected}",
                form.simd
            );
        }
    }
    let errors = x.iter().zip(expected).filter(|(x, _)| within(**x));
    let errors = errors.map(|(&x, y)| (ulps(y, exact(f64::from(x))), x));
    let (error, x) = errors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("the sweep has such inputs");
    eprintln!("{function:?}: at most {error:.3} units in the last place, at {x}");
    error
}

fn one(function: Function, x: f32) -> f32 {
    let mut lanes = [x; LANES];
    unsafe { apply_of::<Portable>(function, &mut lanes) };
    lanes[0]
}

#[test]
fn exp_is_within_two_units() {
    assert!(worst(Function::Exp, f64::exp, |x| x > -87.3 && x <= 88.3) <= 2.0);
}

#[test]
fn exp_of_masked_scores_is_exactly_zero() {
    for x in [-87.3, -87.4, -88.0, -1e5, f32::MIN, f32::NEG_INFINITY] {
        assert_eq!(one(Function::Exp, x).to_bits(), 0, "{x}");
    }
    assert_eq!(one(Function::Exp, 0.0), 1.0);
    for x in [89.0, f32::MAX, f32::INFINITY] {
        assert_eq!(one(Function::Exp, x), one(Function::Exp, 88.3), "{x}");
    }
}

#[test]
fn silu_is_within_four_units() {
    let exact = |x: f64| x / (1.0 + (-x).exp());
    assert!(worst(Function::Silu, exact, |x| x >= -88.3 && x.is_finite()) <= 4.0);
}

#[test]
fn silu_of_numbers_far_below_zero_is_as_good_as_zero() {
    for x in [-88.4, -100.0, -1e6, f32::MIN, f32::NEG_INFINITY] {
        assert!(one(Function::Silu, x).abs() < 1e-36, "{x}");
    }
}

#[test]
fn tanh_is_within_four_units() {
    assert!(worst(Function::Tanh, f64::tanh, |x| x.abs() >= f32::MIN_POSITIVE) <= 4.0);
}

#[test]
fn tanh_keeps_zeros_and_signs() {
    assert_eq!(one(Function::Tanh, 0.0).to_bits(), 0.0_f32.to_bits());
    assert_eq!(one(Function::Tanh, -0.0).to_bits(), (-0.0_f32).to_bits());
    for x in [1e-45, 1e-40, 20.0, f32::MAX, f32::INFINITY] {
        let (above, below) = (one(Function::Tanh, x), one(Function::Tanh, -x));
        assert_eq!(above, -below, "{x}");
        assert!((0.0..=1.0).contains(&above), "{x}: {above}");
    }
}

#[test]
fn what_is_no_number_stays_visible() {
    for form in forms() {
        for function in [Function::Exp, Function::Silu, Function::Tanh] {
            let mut lanes = [f32::NAN; LANES];
            unsafe { (form.apply)(function, &mut lanes) };
            assert!(lanes.iter().all(|y| y.is_nan()), "{} {function:?}: {lanes:?}", form.simd);
        }
    }
}
