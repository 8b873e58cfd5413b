//! What goes when, and again.

use super::script::{Out, Script};
use crate::tcp::{Changes, Config, Failure, Flags, KeepAlive, Phase, State, Unreachable};
use std::time::Duration;

fn big() -> Config {
    Config {
        send_buffer: 1 << 20,
        gso_max: 65_000,
        ..Config::default()
    }
}

fn places(out: &[Out]) -> Vec<(i32, usize)> {
    out.iter()
        .map(|o| (Script::at(o), o.payload.len()))
        .collect()
}

#[test]
fn ten_segments_go_at_first_in_short_bursts() {
    let mut s = Script::established(big());
    assert_eq!(s.write(100_000), 100_000);
    let out = s.sent();
    // A round trip is long: two segments are more than a millisecond's.
    assert_eq!(places(&out), [0, 1, 2, 3, 4].map(|n| (n * 2920, 2920)));
    assert_eq!(out[0].mss, 1460);
    assert!(out.iter().all(|o| o.header.flags.contains(Flags::PSH)));
    s.ack(14_600);
    s.sent();
    assert_eq!(s.c.info().congestion_window, 29_200);
}

#[test]
fn without_segmentation_each_goes_alone() {
    let mut s = Script::established(Config {
        gso_max: 0,
        ..big()
    });
    s.write(3000);
    assert_eq!(places(&s.sent()), [(0, 1460), (1460, 1460), (2920, 80)]);
}

#[test]
fn nagle_holds_the_second_small_one() {
    let mut s = Script::established(big());
    s.write(10);
    assert_eq!(places(&s.sent()), [(0, 10)]);
    s.write(10);
    assert!(s.sent().is_empty());
    s.ack(10);
    assert_eq!(places(&s.sent()), [(10, 10)]);
    s.c.configure(|c| c.no_delay = true);
    s.write(10);
    assert_eq!(places(&s.sent()), [(20, 10)]);
}

#[test]
fn a_cork_lasts_as_long_as_a_time_out() {
    let mut s = Script::established(Config {
        cork: true,
        ..big()
    });
    s.write(1500);
    assert_eq!(places(&s.sent()), [(0, 1460)]);
    s.ack(1460);
    assert!(s.sent().is_empty());
    assert_eq!(s.left().as_millis(), 210);
    let out = s.wait().1;
    assert_eq!(places(&out), [(1460, 40)]);
    assert!(out[0].header.flags.contains(Flags::PSH));
    s.write(5);
    assert!(s.sent().is_empty());
    s.c.configure(|c| c.cork = false);
    s.ack(1500);
    assert_eq!(places(&s.sent()), [(1500, 5)]);
}

#[test]
fn a_lost_segment_goes_again_once_later_ones_arrived() {
    let mut s = Script::established(big());
    s.write(14_600);
    s.sent();
    s.pass(10);
    s.sack(0, &[(1460, 2920)]);
    assert!(s.sent().is_empty(), "it may be reordering");
    s.sack(0, &[(1460, 5840)]);
    assert_eq!(places(&s.sent()), [(0, 1460)]);
    assert_eq!(s.c.info().phase, Phase::Recovery);
    assert!(s.c.info().slow_start_threshold < 14_600);
    s.pass(10);
    s.ack(14_600);
    s.sent();
    let i = s.c.info();
    assert_eq!(
        (i.phase, i.total_retransmitted, i.unacked),
        (Phase::Open, 1, 0)
    );
}

#[test]
fn without_selective_ones_three_repeated_tell() {
    let mut s = Script::established(Config {
        sack: false,
        ..big()
    });
    s.write(14_600);
    s.sent();
    s.pass(10);
    for _ in 0..2 {
        s.ack(0);
        assert!(s.sent().is_empty());
    }
    s.ack(0);
    assert_eq!(places(&s.sent()), [(0, 1460)]);
    assert_eq!(s.c.info().phase, Phase::Recovery);
    for _ in 0..5 {
        s.ack(0);
    }
    s.pass(10);
    // A second hole.
    s.ack(2920);
    assert_eq!(places(&s.sent()), [(2920, 1460)]);
    s.pass(10);
    s.ack(14_600);
    s.sent();
    let i = s.c.info();
    assert_eq!(
        (i.phase, i.total_retransmitted, i.timeouts),
        (Phase::Open, 2, 0)
    );
}

#[test]
fn a_lost_acknowledgement_is_no_long_round_trip() {
    let mut s = Script::with_timestamps(big());
    s.write(1000);
    s.sent();
    let first = s.echo;
    let (_, out) = s.wait();
    assert_eq!(out.len(), 1);
    s.pass(10);
    // The peer answers the second copy, with the first one's timestamp.
    s.echo = first;
    s.ack(1000);
    assert_eq!(s.c.info().rtt.as_millis(), 10);
}

#[test]
fn late_ones_are_awaited_once_reordering_was_seen() {
    let mut s = Script::established(big());
    s.write(14_600);
    s.sent();
    s.pass(10);
    s.sack(0, &[(1460, 2920)]);
    s.ack(2920);
    assert!(s.c.info().reordering_seen);
    s.sack(2920, &[(4380, 14_600)]);
    assert!(s.sent().is_empty(), "a quarter of a round trip is waited");
    let (_, out) = s.wait();
    assert_eq!(places(&out), [(2920, 1460)]);
}

#[test]
fn a_tail_is_probed_before_the_time_out() {
    let mut s = Script::established(big());
    s.write(2920);
    s.sent();
    // Two round trips of 10 ms, and 2 ms.
    assert_eq!(s.left().as_millis(), 22);
    let (_, out) = s.wait();
    assert_eq!(places(&out), [(1460, 1460)]);
    assert!(s.left().as_millis() >= 200);
    // The probe finds the hole.
    s.pass(10);
    s.sack(0, &[(1460, 2920)]);
    let out = s.sent();
    assert_eq!(places(&out), [(0, 1460)]);
    assert_eq!(s.c.info().timeouts, 0);
}

#[test]
fn time_outs_double_and_end() {
    let mut s = Script::established(big());
    s.write(1000);
    s.sent();
    let mut took = Vec::new();
    for _ in 0..4 {
        took.push(s.left().as_millis());
        let (_, out) = s.wait();
        assert_eq!(places(&out), [(0, 1000)]);
    }
    // The first is the probe of the tail, which is not to come later than the time-out.
    assert_eq!(took, [210, 210, 420, 840]);
    assert_eq!(s.c.info().timeouts, 3);
    assert_eq!(s.c.info().phase, Phase::Loss);
    s.c.unreachable(s.now, super::script::OURS.plus(1), Unreachable::Soft(113));
    let began = s.now;
    while s.state() != State::Closed {
        s.wait();
    }
    let took = s.now.since(began).as_secs();
    assert!((900..1200).contains(&took), "{took} s");
    assert_eq!(s.c.take_failure(), Some(Failure::Unreachable(113)));
}

#[test]
fn a_recovery_that_begins_late_sends_one_segment() {
    let mut s = Script::established(big());
    s.write(14_600);
    s.sent();
    s.pass(10);
    // One behind seven that have not come: reordered, perhaps.
    s.sack(0, &[(10_220, 11_680)]);
    assert!(s.sent().is_empty());
    let (_, out) = s.wait();
    assert_eq!(places(&out), [(0, 1460)]);
    assert_eq!(s.c.info().lost, 7);
    // And then as many as arrive.
    s.pass(2);
    s.sack(0, &[(4380, 5840), (10_220, 11_680)]);
    assert_eq!(places(&s.sent()), [(1460, 1460)]);
}

#[test]
fn an_acknowledgement_that_comes_late_lets_all_go() {
    let mut s = Script::established(big());
    s.write(60_000);
    s.sent();
    // The next one does not come soon: nothing is held back for a larger piece.
    s.pass(10);
    s.ack(2920);
    assert_eq!(places(&s.sent()), [(14_600, 2920), (17_520, 2920)]);
}

#[test]
fn no_delay_overrides_the_cork_once() {
    let mut s = Script::established(Config {
        cork: true,
        ..big()
    });
    s.write(100);
    assert!(s.sent().is_empty());
    s.c.configure(|c| c.no_delay = true);
    s.c.send_partial();
    assert_eq!(places(&s.sent()), [(0, 100)]);
    s.write(100);
    assert!(s.sent().is_empty());
}

#[test]
fn little_is_written_that_cannot_go() {
    let mut s = Script::established(Config {
        notsent_lowat: Some(4000),
        send_buffer: 1 << 20,
        ..big()
    });
    // What the congestion window takes, and a piece: half of the peer's window.
    let piece = s.c.info().send_window as usize / 2 / 1460 * 1460;
    assert_eq!(s.c.send_room(), 14_600 + piece);
    s.write(14_600 + piece);
    assert_eq!(s.c.send_room(), 0);
    s.sent();
    assert_eq!(s.c.send_room(), 0);
    s.pass(10);
    s.ack(14_600);
    s.sent();
    assert!(s.c.send_room() > 0);
}

/// Nothing arrives until segments are smaller, and then all, until one of the old size is sent: it
/// is the last of what is returned.
fn in_a_black_hole() -> (Script, Vec<(i32, usize)>) {
    let mut s = Script::established(big());
    s.write(100_000);
    s.sent();
    while s.c.info().send_mss > 1024 {
        s.wait();
        assert!(s.c.info().timeouts < 4);
    }
    let (mut all, mut acked) = (places(&s.sent()), 0);
    while all.last().is_none_or(|l| l.1 != 1460) {
        acked += 1024;
        assert!(acked < 60_000);
        s.pass(10);
        s.ack(acked);
        all.extend(places(&s.sent()));
    }
    (s, all)
}

#[test]
fn a_black_hole_makes_segments_smaller() {
    let (mut s, all) = in_a_black_hole();
    let probe = all[all.len() - 1].0 as u32;
    // It is lost: it goes again in pieces, and no other one like it.
    s.pass(10);
    s.ack(probe);
    s.sent();
    s.pass(10);
    s.sack(probe, &[(probe + 1460, probe + 1460 + 3 * 1024)]);
    s.c.configure(|c| c.gso_max = 0);
    assert_eq!(places(&s.sent())[0], (probe as i32, 1024));
    for n in 1..20 {
        s.pass(10);
        s.ack(probe + n * 1024);
        assert!(s.sent().iter().all(|o| o.payload.len() <= 1024));
    }
    assert_eq!(s.c.info().send_mss, 1024);
}

#[test]
fn after_an_outage_segments_are_large_again() {
    let (mut s, all) = in_a_black_hole();
    s.pass(10);
    s.ack(all[all.len() - 1].0 as u32 + 1460);
    assert_eq!(s.c.info().send_mss, 1460);
}

#[test]
fn a_user_time_out_ends_sooner() {
    let most = Some(Duration::from_secs(3));
    let mut s = Script::established(Config {
        user_timeout: most,
        ..big()
    });
    s.write(1000);
    s.sent();
    let began = s.now;
    while s.state() != State::Closed {
        s.wait();
    }
    let took = s.now.since(began).as_millis();
    assert!((3000..3600).contains(&took), "{took} ms");
    assert_eq!(s.c.take_failure(), Some(Failure::TimedOut));
}

#[test]
fn a_spurious_time_out_is_taken_back() {
    let mut s = Script::with_timestamps(big());
    s.write(10 * 1448);
    s.sent();
    let first = s.echo;
    let before = s.c.info().congestion_window;
    s.pass(1);
    for _ in 0..2 {
        s.wait();
    }
    assert_eq!(s.c.info().phase, Phase::Loss);
    assert_eq!(s.c.info().congestion_window, 1448);
    // The first copies were only late.
    s.echo = first;
    s.ack(1448);
    assert_eq!(s.c.info().phase, Phase::Open);
    assert!(s.c.info().congestion_window >= before);
    assert_eq!(s.c.info().undone, 1);
    assert_eq!(s.c.info().lost, 0);
}

#[test]
fn duplicates_take_a_recovery_back() {
    let mut s = Script::established(big());
    s.write(14_600);
    s.sent();
    s.pass(10);
    let before = s.c.info().congestion_window;
    s.sack(0, &[(1460, 5840)]);
    assert_eq!(s.sent().len(), 1);
    s.ack(14_600);
    assert!(s.c.info().congestion_window < before);
    s.pass(10);
    s.sack(14_600, &[(0, 1460)]);
    let i = s.c.info();
    assert_eq!((i.undone, i.duplicates_told), (1, 1));
    assert!(i.congestion_window >= before && i.reordering_seen);
}

#[test]
fn a_closed_window_is_probed() {
    let mut s = Script::established(big());
    s.window = 0;
    s.ack(0);
    s.write(5000);
    assert!(s.sent().is_empty());
    let mut waits = Vec::new();
    for _ in 0..3 {
        waits.push(s.left().as_millis());
        let (_, out) = s.wait();
        assert_eq!(places(&out), [(-1, 0)]);
        s.ack(0);
        assert!(s.sent().is_empty());
    }
    assert_eq!(waits, [210, 420, 840]);
    // A window that a segment does not fit in is used by the probe.
    s.window = 100;
    s.ack(0);
    assert!(s.sent().is_empty());
    let (_, out) = s.wait();
    assert_eq!(places(&out), [(0, 100)]);
    s.window = 10_000;
    s.ack(100);
    assert_eq!(places(&s.sent()), [(100, 4900)]);
}

#[test]
fn a_quiet_peer_is_asked() {
    let keep = KeepAlive {
        is_on: true,
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(5),
        count: 3,
    };
    let mut s = Script::established(Config {
        keep_alive: keep,
        ..big()
    });
    assert_eq!(s.left().as_secs(), 60);
    let (_, out) = s.wait();
    assert_eq!(places(&out), [(-1, 0)]);
    s.ack(0);
    // It answered.
    s.wait();
    assert_eq!(s.left().as_secs(), 55);
    for _ in 0..3 {
        let (_, out) = s.wait();
        assert_eq!(places(&out), [(-1, 0)]);
        assert_eq!(s.left().as_secs(), 5);
    }
    let (changes, out) = s.wait();
    assert!(changes.contains(Changes::ENDED));
    assert!(out[0].header.flags.contains(Flags::RST));
    assert_eq!(s.c.take_failure(), Some(Failure::TimedOut));
}

#[test]
fn a_smaller_mtu_sends_again_in_smaller_pieces() {
    let mut s = Script::established(big());
    s.write(4380);
    s.sent();
    let cwnd = s.c.info().congestion_window / 1460;
    s.c.path_mtu(1000);
    let out = s.sent();
    assert_eq!(places(&out), [(0, 4380)]);
    assert_eq!(out[0].mss, 1000);
    assert_eq!(s.c.info().congestion_window / 1000, cwnd);
    assert_eq!(s.c.info().phase, Phase::Open);
}

#[test]
fn a_writer_is_told_when_a_third_is_free() {
    let fixed = Config {
        send_buffer: 30_000,
        send_most: 30_000,
        ..big()
    };
    let mut s = Script::established(fixed);
    assert_eq!(s.write(100_000), 30_000);
    assert!(!s.c.is_writable());
    s.sent();
    assert!(!s.ack(5_000).contains(Changes::WRITABLE));
    assert!(s.ack(12_000).contains(Changes::WRITABLE));
    assert_eq!((s.c.unsent(), s.c.send_room()), (18_000, 12_000));
}

#[test]
fn an_acknowledgement_of_the_future_is_answered() {
    let mut s = Script::established(big());
    s.write(100);
    s.sent();
    s.ack(5_000);
    let out = s.sent();
    assert_eq!(places(&out), [(100, 0)]);
    assert_eq!(s.c.info().unacked, 1);
}

/// A peer that tells of all holes that it can, in a window of 8 MB.
#[test]
fn hostile_acknowledgements_cost_little() {
    let config = Config {
        send_buffer: 8 << 20,
        send_most: 8 << 20,
        ..big()
    };
    let options = crate::tcp::Options {
        window_scale: Some(8),
        ..super::script::options()
    };
    let mut s = Script::with(config, options);
    s.ack(0);
    s.write(8 << 20);
    let mut sent = 0;
    while sent < 4 << 20 {
        let out = s.sent();
        let got: usize = out.iter().map(|o| o.payload.len()).sum();
        assert!(got > 0);
        sent += got as u32;
        s.pass(1);
        if sent < 4 << 20 {
            s.ack(sent);
        }
    }
    let first = sent - s.c.info().unacked as u32 * 1460;
    let began = std::time::Instant::now();
    for i in 0..100_000u32 {
        let at = |k: u32| first + 1 + (i * 4 + k) * 7919 % (sent - first - 8);
        let blocks = [0, 1, 2, 3].map(|k| (at(k), at(k) + 1 + i % 3));
        s.sack(first, &blocks);
        if i % 64 == 0 {
            s.pass(1);
            s.sent();
        }
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn what_more_follows_waits_for_it_or_for_the_peer() {
    let mut s = Script::established(big());
    s.write_more(100);
    assert!(s.sent().is_empty());
    s.write(50);
    let out = s.sent();
    assert_eq!(places(&out), [(0, 150)]);
    assert!(out[0].header.flags.contains(Flags::PSH));
    s.write_more(100);
    assert!(s.sent().is_empty());
    // Nothing is outstanding any more, and so Nagle's rule lets it go. Its end is none of a write.
    s.ack(150);
    let out = s.sent();
    assert_eq!(places(&out), [(150, 100)]);
    assert!(!out[0].header.flags.contains(Flags::PSH));
}

#[test]
fn what_has_gone_lets_more_be_written() {
    let mut s = Script::established(Config {
        notsent_lowat: Some(8000),
        send_buffer: 1 << 20,
        ..big()
    });
    let room = s.c.send_room();
    s.write(room);
    s.sent();
    assert!(!s.c.is_writable());
    s.pass(10);
    // The acknowledgement alone does not: all that was written is unsent as before.
    let changes = s.ack(14_600);
    assert!(!changes.contains(Changes::WRITABLE));
    let (told, _) = s.told_and_sent();
    assert_eq!(told, Changes::WRITABLE);
}

#[test]
fn no_segment_has_bytes_of_two_records() {
    let mut s = Script::established(big());
    s.write(14_600 + 400);
    s.c.end_record();
    for _ in 0..3 {
        s.write(400);
        s.c.end_record();
    }
    s.write(3000);
    s.sent();
    s.ack(14_600);
    let out = s.sent();
    let ends = [(14_600, 400), (15_000, 400), (15_400, 400), (15_800, 400)];
    assert_eq!(places(&out)[..4], ends);
    assert!(out[..4].iter().all(|o| o.header.flags.contains(Flags::PSH)));
    assert_eq!(places(&out)[4].0, 16_200);
    // Nor when they go again.
    s.pass(10);
    s.sack(14_600, &[(17_660, 19_120)]);
    s.pass(300);
    let (_, out) = s.wait();
    assert_eq!(places(&out)[0], (14_600, 400));
}

#[test]
fn what_makes_room_is_told_before_anything_is_sent() {
    let mut s = Script::established(Config {
        send_buffer: 20_000,
        send_most: 20_000,
        ..big()
    });
    s.write(10_000);
    s.sent();
    assert!(s.c.is_writable());
    // It is full now; the peer acknowledges before that is looked at.
    assert_eq!(s.write(50_000), 10_000);
    assert!(s.ack(10_000).contains(Changes::WRITABLE));
}

#[test]
fn what_fills_the_buffer_is_not_held_back() {
    let mut s = Script::established(Config {
        send_buffer: 1000,
        send_most: 1000,
        cork: true,
        ..big()
    });
    assert_eq!(s.write(5000), 1000);
    assert_eq!(places(&s.sent()), [(0, 1000)]);
}

#[test]
fn what_it_waits_for_is_told() {
    let mut s = Script::established(Config::default());
    let times = |s: &Script| {
        let (busy, by_window) = s.c.info().busy.times(s.now);
        (busy.as_millis(), by_window.as_millis())
    };
    s.window = 0;
    s.ack(0);
    s.pass(50);
    assert_eq!(times(&s), (0, 0));
    s.write(1000);
    assert!(s.sent().is_empty());
    s.pass(100);
    assert_eq!(times(&s), (100, 100));
    s.window = 5000;
    s.segment(s.header(0, 0, Flags::ACK), b"");
    assert_eq!(s.sent().len(), 1);
    s.pass(30);
    assert_eq!(times(&s), (130, 100));
    s.ack(1000);
    s.sent();
    s.pass(70);
    assert_eq!(times(&s), (130, 100));
}
