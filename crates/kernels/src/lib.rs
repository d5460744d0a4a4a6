//! ALiBi attention on the CPU, streaming over key blocks, with observers.
