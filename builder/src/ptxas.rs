//! `ptxas`, NVIDIA's assembler.
