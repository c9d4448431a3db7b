//! An assignor's input with places instead of ids, so that the algorithms work on small numbers.

use std::collections::HashMap;

use levada_model::TopicId;

use super::{Assignment, AssignorInput, TopicPartition};

/// The place of a member in the input.
pub(super) type Member = usize;
/// The place of a topic in the input.
pub(super) type Topic = usize;
/// The place of a partition among all of the input, in its order.
pub(super) type Place = usize;

/// Members, topics and partitions by their places. Whatever the input names twice counts once.
pub(super) struct Board {
    partitions: Vec<TopicPartition>,
    places: HashMap<TopicPartition, Place>,
    topic_of: Vec<Topic>,
    members: usize,
    /// By topic, in the order of the members.
    subscribers: Vec<Vec<Member>>,
    /// By topic, the places of its partitions, in order.
    places_of: Vec<Vec<Place>>,
}

impl Board {
    pub(super) fn new(input: &AssignorInput) -> Self {
        let mut topics: HashMap<TopicId, Topic> = HashMap::with_capacity(input.topics.len());
        let mut board = Self {
            partitions: Vec::new(),
            places: HashMap::new(),
            topic_of: Vec::new(),
            members: input.members.len(),
            subscribers: vec![Vec::new(); input.topics.len()],
            places_of: vec![Vec::new(); input.topics.len()],
        };
        for (place, topic) in input.topics.iter().enumerate() {
            let first = *topics.entry(topic.topic).or_insert(place);
            for partition in &topic.partitions {
                board.add(first, TopicPartition { topic: topic.topic, partition: partition.partition });
            }
        }
        for (member, described) in input.members.iter().enumerate() {
            for topic in described.subscribed.iter().filter_map(|id| topics.get(id)) {
                // Members come in order, so a topic named twice by one has that one last.
                if board.subscribers[*topic].last() != Some(&member) {
                    board.subscribers[*topic].push(member);
                }
            }
        }
        board
    }

    fn add(&mut self, topic: Topic, partition: TopicPartition) {
        let place = self.partitions.len();
        if *self.places.entry(partition).or_insert(place) == place {
            self.partitions.push(partition);
            self.topic_of.push(topic);
            self.places_of[topic].push(place);
        }
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    pub(super) fn topics(&self) -> usize {
        self.subscribers.len()
    }

    pub(super) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    pub(super) fn partition(&self, place: Place) -> TopicPartition {
        self.partitions[place]
    }

    pub(super) fn place(&self, partition: &TopicPartition) -> Option<Place> {
        self.places.get(partition).copied()
    }

    pub(super) fn topic_of(&self, place: Place) -> Topic {
        self.topic_of[place]
    }

    pub(super) fn places_of(&self, topic: Topic) -> &[Place] {
        &self.places_of[topic]
    }

    /// Members that subscribe to the topic, in order.
    pub(super) fn subscribers(&self, topic: Topic) -> &[Member] {
        &self.subscribers[topic]
    }

    pub(super) fn subscribes(&self, member: Member, topic: Topic) -> bool {
        self.subscribers[topic].binary_search(&member).is_ok()
    }

    /// The assignment that gives each partition to its owner; lists are in the order of the input.
    pub(super) fn assignment(&self, owner: impl Fn(Place) -> Option<Member>) -> Assignment {
        let mut assignment = vec![Vec::new(); self.members];
        for (place, partition) in self.partitions.iter().enumerate() {
            if let Some(member) = owner(place) {
                assignment[member].push(*partition);
            }
        }
        assignment
    }
}
