use super::*;

#[test]
fn pauses_grow_to_their_limit() {
    for (attempt, whole) in [
        (1, 1_000),
        (2, 2_000),
        (3, 4_000),
        (6, 32_000),
        (7, 60_000),
        (4_000, 60_000),
    ] {
        let pause = |jitter| pause_ms(attempt, 1_000, 60_000, jitter);
        assert_eq!((pause(0), pause(u32::MAX)), (whole / 2, whole), "{attempt}");
    }
}
