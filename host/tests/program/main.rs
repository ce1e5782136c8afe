//! Programs of operators: their text before and after passes, their memory, and what they compute, next to the network
//! and next to formulas in double.

mod attention;
mod explain;
mod formulas;
mod kinds;
mod launches;
mod memory;
mod messages;
mod network;
mod norms;
mod parts;
mod passes;
mod profile;
mod ranks;
mod readout;
mod reference;
mod refused;
mod registry;
mod relations;
mod setup;
mod store;
mod trained;
