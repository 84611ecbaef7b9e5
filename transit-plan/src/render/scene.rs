//! A picture as plain values, in pixels from the top left. Verbs build it, [`super::backend`]
//! draws it, tests measure it.

use super::font;
use super::palette::Colour;

/// Which point of a text its position names, horizontally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Its left end.
    Left,
    /// Its middle.
    Centre,
    /// Its right end.
    Right,
}

/// A text, centred vertically on its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Position.
    pub x: i32,
    /// Position.
    pub y: i32,
    /// What it says.
    pub text: String,
    /// Font size in pixels.
    pub size: i32,
    /// Colour.
    pub colour: Colour,
    /// Which point `x` names.
    pub align: Align,
    /// Turned a quarter, to be read from bottom to top, centred on its position.
    pub upright: bool,
}

/// A box in pixels: left, top, right, bottom (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Left edge.
    pub left: i32,
    /// Top edge.
    pub top: i32,
    /// Right edge.
    pub right: i32,
    /// Bottom edge.
    pub bottom: i32,
}

impl Area {
    /// Width in pixels.
    #[must_use]
    pub fn width(&self) -> i32 {
        self.right - self.left
    }

    /// Height in pixels.
    #[must_use]
    pub fn height(&self) -> i32 {
        self.bottom - self.top
    }

    /// Whether two boxes share a pixel.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Whether another box lies within this one.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

impl Text {
    /// The box it covers.
    #[must_use]
    pub fn area(&self) -> Area {
        let (width, height) = (font::width(&self.text, self.size), self.size);
        if self.upright {
            let (left, top) = (self.x - height / 2, self.y - width / 2);
            return Area {
                left,
                top,
                right: left + height,
                bottom: top + width,
            };
        }
        let left = match self.align {
            Align::Left => self.x,
            Align::Centre => self.x - width / 2,
            Align::Right => self.x - width,
        };
        let top = self.y - height / 2;
        Area {
            left,
            top,
            right: left + width,
            bottom: top + height,
        }
    }
}

/// One thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A filled box.
    Fill(Area, Colour),
    /// A line through points, `width` pixels wide.
    Line {
        /// Its points.
        points: Vec<(i32, i32)>,
        /// Colour.
        colour: Colour,
        /// Width in pixels.
        width: u32,
    },
    /// A filled polygon.
    Polygon(Vec<(i32, i32)>, Colour),
    /// A filled circle: centre, radius.
    Dot((i32, i32), i32, Colour),
    /// A text.
    Text(Text),
}

/// A whole picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Width in pixels.
    pub width: i32,
    /// Height in pixels.
    pub height: i32,
    /// What to draw, back to front.
    pub items: Vec<Item>,
}

impl Scene {
    /// An empty picture.
    #[must_use]
    pub fn new(width: i32, height: i32) -> Self {
        Self {
            width,
            height,
            items: Vec::new(),
        }
    }

    /// Fills a box; empty boxes are left out.
    pub fn fill(&mut self, area: Area, colour: Colour) {
        if area.width() > 0 && area.height() > 0 {
            self.items.push(Item::Fill(area, colour));
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), colour: Colour, width: u32) {
        self.items.push(Item::Line {
            points: vec![from, to],
            colour,
            width,
        });
    }

    /// A vertical dashed line, 6 pixels on and 4 off.
    pub fn dashed(&mut self, x: i32, top: i32, bottom: i32, colour: Colour) {
        let mut y = top;
        while y < bottom {
            self.line((x, y), (x, (y + 6).min(bottom)), colour, 1);
            y += 10;
        }
    }

    /// The frame of a box.
    pub fn frame(&mut self, area: Area, colour: Colour) {
        let (left, top, right, bottom) = (area.left, area.top, area.right, area.bottom);
        let points = vec![
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ];
        self.items.push(Item::Line {
            points,
            colour,
            width: 1,
        });
    }

    /// A text.
    pub fn text(
        &mut self,
        (x, y): (i32, i32),
        text: impl Into<String>,
        size: i32,
        colour: Colour,
        align: Align,
    ) {
        let text = text.into();
        self.items.push(Item::Text(Text {
            x,
            y,
            text,
            size,
            colour,
            align,
            upright: false,
        }));
    }

    /// A text to be read from bottom to top, centred on the position.
    pub fn upright(
        &mut self,
        (x, y): (i32, i32),
        text: impl Into<String>,
        size: i32,
        colour: Colour,
    ) {
        let (text, align) = (text.into(), Align::Centre);
        self.items.push(Item::Text(Text {
            x,
            y,
            text,
            size,
            colour,
            align,
            upright: true,
        }));
    }

    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.items.iter().filter_map(|item| match item {
            Item::Text(text) => Some(text),
            _ => None,
        })
    }

    /// Pairs of texts that overlap, and texts that leave the picture: none in a good picture.
    #[must_use]
    pub fn unreadable(&self) -> Vec<String> {
        let whole = Area {
            left: 0,
            top: 0,
            right: self.width,
            bottom: self.height,
        };
        let texts: Vec<(&Text, Area)> = self.texts().map(|text| (text, text.area())).collect();
        let mut found = Vec::new();
        for (place, (text, area)) in texts.iter().enumerate() {
            if !whole.contains(area) {
                found.push(format!("\"{}\" leaves the picture", text.text));
            }
            for (other, other_area) in texts.iter().skip(place + 1) {
                if area.overlaps(other_area) {
                    found.push(format!("\"{}\" overlaps \"{}\"", text.text, other.text));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::palette::INK;
    use super::*;

    #[test]
    fn overlapping_and_escaping_texts_are_found() {
        let mut scene = Scene::new(200, 100);
        scene.text((10, 50), "one", 16, INK, Align::Left);
        scene.text((100, 50), "two", 16, INK, Align::Left);
        assert_eq!(scene.unreadable(), Vec::<String>::new());
        scene.text((12, 55), "three", 16, INK, Align::Left);
        scene.text((190, 10), "out of it", 16, INK, Align::Left);
        assert_eq!(scene.unreadable().len(), 2, "{:?}", scene.unreadable());
    }
}
