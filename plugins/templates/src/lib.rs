//! What `levada module new` writes: a project for a module, in a language, with the SDK and the contract in its folder
//! `levada`, so that it builds wherever it lies. Not here: the command itself, and the toolchains of the languages.

mod contents;
mod language;

use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

pub use language::{Language, World};

/// Why a project could not be written.
#[derive(Debug, Error)]
pub enum WriteProjectError {
    /// The name would not do as the name of a module.
    #[error("{0:?} cannot be the name of a module: 1 to 64 lower-case letters, digits and hyphens, a letter first")]
    Name(String),
    /// There is something in the folder already; nothing is written over it.
    #[error("{} is there already, and not an empty folder", .0.display())]
    Occupied(PathBuf),
    /// A file could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes a project for a module into the folder `dir`, which is made, or is empty. Answers the files, relative to it, in
/// order.
///
/// # Errors
/// When the name will not do, the folder is occupied, or a file cannot be written. What was written until then stays.
#[expect(clippy::disallowed_methods, reason = "a project is no file of the broker")]
pub fn write_project(
    dir: &Path,
    name: &str,
    world: World,
    language: Language,
) -> Result<Vec<PathBuf>, WriteProjectError> {
    if !is_name(name) {
        return Err(WriteProjectError::Name(name.to_owned()));
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteProjectError::Io { path, source }
    };
    fs::create_dir_all(dir).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => WriteProjectError::Occupied(dir.to_owned()),
        _ => io(dir)(source),
    })?;
    if fs::read_dir(dir).map_err(io(dir))?.next().is_some() {
        return Err(WriteProjectError::Occupied(dir.to_owned()));
    }
    let mut written = Vec::new();
    for (relative, text) in contents::files(world, language) {
        let path = dir.join(&relative);
        let folder = path.parent().expect("it has a folder, which is at least the project's");
        fs::create_dir_all(folder).map_err(io(folder))?;
        fs::write(&path, filled(text, name, world, language)).map_err(io(&path))?;
        written.push(relative.into());
    }
    written.sort();
    Ok(written)
}

/// As strict as the strictest of those that a name goes through: a crate's, a package's, a module's in the broker.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 64 && name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(is_part)
}

fn filled(text: &str, name: &str, world: World, language: Language) -> String {
    let places = [
        ("{{name}}", name),
        ("{{world}}", world.name()),
        ("{{wit_world}}", language.wit_world(world)),
        ("{{build}}", &language.build_command(world)),
        ("{{wasm}}", language.wasm()),
    ];
    places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value))
}
