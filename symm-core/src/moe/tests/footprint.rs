//! Rows and bytes of a layer against the counts of routings.

use super::super::{Counts, Kind, Layer, Room, Trace};
use crate::layout::ContextLayout;
use crate::{Config, DType, Error};

fn layer() -> Layer {
    Layer { pes: 4, tokens: 100, hidden: 64, top_k: 3, experts: 16, dtype: DType::BF16, align: 8 }
}

const PAGE: u64 = 4096;

/// A routing by which all tokens of all PEs choose experts from `first` on.
fn towards(l: &Layer, first: usize) -> Trace {
    let tokens = l.pes * l.tokens;
    let ids: Vec<i32> = (0..tokens * l.top_k).map(|i| (first + i % l.top_k) as i32).collect();
    let weights = vec![1.0; ids.len()];
    Trace { tokens, top_k: l.top_k, experts: l.experts, ids, weights, hidden: None, layer: 0 }
}

#[test]
fn the_worst_routing_fits_and_reaches_the_worst_count() {
    for (pes, experts, top_k, align) in
        [(4, 16, 3, 8), (1, 5, 2, 1), (8, 60, 8, 128), (3, 7, 7, 1), (8, 8, 4, 4)]
    {
        let l = Layer { pes, experts, top_k, align, ..layer() };
        let f = l.footprint(&Config::default(), Room::Worst, PAGE).unwrap();
        let counts = Counts::new(&towards(&l, 0), pes, align as u64).unwrap();
        assert_eq!(counts.received[0], f.rows_worst, "{l:?}");
        assert!(counts.received_padded.iter().all(|rows| *rows <= f.capacity()), "{l:?}");
        assert!(counts.sent.iter().all(|rows| *rows == f.rows_sent));
        assert_eq!(f.splits, pes * experts.div_ceil(pes));
    }
}

#[test]
fn an_even_routing_brings_what_it_says_and_a_factor_scales_the_room() {
    let l = Layer { experts: 14, ..layer() };
    let config = Config::default();
    // ne = 4: the busiest PEs have 4 of 14 experts, so 4/14 of 4·100·3 rows.
    let f = l.footprint(&config, Room::Even(1.0), PAGE).unwrap();
    assert_eq!(f.rows_even, (1200u64 * 4).div_ceil(14));
    assert_eq!(f.capacity(), f.rows_even + 4 * 8);
    let half_more = l.footprint(&config, Room::Even(1.5), PAGE).unwrap();
    assert_eq!(half_more.capacity(), (f.rows_even * 3).div_ceil(2) + 4 * 8);
    let worst = l.footprint(&config, Room::Worst, PAGE).unwrap();
    assert_eq!(l.footprint(&config, Room::Even(1e9), PAGE).unwrap(), worst);
}

#[test]
fn bytes_are_rows_times_the_row_and_segments_are_rounded() {
    let f = layer().footprint(&Config::default(), Room::Worst, 2 << 20).unwrap();
    for a in f.allocations.iter().filter_map(|a| Some((a.bytes, a.rows?))) {
        assert_eq!(a.0, a.1 * 128);
    }
    assert!(f.segments.iter().all(|s| s % (2 << 20) == 0 && *s > 0), "{:?}", f.segments);
    assert_eq!(f.bytes(), f.segments.iter().sum::<u64>());
    let asked: u64 = f.allocations.iter().map(|a| a.bytes).sum();
    assert!(asked <= f.bytes());
}

#[test]
fn many_experts_need_a_context_of_their_own() {
    let of = |experts| Layer { experts, ..layer() }.footprint(&Config::default(), Room::Worst, PAGE).unwrap();
    let contexts = |experts| of(experts).allocations.iter().filter(|a| a.name.contains("context")).count();
    assert_eq!((contexts(1024), of(1024).max_splits), (1, 1024));
    assert_eq!((contexts(1025), of(1025).max_splits), (2, 1028));
    assert!(of(4000).allocations.iter().any(|a| a.kind == Kind::Internal && a.bytes > 8 * 4000 * 8));
}

#[test]
fn contexts_have_room_for_pushed_elements_but_on_the_host() {
    let of = |backend: &str, all_reduce_push| {
        let config = Config { backend: backend.to_owned(), all_reduce_push, ..Config::default() };
        let f = layer().footprint(&config, Room::Worst, PAGE).unwrap();
        f.allocations.iter().find(|a| a.name == "team's context").unwrap().bytes
    };
    let without = of("cuda", 0);
    assert_eq!((of("host", 1 << 20), of("host", 0)), (without, without));
    let pushed = 2 * ContextLayout::room_for(1 << 20, layer().pes) as u64;
    assert_eq!([of("cuda", 1 << 20), of("auto", 1 << 20)], [without + pushed; 2]);
    // Two members have more, if they are to push more.
    let of_two = |all_reduce_push_pair| {
        let config = Config { all_reduce_push_pair, ..Config::default() };
        let pair = Layer { pes: 2, ..layer() }.footprint(&config, Room::Worst, PAGE).unwrap();
        pair.allocations.iter().find(|a| a.name == "team's context").unwrap().bytes
    };
    assert!((2 << 20..3 << 20).contains(&of_two(0)), "{}", of_two(0));
    assert!((19 << 20..20 << 20).contains(&of_two(16 << 20)), "{}", of_two(16 << 20));
}

#[test]
fn the_most_tokens_fit_and_one_more_does_not() {
    let (l, config) = (layer(), Config::default());
    let bytes = 64 << 20;
    let most = l.max_tokens(&config, Room::Worst, PAGE, bytes).unwrap().unwrap();
    let of = |tokens| Layer { tokens, ..l }.footprint(&config, Room::Worst, PAGE).unwrap().bytes();
    assert!(of(most) <= bytes && of(most + 1) > bytes, "{most}");
    assert_eq!(l.max_tokens(&config, Room::Worst, PAGE, 1000), Ok(None));
}

#[test]
fn sizes_that_nothing_can_hold_are_refused() {
    let config = Config::default();
    let refused = |l: Layer| match l.footprint(&config, Room::Worst, PAGE) {
        Err(Error::InvalidArgument { argument, expected, .. }) => (argument, expected),
        other => panic!("{other:?}"),
    };
    let l = Layer { tokens: 1 << 40, hidden: 1 << 30, ..layer() };
    let (argument, expected) = refused(l);
    let most = expected.strip_prefix("at most ").and_then(|rest| rest.split(' ').next());
    let most: usize = most.and_then(|n| n.parse().ok()).unwrap();
    assert_eq!(argument, "tokens");
    assert!(Layer { tokens: most, ..l }.footprint(&config, Room::Worst, PAGE).is_ok());
    assert_eq!(refused(Layer { tokens: most + 1, ..l }).0, "tokens");
    assert_eq!(
        refused(Layer {
            hidden: 1 << 40,
            pes: 1 << 20,
            dtype: DType::F64,
            experts: 1 << 20,
            top_k: 1 << 20,
            ..l
        })
        .0,
        "hidden"
    );
}

#[test]
fn a_bad_field_is_named() {
    let with = |change: fn(&mut Layer), room| {
        let mut l = layer();
        change(&mut l);
        match l.footprint(&Config::default(), room, PAGE) {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(with(|l| l.pes = 0, Room::Worst), "pes");
    assert_eq!(with(|l| l.tokens = 0, Room::Worst), "tokens");
    assert_eq!(with(|l| l.hidden = 0, Room::Worst), "hidden");
    assert_eq!(with(|l| l.top_k = 17, Room::Worst), "top_k");
    assert_eq!(with(|l| l.experts = 1 << 21, Room::Worst), "experts");
    assert_eq!(with(|l| l.align = 0, Room::Worst), "align");
    assert_eq!(with(|_| (), Room::Even(f64::NAN)), "room");
    assert_eq!(with(|_| (), Room::Even(0.0)), "room");
}
