//! How long the native assignors take, at 100 members over 1,000 partitions and ten times that.
//!
//! `cargo bench -p levada-extension`; each figure is the median of several runs.
#![expect(clippy::print_stdout, reason = "a bench reports on its standard output")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use levada_extension::{
    Assignor, AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, NATIVE_ASSIGNORS, StickyAssignor,
    TopicPartition, check_assignment, native_assignor,
};
use levada_model::{MemberId, PartitionIndex, TopicId, TopicName};
use uuid::Uuid;

const RUNS: usize = 9;

/// Which topics each member subscribes to.
#[derive(Clone, Copy)]
enum Subscriptions {
    /// All topics.
    Equal,
    /// All but one, each another.
    AllButOne,
    /// The first half of the members all topics, the others only the first half of the topics.
    Halves,
    /// Three of the topics, each member others.
    Chains,
}

impl Subscriptions {
    fn has(self, member: usize, members: usize, topic: usize, topics: usize) -> bool {
        match self {
            Self::Equal => true,
            Self::AllButOne => topic != member % topics,
            Self::Halves => member < members / 2 || topic < topics / 2,
            Self::Chains => (topic + topics - member % topics) % topics < 3,
        }
    }
}

fn group(subscriptions: Subscriptions, members: usize, topics: usize, partitions: u32) -> AssignorInput {
    let id = |topic: usize| TopicId(Uuid::from_u128(topic as u128));
    let member = |member: usize| AssignorMember {
        member_id: MemberId::new(&format!("m{member:05}")).expect("within the rule"),
        instance_id: None,
        subscribed: (0..topics).filter(|topic| subscriptions.has(member, members, *topic, topics)).map(id).collect(),
        owned: Vec::new(),
    };
    let partition = |number| AssignorPartition { partition: PartitionIndex(number), lag: None };
    let topic = |topic: usize| AssignorTopic {
        topic: id(topic),
        name: TopicName::new(&format!("t{topic:05}")).expect("within the rule"),
        partitions: (0..partitions).map(partition).collect(),
    };
    AssignorInput::new((0..members).map(member).collect(), (0..topics).map(topic).collect())
}

/// The next rebalance after one in which only the members at the places that `took_part` names took part.
fn after(input: &AssignorInput, took_part: impl Fn(usize) -> bool) -> AssignorInput {
    let (mut next, mut earlier) = (input.clone(), input.clone());
    let mut place = 0..;
    earlier.members.retain(|_| place.next().is_some_and(&took_part));
    let answer = StickyAssignor.assign(&earlier).expect("the native ones always answer");
    let owners = (0..input.members.len()).filter(|member| took_part(*member));
    owners.zip(answer).for_each(|(member, owned)| next.members[member].owned = owned);
    next
}

/// The next rebalance after one that paid no heed to subscriptions or even shares.
fn scattered(input: &AssignorInput) -> AssignorInput {
    let mut next = input.clone();
    let members = next.members.len();
    let partitions = input.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|known| TopicPartition { topic: topic.topic, partition: known.partition })
    });
    for (place, partition) in partitions.enumerate() {
        // The square crowds them onto the first members.
        let draw = place * 7_919 % members;
        next.members[draw * draw / members].owned.push(partition);
    }
    next
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn report(what: &str, assignor: &dyn Assignor, input: &AssignorInput) {
    let time = median(|| drop(black_box(assignor.assign(black_box(input)))));
    println!(
        "{:>4} members  {what:<40} {:<18} {:>9.2} ms",
        input.members.len(),
        assignor.name(),
        time.as_secs_f64() * 1e3
    );
}

fn main() {
    for scale in [1, 10] {
        let (members, topics, partitions) = (100 * scale, 10 * scale, 100);
        let equal = group(Subscriptions::Equal, members, topics, partitions);
        for name in NATIVE_ASSIGNORS {
            report("from nothing", &*native_assignor(name).expect(name), &equal);
        }
        let answer = StickyAssignor.assign(&equal).expect("the native ones always answer");
        let time = median(|| check_assignment(&equal, black_box(&answer)).expect("a right answer"));
        println!("{members:>4} members  {:<40} {:<18} {:>9.2} ms", "check of an answer", "", time.as_secs_f64() * 1e3);
        let all = [
            ("equal", Subscriptions::Equal),
            ("all but one", Subscriptions::AllButOne),
            ("halves", Subscriptions::Halves),
            ("chains", Subscriptions::Chains),
        ];
        for (name, subscriptions) in all {
            let input = group(subscriptions, members, topics, partitions);
            let sticky = |what: &str, input: &AssignorInput| report(&format!("{name}: {what}"), &StickyAssignor, input);
            sticky("from nothing", &input);
            sticky("nothing changed", &after(&input, |_| true));
            sticky("one joins", &after(&input, |member| member > 0));
            let mut left = after(&input, |_| true);
            left.members.remove(members / 2);
            sticky("one leaves", &left);
            sticky("as many join as there were", &after(&input, |member| member % 2 == 0));
            sticky("everyone joins one", &after(&input, |member| member == 0));
            sticky("scattered before", &scattered(&input));
        }
        let one_topic = group(Subscriptions::Equal, members, 1, u32::try_from(1_000 * scale).expect("small"));
        report("one topic, from nothing", &StickyAssignor, &one_topic);
    }
}
