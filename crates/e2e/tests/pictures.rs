//! Draws the pictures of the documentation with resvg, which knows no CSS variables, and checks that their parts are visible.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Group, Node, Options, Rect, Tree};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const DARK: &str = "@media (prefers-color-scheme: dark) {";

/// The pictures, with the colours of their important parts in light and in dark: the ground, then others.
const PARTS: [(&str, &[u32], &[u32]); 4] = [
    (
        "with-and-without.svg",
        &[0x00ff_ffff, 0x00cf_e2ff, 0x00ff_e3bd, 0x00ea_d6ff, 0x00f0_faf0],
        &[0x0012_161d, 0x001d_4478, 0x005f_4310, 0x0041_2a66, 0x0016_291d],
    ),
    (
        "three-parts.svg",
        &[0x00ff_ffff, 0x00e3_f0ff, 0x00f5_f7fa, 0x00f0_faf0],
        &[0x0012_161d, 0x001d_3a66, 0x0024_2b36, 0x0016_291d],
    ),
    (
        "never-stuck.svg",
        &[0x00ff_ffff, 0x00e3_f0ff, 0x00ff_f4e5, 0x00f0_faf0],
        &[0x0012_161d, 0x001d_3a66, 0x004a_3410, 0x0016_291d],
    ),
    (
        "timeline.svg",
        &[0x00ff_ffff, 0x00a9_cdf7, 0x00d3_d7dd, 0x0025_63b0],
        &[0x0012_161d, 0x001d_4478, 0x003c_434e, 0x006c_acf7],
    ),
];

fn docs(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(folder)
}

static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    // The widest of the usual fonts.
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

fn tree(svg: &str) -> Tree {
    let options = Options {
        fontdb: FONTS.clone(),
        ..Options::default()
    };
    Tree::from_str(svg, &options).unwrap()
}

/// How many pixels have each colour.
fn colours(svg: &str) -> BTreeMap<u32, usize> {
    let tree = tree(svg);
    let size = tree.size().to_int_size();
    let mut picture = Pixmap::new(size.width(), size.height()).unwrap();
    resvg::render(&tree, Transform::identity(), &mut picture.as_mut());
    let mut colours = BTreeMap::new();
    for pixel in picture.pixels() {
        let colour = u32::from_be_bytes([0, pixel.red(), pixel.green(), pixel.blue()]);
        *colours.entry(colour).or_default() += 1;
    }
    colours
}

/// The picture as a program draws it that prefers dark colours.
fn dark(svg: &str) -> String {
    let (light, rest) = svg.split_once(DARK).unwrap();
    let (dark, rest) = rest.split_once("}\n</style>").unwrap();
    format!("{light}{dark}</style>{rest}")
}

#[test]
fn each_part_of_each_picture_is_visible_in_light_and_in_dark() {
    let folder = fs::read_dir(docs("img")).unwrap();
    assert_eq!(folder.count(), PARTS.len());
    for (name, in_light, in_dark) in PARTS {
        let svg = fs::read_to_string(docs("img").join(name)).unwrap();
        for (svg, parts) in [(svg.clone(), in_light), (dark(&svg), in_dark)] {
            let found = colours(&svg);
            for part in parts {
                let pixels = found.get(part).copied().unwrap_or(0);
                assert!(
                    pixels > 400,
                    "{name}: {pixels} pixels have the colour {part:#08x}"
                );
            }
            let most = found.iter().max_by_key(|(_, pixels)| **pixels);
            assert_eq!(most.unwrap().0, &parts[0], "{name}: the ground");
        }
    }
}

#[test]
fn each_bar_of_each_chart_is_visible() {
    let charts = fs::read_dir(docs("benchmarks")).unwrap();
    let charts = charts.map(|entry| entry.unwrap().path());
    let charts: Vec<_> = charts
        .filter(|path| path.extension().is_some_and(|it| it == "svg"))
        .collect();
    assert!(charts.len() > 5, "{charts:?}");
    for chart in charts {
        let svg = fs::read_to_string(&chart).unwrap();
        let found = colours(&svg);
        let fills = svg.split(" fill=\"#").skip(1);
        let opaque = fills.filter_map(|rest| {
            rest.split_once("\" fill-opacity=\"1\"/>")
                .map(|(colour, _)| colour)
        });
        let opaque: Vec<_> = opaque.filter(|colour| colour.len() == 6).collect();
        assert!(opaque.len() > 1, "{}", chart.display());
        for colour in opaque {
            let colour = u32::from_str_radix(colour, 16).unwrap();
            let pixels = found.get(&colour).copied().unwrap_or(0);
            assert!(pixels > 0, "{}: {colour:#08x}", chart.display());
        }
    }
}

/// The boxes of shapes and of texts.
fn boxes(group: &Group, shapes: &mut Vec<Rect>, texts: &mut Vec<Rect>) {
    for node in group.children() {
        match node {
            Node::Group(group) => boxes(group, shapes, texts),
            Node::Path(path) if path.fill().is_some() => shapes.push(path.abs_bounding_box()),
            Node::Text(text) => texts.push(text.abs_bounding_box()),
            Node::Path(_) | Node::Image(_) => {}
        }
    }
}

/// A machine without fonts draws no texts.
#[test]
fn no_text_of_a_diagram_is_wider_than_its_box() {
    for (name, ..) in &PARTS[..3] {
        let svg = fs::read_to_string(docs("img").join(name)).unwrap();
        let (mut shapes, mut texts) = (Vec::new(), Vec::new());
        boxes(tree(&svg).root(), &mut shapes, &mut texts);
        for text in texts {
            let middle = f32::midpoint(text.top(), text.bottom());
            let around = shapes.iter().filter(|shape| {
                shape.left() <= text.left()
                    && text.left() <= shape.right()
                    && shape.top() <= middle
                    && middle <= shape.bottom()
            });
            let smallest = around.min_by(|one, two| one.width().total_cmp(&two.width()));
            assert!(text.right() <= smallest.unwrap().right(), "{name}: {text:?}");
        }
    }
}
