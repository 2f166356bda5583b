//! Two peers in Rust, as a program that is told line by line what to do: see `bench/peers/programs.py`.
//!
//!     peers rstar FOLDER      boxes and points from `boxes.bin` and `points.bin`, three attributes
//!     peers a-tree FOLDER     Boolean filters and events from `attributes.txt`, `filters.txt` and `events.txt`
//!
//! Prints the seconds that it took to build the index. `match` then matches all points and prints the seconds that
//! took; `found` writes all pairs into `pairs.bin` and prints their number.

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use a_tree::{ATree, AttributeDefinition, Event};
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::RTree;

type Fallible<T> = Result<T, Box<dyn Error>>;
type Pairs = Vec<(u32, u32)>;
type Item = GeomWithData<Rectangle<[f64; 3]>, u32>;

trait Matcher {
    fn pairs(&self) -> Pairs;
}

struct Rectangles {
    tree: RTree<Item>,
    points: Vec<[f64; 3]>,
}

impl Matcher for Rectangles {
    fn pairs(&self) -> Pairs {
        let mut found = Pairs::new();
        for (k, point) in self.points.iter().enumerate() {
            let _ = self.tree.locate_all_at_point_int(point, |item| {
                found.push((k as u32, item.data));
                ControlFlow::<()>::Continue(())
            });
        }
        found
    }
}

struct Filters {
    tree: ATree<u32>,
    events: Vec<Event>,
}

impl Matcher for Filters {
    fn pairs(&self) -> Pairs {
        let mut found = Pairs::new();
        for (k, event) in self.events.iter().enumerate() {
            let report = self.tree.search(event).expect("a valid event");
            found.extend(report.matches().iter().map(|id| (k as u32, **id)));
        }
        found
    }
}

fn numbers(path: &Path) -> Fallible<Vec<f64>> {
    let bytes = fs::read(path)?;
    Ok(bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect())
}

/// A box is written as its low corner and its high one, the high one outside; a rectangle of rstar is closed.
fn rectangles(folder: &Path) -> Fallible<(Rectangles, f64)> {
    let sides = numbers(&folder.join("boxes.bin"))?;
    let points = numbers(&folder.join("points.bin"))?.chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect();
    let items = sides
        .chunks_exact(6)
        .enumerate()
        .map(|(k, s)| {
            let closed = Rectangle::from_corners([s[0], s[1], s[2]], [s[3] - 1.0, s[4] - 1.0, s[5] - 1.0]);
            GeomWithData::new(closed, k as u32)
        })
        .collect();
    let began = Instant::now();
    let tree = RTree::bulk_load(items);
    Ok((Rectangles { tree, points }, began.elapsed().as_secs_f64()))
}

fn filters(folder: &Path) -> Fallible<(Filters, f64)> {
    let names: Vec<String> = fs::read_to_string(folder.join("attributes.txt"))?.lines().map(String::from).collect();
    let definitions: Vec<_> = names.iter().map(|name| AttributeDefinition::integer(name)).collect();
    let texts = fs::read_to_string(folder.join("filters.txt"))?;
    let began = Instant::now();
    let mut tree = ATree::new(&definitions).map_err(|error| format!("{error:?}"))?;
    for (k, text) in texts.lines().enumerate() {
        tree.insert(&(k as u32), text).map_err(|error| format!("{text}: {error:?}"))?;
    }
    let took = began.elapsed().as_secs_f64();
    let mut events = Vec::new();
    for line in fs::read_to_string(folder.join("events.txt"))?.lines() {
        let mut builder = tree.make_event();
        for (name, value) in names.iter().zip(line.split(' ')) {
            builder.with_integer(name, value.parse()?).map_err(|error| format!("{error:?}"))?;
        }
        events.push(builder.build().map_err(|error| format!("{error:?}"))?);
    }
    Ok((Filters { tree, events }, took))
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = Path::new(&arguments[2]);
    let (matcher, took): (Box<dyn Matcher>, f64) = match arguments[1].as_str() {
        "rstar" => rectangles(folder).map(|(m, s)| (Box::new(m) as Box<dyn Matcher>, s))?,
        _ => filters(folder).map(|(m, s)| (Box::new(m) as Box<dyn Matcher>, s))?,
    };
    say(took)?;
    for line in io::stdin().lock().lines() {
        let began = Instant::now();
        let found = matcher.pairs();
        if line? == "match" {
            say(began.elapsed().as_secs_f64())?;
        } else {
            let bytes: Vec<u8> = found.iter().flat_map(|(p, k)| [p.to_le_bytes(), k.to_le_bytes()].concat()).collect();
            fs::write(folder.join("pairs.bin"), bytes)?;
            say(found.len())?;
        }
    }
    Ok(())
}

fn say(answer: impl std::fmt::Display) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{answer}")?;
    out.flush()
}
