//! What MLX itself reports, kept for the caller instead of printed.
#![expect(unsafe_code, reason = "registers a C callback that gets a C string")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;

use host_device::DeviceError;

use crate::DEVICE_ID;

/// A call that MLX refused.
#[derive(Clone, Debug)]
pub(crate) struct Fault(pub(crate) String);

impl From<Fault> for DeviceError {
    fn from(fault: Fault) -> Self {
        DeviceError::Failed { device: DEVICE_ID, said: fault.0 }
    }
}

/// MLX's switch for short mantissas in float32 products on NVIDIA's GPUs.
const TF32: &str = "MLX_ENABLE_TF32";

thread_local! {
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The last words of MLX on this thread.
pub(crate) fn last() -> Fault {
    let said = SAID.with_borrow_mut(Option::take);
    Fault(said.unwrap_or_else(|| "no reason was given".to_owned()))
}

/// Has MLX tell its errors to us. Without this its default ends the process.
pub(crate) fn catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Exact numbers are float32: products must not drop to the 10-bit mantissas of TF32. MLX reads this
        // once, with its first product.
        if std::env::var_os(TF32).is_none() {
            // SAFETY: happens once, before MLX starts a thread; the host's own threads set no variables.
            unsafe { std::env::set_var(TF32, "0") };
        }
        // The bindings install a handler of their own with their first call; ours goes over it.
        let _ = mlx_rs::memory::active_memory();
        // SAFETY: `note` stays valid for ever and reads its message only while it runs.
        unsafe { mlx_sys::mlx_set_error_handler(Some(note), std::ptr::null_mut(), None) };
    });
}

unsafe extern "C" fn note(message: *const c_char, _data: *mut c_void) {
    if message.is_null() {
        return;
    }
    // SAFETY: MLX hands a C string that lives as long as this call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // Behind it stands the line of the bindings' source where they were built.
    let text = text.rsplit_once(" at /").map_or(&*text, |(said, _)| said).to_owned();
    SAID.with_borrow_mut(|said| *said = Some(text));
}
