//! Reads back the picture that the examples write.

#[path = "../examples/common/png.rs"]
mod png_file;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use png_file::heat_picture;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes the values and reads the picture back: its width, and its pixels.
fn picture(name: &str, width: u32, height: u32, values: &[f64]) -> (usize, Vec<[u8; 3]>) {
    let path = path(name);
    heat_picture(&path, "title", width, height, values).unwrap();
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert!(info.width > width && info.height > height && info.color_type == png::ColorType::Rgb);
    (info.width as usize, bytemuck::cast_slice(&bytes[..info.buffer_size()]).to_vec())
}

/// The pixels of the field alone.
fn pixels(name: &str, width: u32, height: u32, values: &[f64]) -> Vec<[u8; 3]> {
    let (columns, all) = picture(name, width, height, values);
    all.chunks(columns).skip(16).take(height as usize).flat_map(|row| &row[..width as usize]).copied().collect()
}

#[test]
fn heat_png_ramp_brightens_from_black_to_yellow() {
    let (width, height) = (256, 64);
    let values: Vec<f64> = (0..width * height).map(|i| 20.0 + f64::from(i % width)).collect();
    let pixels = pixels("ramp.png", width, height, &values);
    let row = &pixels[..width as usize];
    assert!(pixels.chunks(width as usize).all(|other| other == row));
    assert_eq!((row[0], row[255]), ([0, 0, 0], [250, 255, 168]));
    // Luma of ITU-R BT.709.
    let luma = |[r, g, b]: [u8; 3]| 0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b);
    assert!(row.windows(8).all(|step| luma(step[0]) < luma(step[7])));
}

#[test]
fn heat_png_rows_from_the_top() {
    let pixels = pixels("rows.png", 2, 2, &[0.0, 0.0, 1.0, 0.0]);
    assert_eq!(pixels, [[0, 0, 0], [0, 0, 0], [250, 255, 168], [0, 0, 0]]);
}

#[test]
fn heat_png_not_finite_gray() {
    let pixels = pixels("gray.png", 5, 1, &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN, f64::MAX]);
    assert_eq!(pixels, [[128; 3], [128; 3], [128; 3], [0, 0, 0], [250, 255, 168]]);
}

#[test]
fn heat_png_one_value_black() {
    assert_eq!(pixels("flat.png", 3, 1, &[7.0; 3]), [[0; 3]; 3]);
}

#[test]
fn heat_png_wrong_number_of_values() {
    for (width, height, count) in [(2, 2, 3), (0, 0, 0), (u32::MAX, u32::MAX, 1)] {
        let error = heat_picture(&path("wrong.png"), "title", width, height, &vec![0.0; count]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(!path("wrong.png").exists());
}

#[test]
fn heat_picture_has_title_field_and_scale() {
    let (columns, pixels) = picture("picture.png", 64, 64, &[0.5; 64 * 64]);
    let row = |y: usize| &pixels[y * columns..][..columns];
    assert!((0..16).any(|y| row(y).contains(&[0; 3])), "no title");
    assert!(row(40)[..64].iter().flatten().all(|channel| *channel < 20), "a field of one value is black");
    assert!(row(18)[72..80].iter().all(|rgb| rgb[0] > 200), "the scale is bright at its top");
}
