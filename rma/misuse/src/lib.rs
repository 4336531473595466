//! Programs in `tests/ui` that must not compile, since they would race with a transfer or outlive a buffer. They are a
//! separate package because they are rebuilt with all its dependencies: farside-rma without its features.
