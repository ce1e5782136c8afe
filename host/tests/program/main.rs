//! Programs of operators: their text before and after passes, their memory, and what they compute, next to the network of layers
//! and next to formulas in double.

mod attention;
mod memory;
mod network;
mod norms;
mod passes;
mod reference;
mod refused;
mod relations;
mod setup;
