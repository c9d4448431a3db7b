//! What a power cut does: the list of things that are not yet durable, and a fate for each.

/// Something that was done and is not yet durable; each survives a power cut or not, independently of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A name that was created, renamed or removed in a directory that was not synced since; a rename is one thing.
    Name {
        /// What was done.
        operation: &'static str,
        /// The path that it was done to.
        path: String,
    },
    /// A file's length.
    Length {
        /// The file.
        path: String,
    },
    /// One written block of a file.
    Block {
        /// The file.
        path: String,
        /// The block's place in the file, counted in blocks.
        block: u64,
    },
}

/// What becomes of one pending thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The disk has what it had at the last sync.
    Lost,
    /// The disk has what was written.
    Kept,
    /// Of a block, so many new bytes came down and the rest is old. Of a length, so many bytes above the shortest that
    /// the file was since its last sync. A name is not torn: it is kept.
    Torn {
        /// How many bytes.
        bytes: usize,
    },
}

/// Decides the fate of every pending thing.
#[derive(Clone, Debug)]
pub struct CrashPlan(Plan);

#[derive(Clone, Debug)]
enum Plan {
    All(Fate),
    Fates(Vec<Fate>),
    Seeded { seed: u64, tear_unit_bytes: usize },
}

impl CrashPlan {
    /// Nothing that pends survives: the cruellest honest disk.
    #[must_use]
    pub fn all_lost() -> Self {
        Self(Plan::All(Fate::Lost))
    }

    /// Everything survives: the luckiest.
    #[must_use]
    pub fn all_kept() -> Self {
        Self(Plan::All(Fate::Kept))
    }

    /// A fate for each thing in the order of [`SimStorage::pending`](super::SimStorage::pending); what is not named is
    /// lost.
    #[must_use]
    pub fn fates(fates: Vec<Fate>) -> Self {
        Self(Plan::Fates(fates))
    }

    /// The thing at place `n` survives if bit `n` is set. All subsets of up to 64 things are the numbers below `2^n`.
    #[must_use]
    pub fn bits(kept: u64) -> Self {
        let fate = |bit: u32| if kept >> bit & 1 == 1 { Fate::Kept } else { Fate::Lost };
        Self(Plan::Fates((0..u64::BITS).map(fate).collect()))
    }

    /// Each thing is lost, kept or torn at a multiple of `tear_unit_bytes` (512 for a disk's sectors, 1 for anything),
    /// by a number that `seed` alone decides.
    #[must_use]
    pub fn seeded(seed: u64, tear_unit_bytes: usize) -> Self {
        assert!(tear_unit_bytes > 0, "a tear has a unit");
        Self(Plan::Seeded { seed, tear_unit_bytes })
    }

    /// The fates of `count` things.
    pub(super) fn decide(&self, count: usize, block_bytes: usize) -> Vec<Fate> {
        match &self.0 {
            Plan::All(fate) => vec![*fate; count],
            Plan::Fates(fates) => (0..count).map(|place| fates.get(place).copied().unwrap_or(Fate::Lost)).collect(),
            Plan::Seeded { seed, tear_unit_bytes } => {
                let mut state = *seed;
                let units = (block_bytes / tear_unit_bytes).max(1) as u64;
                let mut fate = || match split_mix(&mut state) % 5 {
                    0 | 1 => Fate::Lost,
                    2 | 3 => Fate::Kept,
                    _ => Fate::Torn { bytes: (split_mix(&mut state) % units) as usize * tear_unit_bytes },
                };
                (0..count).map(|_| fate()).collect()
            }
        }
    }
}

/// The next number of a `SplitMix64` generator (Steele, Lea, Flood 2014): small, and the same on every machine.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
