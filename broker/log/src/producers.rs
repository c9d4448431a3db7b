//! What a partition remembers of its producers, so that a retry is stored once (KIP-98) and outlives its records.
