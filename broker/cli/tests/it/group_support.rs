//! Members of groups for tests: the client's calls, one at a time, and waiting for what a group becomes.

use std::time::{Duration, Instant};

use levada_api::{ErrorCode, GroupDescription, JoinGroup, RejectRecords};
use levada_client::{Client, GroupConsumer, GroupFetched, GroupQuery};
use tokio::runtime::{Builder, Runtime};

use crate::program::Server;

/// Longest wait for something that must come; only a broken program meets it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A member that does what a test says, and nothing by itself.
pub(crate) struct Member {
    runtime: Runtime,
    consumer: std::cell::RefCell<GroupConsumer>,
}

impl Member {
    pub(crate) fn join(server: &Server, group: &str, join: JoinGroup) -> Self {
        let consumer = client(server).group_consumer(group, join);
        let member = Self { runtime: runtime(), consumer: consumer.into() };
        member.fetch(0);
        member
    }

    /// What is there, or comes within so many milliseconds.
    pub(crate) fn fetch(&self, wait_ms: u64) -> GroupFetched {
        let query = GroupQuery::wait(wait_ms);
        self.runtime.block_on(self.consumer.borrow_mut().next(&query)).expect("it is fetched")
    }

    /// Commits all that was fetched.
    pub(crate) fn commit(&self) {
        let committed = self.runtime.block_on(self.consumer.borrow_mut().commit()).expect("it is committed");
        assert_eq!(committed.refused, []);
    }

    pub(crate) fn reject(&self, reject: &RejectRecords) {
        self.runtime.block_on(self.consumer.borrow_mut().reject(reject)).expect("it is rejected");
    }

    pub(crate) fn leave(self) {
        self.runtime.block_on(self.consumer.into_inner().leave()).expect("it leaves");
    }
}

pub(crate) fn describe(server: &Server, group: &str) -> GroupDescription {
    find(server, group).expect("there is such a group")
}

/// A group, if there is one already.
pub(crate) fn find(server: &Server, group: &str) -> Option<GroupDescription> {
    match runtime().block_on(client(server).group(group)) {
        Ok(group) => Some(group),
        Err(error) if error.problem().is_some_and(|problem| problem.code == ErrorCode::GroupNotFound) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Removes a member, as its session's end would.
pub(crate) fn expel(server: &Server, group: &str, member: &str) {
    runtime().block_on(client(server).leave_group(group, member)).expect("there is such a member");
}

/// Tries until it holds.
#[track_caller]
pub(crate) fn wait_for(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never came true");
    }
}

fn client(server: &Server) -> Client {
    Client::new(&server.url).expect("a good address")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
