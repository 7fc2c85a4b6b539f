//! What driver and GPU have for a CPU's mapping of GPU memory over DMA-BUF, for a backend whose library makes one.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{self, CUdevice, CUresult};

/// Numbers of `CUdevice_attribute`. The second is of CUDA 13.3, and cudarc's enum, which is of an older one, may not hold it: the call
/// is looked up with numbers in place of the enums.
const EXPORTS: c_int = 124;
const MAPS: c_int = 152;

type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, CUdevice) -> c_int;

/// What the driver says of it; what it does not answer it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaBuf {
    /// CUDA version that the driver supports, as it numbers it: 13030 is 13.3.
    pub version: i32,
    /// The driver has `cuMemGetHandleForAddressRange`, which exports.
    pub call: bool,
    /// The GPU's memory can be exported as a DMA-BUF.
    pub exports: bool,
    /// A CPU can map such a DMA-BUF, which drivers older than CUDA 13.3 do not know.
    pub maps: bool,
}

impl DmaBuf {
    /// Asks the driver, which has started.
    pub(crate) fn of(device: CUdevice) -> Self {
        let mut version = 0;
        // SAFETY: `version` is a valid place.
        let known = unsafe { sys::cuDriverGetVersion(&raw mut version) } == CUresult::CUDA_SUCCESS;
        // SAFETY: a driver that has started is loaded, and stays so.
        let driver = unsafe { sys::culib() };
        // SAFETY: only looked for, not called.
        let call = unsafe { driver.get::<*mut c_void>(b"cuMemGetHandleForAddressRange\0") }.is_ok();
        // SAFETY: the type is that of cuda.h, whose enums are integers.
        let ask = unsafe { driver.get::<GetAttribute>(b"cuDeviceGetAttribute\0") };
        let has = |attribute| {
            let mut value = 0;
            // SAFETY: `value` is a valid place and `device` a device of this driver, which refuses a number that it does not know.
            ask.as_ref().is_ok_and(|ask| unsafe { ask(&raw mut value, attribute, device) } == 0 && value != 0)
        };
        DmaBuf { version: if known { version } else { 0 }, call, exports: has(EXPORTS), maps: has(MAPS) }
    }
}
