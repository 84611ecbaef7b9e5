//! The body of the first block: facts about the recorded process.
//!
//! ```text
//! tool version text; command: count varint, texts; host text; pid varint; rank, local rank: 0 or
//! 1 then varint; start_unix_s varint; device name text; device total bytes, driver version,
//! CUPTI version varints; emulated card: 0 or 1 then varint; faults recorded: 0 or 1; replayed
//! policy: 0 or 1 then text; min convert bytes varint; notes: count varint, pairs of texts
//! ```

use super::super::block::Flaw;
use super::super::coding::{Body, Sink, Source};
use super::super::model::Header;

/// The body of the header block.
pub(in super::super) fn encode(header: &Header) -> Result<Body, String> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::noise;
    use super::*;

    fn filled() -> Header {
        Header {
            tool_version: "0.1.0".to_owned(),
            command: vec!["train".to_owned(), "--größe=8".to_owned(), String::new()],
            host: "node17".to_owned(),
            pid: 4711,
            rank: Some(9),
            local_rank: None,
            start_unix_s: u64::MAX,
            device_name: "NVIDIA H200".to_owned(),
            device_total_bytes: 1 << 37,
            driver_version: 13000,
            cupti_version: 26,
            emulated_card_bytes: Some(0),
            faults_recorded: true,
            replayed_policy: Some("hybrid 0badcafe".to_owned()),
            min_convert_bytes: 2 << 20,
            notes: vec![("allocator".to_owned(), "caching".to_owned())],
        }
    }

    #[test]
    fn headers_return() {
        for header in [Header::default(), filled()] {
            let body = encode(&header).unwrap().bytes;
            assert_eq!(decode(&body).unwrap(), header);
            for length in 0..body.len() {
                assert!(
                    decode(&body[..length]).is_err(),
                    "accepted {length} of {}",
                    body.len()
                );
            }
        }
    }

    #[test]
    fn a_list_that_claims_to_be_huge_is_refused_before_it_is_made() {
        // Tool version "", then a command of 2^62 texts.
        let body = [&[0, 253][..], &(1_u64 << 62).to_le_bytes()].concat();
        assert!(decode(&body).is_err());
    }

    proptest! {
        #[test]
        fn noise_does_no_harm(bytes in noise()) {
            let _ = decode(&bytes);
        }
    }
}
