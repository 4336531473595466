//! Writes a field as a picture.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// The color of values that are not finite: none of the map's.
const NOT_FINITE: [u8; 3] = [128, 128, 128];

/// Writes `values`, row by row from the top, as an RGB PNG of `width` x `height` pixels: the least finite value black,
/// over purple and orange to the greatest in pale yellow, in equal steps to the eye. Values that are not finite are
/// gray; a field of one value is black.
///
/// # Errors
/// `InvalidInput` if there are not `width * height` values or no pixels; else what the file system says.
pub fn heat_png(path: &Path, width: u32, height: u32, values: &[f64]) -> io::Result<()> {
    if values.is_empty() || values.len() as u64 != u64::from(width) * u64::from(height) {
        let cause = format!("{} values for {width} x {height} pixels", values.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let pixels: Vec<u8> = values.iter().flat_map(|value| color(*value, low, high)).collect();

    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(())
}

fn color(value: f64, low: f64, high: f64) -> [u8; 3] {
    if !value.is_finite() {
        return NOT_FINITE;
    }
    if low == high {
        return inferno(0.0);
    }
    // Halves, because the whole range of a float has a width that is none.
    inferno((value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0))
}

/// The color map "inferno" at `x` from 0 to 1, by a polynomial for each channel.
fn inferno(x: f64) -> [u8; 3] {
    // From the constant term up.
    const RED: [f64; 7] = [0.00022, 0.10651, 11.60249, -41.70400, 77.16294, -71.31943, 25.13113];
    const GREEN: [f64; 7] = [0.00165, 0.56396, -3.97285, 17.43640, -33.40236, 32.62606, -12.24267];
    const BLUE: [f64; 7] = [-0.01948, 3.93271, -15.94239, 44.35415, -81.80731, 73.20952, -23.07033];
    [RED, GREEN, BLUE].map(|terms| {
        let channel = terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
        // A cast of a float saturates.
        (channel * 255.0).round() as u8
    })
}
