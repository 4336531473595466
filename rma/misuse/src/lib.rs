//! Programs in `tests/ui` that must not compile, since they would race with a transfer or outlive a buffer. They are a
//! package of their own because they are built anew, with all that it depends on: farside-rma without its features.
