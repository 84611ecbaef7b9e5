//! The symbols a shim exports, in one list: the wrappers by name, and the four that need the shim's
//! set-up function. Only names of entry points whose ABI the wrapper knows are here; any other
//! answer of the driver's passes through untouched.

/// Hands the names of all hooked driver functions to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_hook {
    ($($callback:tt)+) => {
        $($callback)+! {
            // cards and contexts
            cuCtxDestroy, cuCtxDestroy_v2, cuDevicePrimaryCtxRelease,
            cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2,
            // allocation
            cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemAllocManaged, cuMemFree_v2, cuMemAllocAsync,
            cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
            cuMemFreeAsync, cuMemFreeAsync_ptsz, cuMemPoolCreate, cuMemPoolDestroy,
            cuMemPoolTrimTo, cuMemPoolSetAttribute, cuMemPoolGetAttribute, cuMemCreate,
            cuMemRelease, cuMemRetainAllocationHandle, cuMemMap, cuMemUnmap, cuArrayCreate_v2,
            cuArray3DCreate_v2, cuArrayDestroy, cuMipmappedArrayCreate, cuMipmappedArrayDestroy,
            cuGraphAddMemAllocNode, cuDeviceGraphMemTrim, cuIpcGetMemHandle,
            cuMemGetHandleForAddressRange,
            // launches
            cuLaunchKernel, cuLaunchKernel_ptsz, cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
            cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
            cuLaunchCooperativeKernelMultiDevice, cuLaunch, cuLaunchGrid, cuLaunchGridAsync,
            // graphs
            cuGraphLaunch, cuGraphLaunch_ptsz, cuGraphInstantiate, cuGraphInstantiate_v2,
            cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
            cuGraphInstantiateWithParams_ptsz, cuGraphExecDestroy, cuGraphExecUpdate,
            cuGraphExecUpdate_v2, cuGraphExecKernelNodeSetParams,
            cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemsetNodeSetParams,
            cuGraphExecMemcpyNodeSetParams, cuGraphExecChildGraphNodeSetParams,
            cuGraphExecNodeSetParams, cuGraphNodeSetEnabled,
            // functions
            cuModuleGetFunction, cuLibraryGetKernel, cuModuleUnload, cuLibraryUnload,
            cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide,
            cuTensorMapReplaceAddress,
            // streams and waiting
            cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamSynchronize,
            cuStreamSynchronize_ptsz, cuCtxSynchronize, cuCtxSynchronize_v2, cuEventSynchronize,
            cuStreamBeginCapture, cuStreamBeginCapture_ptsz,
            cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, cuStreamBeginCaptureToGraph,
            cuStreamBeginCaptureToGraph_ptsz, cuStreamEndCapture, cuStreamEndCapture_ptsz,
            // answers about memory
            cuMemGetInfo_v2, cuDeviceTotalMem_v2, cuPointerGetAttribute, cuPointerGetAttributes,
            cuMemRangeGetAttribute, cuMemRangeGetAttributes,
            // memset
            cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuMemsetD8Async, cuMemsetD8Async_ptsz,
            cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
            cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD16Async, cuMemsetD16Async_ptsz,
            cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async,
            cuMemsetD2D16Async_ptsz, cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD32Async,
            cuMemsetD32Async_ptsz, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async,
            cuMemsetD2D32Async_ptsz,
            // memcpy
            cuMemcpy, cuMemcpy_ptds, cuMemcpyAsync, cuMemcpyAsync_ptsz, cuMemcpyHtoD_v2,
            cuMemcpyHtoD_v2_ptds, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
            cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, cuMemcpyDtoHAsync_v2,
            cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds,
            cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyPeer, cuMemcpyPeer_ptds,
            cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds,
            cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DAsync_v2,
            cuMemcpy2DAsync_v2_ptsz, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DAsync_v2,
            cuMemcpy3DAsync_v2_ptsz, cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
            cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz, cuMemcpy3DPeer,
            cuMemcpy3DPeer_ptds, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz,
            cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync_v2,
            cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpyWithAttributesAsync,
            cuMemcpyWithAttributesAsync_ptsz, cuMemcpy3DWithAttributesAsync,
            cuMemcpy3DWithAttributesAsync_ptsz,
        }
    };
}

macro_rules! name_list {
    ($($name:ident,)*) => {
        /// Names of every symbol that [`crate::export_all!`] defines.
        pub const EXPORTS: &[&str] = &[
            "dlsym", "cuInit", "cuGetProcAddress", "cuGetProcAddress_v2",
            "cuptiActivityRegisterCallbacks",
            $(stringify!($name),)*
        ];
    };
}
for_each_hook!(name_list);

/// Defines the exports that only jump to their wrapper: registers, stack and return address stay
/// as the caller left them.
#[doc(hidden)]
#[macro_export]
macro_rules! __jump_exports {
    ($($name:ident,)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            $crate::__jump!($crate::wrappers::$name)
        }
    )*};
}

/// The body of a naked function that only jumps.
#[doc(hidden)]
#[macro_export]
macro_rules! __jump {
    ($($to:tt)+) => {{
        #[cfg(target_arch = "x86_64")]
        ::core::arch::naked_asm!("jmp {}", sym $($to)+);
        #[cfg(target_arch = "aarch64")]
        ::core::arch::naked_asm!("b {}", sym $($to)+);
    }};
}

/// Defines every exported symbol in the calling shim crate. The argument is the path of a
/// `fn()` that calls [`crate::install`]. Under `cfg(test)` nothing is `no_mangle`.
#[macro_export]
macro_rules! export_all {
    ($setup:path) => {
        const TRANSIT_SET_UP: fn() = $setup;
        // Under `cfg(test)` no export is kept, and what they lead to would count as unused.
        const _: fn() = $setup;

        /// The exported symbols: all of them jump into the hook crate.
        #[allow(non_snake_case, clippy::missing_safety_doc)]
        mod transit_exports {
            $crate::for_each_hook!($crate::__jump_exports);

            /// The slow half of `dlsym`: only names that start with `cu` come here.
            unsafe extern "C" fn answer(
                handle: *mut ::core::ffi::c_void,
                name: *const ::core::ffi::c_char,
            ) -> *mut ::core::ffi::c_void {
                $crate::state::set_up_once(super::TRANSIT_SET_UP);
                // SAFETY: the caller of `dlsym` keeps `dlsym`'s contract.
                unsafe { $crate::resolve::look_up(handle, name) }
            }

            $crate::__dlsym_export!(answer);

            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            unsafe extern "C" fn cuptiActivityRegisterCallbacks() {
                $crate::__jump!($crate::neighbours::cuptiActivityRegisterCallbacks)
            }

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn cuInit(flags: u32) -> u32 {
                $crate::state::set_up_once(super::TRANSIT_SET_UP);
                // SAFETY: the caller keeps `cuInit`'s contract.
                unsafe { $crate::wrappers::cuInit(flags) }
            }

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn cuGetProcAddress(
                symbol: *const ::core::ffi::c_char,
                answer: *mut *mut ::core::ffi::c_void,
                version: i32,
                flags: u64,
            ) -> u32 {
                $crate::state::set_up_once(super::TRANSIT_SET_UP);
                // SAFETY: the caller keeps `cuGetProcAddress`' contract.
                unsafe { $crate::wrappers::cuGetProcAddress(symbol, answer, version, flags) }
            }

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn cuGetProcAddress_v2(
                symbol: *const ::core::ffi::c_char,
                answer: *mut *mut ::core::ffi::c_void,
                version: i32,
                flags: u64,
                status: *mut i32,
            ) -> u32 {
                $crate::state::set_up_once(super::TRANSIT_SET_UP);
                // SAFETY: the caller keeps `cuGetProcAddress_v2`'s contract.
                unsafe {
                    $crate::wrappers::cuGetProcAddress_v2(symbol, answer, version, flags, status)
                }
            }
        }
    };
}

/// The exported `dlsym`. `RTLD_NEXT` and names that do not start with `cu` jump to the real one
/// with the caller's return address in place; the rest ask `$answer` first (null: jump to the real
/// one after all; 1: answer null).
#[doc(hidden)]
#[macro_export]
macro_rules! __dlsym_export {
    ($answer:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn dlsym() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                $crate::__dlsym_x86_64!(),
                answer = sym $answer,
                real = sym $crate::resolve::REAL_DLSYM,
                find = sym $crate::resolve::real_dlsym_address,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                $crate::__dlsym_aarch64!(),
                answer = sym $answer,
                real = sym $crate::resolve::REAL_DLSYM,
                find = sym $crate::resolve::real_dlsym_address,
            );
        }
    };
}
