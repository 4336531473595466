//! The checks of devices: what they report of a wrong one, and a device from outside the workspace that passes them.

mod outside;
mod report;
