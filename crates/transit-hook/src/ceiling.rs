//! How much managed memory the job may have, and what `cuMemGetInfo` says about it: one budget for
//! both, per device.
//!
//! * Normally: what the device had free when the job first allocated on it, less unconverted bytes
//!   since, plus what the host can give ([`crate::host`]).
//! * `TRANSIT_NO_OVERSUBSCRIBE`: free memory at first contact - reserve - unconverted bytes since -
//!   what others took meanwhile; besides, the driver must have the request and the reserve free at
//!   the time. The reserve is 4 GiB; where 4 GiB are the whole card or more, an eighth of the card.
//!   Requests for unconverted memory that would break the ceiling fail as well. One converting
//!   process per GPU: a second leaves its allocations as they are.
//! * `TRANSIT_CEILING_BYTES` bounds the sum over all devices besides.

use std::sync::OnceLock;

use crate::driver::Driver;
use crate::ledger::Sum;
use crate::observer::Allocation;
use crate::settings::Settings;
use crate::{gpu_lock, host, log};

/// Kept free on a card under `TRANSIT_NO_OVERSUBSCRIBE`.
const RESERVE_BYTES: u64 = 4 << 30;
/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
const CONCURRENT_MANAGED_ACCESS: i32 = 89;
/// Devices told apart; beyond, allocations are left alone.
const MOST_DEVICES: usize = 64;

/// What may be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it managed; its bytes are already counted.
    Convert,
    /// Fail it as out of memory.
    OutOfMemory,
    /// Pass it through.
    LeaveAlone,
    /// Another process converts on this GPU: pass it through, but make no managed memory.
    Taken,
}

/// What was found at the first allocation on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    /// Free bytes then, after context creation.
    pub(crate) free_bytes: u64,
    /// Total bytes.
    pub(crate) total_bytes: u64,
    /// Managed memory can be used by host and device at once.
    pub(crate) concurrent: bool,
}

struct Book {
    contact: OnceLock<Contact>,
    /// No other process converts on this GPU. Found out at the first request for managed memory:
    /// a rank that only looks at another rank's device must not keep it out.
    alone: OnceLock<bool>,
    managed: Sum,
    unconverted: Sum,
}

impl Book {
    const fn new() -> Self {
        Self {
            contact: OnceLock::new(),
            alone: OnceLock::new(),
            managed: Sum::new(),
            unconverted: Sum::new(),
        }
    }

    /// Managed bytes beyond what the device had free when the job first allocated there, less what
    /// is unconverted and what is to be kept free.
    fn over_bytes(&self, kept_bytes: impl Fn(&Contact) -> u64) -> u64 {
        let free = |contact: &Contact| contact.free_bytes.saturating_sub(kept_bytes(contact));
        let room = self.contact.get().map_or(0, free);
        let room = room.saturating_sub(self.unconverted.now());
        self.managed.now().saturating_sub(room)
    }
}

static BOOKS: [Book; MOST_DEVICES] = [const { Book::new() }; MOST_DEVICES];

fn book(device: u32) -> Option<&'static Book> {
    BOOKS.get(device as usize)
}

/// The reserve for a card of that size.
pub(crate) fn reserve_bytes(total_bytes: u64) -> u64 {
    if total_bytes > RESERVE_BYTES {
        RESERVE_BYTES
    } else {
        RESERVE_BYTES.min(total_bytes / 8)
    }
}

/// The ceiling under `TRANSIT_NO_OVERSUBSCRIBE`, given what the driver says is free now.
pub(crate) fn strict_bytes(
    contact: &Contact,
    managed_bytes: u64,
    unconverted_bytes: u64,
    free_now_bytes: u64,
) -> u64 {
    // Less free than even everything of ours resident explains: others took the difference.
    let others = contact
        .free_bytes
        .saturating_sub(free_now_bytes)
        .saturating_sub(unconverted_bytes)
        .saturating_sub(managed_bytes);
    contact
        .free_bytes
        .saturating_sub(reserve_bytes(contact.total_bytes))
        .saturating_sub(unconverted_bytes)
        .saturating_sub(others)
}

fn contact(driver: &Driver, device: u32) -> Option<&'static Contact> {
    let book = book(device)?;
    if let Some(contact) = book.contact.get() {
        return Some(contact);
    }
    // The driver answers for the current context's device only.
    if driver.ctx_device() != Ok(device) {
        return None;
    }
    let (free_bytes, total_bytes) = driver.mem_get_info().ok()?;
    let concurrent = concurrent(driver, device);
    let found = Contact {
        free_bytes,
        total_bytes,
        concurrent,
    };
    if book.contact.set(found).is_ok() && !concurrent {
        log::complain(format_args!(
            "device {device} or its driver has no managed memory that host and device can use at \
             once; allocations stay as they are"
        ));
    }
    book.contact.get()
}

/// Whether a device has managed memory that it and the host can use at once.
fn concurrent(driver: &Driver, device: u32) -> bool {
    let attribute = driver.device_attribute(CONCURRENT_MANAGED_ACCESS, device);
    driver.mem_alloc_managed.is_some() && attribute.is_ok_and(|value| value != 0)
}

/// Bytes over what the devices hold, in all.
fn spilled_bytes() -> u64 {
    BOOKS
        .iter()
        .fold(0, |sum, book| sum.saturating_add(book.over_bytes(|_| 0)))
}

/// Whether the managed memory of some device may not all lie on it, the reserve kept free.
pub fn oversubscribed() -> bool {
    let reserve = |contact: &Contact| reserve_bytes(contact.total_bytes);
    BOOKS.iter().any(|book| book.over_bytes(reserve) > 0)
}

/// Whether `bytes` of managed memory, counted already, can lie on the current context's device beside
/// everything else, the reserve kept free: by our own account, and by the driver's, which knows of
/// other processes.
pub(crate) fn fits_on_device(driver: &Driver, bytes: u64) -> bool {
    !oversubscribed()
        && driver
            .mem_get_info()
            .is_ok_and(|(free, total)| bytes.saturating_add(reserve_bytes(total)) <= free)
}

fn all_managed_bytes() -> u64 {
    BOOKS
        .iter()
        .fold(0, |sum, book| sum.saturating_add(book.managed.now()))
}

/// Decides over a request for managed memory and counts it if it may go ahead. Undone with
/// [`give_back`].
pub(crate) fn ask(driver: &Driver, settings: &Settings, device: u32, bytes: u64) -> Verdict {
    let Some(contact) = contact(driver, device) else {
        return Verdict::LeaveAlone;
    };
    let Some(book) = book(device) else {
        return Verdict::LeaveAlone;
    };
    if !contact.concurrent {
        return Verdict::LeaveAlone;
    }
    if settings.no_oversubscribe && !alone(driver, settings, book, device) {
        return Verdict::Taken;
    }
    // Counted first, so that two threads asking at once cannot both take the last room.
    book.managed.add(bytes);
    if fits(driver, settings, contact, book, bytes) {
        return Verdict::Convert;
    }
    book.managed.sub(bytes);
    Verdict::OutOfMemory
}

fn fits(driver: &Driver, settings: &Settings, contact: &Contact, book: &Book, bytes: u64) -> bool {
    if settings
        .ceiling_bytes
        .is_some_and(|most| all_managed_bytes() > most)
    {
        return false;
    }
    if !settings.no_oversubscribe {
        return spilled_bytes() <= host::budget_bytes();
    }
    let Ok((free_now, _)) = driver.mem_get_info() else {
        return false;
    };
    let managed = book.managed.now();
    let most = strict_bytes(
        contact,
        managed - bytes.min(managed),
        book.unconverted.now(),
        free_now,
    );
    let reserve = reserve_bytes(contact.total_bytes);
    managed <= most && bytes.saturating_add(reserve) <= free_now
}

/// Managed bytes are gone, or were never made.
pub(crate) fn give_back(device: u32, bytes: u64) {
    if let Some(book) = book(device) {
        book.managed.sub(bytes);
    }
}

/// Managed bytes came to be without [`ask`] (the job's own, when nothing limits them).
pub(crate) fn take(device: u32, bytes: u64) {
    if let Some(book) = book(device) {
        book.managed.add(bytes);
    }
}

/// Counts a request for unconverted device memory; false if it would break the ceiling of
/// `TRANSIT_NO_OVERSUBSCRIBE` (then nothing is counted).
pub(crate) fn ask_unconverted(
    driver: &Driver,
    settings: &Settings,
    device: u32,
    bytes: u64,
) -> bool {
    let Some(book) = book(device) else {
        return true;
    };
    let contact = contact(driver, device);
    book.unconverted.add(bytes);
    let Some(contact) = contact.filter(|_| settings.no_oversubscribe) else {
        return true;
    };
    let managed = book.managed.now();
    let most = contact
        .free_bytes
        .saturating_sub(reserve_bytes(contact.total_bytes))
        .saturating_sub(book.unconverted.now());
    if managed > most {
        book.unconverted.sub(bytes);
        return false;
    }
    true
}

/// Unconverted bytes came to be without [`ask_unconverted`] (memory nodes of graphs).
pub(crate) fn take_unconverted(device: u32, bytes: u64) {
    if let Some(book) = book(device) {
        book.unconverted.add(bytes);
    }
}

/// Unconverted bytes are gone, or were never made.
pub(crate) fn give_back_unconverted(device: u32, bytes: u64) {
    if let Some(book) = book(device) {
        book.unconverted.sub(bytes);
    }
}

/// An allocation of the ledger is gone.
pub(crate) fn freed(allocation: &Allocation) {
    if allocation.managed {
        give_back(allocation.device, allocation.bytes);
    } else {
        give_back_unconverted(allocation.device, allocation.bytes);
    }
}

/// What `cuMemGetInfo` should say: (free, total); `None`: what the driver says.
pub(crate) fn memory_info(
    driver: &Driver,
    settings: &Settings,
    device: u32,
    truth: (u64, u64),
) -> Option<(u64, u64)> {
    let contact = contact(driver, device)?;
    let book = book(device)?;
    if !contact.concurrent || book.alone.get() == Some(&false) {
        return None;
    }
    let (managed, unconverted) = (book.managed.now(), book.unconverted.now());
    let mut free = if settings.no_oversubscribe {
        let most = strict_bytes(contact, managed, unconverted, truth.0);
        let reserve = reserve_bytes(contact.total_bytes);
        most.saturating_sub(managed)
            .min(truth.0.saturating_sub(reserve))
    } else {
        let room = contact
            .free_bytes
            .saturating_sub(unconverted)
            .saturating_sub(managed);
        let on_host = host::budget_bytes().saturating_sub(spilled_bytes());
        room.saturating_add(on_host)
    };
    if let Some(most) = settings.ceiling_bytes {
        free = free.min(most.saturating_sub(all_managed_bytes()));
    }
    let total = widened(settings, truth.1);
    Some((free.min(total), total))
}

/// A device's total with what the host adds to it.
fn widened(settings: &Settings, total_bytes: u64) -> u64 {
    let total = if settings.no_oversubscribe {
        total_bytes
    } else {
        total_bytes.saturating_add(host::budget_bytes())
    };
    match settings.ceiling_bytes {
        Some(most) => total.min(most.max(total_bytes)),
        None => total,
    }
}

/// What `cuDeviceTotalMem` should say, the same total as [`memory_info`]; there may be no context
/// yet.
pub(crate) fn total_bytes(
    driver: &Driver,
    settings: &Settings,
    device: u32,
    truth_bytes: u64,
) -> u64 {
    let taken = book(device).is_none_or(|book| book.alone.get() == Some(&false));
    if taken || !concurrent(driver, device) {
        return truth_bytes;
    }
    widened(settings, truth_bytes)
}

/// Whether this process is the one that converts on the device. Asked of the system once, which may
/// take two seconds while another process does; without a lock to take, it is.
fn alone(driver: &Driver, settings: &Settings, book: &Book, device: u32) -> bool {
    if let Some(known) = book.alone.get() {
        return *known;
    }
    let Ok(uuid) = driver.device_uuid(device) else {
        return true;
    };
    *book
        .alone
        .get_or_init(|| gpu_lock::take(&settings.lock_dir, device, uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn card(free: u64, total: u64) -> Contact {
        Contact {
            free_bytes: free,
            total_bytes: total,
            concurrent: true,
        }
    }

    #[test]
    fn the_reserve_is_four_gib_except_on_cards_that_small() {
        assert_eq!(reserve_bytes(139 * GIB), 4 * GIB);
        assert_eq!(reserve_bytes(5 * GIB), 4 * GIB);
        assert_eq!(reserve_bytes(GIB), GIB / 8);
        assert_eq!(reserve_bytes(4 * GIB), GIB / 2);
    }

    #[test]
    fn the_strict_ceiling_falls_with_unconverted_bytes_and_with_what_others_take() {
        let card = card(100 * GIB, 139 * GIB);
        assert_eq!(strict_bytes(&card, 0, 0, 100 * GIB), 96 * GIB);
        assert_eq!(strict_bytes(&card, 0, 10 * GIB, 90 * GIB), 86 * GIB);
        // Ours may be resident or not: no sign of others either way.
        assert_eq!(strict_bytes(&card, 30 * GIB, 0, 70 * GIB), 96 * GIB);
        assert_eq!(strict_bytes(&card, 30 * GIB, 0, 100 * GIB), 96 * GIB);
        // Twenty more are gone than ours explain.
        assert_eq!(strict_bytes(&card, 30 * GIB, 0, 50 * GIB), 76 * GIB);
        assert_eq!(strict_bytes(&card, 0, 0, 0), 0);
    }
}
