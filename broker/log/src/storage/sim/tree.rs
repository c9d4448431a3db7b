//! The names: directories as they are beside directories as they were synced, and what was done in between.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::Content;
use super::plan::{Fate, Pending};

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<FileNode>),
    Dir(DirId),
}

/// A file, whatever names it has. Open files share it, so it outlives its names.
#[derive(Debug)]
pub(super) struct FileNode {
    id: u64,
    pub(super) content: Mutex<Content>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirId(usize);

type Entries = BTreeMap<String, Node>;

/// A name in a directory.
type Place = (DirId, String);

#[derive(Clone, Debug)]
struct Dir {
    /// The path that it was created at, to tell pending things apart.
    path: String,
    now: Entries,
    synced: Entries,
}

/// A change of names that is not yet durable.
#[derive(Clone, Debug)]
enum Change {
    Create(Place, Node),
    Remove(Place),
    Rename { from: Place, to: Place, node: Node },
}

/// All names and files.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root is the first. A directory that was removed stays here without a name.
    dirs: Vec<Dir>,
    /// In the order in which they were done.
    changes: Vec<Change>,
    files_made: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { dirs: vec![Dir::new(String::new())], changes: Vec::new(), files_made: 0 }
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<FileNode>> {
        match self.node(path)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn create_file(&mut self, path: &Path, content: Content) -> io::Result<Arc<FileNode>> {
        let place = self.place(path)?;
        let file = Arc::new(FileNode { id: self.files_made, content: Mutex::new(content) });
        self.files_made += 1;
        self.change(Change::Create(place, Node::File(Arc::clone(&file))));
        Ok(file)
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        match self.node(path) {
            Ok(Node::Dir(_)) => return Ok(()),
            Ok(Node::File(_)) => return Err(ErrorKind::AlreadyExists.into()),
            Err(_) => (),
        }
        let place = self.place(path)?;
        let id = DirId(self.dirs.len());
        self.dirs.push(Dir::new(self.label(&place)));
        self.change(Change::Create(place, Node::Dir(id)));
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.dirs[self.dir(path)?.0].now.keys().cloned().collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.node(from)?;
        let (from, to) = (self.place(from)?, self.place(to)?);
        if from != to {
            self.change(Change::Rename { from, to, node });
        }
        Ok(())
    }

    /// Removes a file's name and gives the file.
    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<Arc<FileNode>> {
        let file = self.file(path)?;
        let place = self.place(path)?;
        self.change(Change::Remove(place));
        Ok(file)
    }

    /// Removes a directory name by name, as a program does, so that a power cut may leave any part of it. Gives the
    /// files that were in it.
    pub(super) fn remove_dir_all(&mut self, path: &Path) -> io::Result<Vec<Arc<FileNode>>> {
        let dir = self.dir(path)?;
        let mut removed = Vec::new();
        for (name, node) in self.dirs[dir.0].now.clone() {
            match node {
                Node::Dir(_) => removed.extend(self.remove_dir_all(&path.join(name))?),
                Node::File(file) => {
                    self.change(Change::Remove((dir, name)));
                    removed.push(file);
                }
            }
        }
        let place = self.place(path)?;
        self.change(Change::Remove(place));
        Ok(removed)
    }

    /// Makes the names in a directory durable. A rename between two directories is durable once one of them is synced,
    /// since file systems with a journal write it as one.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        for change in std::mem::take(&mut self.changes) {
            if change.touches(dir) {
                change.apply(&mut self.dirs, |dir| &mut dir.synced);
            } else {
                self.changes.push(change);
            }
        }
        Ok(())
    }

    /// Removes a name as if it had never been synced.
    pub(super) fn lose(&mut self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?;
        self.node(path)?;
        self.changes.retain(|change| !change.names(&place));
        let change = Change::Remove(place);
        change.apply(&mut self.dirs, |dir| &mut dir.now);
        change.apply(&mut self.dirs, |dir| &mut dir.synced);
        Ok(())
    }

    /// Paths of all files, in order.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.walk(DirId(0), "", &mut paths);
        paths.sort_unstable();
        paths
    }

    /// All that is not durable: names in the order in which they were changed, then by file its length and blocks.
    pub(super) fn pending(&self) -> Vec<Pending> {
        let mut pending: Vec<_> = self.changes.iter().map(|change| self.describe(change)).collect();
        for (path, file) in self.files().into_values() {
            let content = file.content.lock();
            pending.extend(content.length_pends().then(|| Pending::Length { path: path.clone() }));
            let block = |block| Pending::Block { path: path.clone(), block: block as u64 };
            pending.extend(content.pending_blocks().into_iter().map(block));
        }
        pending
    }

    /// The tree after a power cut. The fates are in the order of [`pending`](Self::pending).
    pub(super) fn crash(&self, fates: &[Fate]) -> Self {
        let (of_names, mut fates) = fates.split_at(self.changes.len());
        let mut dirs = self.dirs.clone();
        for (change, fate) in self.changes.iter().zip(of_names) {
            if *fate != Fate::Lost {
                change.apply(&mut dirs, |dir| &mut dir.synced);
            }
        }
        let mut crashed = HashMap::new();
        for (id, (_, file)) in self.files() {
            let content = file.content.lock();
            let (length, rest) = fates.split_at(usize::from(content.length_pends()));
            let (blocks, rest) = rest.split_at(content.pending_blocks().len());
            fates = rest;
            crashed.insert(id, content.crash(length.first().copied().unwrap_or(Fate::Kept), blocks));
        }
        for dir in &mut dirs {
            dir.now = dir.synced.clone();
        }
        let mut tree = Self { dirs, changes: Vec::new(), files_made: self.files_made };
        tree.replace_files(|file| crashed[&file.id].clone());
        tree
    }

    /// A tree of its own with the same names, bytes and pending things.
    pub(super) fn copy(&self) -> Self {
        let mut tree = Self { dirs: self.dirs.clone(), changes: self.changes.clone(), files_made: self.files_made };
        tree.replace_files(|file| file.content.lock().clone());
        tree
    }

    /// Gives every name a file of its own instead of the shared one; names of one file share the new one.
    fn replace_files(&mut self, content: impl Fn(&FileNode) -> Content) {
        let mut made: HashMap<u64, Arc<FileNode>> = HashMap::new();
        let mut replace = |node: &mut Node| {
            if let Node::File(file) = node {
                let new = || Arc::new(FileNode { id: file.id, content: Mutex::new(content(file)) });
                *file = Arc::clone(made.entry(file.id).or_insert_with(new));
            }
        };
        for dir in &mut self.dirs {
            dir.now.values_mut().chain(dir.synced.values_mut()).for_each(&mut replace);
        }
        for change in &mut self.changes {
            match change {
                Change::Create(_, node) | Change::Rename { node, .. } => replace(node),
                Change::Remove(_) => (),
            }
        }
    }

    /// Every file that may be there after a power cut, by id, with a path.
    fn files(&self) -> BTreeMap<u64, (String, Arc<FileNode>)> {
        let mut files = BTreeMap::new();
        let mut add = |path: String, node: &Node| {
            if let Node::File(file) = node {
                files.entry(file.id).or_insert_with(|| (path, Arc::clone(file)));
            }
        };
        for dir in &self.dirs {
            for (name, node) in dir.now.iter().chain(&dir.synced) {
                add(format!("{}/{name}", dir.path), node);
            }
        }
        for change in &self.changes {
            match change {
                Change::Create(place, node) | Change::Rename { to: place, node, .. } => add(self.label(place), node),
                Change::Remove(_) => (),
            }
        }
        files
    }

    fn walk(&self, dir: DirId, path: &str, paths: &mut Vec<String>) {
        for (name, node) in &self.dirs[dir.0].now {
            let path = format!("{path}/{name}");
            match node {
                Node::File(_) => paths.push(path),
                Node::Dir(dir) => self.walk(*dir, &path, paths),
            }
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.dirs, |dir| &mut dir.now);
        self.changes.push(change);
    }

    fn describe(&self, change: &Change) -> Pending {
        let (operation, place) = match change {
            Change::Create(place, _) => ("create", place),
            Change::Remove(place) => ("remove", place),
            Change::Rename { to, .. } => ("rename to", to),
        };
        Pending::Name { operation, path: self.label(place) }
    }

    fn label(&self, (dir, name): &Place) -> String {
        format!("{}/{name}", self.dirs[dir.0].path)
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Dir(DirId(0));
        for name in names(path)? {
            let Node::Dir(dir) = node else { return Err(ErrorKind::NotADirectory.into()) };
            node = self.dirs[dir.0].now.get(name).cloned().ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    fn dir(&self, path: &Path) -> io::Result<DirId> {
        match self.node(path)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory and name that a path stands for, whether or not there is such a name.
    fn place(&self, path: &Path) -> io::Result<Place> {
        let name = *names(path)?.last().ok_or(ErrorKind::InvalidInput)?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("")))?, name.to_owned()))
    }
}

impl Dir {
    fn new(path: String) -> Self {
        Self { path, now: Entries::new(), synced: Entries::new() }
    }
}

impl Change {
    fn apply(&self, dirs: &mut [Dir], entries: fn(&mut Dir) -> &mut Entries) {
        let mut set = |(dir, name): &Place, node: Option<&Node>| {
            let entries = entries(&mut dirs[dir.0]);
            match node {
                Some(node) => entries.insert(name.clone(), node.clone()),
                None => entries.remove(name),
            };
        };
        match self {
            Self::Create(place, node) => set(place, Some(node)),
            Self::Remove(place) => set(place, None),
            Self::Rename { from, to, node } => {
                set(from, None);
                set(to, Some(node));
            }
        }
    }

    fn places(&self) -> Vec<&Place> {
        match self {
            Self::Create(place, _) | Self::Remove(place) => vec![place],
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }

    fn touches(&self, dir: DirId) -> bool {
        self.places().iter().any(|place| place.0 == dir)
    }

    fn names(&self, wanted: &Place) -> bool {
        self.places().contains(&wanted)
    }
}

/// The names on the way from the root; a path without a leading slash starts there too.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => (),
            Component::Normal(name) => names.push(name.to_str().ok_or(ErrorKind::InvalidInput)?),
            Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}
