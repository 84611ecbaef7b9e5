//! The buffers CUPTI fills, allocated once. CUPTI takes one when it needs it and hands it back
//! full; both happen on threads we do not know, so all that is done there is moving a number
//! between two lists. When none is left CUPTI drops records and counts them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Size of one buffer. CUPTI 13 gives every thread of the job its own.
const BUFFER_BYTES: usize = 256 << 10;
/// Number of buffers: 32 MiB in all, of which untouched ones cost nothing.
const BUFFERS: usize = 128;

/// A buffer CUPTI has handed back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) buffer: *mut u8,
    pub(super) valid_bytes: usize,
}

// SAFETY: a full buffer belongs to whoever takes it from the queue; CUPTI no longer writes it.
unsafe impl Send for Full {}

#[derive(Debug, Default)]
struct Lists {
    /// Keeps the memory alive; never shrinks.
    memory: Vec<Box<[u64]>>,
    free: Vec<usize>,
    full: VecDeque<Full>,
}

/// The process' buffers: CUPTI's callbacks have no argument to carry anything else.
#[derive(Debug)]
pub(super) struct Pool {
    lists: Mutex<Lists>,
}

pub(super) static POOL: Pool = Pool {
    lists: Mutex::new(Lists::EMPTY),
};

impl Lists {
    const EMPTY: Self = Self {
        memory: Vec::new(),
        free: Vec::new(),
        full: VecDeque::new(),
    };
}

impl Pool {
    /// Allocates the buffers, once.
    pub(super) fn fill(&self) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if !lists.memory.is_empty() {
            return;
        }
        lists.full.reserve(BUFFERS);
        for _ in 0..BUFFERS {
            let mut buffer = vec![0_u64; BUFFER_BYTES / 8].into_boxed_slice();
            let address = buffer.as_mut_ptr() as usize;
            lists.memory.push(buffer);
            lists.free.push(address);
        }
    }

    /// The oldest full buffer.
    pub(super) fn take(&self) -> Option<Full> {
        self.lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .full
            .pop_front()
    }

    /// Gives a buffer back after its records have been read.
    pub(super) fn give_back(&self, full: Full) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.free.push(full.buffer as usize);
    }
}

/// CUPTI wants a buffer.
pub(super) unsafe extern "C" fn on_request(
    buffer: *mut *mut u8,
    bytes: *mut usize,
    records: *mut usize,
) {
    let found = POOL
        .lists
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .free
        .pop();
    let (address, size) = found.map_or((0, 0), |address| (address, BUFFER_BYTES));
    if !buffer.is_null() {
        // SAFETY: CUPTI passes writable out-pointers.
        unsafe { buffer.write(address as *mut u8) };
    }
    if !bytes.is_null() {
        // SAFETY: as above.
        unsafe { bytes.write(size) };
    }
    if !records.is_null() {
        // SAFETY: as above; 0 means as many records as fit.
        unsafe { records.write(0) };
    }
}

/// CUPTI hands a buffer back.
pub(super) unsafe extern "C" fn on_complete(
    _context: *mut std::ffi::c_void,
    _stream: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid_bytes: usize,
) {
    if buffer.is_null() {
        return;
    }
    let mut lists = POOL.lists.lock().unwrap_or_else(PoisonError::into_inner);
    if valid_bytes == 0 {
        lists.free.push(buffer as usize);
    } else {
        lists.full.push_back(Full {
            buffer,
            valid_bytes,
        });
    }
}
