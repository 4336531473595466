//! Windows: what all chapters ask of them (names, attributes, error handlers). There are none yet.

use crate::attributes::Attributes;
use crate::errors::Handler;

/// A window.
#[allow(dead_code)] // made by the calls of chapter 12
pub struct WinObject {
    pub errhandler: Handler,
    pub attributes: Attributes,
}
