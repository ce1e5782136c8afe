//! Property tests and end-to-end tests.
