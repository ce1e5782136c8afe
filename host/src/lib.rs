//! Graph neural networks in half precision.
