//! Bins any number of events into a fixed grid of cells, so that a trace of millions of
//! migrations costs no more to draw than one of a thousand, in PNG and in SVG.

/// What moved through one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Bytes host to device.
    pub htod_bytes: f64,
    /// Bytes device to host.
    pub dtoh_bytes: f64,
    /// Bytes mapped remotely.
    pub remote_bytes: f64,
    /// Whether memory exists here.
    pub allocated: bool,
}

/// Which quantity of a [`Cell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Host to device.
    HtoD,
    /// Device to host.
    DtoH,
    /// Remote maps.
    Remote,
}

/// A grid of cells, `columns` by `rows`; row 0 holds the lowest values.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

/// A stretch in units of cells: first, and one past the last, both fractional.
pub type Span = (f64, f64);

impl Grid {
    /// An empty grid of at least one cell.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        Self {
            columns,
            rows,
            cells: vec![Cell::default(); columns * rows],
        }
    }

    /// Number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A cell; an empty one outside the grid.
    #[must_use]
    pub fn cell(&self, column: usize, row: usize) -> Cell {
        if column >= self.columns {
            return Cell::default();
        }
        self.cells
            .get(row * self.columns + column)
            .copied()
            .unwrap_or_default()
    }

    /// Spreads bytes evenly over a box of cells; a box narrower than a cell fills one.
    pub fn add(&mut self, columns: Span, rows: Span, bytes: f64, layer: Layer) {
        let (first_column, last_column) = clip(columns, self.columns);
        let (first_row, last_row) = clip(rows, self.rows);
        let width = (columns.1 - columns.0).max(f64::MIN_POSITIVE);
        let height = (rows.1 - rows.0).max(f64::MIN_POSITIVE);
        for row in first_row..=last_row {
            let row_share = share(rows, row, height, first_row == last_row);
            for column in first_column..=last_column {
                let column_share = share(columns, column, width, first_column == last_column);
                let Some(cell) = self.cells.get_mut(row * self.columns + column) else {
                    continue;
                };
                let part = bytes * row_share * column_share;
                match layer {
                    Layer::HtoD => cell.htod_bytes += part,
                    Layer::DtoH => cell.dtoh_bytes += part,
                    Layer::Remote => cell.remote_bytes += part,
                }
            }
        }
    }

    /// Marks a box of cells as holding memory.
    pub fn allocate(&mut self, columns: Span, rows: Span) {
        let (first_column, last_column) = clip(columns, self.columns);
        let (first_row, last_row) = clip(rows, self.rows);
        for row in first_row..=last_row {
            let start = row * self.columns;
            let range = start + first_column..=start + last_column;
            for cell in self.cells.get_mut(range).into_iter().flatten() {
                cell.allocated = true;
            }
        }
    }
}

/// The cells a stretch touches, within the grid.
fn clip(span: Span, cells: usize) -> (usize, usize) {
    let top = cells - 1;
    let first = (span.0.max(0.0) as usize).min(top);
    let last = ((span.1 - 1e-9).max(0.0) as usize).clamp(first, top);
    (first, last)
}

/// The part of a stretch that lies in one cell.
fn share(span: Span, cell: usize, length: f64, only: bool) -> f64 {
    if only {
        return 1.0;
    }
    let (start, end) = (cell as f64, cell as f64 + 1.0);
    ((span.1.min(end) - span.0.max(start)) / length).clamp(0.0, 1.0)
}

/// A box of cells of the same class: columns and rows, each first and one past the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// First column.
    pub left: usize,
    /// One past the last column.
    pub right: usize,
    /// First row.
    pub low: usize,
    /// One past the last row.
    pub high: usize,
    /// The class given by the caller; 0 is never reported.
    pub class: u8,
}

/// Joins cells of the same class into boxes: runs along a row, then equal runs over rows.
pub fn patches(grid: &Grid, class: impl Fn(&Cell) -> u8) -> Vec<Patch> {
    let mut done: Vec<Patch> = Vec::new();
    let mut open: Vec<Patch> = Vec::new();
    for row in 0..grid.rows {
        let mut runs = runs_of(grid, row, &class);
        let mut still_open = Vec::with_capacity(runs.len());
        let mut at = 0;
        for patch in open.drain(..) {
            while runs.get(at).is_some_and(|run| run.left < patch.left) {
                at += 1;
            }
            match runs.get_mut(at) {
                Some(run)
                    if (run.left, run.right, run.class)
                        == (patch.left, patch.right, patch.class) =>
                {
                    run.low = patch.low;
                }
                _ => done.push(patch),
            }
        }
        still_open.append(&mut runs);
        open = still_open;
    }
    done.append(&mut open);
    done
}

fn runs_of(grid: &Grid, row: usize, class: &impl Fn(&Cell) -> u8) -> Vec<Patch> {
    let mut runs: Vec<Patch> = Vec::new();
    for column in 0..grid.columns {
        let class = class(&grid.cell(column, row));
        match runs.last_mut() {
            Some(run) if run.right == column && run.class == class => run.right += 1,
            _ if class == 0 => {}
            _ => {
                let (left, right) = (column, column + 1);
                runs.push(Patch {
                    left,
                    right,
                    low: row,
                    high: row + 1,
                    class,
                });
            }
        }
    }
    for run in &mut runs {
        run.high = row + 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_whatever_the_box() {
        let mut grid = Grid::new(10, 8);
        grid.add((1.5, 4.25), (0.0, 3.5), 1000.0, Layer::HtoD);
        grid.add((7.3, 7.300_001), (7.9, 8.0), 24.0, Layer::HtoD);
        let cells = (0..10).flat_map(|x| (0..8).map(move |y| (x, y)));
        let sum: f64 = cells.map(|(x, y)| grid.cell(x, y).htod_bytes).sum();
        assert!((sum - 1024.0).abs() < 1e-6, "{sum}");
        assert!(grid.cell(0, 0).htod_bytes == 0.0 && grid.cell(7, 7).htod_bytes > 23.0);
    }

    #[test]
    fn equal_neighbours_become_one_patch() {
        let mut grid = Grid::new(6, 4);
        grid.allocate((1.0, 4.0), (0.0, 3.0));
        grid.allocate((5.0, 6.0), (2.0, 4.0));
        let mut found = patches(&grid, |cell| u8::from(cell.allocated));
        found.sort_by_key(|patch| patch.left);
        assert_eq!(
            found,
            [
                Patch {
                    left: 1,
                    right: 4,
                    low: 0,
                    high: 3,
                    class: 1
                },
                Patch {
                    left: 5,
                    right: 6,
                    low: 2,
                    high: 4,
                    class: 1
                }
            ]
        );
    }
}
