//! Tables for the terminal: plain rows, aligned, without colours, so that the same input always prints
//! the same bytes.

use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A table whose first column is text and whose other columns are numbers, unless said.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    text_columns: Vec<usize>,
}

impl Rows {
    /// A table with these column headings.
    #[must_use]
    pub fn new<S: Into<String>>(heading: impl IntoIterator<Item = S>) -> Self {
        Self {
            heading: heading.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            text_columns: vec![0],
        }
    }

    /// Columns to align left besides the first.
    #[must_use]
    pub fn text_columns(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.text_columns.extend(columns);
        self
    }

    /// Adds a row.
    pub fn push<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn render(&self) -> String {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.load_preset("     --            ");
        let line = |text: &String| text.replace(['\n', '\r'], " ");
        table.set_header(self.heading.iter().map(line));
        for row in &self.rows {
            table.add_row(row.iter().map(line));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 1));
            column.set_cell_alignment(if self.text_columns.contains(&place) {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            });
        }
        let mut text = String::new();
        for line in table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `name   value` lines with the values in one column; empty values are left out.
#[must_use]
pub fn facts(rows: &[(&str, String)]) -> String {
    let shown = rows.iter().filter(|(_, value)| !value.is_empty());
    let widths = shown.clone().map(|(name, _)| name.chars().count());
    let widest = widths.max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in shown {
        for (number, line) in value.lines().enumerate() {
            let name = if number == 0 { name } else { "" };
            text.push_str(&format!("{name:widest$}  {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right_and_empty_facts_are_left_out() {
        let mut rows = Rows::new(["what", "before"]);
        rows.push(["racks", "12,940"]);
        assert_eq!(
            rows.render(),
            "what   before\n--------------\nracks  12,940\n"
        );
        let text = facts(&[("a", "1\n2".into()), ("bcd", String::new())]);
        assert_eq!(text, "a  1\n   2\n");
    }
}
