//! The checks of devices: their report on a wrong device, and a device from outside the workspace that passes them.

mod outside;
mod report;
