//! The body of the first block: facts about the recorded process.
//!
//! ```text
//! tool version text; command: count varint, texts; host text; pid varint; rank, local rank: 0 or
//! 1 then varint; start_unix_s varint; device name text; device total bytes, driver version,
//! CUPTI version varints; emulated card: 0 or 1 then varint; faults recorded: 0 or 1; replayed
//! policy: 0 or 1 then text; min convert bytes varint; notes: count varint, pairs of texts
//! ```

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};
use super::super::model::Header;

/// The body of the header block.
pub(in super::super) fn encode(header: &Header) -> Result<Vec<u8>, String> {
    let mut sink = Sink::default();
    sink.put(&header.tool_version);
    sink.put(&header.command);
    sink.put((&header.host, header.pid, header.rank, header.local_rank));
    sink.put((
        header.start_unix_s,
        &header.device_name,
        header.device_total_bytes,
    ));
    sink.put((header.driver_version, header.cupti_version));
    sink.put((header.emulated_card_bytes, header.faults_recorded));
    sink.put((&header.replayed_policy, header.min_convert_bytes));
    sink.put(&header.notes);
    sink.finish()
}

/// Reads what [`encode`] wrote.
pub(in super::super) fn decode(body: &[u8]) -> Result<Header, Flaw> {
    let mut source = Source::new(body);
    source.enter("header");
    let tool_version = source.get()?;
    let command = source.get()?;
    let (host, pid, rank, local_rank) = source.get()?;
    let (start_unix_s, device_name, device_total_bytes) = source.get()?;
    let (driver_version, cupti_version) = source.get()?;
    let (emulated_card_bytes, faults_recorded) = source.get()?;
    let (replayed_policy, min_convert_bytes) = source.get()?;
    let notes = source.get()?;
    source.finish()?;
    Ok(Header {
        tool_version,
        command,
        host,
        pid,
        rank,
        local_rank,
        start_unix_s,
        device_name,
        device_total_bytes,
        driver_version,
        cupti_version,
        emulated_card_bytes,
        faults_recorded,
        replayed_policy,
        min_convert_bytes,
        notes,
    })
}
