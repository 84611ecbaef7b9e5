//! What moving memory costs on a device. Defaults were measured on an NVIDIA H200 (PCIe Gen5 x16,
//! driver 580); `--device-profile FILE` gives others as TOML, any subset of these fields.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::error::Next;
use crate::num::float;

/// Costs. Rates are in GB/s (1e9 bytes), times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// What was measured.
    pub name: String,
    /// Migration driven by faults (4 GiB read by a kernel: 7.3 to 8.8).
    pub fault_gbps: f64,
    /// Bytes that one fault brings in on average (12,940 records per GiB).
    pub fault_bytes: f64,
    /// Prefetch to the GPU in requests of 64 MiB.
    pub prefetch_gbps: f64,
    /// The same at the driver's best (one 4 GiB request): what a merged gap is paid with.
    pub link_gbps: f64,
    /// What one more prefetch request costs.
    pub prefetch_call_us: f64,
    /// A prefetch of 2 MiB that are resident already.
    pub resident_prefetch_us: f64,
    /// Eviction by prefetch to the host, as an emulated card does it.
    pub evict_emulated_gbps: f64,
    /// Eviction by the driver on a full card. Reported, not measured: near link speed.
    pub evict_full_gbps: f64,
    /// Reading host memory in place.
    pub zero_copy_gbps: f64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "NVIDIA H200, PCIe Gen5 x16".to_owned(),
            fault_gbps: 8.0,
            fault_bytes: 83_000.0,
            prefetch_gbps: 45.0,
            link_gbps: 50.0,
            prefetch_call_us: 40.0,
            resident_prefetch_us: 4.6,
            evict_emulated_gbps: 10.0,
            evict_full_gbps: 50.0,
            zero_copy_gbps: 51.2,
        }
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If the file cannot be read, is no TOML, has an unknown field or a figure that is not above 0.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read device profile {}", path.display()))
            .next("give the file that transit-record calibrate wrote, or leave the option out")?;
        let profile: Self = toml::from_str(&text)
            .with_context(|| format!("{} is no device profile", path.display()))
            .next("fields and units are listed in transit-plan/src/profile.rs")?;
        let figures = [
            profile.fault_gbps,
            profile.fault_bytes,
            profile.prefetch_gbps,
            profile.link_gbps,
            profile.prefetch_call_us,
            profile.resident_prefetch_us,
            profile.evict_emulated_gbps,
            profile.evict_full_gbps,
            profile.zero_copy_gbps,
        ];
        if figures
            .iter()
            .any(|figure| !figure.is_finite() || *figure <= 0.0)
        {
            anyhow::bail!("every rate and time in {} must be above 0", path.display());
        }
        Ok(profile)
    }

    /// The gap worth merging: the bytes that move in the time one more request takes.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive figure of some megabytes; a cast saturates"
    )]
    pub fn gap_bytes(&self) -> u64 {
        (self.prefetch_call_us * 1e-6 * self.link_gbps * 1e9) as u64
    }
}

/// Nanoseconds that bytes take at a rate.
#[must_use]
pub fn transfer_ns(bytes: u64, gbps: f64) -> f64 {
    // 1 GB/s is one byte per nanosecond.
    float(bytes) / gbps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_may_give_some_fields_and_must_be_sane() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, "fault_gbps = 4.0\n").unwrap();
        let profile = Profile::read(&path).unwrap();
        assert_eq!(
            profile,
            Profile {
                fault_gbps: 4.0,
                ..Profile::default()
            }
        );
        std::fs::write(&path, "link_gbps = 0.0\n").unwrap();
        assert!(Profile::read(&path).is_err());
        std::fs::write(&path, "speed = 1\n").unwrap();
        assert!(format!("{:?}", Profile::read(&path).unwrap_err()).contains("speed"));
    }

    #[test]
    fn the_default_gap_is_the_measured_break_even() {
        assert_eq!(Profile::default().gap_bytes(), 2_000_000);
    }
}
