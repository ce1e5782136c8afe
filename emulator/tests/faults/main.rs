//! For every fault a kernel that commits it, and a correct twin that must pass.

mod asynchronous;
mod bounds;
mod harness;
mod initialised;
mod progress;
mod races_at_random;
mod races_between_blocks;
mod races_in_block;
mod repeatable;
mod warps;
