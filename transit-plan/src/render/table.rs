//! Tables for the terminal, for Markdown and for tests: plain rows, aligned, without colours, and
//! no wider than their content, so that the same input always prints the same bytes.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// How a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Columns apart by spaces, a line under the heading.
    Plain,
    /// A Markdown table.
    Markdown,
}

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
        let heading = heading.into_iter().map(Into::into).collect();
        Self {
            heading,
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

    /// Whether no row was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        match style {
            Style::Plain => table.load_preset("     --            "),
            Style::Markdown => table.load_preset(presets::ASCII_MARKDOWN),
        };
        let cell = |text: &String| cell(text, style);
        table.set_header(self.heading.iter().map(cell));
        for row in &self.rows {
            table.add_row(row.iter().map(cell));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            if style == Style::Plain {
                column.set_padding((0, 1));
            }
            let text = self.text_columns.contains(&place);
            let align = if text {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            };
            column.set_cell_alignment(align);
        }
        let mut text = String::new();
        for line in table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A cell's text on one line: file names may hold line feeds, and bars end a Markdown cell.
fn cell(text: &str, style: Style) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match style {
        Style::Markdown => line.replace('|', "\\|"),
        Style::Plain => line,
    }
}

/// `name   value` lines with the values in one column; empty values are left out.
#[must_use]
pub fn facts(rows: &[(&str, String)]) -> String {
    let shown = rows.iter().filter(|(_, value)| !value.is_empty());
    let widest = shown
        .clone()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (name, value) in shown {
        let mut lines = value.lines();
        let first = lines.next().unwrap_or("");
        text.push_str(&format!("{name:widest$}  {first}\n"));
        for line in lines {
            text.push_str(&format!("{:widest$}  {line}\n", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        let mut rows = Rows::new(["what", "before", "after"]);
        rows.push(["faults", "12,940", "7"]);
        rows.push(["step time", "1.96 s", "666 ms"]);
        rows
    }

    #[test]
    fn plain_tables_align_numbers_right() {
        let expected = "\
what       before   after
--------------------------
faults     12,940       7
step time  1.96 s  666 ms
";
        assert_eq!(rows().render(Style::Plain), expected);
    }

    #[test]
    fn markdown_tables_parse_as_markdown() {
        let text = rows().render(Style::Markdown);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| what      | before |  after |");
        assert!(
            lines[1].starts_with("|-") && lines[1].ends_with("-|"),
            "{}",
            lines[1]
        );
    }

    #[test]
    fn odd_names_keep_their_cell() {
        let mut rows = Rows::new(["what", "a|b\nc"]);
        rows.push(["faults", "7"]);
        let text = rows.render(Style::Markdown);
        assert!(text.starts_with("| what   | a\\|b c |\n"), "{text}");
        assert!(rows.render(Style::Plain).starts_with("what    a|b c\n"));
    }

    #[test]
    fn facts_line_up_and_skip_what_is_unknown() {
        let text = facts(&[
            ("host", "a".into()),
            ("rank", String::new()),
            ("device", "b\nc".into()),
        ]);
        assert_eq!(text, "host    a\ndevice  b\n        c\n");
    }
}
