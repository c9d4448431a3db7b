//! Groups as a whole: list, describe, delete.

use levada_api::{GroupDescription, GroupList, GroupSummary};
use reqwest::Method;

use crate::{Client, ClientError};

impl Client {
    /// All groups by name, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn groups(&self) -> Result<Vec<GroupSummary>, ClientError> {
        self.pages(&["v1", "groups"], |page: GroupList| (page.groups, page.next_cursor)).await
    }

    /// One group: its members and where it stands.
    ///
    /// # Errors
    /// See [`ClientError`]; `group-not-found` where nothing is known of it.
    pub async fn group(&self, group: &str) -> Result<GroupDescription, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", "groups", group])?).await
    }

    /// Deletes a group with its offsets.
    ///
    /// # Errors
    /// See [`ClientError`]; `group-not-empty` while it has members.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["v1", "groups", group])?).await.map(drop)
    }
}
