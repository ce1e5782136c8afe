//! Binds the CUDA driver at run time, so that a program built with cust starts where there is none.
