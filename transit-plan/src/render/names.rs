//! Function names as people read them: demangled, and short enough for a table or a legend.

use cpp_demangle::{DemangleOptions, Symbol};

/// The demangled name without its parameter list, or the name as it is if it is not mangled.
#[must_use]
pub fn demangled(name: &str) -> String {
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    Symbol::new(name)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .or_else(|| nested(name))
        .unwrap_or_else(|| name.to_owned())
}

/// What can be read of a nested name that is not quite mangled (compilers and autotuners append
/// to it): its parts, and the rest as it is.
fn nested(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("_ZN")?;
    let mut parts = Vec::new();
    while let Some(digits) = rest
        .find(|c: char| !c.is_ascii_digit())
        .filter(|end| *end > 0)
    {
        let (length, after) = rest.split_at_checked(digits)?;
        let (part, after) = after.split_at_checked(length.parse().ok()?)?;
        parts.push(part);
        rest = after;
    }
    (!parts.is_empty()).then(|| format!("{}{rest}", parts.join("::")))
}

/// The demangled name without template arguments and outer namespaces:
/// `at::native::multi_tensor_apply_kernel<...>` is `multi_tensor_apply_kernel<FusedAdam...>`: the
/// first template arguments stay where they tell kernels apart, up to `max` characters in all.
#[must_use]
pub fn short(name: &str, max: usize) -> String {
    let full = demangled(name);
    let (head, arguments) = match full.find('<') {
        Some(at) => full.split_at_checked(at).unwrap_or((&full, "")),
        None => (full.as_str(), ""),
    };
    let base = head.rsplit("::").next().unwrap_or(head);
    // Anonymous namespaces and casts carry no meaning in a table.
    let arguments = arguments
        .replace("(anonymous namespace)::", "")
        .replace("at::native::", "");
    clipped(&format!("{base}{arguments}"), max)
}

/// What tells one kernel template's uses apart, for a legend: `FillFunctor<float>, vectorized_…`
/// for `vectorized_elementwise_kernel<4, FillFunctor<float>, ...>`; else as [`short`].
#[must_use]
pub fn telling(name: &str, max: usize) -> String {
    let full = demangled(name);
    let Some((head, arguments)) = full.split_once('<') else {
        return short(name, max);
    };
    let base = head.rsplit("::").next().unwrap_or(head);
    let mut depth = 0_i32;
    let list = arguments.split(|c| {
        depth += i32::from(matches!(c, '<' | '(')) - i32::from(matches!(c, '>' | ')'));
        c == ',' && depth <= 0
    });
    match list.filter_map(functor).next() {
        Some(functor) => clipped(&format!("{functor}, {base}"), max),
        None => clipped(base, max),
    }
}

/// The template argument's own name if it is a function object; numbers and number types are not.
fn functor(argument: &str) -> Option<String> {
    let mut plain = argument.trim().to_owned();
    for scope in [
        "(anonymous namespace)::",
        "at::native::",
        "at::",
        "c10::",
        "std::",
    ] {
        plain = plain.replace(scope, "");
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = plain.find(|c| !word(c)).unwrap_or(plain.len());
    let (path, rest) = plain.split_at_checked(end)?;
    let name = path.trim_end_matches(':').rsplit("::").next()?;
    let number = ["BFloat16", "Half", "Float8"]
        .iter()
        .any(|one| name.starts_with(one));
    if number || !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let of = rest
        .strip_prefix('<')
        .and_then(|inner| inner.split_once('>'));
    Some(match of {
        Some((inner, _)) if inner.len() <= 12 => format!("{name}<{inner}>"),
        _ => name.to_owned(),
    })
}

/// The text, cut to `max` characters with an ellipsis at its end.
#[must_use]
pub fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Whether a kernel's name says that it belongs to the optimizer (PyTorch's foreach and fused
/// kernels, apex, DeepSpeed, and hand-written ones named after the method).
#[must_use]
pub fn is_optimizer(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["adam", "multi_tensor", "sgd", "adagrad", "lamb", "optimizer", "rmsprop", "lion_"]
        .iter()
        .any(|word| lower.contains(word))
        // PyTorch's gradient clipping also runs as multi-tensor kernels, but only norms and scales.
        && !lower.contains("norm")
        && !lower.contains("lambda")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_read_plain_ones_kept() {
        assert_eq!(demangled("_ZN2at6native6kernelEPfi"), "at::native::kernel");
        assert_eq!(
            demangled("triton_poi_fused_add_0"),
            "triton_poi_fused_add_0"
        );
        assert_eq!(short("_ZN2at6native6kernelEPfi", 30), "kernel");
        assert_eq!(
            short("ampere_bf16_s16816gemm_bf16_128x64", 12),
            "ampere_bf16…"
        );
    }

    #[test]
    fn uses_of_one_template_are_told_apart_in_a_legend() {
        let fill = "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, \
                    std::array<char*, (unsigned long)1> >";
        assert_eq!(telling(fill, 30), "FillFunctor<float>, vectorize…");
        let half = fill.replace("<float>", "<c10::BFloat16>");
        assert_eq!(
            telling(&half, 60),
            "FillFunctor<BFloat16>, vectorized_elementwise_kernel"
        );
        let gelu = "at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(\
                    at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}, char>";
        assert!(telling(gelu, 40).starts_with("GeluCUDAKernelImpl, vec"));
        let plain = "a::(anonymous namespace)::softmax<8, float, c10::BFloat16, float>";
        assert_eq!(telling(plain, 30), "softmax");
        for odd in [
            "operator<",
            "f<",
            "f<<<>>>,(,",
            "<",
            "",
            "_ZN",
            "\u{e9}<\u{e9}>",
        ] {
            assert!(telling(odd, 5).chars().count() <= 5, "{odd}");
        }
    }

    #[test]
    fn optimizer_kernels_are_known_by_name() {
        assert!(is_optimizer("multi_adam"));
        assert!(is_optimizer("_ZN2at6native12FusedAdamMathE"));
        assert!(!is_optimizer("matmul"));
        assert!(!is_optimizer("vectorized_elementwise_lambda"));
    }
}
