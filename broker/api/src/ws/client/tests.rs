//! What frames of clients may be.

use super::*;
use crate::GroupStart;
use crate::record_query::AcksWord;

fn read(text: &str) -> Result<ClientFrame, BadFrame> {
    read_frame(&Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn every_frame_is_read_whatever_the_order_of_its_members() {
    let id = FrameId::Text("a".into());
    for (text, frame) in [
        (r#"{"type":"ping"}"#, ClientFrame::Ping { id: None }),
        (r#"{"id":7,"type":"ping"}"#, ClientFrame::Ping { id: Some(FrameId::Number(7)) }),
        (r#"{"id":"a","t\u0079pe":"unsubscribe"}"#, ClientFrame::Unsubscribe { id: id.clone() }),
        (r#"{"cursor":"x","type":"commit","id":"a"}"#, ClientFrame::Commit { id: id.clone(), cursor: "x".into() }),
        (
            r#" {"type":"credit","id":"a","records":0,"bytes":9007199254740991} "#,
            ClientFrame::Credit(id.clone(), Credit { records: Some(0), bytes: Some(JSON_INTEGER_MAX) }),
        ),
        (
            r#"{"records":[ {"value":1} ],"acks":"none","topic":"t","type":"produce","id":"a"}"#,
            ClientFrame::Produce(Produce {
                id: id.clone(),
                topic: "t".into(),
                acks: AcksWord::None,
                records: Bytes::from_static(br#"[ {"value":1} ]"#),
            }),
        ),
    ] {
        assert_eq!(read(text), Ok(frame), "{text}");
    }
}

#[test]
fn a_subscription_has_one_start() {
    let start = |more: &str| match read(&format!(r#"{{"type":"subscribe","id":1,"topics":["t"]{more}}}"#)) {
        Ok(ClientFrame::Subscribe(subscribe)) => match subscribe.of {
            StreamOf::Topics { start, .. } => Ok(start),
            other @ StreamOf::Group { .. } => panic!("{other:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(bad) => Err(bad.problem.errors[0].pointer.clone()),
    };
    assert_eq!(start(""), Ok(StreamStart::Default));
    assert_eq!(start(r#","from":5"#), Ok(StreamStart::At(5)));
    assert_eq!(start(r#","from":"tail:5""#), Ok(StreamStart::From("tail:5".into())));
    assert_eq!(start(r#","cursor":"c""#), Ok(StreamStart::Cursor("c".into())));
    let place = GroupPlace { topic: "t".into(), partition: 0, offset: 3 };
    let positions = r#","positions":[{"topic":"t","partition":0,"offset":3}]"#;
    assert_eq!(start(positions), Ok(StreamStart::Positions(vec![place])));
    for (two, pointer) in [
        (r#","from":5,"cursor":"c""#, "/from"),
        (r#","positions":[],"cursor":"c""#, "/positions"),
        (r#","from":-1"#, "/from"),
        (r#","from":1.5"#, "/from"),
        (r#","from":9007199254740992"#, "/from"),
        (r#","positions":[{"topic":"t","partition":0,"offset":-1}]"#, "/positions/0/offset"),
        (r#","positions":[["t",0,1]]"#, "/positions/0"),
        (r#","isolation":"dirty""#, "/isolation"),
        (r#","filter":7"#, "/filter"),
        (r#","filter_config":{}"#, "/filter_config"),
        (r#","filter":"module:x","format":"batches""#, "/filter"),
    ] {
        assert_eq!(start(two), Err(pointer.to_owned()), "{two}");
    }
}

#[test]
fn a_filter_may_have_a_config_which_is_kept_as_it_is() {
    let filter = |more: &str| match read(&format!(r#"{{"type":"subscribe","id":1,"topics":["t"]{more}}}"#)) {
        Ok(ClientFrame::Subscribe(subscribe)) => subscribe.filter,
        other => panic!("{other:?}"),
    };
    let module = || "module:x@2".to_owned();
    assert_eq!(filter(""), None);
    assert_eq!(filter(r#","filter":"module:x@2""#), Some(StreamFilter { module: module(), config: None }));
    let config = Some("{\"a\": 1}".to_owned());
    assert_eq!(
        filter(r#","filter":"module:x@2","filter_config":{"a": 1}"#),
        Some(StreamFilter { module: module(), config })
    );
}

#[test]
fn a_member_joins_with_the_words_of_a_join() {
    let member = |more: &str| match read(&format!(r#"{{"type":"subscribe","id":1,"group":"g"{more}}}"#)) {
        Ok(ClientFrame::Subscribe(subscribe)) => match subscribe.of {
            StreamOf::Group { group, join, cursor } => Ok((group, *join, cursor)),
            other @ StreamOf::Topics { .. } => panic!("{other:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(bad) => Err(bad.problem.errors[0].pointer.clone()),
    };
    let (group, join, cursor) = member("").expect("the group alone");
    assert_eq!((group.as_str(), join, cursor), ("g", JoinGroup::new(Vec::new()), None));
    let more = r#","topics":["t"],"from":"time:7","instance_id":"i","session_timeout_ms":100,"cursor":"c""#;
    let (_, join, cursor) = member(more).expect("all of it");
    assert_eq!((join.topics, join.start, cursor), (vec!["t".to_owned()], GroupStart::Time(7), Some("c".to_owned())));
    assert_eq!((join.instance_id, join.session_timeout_ms), (Some("i".to_owned()), 100));
    for (wrong, pointer) in [
        (r#","from":5"#, "/from"),
        (r#","from":"tail:5""#, "/from"),
        (r#","assignor":"fair""#, "/assignor"),
        (r#","session_timeout_ms":99"#, "/session_timeout_ms"),
        (r#","positions":[]"#, "/positions"),
        (r#","isolation":"read_uncommitted""#, "/isolation"),
        (r#","topics":[]"#, "/topics"),
        (r#","topics":["a","a"]"#, "/topics/1"),
        (r#","topics":["a",7]"#, "/topics/1"),
        (r#","filter":"module:x""#, "/filter"),
    ] {
        assert_eq!(member(wrong), Err(pointer.to_owned()), "{wrong}");
    }
    let plain = r#"{"type":"subscribe","id":1,"topics":["t"],"assignor":"range"}"#;
    assert_eq!(read(plain).expect_err("no group").problem.errors[0].pointer, "/assignor");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_frames_id() {
    let one = Some(FrameId::Number(1));
    let long = format!(r#"{{"type":"ping","id":"{}"}}"#, "i".repeat(65));
    for (text, id, code, pointer) in [
        ("", None, ErrorCode::InvalidJson, None),
        ("nonsense", None, ErrorCode::InvalidJson, None),
        (r#"{"id":1,"type":"ping""#, None, ErrorCode::InvalidJson, None),
        (r#"{"id":1,"x":2,"type":"ping"]"#, None, ErrorCode::InvalidJson, None),
        ("[]", None, ErrorCode::InvalidField, Some("")),
        ("7", None, ErrorCode::InvalidField, Some("")),
        (r#"{"id":1}"#, one.clone(), ErrorCode::InvalidField, Some("")),
        (r#"{"id":1,"type":"shout"}"#, one.clone(), ErrorCode::InvalidField, Some("/type")),
        (r#"{"id":1,"type":null}"#, one.clone(), ErrorCode::InvalidField, Some("/type")),
        (r#"{"id":1,"type":"ping","type":"ping"}"#, one.clone(), ErrorCode::InvalidField, Some("/type")),
        (r#"{"id":1,"type":"ping","a/b":1}"#, one.clone(), ErrorCode::InvalidField, Some("/a~1b")),
        (r#"{"id":1,"type":"ping","topic":"t"}"#, one.clone(), ErrorCode::InvalidField, Some("/topic")),
        (r#"{"type":"ping","id":null}"#, None, ErrorCode::InvalidField, Some("/id")),
        (r#"{"type":"ping","id":""}"#, None, ErrorCode::InvalidField, Some("/id")),
        (r#"{"type":"ping","id":-1}"#, None, ErrorCode::InvalidField, Some("/id")),
        (&long, None, ErrorCode::InvalidField, Some("/id")),
        (r#"{"type":"credit","id":1}"#, one.clone(), ErrorCode::InvalidField, Some("")),
        (r#"{"type":"credit","id":1,"records":-1}"#, one.clone(), ErrorCode::InvalidField, Some("/records")),
        (r#"{"type":"credit","id":1,"records":0.5}"#, one.clone(), ErrorCode::InvalidField, Some("/records")),
        (r#"{"type":"credit","id":1,"bytes":9007199254740992}"#, one.clone(), ErrorCode::InvalidField, Some("/bytes")),
        (r#"{"type":"subscribe","id":1}"#, one.clone(), ErrorCode::InvalidField, Some("")),
        (r#"{"type":"subscribe","id":1,"topics":[]}"#, one.clone(), ErrorCode::InvalidField, Some("/topics")),
        (r#"{"type":"subscribe","id":1,"topics":["a","a"]}"#, one.clone(), ErrorCode::InvalidField, Some("/topics/1")),
        (r#"{"type":"subscribe","id":1,"topics":[7]}"#, one.clone(), ErrorCode::InvalidField, Some("/topics/0")),
        (r#"{"type":"produce","id":1,"topic":"t"}"#, one.clone(), ErrorCode::InvalidField, Some("")),
        (r#"{"type":"produce","topic":"t","records":[]}"#, None, ErrorCode::InvalidField, Some("")),
        (
            r#"{"type":"produce","id":1,"topic":"t","acks":"some","records":[]}"#,
            one,
            ErrorCode::InvalidField,
            Some("/acks"),
        ),
    ] {
        let bad = read(text).expect_err(text);
        let places: Vec<_> = bad.problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!((bad.id, bad.problem.code), (id, code), "{text}");
        assert_eq!(places, Vec::from_iter(pointer), "{text}: {}", bad.problem.detail);
    }
}

#[test]
fn depth_costs_nothing() {
    let deep = |n: usize| format!(r#"{{"type":"ping","id":{}1{}}}"#, "[".repeat(n), "]".repeat(n));
    assert_eq!(read(&deep(100_000)).expect_err("no id").problem.errors[0].pointer, "/id");
    let open = format!(r#"{{"type":"ping","id":{}"#, "[".repeat(100_000));
    assert_eq!(read(&open).expect_err("it ends early").problem.code, ErrorCode::InvalidJson);
}
