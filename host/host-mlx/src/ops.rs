//! MLX's operations as functions of arrays. All are lazy; the current thread's default stream runs them.
//!
//! The published crate gives arrays, their lifetimes and evaluation; what it does not have (modes of
//! quantisation, slice updates, kernels of our own for CUDA) or has only with more work a call goes to the C
//! interface beneath it.
#![expect(unsafe_code, reason = "calls MLX's C interface with live arrays")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use mlx_rs::{Array, Dtype};
use mlx_sys::{mlx_array, mlx_dtype, mlx_optional_dtype, mlx_optional_float, mlx_optional_int, mlx_stream};

use crate::fault::{self, Fault};

/// An array, or what MLX said instead.
pub(crate) type Made = Result<Array, Fault>;

/// A function of one array in the C interface.
pub(crate) type Unary = unsafe extern "C" fn(*mut mlx_array, mlx_array, mlx_stream) -> c_int;
/// A function of two arrays in the C interface.
pub(crate) type Binary = unsafe extern "C" fn(*mut mlx_array, mlx_array, mlx_array, mlx_stream) -> c_int;
/// A reduction over one axis in the C interface.
pub(crate) type Reduce = unsafe extern "C" fn(*mut mlx_array, mlx_array, c_int, bool, mlx_stream) -> c_int;

const NONE: mlx_array = mlx_array { ctx: null_mut() };

thread_local! {
    static STREAM: Cell<Option<mlx_stream>> = const { Cell::new(None) };
}

/// The default stream of this thread on the default device; kept for the thread's life.
pub(crate) fn stream() -> mlx_stream {
    STREAM.get().unwrap_or_else(|| {
        fault::catch();
        // SAFETY: both calls fill handles made here; the device's is freed, the stream's is kept.
        let stream = unsafe {
            let mut device = mlx_sys::mlx_device_new();
            let mut stream = mlx_sys::mlx_stream_new();
            mlx_sys::mlx_get_default_device(&mut device);
            mlx_sys::mlx_get_default_stream(&mut stream, device);
            mlx_sys::mlx_device_free(device);
            stream
        };
        STREAM.set(Some(stream));
        stream
    })
}

/// Runs one call that fills an array.
fn made(call: impl FnOnce(*mut mlx_array, mlx_stream) -> c_int) -> Made {
    let stream = stream();
    // SAFETY: a fresh handle; `call` fills it or fails, and the array frees it either way.
    let mut handle = unsafe { mlx_sys::mlx_array_new() };
    let status = call(&mut handle, stream);
    // SAFETY: the handle is owned here alone.
    let array = unsafe { Array::from_ptr(handle) };
    if status == 0 { Ok(array) } else { Err(fault::last()) }
}

fn or_none(x: Option<&Array>) -> mlx_array {
    x.map_or(NONE, Array::as_ptr)
}

fn some_int(value: usize) -> mlx_optional_int {
    mlx_optional_int { value: value as c_int, has_value: true }
}

/// A list of arrays for one call.
pub(crate) struct List(mlx_sys::mlx_vector_array);

impl List {
    fn new<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Self {
        // SAFETY: the list is made here and holds its own references.
        let list = List(unsafe { mlx_sys::mlx_vector_array_new() });
        for array in arrays {
            // SAFETY: both are alive.
            unsafe { mlx_sys::mlx_vector_array_append_value(list.0, array.as_ptr()) };
        }
        list
    }
}

/// A list of arrays for one call.
pub(crate) fn list<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> List {
    List::new(arrays)
}

impl List {
    /// What the C interface takes; valid while the list lives.
    pub(crate) fn handle(&self) -> mlx_sys::mlx_vector_array {
        self.0
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { mlx_sys::mlx_vector_array_free(self.0) };
    }
}

// ---- making, reading, evaluating

/// An array of a copy of `bytes`, which hold `shape` elements of `dtype`.
pub(crate) fn from_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Array {
    fault::catch();
    let n_elements: usize = shape.iter().map(|n| *n as usize).product();
    let size = match dtype {
        Dtype::Bool | Dtype::Uint8 => 1,
        Dtype::Float16 | Dtype::Bfloat16 => 2,
        _ => 4,
    };
    assert_eq!(bytes.len(), n_elements * size, "bytes of an array of shape {shape:?}");
    // SAFETY: `bytes` holds all elements, as asserted; MLX copies them before it returns.
    unsafe {
        let handle = mlx_sys::mlx_array_new_data(
            bytes.as_ptr().cast(),
            shape.as_ptr(),
            shape.len() as c_int,
            mlx_dtype::from(dtype),
        );
        Array::from_ptr(handle)
    }
}

/// Integers as an array.
pub(crate) fn from_ints(values: &[i32], shape: &[i32]) -> Array {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    from_bytes(&bytes, shape, Dtype::Int32)
}

/// Ids as an array.
pub(crate) fn from_ids(values: &[u32], shape: &[i32]) -> Array {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    from_bytes(&bytes, shape, Dtype::Uint32)
}

/// Floats as an array of `dtype`.
pub(crate) fn from_floats(values: &[f32], shape: &[i32], dtype: Dtype) -> Made {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    cast(&from_bytes(&bytes, shape, Dtype::Float32), dtype)
}

/// One number of `dtype`, without dimensions.
pub(crate) fn scalar(value: f32, dtype: Dtype) -> Made {
    cast(&Array::from_f32(value), dtype)
}

/// Begins to compute without waiting.
pub(crate) fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), Fault> {
    let list = List::new(arrays);
    // SAFETY: the list is alive.
    if unsafe { mlx_sys::mlx_async_eval(list.0) } == 0 { Ok(()) } else { Err(fault::last()) }
}

/// Computes and waits.
pub(crate) fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), Fault> {
    let list = List::new(arrays);
    // SAFETY: the list is alive.
    if unsafe { mlx_sys::mlx_eval(list.0) } == 0 { Ok(()) } else { Err(fault::last()) }
}

/// All elements as floats; computes and waits.
pub(crate) fn read_floats(x: &Array) -> Result<Vec<f32>, Fault> {
    let x = contiguous(&cast(x, Dtype::Float32)?)?;
    eval([&x])?;
    // SAFETY: evaluated just now, contiguous float32 of that many elements.
    unsafe {
        let data = mlx_sys::mlx_array_data_float32(x.as_ptr());
        if data.is_null() { Err(fault::last()) } else { Ok(std::slice::from_raw_parts(data, x.size()).to_vec()) }
    }
}

/// All elements of a contiguous uint32 array; computes and waits.
pub(crate) fn read_ints(x: &Array) -> Result<Vec<u32>, Fault> {
    eval([x])?;
    // SAFETY: evaluated just now; the caller knows its layout.
    unsafe {
        let data = mlx_sys::mlx_array_data_uint32(x.as_ptr());
        if data.is_null() { Err(fault::last()) } else { Ok(std::slice::from_raw_parts(data, x.size()).to_vec()) }
    }
}

// ---- elementwise

pub(crate) fn unary(f: Unary, x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { f(out, x.as_ptr(), stream) })
}

pub(crate) fn binary(f: Binary, a: &Array, b: &Array) -> Made {
    // SAFETY: both are alive.
    made(|out, stream| unsafe { f(out, a.as_ptr(), b.as_ptr(), stream) })
}

pub(crate) fn add(a: &Array, b: &Array) -> Made {
    binary(mlx_sys::mlx_add, a, b)
}

pub(crate) fn sub(a: &Array, b: &Array) -> Made {
    binary(mlx_sys::mlx_subtract, a, b)
}

pub(crate) fn mul(a: &Array, b: &Array) -> Made {
    binary(mlx_sys::mlx_multiply, a, b)
}

/// `x * factor`, in the dtype of `x`.
pub(crate) fn scale(x: &Array, factor: f32) -> Made {
    mul(x, &scalar(factor, x.dtype())?)
}

pub(crate) fn cast(x: &Array, dtype: Dtype) -> Made {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_astype(out, x.as_ptr(), dtype.into(), stream) })
}

/// `a` where the condition holds, else `b`.
pub(crate) fn choose(condition: &Array, a: &Array, b: &Array) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe { mlx_sys::mlx_where(out, condition.as_ptr(), a.as_ptr(), b.as_ptr(), stream) })
}

/// A function of arrays whose elementwise operations run as one kernel.
pub(crate) type Formula = fn(&[Array]) -> Made;

/// What [`Compiled`] traces.
pub(crate) type Traced = dyn Fn(&[Array]) -> Result<Vec<Array>, Fault>;

/// A function that MLX's compiler traces when it meets new shapes, and replays otherwise.
///
/// MLX keeps its traces by thread: it is made, called and dropped on one.
pub(crate) struct Compiled {
    closure: mlx_sys::mlx_closure,
    /// What the function itself reported in the last tracing; owned by the closure's payload.
    said: Rc<RefCell<Option<Fault>>>,
}

/// The closure's payload.
struct Payload {
    traced: Box<Traced>,
    said: Rc<RefCell<Option<Fault>>>,
}

impl Compiled {
    /// `is_shapeless`: one trace serves all shapes, which only elementwise functions allow.
    pub(crate) fn new(traced: Box<Traced>, is_shapeless: bool) -> Result<Self, Fault> {
        fault::catch();
        let said = Rc::new(RefCell::new(None));
        let payload = Box::into_raw(Box::new(Payload { traced, said: said.clone() }));
        // SAFETY: the payload lives until the last copy of the closure frees it by `forget`.
        unsafe {
            let plain = mlx_sys::mlx_closure_new_func_payload(Some(trace), payload.cast(), Some(forget));
            let mut closure = mlx_sys::mlx_closure_new();
            let status = mlx_sys::mlx_compile(&mut closure, plain, is_shapeless);
            mlx_sys::mlx_closure_free(plain);
            if status == 0 { Ok(Compiled { closure, said }) } else { Err(fault::last()) }
        }
    }

    /// Lazily applies it.
    pub(crate) fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>, Fault> {
        let list = List::new(inputs.iter().copied());
        // SAFETY: all handles are alive; what is read from the result holds its own references.
        unsafe {
            let mut outputs = mlx_sys::mlx_vector_array_new();
            let status = mlx_sys::mlx_closure_apply(&mut outputs, self.closure, list.0);
            let arrays = if status == 0 { items(outputs) } else { Err(fault::last()) };
            mlx_sys::mlx_vector_array_free(outputs);
            arrays.map_err(|of_mlx| self.said.take().unwrap_or(of_mlx))
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { mlx_sys::mlx_closure_free(self.closure) };
    }
}

/// The arrays of a list.
///
/// # Safety
/// The list is alive.
pub(crate) unsafe fn items(list: mlx_sys::mlx_vector_array) -> Result<Vec<Array>, Fault> {
    // SAFETY: as the caller promises; each array read holds its own reference.
    unsafe {
        let get = |index| {
            let mut handle = mlx_sys::mlx_array_new();
            let status = mlx_sys::mlx_vector_array_get(&mut handle, list, index);
            let array = Array::from_ptr(handle);
            if status == 0 { Ok(array) } else { Err(fault::last()) }
        };
        (0..mlx_sys::mlx_vector_array_size(list)).map(get).collect()
    }
}

/// Traces a function for MLX's compiler: gives its results, or tells by a status that there are none.
unsafe extern "C" fn trace(
    out: *mut mlx_sys::mlx_vector_array,
    inputs: mlx_sys::mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    // SAFETY: the payload was made by `Compiled::new` and lives as long as the closure; the list is alive.
    unsafe {
        let payload = &*payload.cast::<Payload>();
        let traced = items(inputs).and_then(|arrays| (payload.traced)(&arrays));
        match traced {
            Ok(results) => mlx_sys::mlx_vector_array_set(out, List::new(&results).0),
            Err(fault) => {
                payload.said.replace(Some(fault));
                1
            }
        }
    }
}

unsafe extern "C" fn forget(payload: *mut c_void) {
    // SAFETY: made by `Compiled::new` from a box; MLX calls this once, with the last copy of the closure.
    drop(unsafe { Box::from_raw(payload.cast::<Payload>()) });
}

thread_local! {
    /// By the formula's address; kept for the thread's life, as MLX keeps what it compiled.
    static COMPILED: RefCell<HashMap<usize, Rc<Compiled>>> = RefCell::new(HashMap::new());
}

/// Runs a formula as one kernel; it is compiled when first met.
///
/// MLX's CPU build would need a C++ compiler for this at run time: there, call the formula itself.
pub(crate) fn compiled(formula: Formula, inputs: &[&Array]) -> Made {
    let key = formula as usize;
    let known = COMPILED.with_borrow(|known| known.get(&key).cloned());
    let known = match known {
        Some(known) => known,
        None => {
            let made = Compiled::new(Box::new(move |x| Ok(vec![formula(x)?])), true)?;
            COMPILED.with_borrow_mut(|known| known.entry(key).or_insert(Rc::new(made)).clone())
        }
    };
    known.call(inputs)?.pop().ok_or_else(|| Fault("a formula gave no array".to_owned()))
}

/// Has MLX's compiler replay what it traced without making kernels of it, which its CPU build would need a C++
/// compiler for at run time.
pub(crate) fn trace_only() {
    // SAFETY: sets one number.
    unsafe { mlx_sys::mlx_set_compile_mode(mlx_sys::mlx_compile_mode__MLX_COMPILE_MODE_NO_FUSE) };
}

// ---- shapes

pub(crate) fn reshape(x: &Array, shape: &[i32]) -> Made {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    // SAFETY: `x` and `shape` are alive.
    made(|out, stream| unsafe { mlx_sys::mlx_reshape(out, x.as_ptr(), shape.as_ptr(), shape.len(), stream) })
}

pub(crate) fn transpose(x: &Array, axes: &[i32]) -> Made {
    // SAFETY: `x` and `axes` are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_transpose_axes(out, x.as_ptr(), axes.as_ptr(), axes.len(), stream)
    })
}

pub(crate) fn broadcast(x: &Array, shape: &[i32]) -> Made {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    // SAFETY: `x` and `shape` are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_broadcast_to(out, x.as_ptr(), shape.as_ptr(), shape.len(), stream)
    })
}

pub(crate) fn contiguous(x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_contiguous(out, x.as_ptr(), false, stream) })
}

/// The bounds of a slice of one axis.
fn bounds(x: &Array, axis: usize, start: usize, stop: usize) -> [Vec<c_int>; 3] {
    let shape = x.shape();
    let mut from = vec![0; shape.len()];
    let mut to = shape.to_vec();
    (from[axis], to[axis]) = (start as c_int, stop as c_int);
    let steps = vec![1; shape.len()];
    [from, to, steps]
}

/// Elements `start..stop` of one axis.
pub(crate) fn slice(x: &Array, axis: usize, start: usize, stop: usize) -> Made {
    if start == 0 && stop == x.shape()[axis] as usize {
        return Ok(x.clone());
    }
    let [from, to, steps] = bounds(x, axis, start, stop);
    let n = from.len();
    // SAFETY: all three lists have one entry a dimension.
    made(|out, stream| unsafe {
        mlx_sys::mlx_slice(out, x.as_ptr(), from.as_ptr(), n, to.as_ptr(), n, steps.as_ptr(), n, stream)
    })
}

/// `x` with elements from `start` on of one axis replaced; in place where nothing else holds `x`.
pub(crate) fn update(x: &Array, part: &Array, axis: usize, start: usize) -> Made {
    let stop = start + part.shape()[axis] as usize;
    let [from, to, steps] = bounds(x, axis, start, stop);
    let n = from.len();
    // SAFETY: all three lists have one entry a dimension.
    made(|out, stream| unsafe {
        mlx_sys::mlx_slice_update(
            out,
            x.as_ptr(),
            part.as_ptr(),
            from.as_ptr(),
            n,
            to.as_ptr(),
            n,
            steps.as_ptr(),
            n,
            stream,
        )
    })
}

/// Joins arrays along one axis.
pub(crate) fn concat(parts: &[&Array], axis: usize) -> Made {
    if let [only] = parts {
        return Ok((*only).clone());
    }
    let list = List::new(parts.iter().copied());
    // SAFETY: the list is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_concatenate_axis(out, list.0, axis as c_int, stream) })
}

pub(crate) fn zeros(shape: &[i32], dtype: Dtype) -> Made {
    // SAFETY: `shape` is alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_zeros(out, shape.as_ptr(), shape.len(), dtype.into(), stream)
    })
}


/// Each element `n` times in a row along one axis.
pub(crate) fn repeat(x: &Array, n: usize, axis: usize) -> Made {
    if n == 1 {
        return Ok(x.clone());
    }
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_repeat_axis(out, x.as_ptr(), n as c_int, axis as c_int, stream)
    })
}

// ---- indices, order, reductions

/// Rows of one axis by index.
pub(crate) fn take(x: &Array, indices: &Array, axis: usize) -> Made {
    // SAFETY: both are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_take_axis(out, x.as_ptr(), indices.as_ptr(), axis as c_int, stream)
    })
}

/// Elements of the last axis by index; the other axes run along.
pub(crate) fn take_along(x: &Array, indices: &Array) -> Made {
    // SAFETY: both are alive.
    made(|out, stream| unsafe { mlx_sys::mlx_take_along_axis(out, x.as_ptr(), indices.as_ptr(), -1, stream) })
}

/// `x` with elements of the last axis replaced, by index.
pub(crate) fn put_along(x: &Array, indices: &Array, values: &Array) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_put_along_axis(out, x.as_ptr(), indices.as_ptr(), values.as_ptr(), -1, stream)
    })
}

/// The order of the last axis, smallest first, lower index first on ties.
pub(crate) fn argsort(x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_argsort_axis(out, x.as_ptr(), -1, stream) })
}

/// The last axis, smallest first.
pub(crate) fn sort(x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_sort_axis(out, x.as_ptr(), -1, stream) })
}

pub(crate) fn reduce(f: Reduce, x: &Array, axis: usize, keep: bool) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { f(out, x.as_ptr(), axis as c_int, keep, stream) })
}

pub(crate) fn cumsum(x: &Array, axis: usize) -> Made {
    let same = mlx_optional_dtype { value: 0, has_value: false };
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_cumsum_axis(out, x.as_ptr(), axis as c_int, false, true, same, stream)
    })
}

/// Softmax of the last axis, in float32 inside.
pub(crate) fn softmax(x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_softmax_axis(out, x.as_ptr(), -1, true, stream) })
}

// ---- products

pub(crate) fn matmul(a: &Array, b: &Array) -> Made {
    binary(mlx_sys::mlx_matmul, a, b)
}

/// `a b + c`.
pub(crate) fn matmul_add(a: &Array, b: &Array, c: &Array) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_addmm(out, c.as_ptr(), a.as_ptr(), b.as_ptr(), 1.0, 1.0, stream)
    })
}

/// Each row of `x` times the matrix of `w` that its index names.
pub(crate) fn gather_matmul(x: &Array, w: &Array, indices: &Array) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_gather_mm(out, x.as_ptr(), w.as_ptr(), NONE, indices.as_ptr(), false, stream)
    })
}

/// Codes with their scales, as MLX packs them.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) codes: Array,
    pub(crate) scales: Array,
    /// Affine groups have them.
    pub(crate) biases: Option<Array>,
    pub(crate) bits: usize,
    pub(crate) group_size: usize,
    pub(crate) mode: &'static CStr,
}

/// The affine codes of `x` in groups along its last axis.
pub(crate) fn quantise(x: &Array, bits: usize, group_size: usize) -> Result<Packed, Fault> {
    let (group, width, stream) = (some_int(group_size), some_int(bits), stream());
    // SAFETY: `x` is alive; the list is made and freed here, and what is read from it holds its own references.
    let made = unsafe {
        let mut list = mlx_sys::mlx_vector_array_new();
        let status =
            mlx_sys::mlx_quantize(&mut list, x.as_ptr(), group, width, c"affine".as_ptr(), NONE, stream);
        let made = if status == 0 { items(list) } else { Err(fault::last()) };
        mlx_sys::mlx_vector_array_free(list);
        made?
    };
    match <[Array; 3]>::try_from(made) {
        Ok([codes, scales, biases]) => {
            Ok(Packed { codes, scales, biases: Some(biases), bits, group_size, mode: c"affine" })
        }
        Err(_) => Err(Fault("codes come with scales and biases".to_owned())),
    }
}

/// `x w^T`.
pub(crate) fn quantised_matmul(x: &Array, w: &Packed) -> Made {
    quantised_product(x, w, true)
}

/// `x w^T`, or `x w` where the matrix is not turned.
pub(crate) fn quantised_product(x: &Array, w: &Packed, is_turned: bool) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_quantized_matmul(
            out,
            x.as_ptr(),
            w.codes.as_ptr(),
            w.scales.as_ptr(),
            or_none(w.biases.as_ref()),
            is_turned,
            some_int(w.group_size),
            some_int(w.bits),
            w.mode.as_ptr(),
            stream,
        )
    })
}

/// Each row of `x` times the transposed matrix of `w` that its index names.
pub(crate) fn gather_quantised_matmul(x: &Array, w: &Packed, indices: &Array) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_gather_qmm(
            out,
            x.as_ptr(),
            w.codes.as_ptr(),
            w.scales.as_ptr(),
            or_none(w.biases.as_ref()),
            NONE,
            indices.as_ptr(),
            true,
            some_int(w.group_size),
            some_int(w.bits),
            w.mode.as_ptr(),
            false,
            stream,
        )
    })
}

/// The numbers that codes stand for.
pub(crate) fn dequantise(w: &Packed, dtype: Dtype) -> Made {
    let dtype = mlx_optional_dtype { value: dtype.into(), has_value: true };
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_dequantize(
            out,
            w.codes.as_ptr(),
            w.scales.as_ptr(),
            or_none(w.biases.as_ref()),
            some_int(w.group_size),
            some_int(w.bits),
            w.mode.as_ptr(),
            NONE,
            dtype,
            stream,
        )
    })
}

// ---- fused

pub(crate) fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe { mlx_sys::mlx_fast_rms_norm(out, x.as_ptr(), or_none(weight), eps, stream) })
}

pub(crate) fn layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, eps: f32) -> Made {
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_fast_layer_norm(out, x.as_ptr(), or_none(weight), or_none(bias), eps, stream)
    })
}

/// Where the positions of a rotation begin.
pub(crate) enum RopeOffset<'a> {
    /// The same for all rows.
    One(usize),
    /// One a row: int32 `[rows]`.
    Rows(&'a Array),
}

/// Rotates `[rows, H, T, D]`; `periods` are positions a radian, one a pair.
pub(crate) fn rope(
    x: &Array,
    dims: usize,
    is_interleaved: bool,
    periods: &Array,
    offset: &RopeOffset<'_>,
) -> Made {
    let no_base = mlx_optional_float { value: 0.0, has_value: false };
    let dims = dims as c_int;
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        let (x, periods) = (x.as_ptr(), periods.as_ptr());
        match offset {
            RopeOffset::One(offset) => {
                let offset = *offset as c_int;
                mlx_sys::mlx_fast_rope(out, x, dims, is_interleaved, no_base, 1.0, offset, periods, stream)
            }
            RopeOffset::Rows(offset) => {
                let offset = offset.as_ptr();
                mlx_sys::mlx_fast_rope_dynamic(out, x, dims, is_interleaved, no_base, 1.0, offset, periods, stream)
            }
        }
    })
}

/// Which keys a query sees in fused attention.
#[derive(Clone, Debug)]
pub(crate) enum AttentionMask {
    /// All.
    None,
    /// Those up to its own position, counted from the end.
    Causal,
    /// Where the array is true.
    Array(Array),
}

/// Fused attention over `[rows, H, T, D]`.
pub(crate) fn attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: &AttentionMask,
    sinks: Option<&Array>,
) -> Made {
    let (mode, mask) = match mask {
        AttentionMask::None => (c"", NONE),
        AttentionMask::Causal => (c"causal", NONE),
        AttentionMask::Array(mask) => (c"", mask.as_ptr()),
    };
    // SAFETY: all are alive.
    made(|out, stream| unsafe {
        mlx_sys::mlx_fast_scaled_dot_product_attention(
            out,
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            scale,
            mode.as_ptr(),
            mask,
            or_none(sinks),
            false,
            stream,
        )
    })
}

/// The index of the largest element of the last axis, the lowest on ties.
pub(crate) fn argmax(x: &Array) -> Made {
    // SAFETY: `x` is alive.
    made(|out, stream| unsafe { mlx_sys::mlx_argmax_axis(out, x.as_ptr(), -1, false, stream) })
}
