use proptest::prelude::*;

use super::*;
use crate::commit::test_support;

const WID: &str = "0123456789abcdef";

fn message(body: Body) -> Message {
    Message {
        wid: WID.to_owned(),
        session: Uuid::from_u128(1),
        epoch: 3,
        task: 2,
        host: "worker-1".to_owned(),
        body,
    }
}

fn table() -> TableName {
    TableName {
        namespace: vec!["db".to_owned()],
        name: "t".to_owned(),
        branch: "main".to_owned(),
    }
}

fn segment() -> SegmentMessage {
    let ranges = vec![
        test_support::range("t", 0, 0, 10, Some(4)),
        test_support::range("u", 1, 5, 9, None),
    ];
    SegmentMessage::new(&test_support::segment(7, ranges), true, 20, 3_600_000)
}

/// A segment whose changes only delete.
fn deletes() -> SegmentMessage {
    let ranges = vec![test_support::range("t", 0, 0, 10, Some(4))];
    let mut segment = test_support::segment(8, ranges);
    segment.manifests.clear();
    segment.key_run = Some(KeyRunRef {
        path: "memory:///t/data/8-keys.parquet".to_owned(),
        len: 900,
        sha256: [0xab; 32],
        rows: 6,
    });
    SegmentMessage::new(&segment, false, 20, 3_600_000)
}

fn text(body: Body) -> String {
    String::from_utf8(message(body).encode().expect("it fits")).expect("UTF-8")
}

fn decode(text: &str) -> Result<Message, Ignored> {
    Message::decode(WID, text.as_bytes())
}

#[test]
fn the_form_of_each_message() {
    let hello = Hello {
        coordinator: Uuid::from_u128(9),
        election: 1,
    };
    let result = ResultMessage {
        table: table(),
        seq: 7,
        answer: Answer::Durable {
            snapshot_id: Some(5),
            stamp: None,
        },
    };
    let all = [
        text(Body::Hello(hello)),
        text(Body::Segment(Box::new(segment()))),
        text(Body::Segment(Box::new(deletes()))),
        text(Body::Result(result)),
        text(Body::Drain),
        text(Body::Bye),
    ];
    expect_test::expect![[r#"
        {"v":1,"wid":"0123456789abcdef","type":"HELLO","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{"id":"00000000-0000-0000-0000-000000000009","election":1}}
        {"v":1,"wid":"0123456789abcdef","type":"SEGMENT","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{"tbl":{"ns":["db"],"name":"t","branch":"main"},"uuid":"00000000-0000-0000-0000-000000000007","seq":7,"first_unacked":7,"urgent":true,"sealed_rel_ms":20,"ttl_ms":3600000,"rows":6,"bytes":60,"ranges":{"r":[["t",[[0,0,10,4,1010]]],["u",[[1,5,9,null,1009]]]],"w":[]},"manifests":[{"path":"memory:///t/metadata/7-m.avro","len":100,"spec_id":0,"files":1,"rows":6,"sha256":"0000000000000000000000000000000000000000000000000000000000000000"}]}}
        {"v":1,"wid":"0123456789abcdef","type":"SEGMENT","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{"tbl":{"ns":["db"],"name":"t","branch":"main"},"uuid":"00000000-0000-0000-0000-000000000007","seq":8,"first_unacked":8,"urgent":false,"sealed_rel_ms":20,"ttl_ms":3600000,"rows":6,"bytes":60,"ranges":{"r":[["t",[[0,0,10,4,1010]]]],"w":[]},"manifests":[],"key_run":{"path":"memory:///t/data/8-keys.parquet","len":900,"rows":6,"sha256":"abababababababababababababababababababababababababababababababab"}}}
        {"v":1,"wid":"0123456789abcdef","type":"RESULT","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{"tbl":{"ns":["db"],"name":"t","branch":"main"},"seq":7,"status":"DURABLE","snapshot_id":5,"stamp":null}}
        {"v":1,"wid":"0123456789abcdef","type":"DRAIN","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{}}
        {"v":1,"wid":"0123456789abcdef","type":"BYE","sess":"00000000-0000-0000-0000-000000000001","epoch":3,"task":2,"host":"worker-1","body":{}}"#]]
    .assert_eq(&all.join("\n"));
}

// Promise: A control message that is garbage, foreign, of another version or too long is ignored.
// Injection: 50
#[test]
fn what_is_no_message_of_ours_is_ignored_and_why() {
    let good = text(Body::Drain);
    assert!(decode(&good).is_ok());
    let cases = [
        ("", Ignored::Garbage),
        ("{}", Ignored::Garbage),
        ("null", Ignored::Garbage),
        ("\u{0}\u{1}\u{2}", Ignored::Garbage),
        (&good[..good.len() - 1], Ignored::Garbage),
        (&good.replace("\"v\":1", "\"v\":2"), Ignored::Version),
        (&good.replace("\"v\":1", "\"v\":\"1\""), Ignored::Garbage),
        (&good.replace(WID, "fedcba9876543210"), Ignored::Foreign),
        (&good.replace("DRAIN", "CONFETTI"), Ignored::UnknownType),
        (&good.replace("{}}", "7}"), Ignored::Garbage),
        (&good.replace("\"task\":2", "\"task\":-2"), Ignored::Garbage),
        (
            &good.replace("\"epoch\":3", "\"epoch\":18446744073709551615"),
            Ignored::Garbage,
        ),
        (
            &good.replace("worker-1", &"x".repeat(300)),
            Ignored::Garbage,
        ),
        (
            &good.replace("worker-1", &"x".repeat(MESSAGE_BYTES_MAX)),
            Ignored::Oversized,
        ),
    ];
    for (bytes, reason) in cases {
        let shown: String = bytes.chars().take(80).collect();
        assert_eq!(decode(bytes), Err(reason), "{shown}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(decode(&deep), Err(Ignored::Garbage));
}

// Complaint: 26
#[test]
fn every_bound_of_a_segment_is_checked() {
    let encode = |change: &dyn Fn(&mut SegmentMessage)| {
        let mut segment = segment();
        change(&mut segment);
        message(Body::Segment(Box::new(segment))).encode()
    };
    assert!(encode(&|_| {}).is_ok());
    let range = |change: &dyn Fn(&mut SourceRange)| {
        encode(&|segment| {
            let ranges = segment.ranges.as_mut().expect("ranges");
            change(&mut ranges.ranges[0]);
        })
    };
    let wrong = [
        encode(&|segment| segment.seq = u64::MAX),
        encode(&|segment| segment.first_unacked = segment.seq + 1),
        encode(&|segment| segment.rows = u64::MAX),
        encode(&|segment| segment.ttl_ms = u64::MAX),
        encode(&|segment| segment.table.namespace.clear()),
        encode(&|segment| segment.table.namespace = vec!["x".to_owned(); 17]),
        encode(&|segment| segment.table.name.clear()),
        encode(&|segment| segment.table.branch = "x".repeat(257)),
        encode(&|segment| segment.manifests[0].len = u64::MAX),
        encode(&|segment| segment.manifests[0].spec_id = -1),
        encode(&|segment| segment.manifests[0].files = 1 << 32),
        encode(&|segment| segment.manifests[0].path = "x".repeat(2_049)),
        encode(&|segment| segment.manifests = vec![segment.manifests[0].clone(); 65]),
        encode(&|segment| {
            segment.manifests.clear();
            segment.ranges = None;
        }),
        range(&|range| range.end = -1),
        range(&|range| range.start = Some(range.end + 1)),
        range(&|range| range.lowest = Some(range.end)),
        range(&|range| range.partition.partition = -1),
        range(&|range| range.partition.partition = PARTITION_MAX),
        range(&|range| range.partition.topic = "x".repeat(250).into()),
    ];
    for (index, bytes) in wrong.into_iter().enumerate() {
        assert_eq!(bytes, Err(Ignored::Garbage), "case {index}");
    }
    let key_run = |change: &dyn Fn(&mut KeyRunRef)| {
        let mut segment = deletes();
        segment.key_run.iter_mut().for_each(change);
        message(Body::Segment(Box::new(segment))).encode()
    };
    assert!(key_run(&|_| {}).is_ok());
    for change in [
        |run: &mut KeyRunRef| run.path = "x".repeat(2_049),
        |run: &mut KeyRunRef| run.len = u64::MAX,
        |run: &mut KeyRunRef| run.rows = u64::MAX,
    ] {
        assert_eq!(key_run(&change), Err(Ignored::Garbage));
    }
    let digest = text(Body::Segment(Box::new(segment())));
    for other in ["0".repeat(63), "g".repeat(64), "+0".repeat(32)] {
        assert_eq!(
            decode(&digest.replace(&"0".repeat(64), &other)),
            Err(Ignored::Garbage)
        );
    }
}

// Complaint: 26
#[test]
fn long_ranges_stand_in_the_manifest() {
    let ranges =
        (0..4_000).map(|p| test_support::range("orders", p, 1 << 40, 1 << 41, Some(1 << 40)));
    let sealed = test_support::segment(0, ranges.collect());
    assert!(!Ranges::of(&sealed).fit());
    let short = SegmentMessage::new(&sealed, false, 0, 1);
    assert_eq!(short.ranges, None);
    assert!(
        message(Body::Segment(Box::new(short.clone())))
            .encode()
            .is_ok()
    );
    // Without a manifest they stand with the keys.
    let deletes = SegmentMessage {
        manifests: Vec::new(),
        key_run: deletes().key_run,
        ..short
    };
    assert!(message(Body::Segment(Box::new(deletes))).encode().is_ok());
    let text = Ranges::of(&sealed).to_text();
    assert_eq!(Ranges::from_text(&text), Some(Ranges::of(&sealed)));
    assert_eq!(
        Ranges::from_text(&text.replace("1099511627776", "-1")),
        None
    );
    assert_eq!(Ranges::of(&sealed).digest().len(), 64);
}

#[test]
fn a_reason_is_cut_between_characters() {
    assert_eq!(Answer::reason("short"), "short");
    let long = "ä".repeat(TEXT_BYTES_MAX);
    let cut = Answer::reason(&long[..]);
    assert_eq!(cut.len(), TEXT_BYTES_MAX);
    assert_eq!(
        Answer::reason(&format!("x{long}")).len(),
        TEXT_BYTES_MAX - 1
    );
}

fn answers() -> impl Strategy<Value = Answer> {
    let stamp =
        (any::<i32>(), any::<i32>(), "[0-9a-f]{0,16}").prop_map(|(schema_id, spec_id, write)| {
            TableStamp {
                schema_id,
                spec_id,
                write,
            }
        });
    prop_oneof![
        (any::<Option<i64>>(), proptest::option::of(stamp))
            .prop_map(|(snapshot_id, stamp)| Answer::Durable { snapshot_id, stamp }),
        (
            ".{0,40}",
            proptest::collection::btree_set(0..NUMBER_MAX, 0..4)
        )
            .prop_map(|(reason, offsets)| {
                let partition = TopicPartition::new("orders", 3);
                let records = offsets.iter().map(|one| (partition.clone(), *one as i64));
                let absent = AbsentRecords::of(&records.collect());
                Answer::Rejected { reason, absent }
            }),
        ".{0,40}".prop_map(|reason| Answer::Blocked { reason }),
        Just(Answer::Expired),
        Just(Answer::Missing),
        (0..NUMBER_MAX).prop_map(|epoch| Answer::Fenced { epoch }),
    ]
}

fn names() -> impl Strategy<Value = TableName> {
    (
        proptest::collection::vec(".{1,8}", 1..4),
        ".{1,8}",
        ".{1,8}",
    )
        .prop_map(|(namespace, name, branch)| TableName {
            namespace,
            name,
            branch,
        })
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let partition =
        || ("[a-z.]{0,5}", 0..PARTITION_MAX).prop_map(|(topic, p)| TopicPartition::new(topic, p));
    let range = (
        partition(),
        any::<bool>(),
        1..i64::MAX,
        any::<bool>(),
        any::<Option<i64>>(),
    );
    let range = range.prop_map(
        |(partition, known, end, rows, timestamp_max_ms)| SourceRange {
            partition,
            start: known.then_some(end / 3),
            end,
            lowest: rows.then_some(end / 2),
            timestamp_max_ms,
        },
    );
    (
        proptest::collection::vec(range, 0..6),
        proptest::collection::btree_map(partition(), 0..i64::MAX, 0..4),
        proptest::collection::btree_map("[a-z.]{0,5}", any::<u128>(), 0..3),
    )
        .prop_map(|(ranges, watermarks, ids)| Ranges {
            ranges,
            watermarks,
            topic_ids: ids
                .into_iter()
                .map(|(topic, id)| (topic.into(), Uuid::from_u128(id)))
                .collect(),
        })
}

fn segments() -> impl Strategy<Value = SegmentMessage> {
    let manifest = (
        ".{0,20}",
        0..NUMBER_MAX,
        0..i32::MAX,
        any::<u32>(),
        0..NUMBER_MAX,
        any::<[u8; 32]>(),
    );
    let manifest = manifest.prop_map(|(path, len, spec_id, files, rows, sha256)| ManifestRef {
        path,
        len,
        spec_id,
        files: files.into(),
        rows,
        sha256,
    });
    let key_run = (".{0,20}", 0..NUMBER_MAX, 0..NUMBER_MAX, any::<[u8; 32]>());
    let key_run = key_run.prop_map(|(path, len, rows, sha256)| KeyRunRef {
        path,
        len,
        sha256,
        rows,
    });
    (
        names(),
        0..NUMBER_MAX,
        any::<bool>(),
        [0..NUMBER_MAX, 0..NUMBER_MAX, 0..NUMBER_MAX, 0..NUMBER_MAX],
        proptest::option::of(ranges()),
        proptest::collection::vec(manifest, 1..3),
        proptest::option::of(key_run),
    )
        .prop_map(
            |(table, seq, urgent, numbers, ranges, manifests, key_run)| SegmentMessage {
                table,
                uuid: Uuid::from_u128(seq.into()),
                seq,
                first_unacked: seq / 2,
                urgent,
                sealed_ago_ms: numbers[0],
                ttl_ms: numbers[1],
                rows: numbers[2],
                bytes: numbers[3],
                ranges,
                manifests,
                key_run,
            },
        )
}

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        (any::<u128>(), 0..NUMBER_MAX).prop_map(|(id, election)| Body::Hello(Hello {
            coordinator: Uuid::from_u128(id),
            election,
        })),
        segments().prop_map(|segment| Body::Segment(Box::new(segment))),
        (names(), 0..NUMBER_MAX, answers())
            .prop_map(|(table, seq, answer)| Body::Result(ResultMessage { table, seq, answer })),
        Just(Body::Drain),
        Just(Body::Bye),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_message_is_read_as_it_was_written(
        body in bodies(), session in any::<u128>(), epoch in 0..NUMBER_MAX, task in any::<u32>(), host in ".{0,20}"
    ) {
        let message = Message {
            session: Uuid::from_u128(session), epoch, task, host, ..message(body)
        };
        let bytes = message.encode().expect("it fits");
        prop_assert_eq!(Message::decode(WID, &bytes), Ok(message));
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Message::decode(WID, &bytes).is_err());
    }

    #[test]
    fn no_change_of_a_message_breaks_the_reader(body in bodies(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = message(body).encode().expect("it fits");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        // Whatever is still a message obeys the bounds and can be sent again.
        if let Ok(message) = Message::decode(WID, &bytes) {
            prop_assert!(message.encode().is_ok());
        }
    }
}
