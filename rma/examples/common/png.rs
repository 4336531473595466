//! Writes a field as a picture.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// The color of values that are not finite; the color map does not have it.
const NOT_FINITE: [u8; 3] = [128, 128, 128];

/// Writes `values`, row by row from the top, as an RGB PNG with a title above the field of `width` x `height` pixels,
/// and a scale next to it, from the minimum at the bottom to the maximum at the top. Colors go in perceptually even
/// steps from black for the smallest finite value over purple and orange to pale yellow for the greatest. Values that
/// are not finite are gray; a field of one value is black.
///
/// # Errors
/// `InvalidInput` if the number of values is 0 or not `width * height`; errors of the file system.
pub(crate) fn heat_picture(path: &Path, title: &str, width: u32, height: u32, values: &[f64]) -> io::Result<()> {
    const GLYPH: usize = 8;
    const TOP: usize = 2 * GLYPH;
    if values.is_empty() || values.len() as u64 != u64::from(width) * u64::from(height) {
        let cause = format!("{} values for {width} x {height} pixels", values.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    let finite = values.iter().filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    let (field, rows) = (width as usize, height as usize);
    let columns = (field + 14 * GLYPH).max((title.len() + 1) * GLYPH);
    let lines = TOP + rows.max(4 * GLYPH);
    let mut pixels = vec![255_u8; 3 * columns * lines];
    let mut set = |x: usize, y: usize, rgb: [u8; 3]| {
        if x < columns && y < lines {
            pixels[3 * (y * columns + x)..][..3].copy_from_slice(&rgb);
        }
    };
    for (i, value) in values.iter().enumerate() {
        set(i % field, TOP + i / field, color(*value, low, high));
    }
    let scale = lines - TOP;
    for y in 0..scale {
        (0..GLYPH).for_each(|x| set(field + GLYPH + x, TOP + y, inferno(1.0 - y as f64 / (scale - 1) as f64)));
    }
    let right = field + 2 * GLYPH + GLYPH / 2;
    let (least, greatest) = (format!("{low:.3}"), format!("{high:.3}"));
    for (text, left, top) in [(title, 0, GLYPH / 2), (&greatest, right, TOP), (&least, right, lines - GLYPH)] {
        for (i, byte) in text.bytes().enumerate() {
            for (y, bits) in font8x8::legacy::BASIC_LEGACY[usize::from(byte % 128)].iter().enumerate() {
                let ink = (0..GLYPH).filter(|x| bits >> x & 1 == 1);
                ink.for_each(|x| set(left + i * GLYPH + x, top + y, [0; 3]));
            }
        }
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), columns as u32, lines as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

fn color(value: f64, low: f64, high: f64) -> [u8; 3] {
    if !value.is_finite() {
        return NOT_FINITE;
    }
    if low == high {
        return inferno(0.0);
    }
    // Halves, because `high - low` can overflow.
    inferno((value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0))
}

/// The color map "inferno" at `x` from 0 to 1, with a polynomial for each channel.
fn inferno(x: f64) -> [u8; 3] {
    // Coefficients, the constant term first.
    const RED: [f64; 7] = [0.00022, 0.10651, 11.60249, -41.70400, 77.16294, -71.31943, 25.13113];
    const GREEN: [f64; 7] = [0.00165, 0.56396, -3.97285, 17.43640, -33.40236, 32.62606, -12.24267];
    const BLUE: [f64; 7] = [-0.01948, 3.93271, -15.94239, 44.35415, -81.80731, 73.20952, -23.07033];
    [RED, GREEN, BLUE].map(|terms| {
        let channel = terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
        // A cast of a float saturates.
        (channel * 255.0).round() as u8
    })
}
