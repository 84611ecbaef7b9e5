//! What is said after the job: where the traces are and the command that comes next.

use std::path::PathBuf;

/// The last lines. `output` is what was given to `-o`; `build` finds all ranks by it.
pub(crate) fn lines(traces: &[PathBuf], output: &str, hbm_limit_bytes: Option<u64>) -> Vec<String> {
    let wrote = match traces {
        [] => {
            return vec![
                "no trace: the job made no GPU allocation and launched nothing, it runs on another \
                 host, or a line above says why"
                    .to_owned(),
                "next: transit-record doctor says whether a job would be recorded here".to_owned(),
            ];
        }
        [only] => format!("wrote {}", only.display()),
        [first, .., last] => {
            format!(
                "wrote {} traces, {} to {}",
                traces.len(),
                first.display(),
                last.display()
            )
        }
    };
    vec![
        wrote,
        format!("next: {}", command(traces, output, hbm_limit_bytes)),
    ]
}

fn command(traces: &[PathBuf], output: &str, hbm_limit_bytes: Option<u64>) -> String {
    let single = traces.first().filter(|_| traces.len() == 1);
    // A launcher that used the GPU itself has left a file of the very name beside the ranks'.
    let beside = single.is_none() && traces.iter().any(|path| path.ends_with(output));
    if beside && let Some((stem, end)) = split(output) {
        let ranks = format!("{stem}.rank{{rank}}{end}");
        return command_for(&ranks, &format!("{stem}.plan"), hbm_limit_bytes);
    }
    let trace = single.map_or_else(|| output.to_owned(), |path| path.display().to_string());
    // A trace written under a name of its own (`.pidN`) is found by that name only.
    let trace = if trace.ends_with(output) {
        output.to_owned()
    } else {
        trace
    };
    let stem = split(&trace).map_or(trace.as_str(), |(stem, _)| stem);
    command_for(&trace, &format!("{stem}.plan"), hbm_limit_bytes)
}

/// A trace's name before and from the ending on that `transit-record` is usually given.
fn split(name: &str) -> Option<(&str, &str)> {
    let end = [".trace.zst", ".zst"]
        .into_iter()
        .find(|end| name.ends_with(end))?;
    Some((name.strip_suffix(end)?, end))
}

fn command_for(trace: &str, plan: &str, hbm_limit_bytes: Option<u64>) -> String {
    let stem = plan.strip_suffix(".plan").unwrap_or(plan);
    match hbm_limit_bytes {
        Some(0) => format!(
            "transit-plan plot heatmap {} -o {}",
            quoted(trace),
            quoted(&format!("{stem}.png"))
        ),
        Some(limit) => format!(
            "transit-plan build {} --emulate --hbm {limit} -o {}",
            quoted(trace),
            quoted(plan)
        ),
        None => {
            format!(
                "transit-plan build {} --hbm 80GiB -o {}",
                quoted(trace),
                quoted(plan)
            )
        }
    }
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(traces: &[&str], limit: Option<u64>) -> Vec<String> {
        let traces: Vec<PathBuf> = traces.iter().map(PathBuf::from).collect();
        lines(&traces, "d/x.trace.zst", limit)
    }

    #[test]
    fn the_next_command_can_be_pasted() {
        assert_eq!(
            said(&["/w/d/x.trace.zst"], None),
            [
                "wrote /w/d/x.trace.zst",
                "next: transit-plan build d/x.trace.zst --hbm 80GiB -o d/x.plan"
            ]
        );
        let ranks = said(
            &["/w/d/x.rank0.trace.zst", "/w/d/x.rank1.trace.zst"],
            Some(1 << 30),
        );
        assert!(ranks[0].starts_with("wrote 2 traces"));
        assert_eq!(
            ranks[1],
            "next: transit-plan build d/x.trace.zst --emulate --hbm 1073741824 -o d/x.plan"
        );
        assert_eq!(
            said(&["/w/d/x.trace.zst"], Some(0))[1],
            "next: transit-plan plot heatmap d/x.trace.zst -o d/x.png"
        );
        let mixed = said(&["/w/d/x.trace.zst", "/w/d/x.rank0.trace.zst"], None);
        assert_eq!(
            mixed[1],
            "next: transit-plan build 'd/x.rank{rank}.trace.zst' --hbm 80GiB -o d/x.plan"
        );
        let own = said(&["/w/d/x.pid7.trace.zst"], None);
        assert!(own[1].contains("build /w/d/x.pid7.trace.zst"), "{own:?}");
    }

    #[test]
    fn whoever_asked_for_a_trace_and_got_none_is_told_so() {
        let said = said(&[], None);
        assert!(said[0].starts_with("no trace: "), "{said:?}");
        assert!(said[1].contains("transit-record doctor"), "{said:?}");
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
    }
}
