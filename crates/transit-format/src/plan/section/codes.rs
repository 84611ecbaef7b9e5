//! Numbers that stand for enum values in a plan. They are positions in these lists: new values
//! are appended, none is ever taken out.

use crate::plan::model::Action;
use crate::trace::model::{OpKind, StreamKind};

/// An enum stored as a number.
pub(super) trait Code: Copy + Default + PartialEq + 'static {
    /// Values by number.
    const VALUES: &'static [Self];

    /// The value of a number, unless a newer version introduced it.
    fn from_code(code: u32) -> Option<Self> {
        Self::VALUES.get(usize::try_from(code).ok()?).copied()
    }

    /// The number of a value.
    fn code(self) -> u32 {
        let code = Self::VALUES.iter().position(|value| *value == self);
        code.and_then(|code| u32::try_from(code).ok())
            .unwrap_or(u32::MAX)
    }
}

impl Code for OpKind {
    const VALUES: &'static [Self] = &[Self::Kernel, Self::Graph, Self::Memset, Self::Memcpy];
}

impl Code for StreamKind {
    const VALUES: &'static [Self] = &[Self::Legacy, Self::PerThread, Self::Created];
}

impl Code for Action {
    const VALUES: &'static [Self] = &[
        Self::PrefetchToDevice,
        Self::EvictToHost,
        Self::AdviseAccessedBy,
        Self::AdvisePreferHost,
        Self::AdviseReadMostly,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered<T: Code + std::fmt::Debug>() -> Vec<String> {
        let each = (0..).map_while(T::from_code).enumerate();
        each.map(|(code, value)| {
            assert_eq!(value.code() as usize, code);
            format!("{value:?}")
        })
        .collect()
    }

    #[test]
    fn numbers_never_change() {
        assert_eq!(
            numbered::<OpKind>(),
            ["Kernel", "Graph", "Memset", "Memcpy"]
        );
        assert_eq!(numbered::<StreamKind>(), ["Legacy", "PerThread", "Created"]);
        let actions = numbered::<Action>();
        let wanted = [
            "PrefetchToDevice",
            "EvictToHost",
            "AdviseAccessedBy",
            "AdvisePreferHost",
            "AdviseReadMostly",
        ];
        assert_eq!(actions, wanted);
    }
}
