//! Record batches: what goes in comes out, and what is not a batch is refused.

mod round_trip;
