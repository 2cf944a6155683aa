//! Tests of the queue of one class: exact orders, and properties against a plain model.

use proptest::prelude::*;

use super::*;

/// A piece of work: its flow, its number within the flow, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    flow: u64,
    number: usize,
    cost: u32,
}

impl Cost for Piece {
    fn cost(&self) -> u32 {
        self.cost
    }
}

fn piece(flow: u64, number: usize, cost: u32) -> Piece {
    Piece { flow, number, cost }
}

/// Adds `count` pieces of a flow.
fn add(queue: &mut FlowQueue<Piece>, flow: Flow, count: usize, cost: u32) {
    (0..count).for_each(|number| queue.push(piece(flow.id(), number, cost), flow));
}

fn flows(queue: &mut FlowQueue<Piece>, count: usize) -> Vec<u64> {
    (0..count).map_while(|_| queue.pop()).map(|piece| piece.flow).collect()
}

#[test]
fn turns_are_in_proportion_to_weights_and_costs() {
    let mut queue = FlowQueue::default();
    add(&mut queue, Flow::new(1, 1), 8, 1);
    add(&mut queue, Flow::new(2, 3), 8, 1);
    assert_eq!(flows(&mut queue, 8), [1, 2, 2, 2, 2, 1, 2, 2]);
    let mut queue = FlowQueue::default();
    add(&mut queue, Flow::new(1, 1), 3, 500);
    add(&mut queue, Flow::new(2, 1), 3000, 1);
    // After each large piece of the first flow come 500 small pieces of the second.
    let order = flows(&mut queue, 1004);
    let large: Vec<_> = (0..order.len()).filter(|&at| order[at] == 1).collect();
    assert_eq!(large, [0, 501, 1002]);
}

#[test]
fn a_flow_is_not_charged_for_work_that_nobody_wants() {
    let mut queue = FlowQueue::default();
    let (a, b) = (Flow::new(1, 1), Flow::new(2, 1));
    add(&mut queue, a, 40, 5);
    add(&mut queue, b, 40, 5);
    // One piece in four of the first flow is wanted.
    let is_wanted = |piece: &Piece| piece.flow == 2 || piece.number % 4 == 3;
    let order: Vec<_> =
        std::iter::from_fn(|| queue.pop_wanted(is_wanted)).map(|it| (it.flow, it.number)).collect();
    let both = (0..10).flat_map(|turn| [(1, 4 * turn + 3), (2, turn)]);
    assert_eq!(order, both.chain((10..40).map(|number| (2, number))).collect::<Vec<_>>());
    assert_eq!((queue.len(), queue.cost_of(a), queue.cost_of(b)), (0, 0, 0));
    // A flow without any wanted work leaves the queue.
    add(&mut queue, a, 3, 5);
    assert_eq!(queue.pop_wanted(|_| false), None);
    add(&mut queue, b, 1, 5);
    assert_eq!(queue.pop_wanted(|_| true), Some(piece(2, 0, 5)));
}

#[test]
fn a_flow_that_was_idle_waits_for_one_piece_and_has_no_credit() {
    let mut queue = FlowQueue::default();
    let (a, b) = (Flow::new(1, 1), Flow::new(2, 1));
    add(&mut queue, b, 1, 1);
    assert_eq!(queue.pop(), Some(piece(2, 0, 1)));
    add(&mut queue, a, 1000, 1);
    flows(&mut queue, 500);
    add(&mut queue, b, 100, 1);
    let order = flows(&mut queue, 8);
    assert_eq!(order, [2, 1, 2, 1, 2, 1, 2, 1]);
    // A flow that empties its queue and adds work again at once gains nothing.
    let mut queue = FlowQueue::default();
    add(&mut queue, a, 1000, 1);
    let mut served = 0;
    for _ in 0..100 {
        add(&mut queue, b, 1, 7);
        while queue.pop().unwrap().flow == 1 {
            served += 1;
        }
    }
    assert!((99 * 7..=100 * 7).contains(&served), "{served} rows for 700");
}

#[test]
fn the_work_before_further_work_is_that_of_its_flow_and_of_turns_meanwhile() {
    let mut queue = FlowQueue::default();
    let [a, b, c] = [(1, 1), (2, 3), (3, 1)].map(|(id, weight)| Flow::new(id, weight));
    add(&mut queue, a, 100, 1);
    add(&mut queue, b, 1000, 2);
    assert_eq!([a, b].map(|flow| queue.cost_of(flow)), [100, 2000]);
    assert_eq!(queue.cost_before(a), 100 + 303);
    assert_eq!(queue.cost_before(b), 2000 + 100);
    assert_eq!(queue.cost_before(c), 1 + 3);
}

#[test]
fn work_leaves_with_the_first_of_its_flow_and_counts_as_served() {
    let mut queue = FlowQueue::default();
    add(&mut queue, Flow::new(1, 1), 10, 1);
    add(&mut queue, Flow::new(2, 1), 10, 1);
    let (first, others) = queue.pop_with(|_, rest| vec![0, 2, rest.len() - 1]).unwrap();
    assert_eq!((first.number, others), (0, vec![piece(1, 9, 1), piece(1, 3, 1), piece(1, 1, 1)]));
    assert_eq!((queue.len(), queue.cost_of(Flow::new(1, 1))), (16, 6));
    assert_eq!(flows(&mut queue, 6), [2, 2, 2, 2, 1, 2]);
}

#[test]
fn flows_that_may_not_be_served_are_passed_over() {
    let mut queue = FlowQueue::default();
    let (a, b) = (Flow::new(1, 1), Flow::new(2, 1));
    add(&mut queue, a, 10, 1);
    add(&mut queue, b, 100, 1);
    for number in 0..50 {
        let may = |flow, _: &Piece| flow == 2;
        assert_eq!(queue.first(may), Some(&piece(2, number, 1)));
        assert_eq!(queue.pop_first(may), Some(piece(2, number, 1)));
    }
    assert_eq!(queue.pop_first(|_, _| false), None);
    // The flow that was passed over does not catch up.
    assert_eq!(flows(&mut queue, 6), [1, 2, 1, 2, 1, 2]);
    assert_eq!(queue.remove(|it| it.flow == 1), Some(piece(1, 3, 1)));
    assert_eq!(queue.remove(|it| it.flow == 3), None);
    assert_eq!(queue.len(), 6 + 47);
}

#[test]
fn the_number_of_flows_is_bounded_and_idle_ones_are_forgotten() {
    let mut queue = FlowQueue::default();
    for round in 0..10u64 {
        let ids = (1..=100).map(|id| id + 100 * round);
        ids.for_each(|id| add(&mut queue, Flow::new(id, 1), 2, 1));
        assert_eq!(flows(&mut queue, 300).len(), 200);
    }
    assert!(queue.flows.len() <= 256, "{} flows are remembered", queue.flows.len());
    // Flows beyond the maximum share flow 0.
    (1..=2000).for_each(|id| add(&mut queue, Flow::new(id, 1000), 1, 1));
    assert_eq!((queue.flows.len(), queue.len()), (FLOWS_MAX, 2000));
    assert_eq!(queue.cost_of(Flow::default()), 2000 - (FLOWS_MAX as u64 - 1));
    assert_eq!(flows(&mut queue, 3000).len(), 2000);
}

#[test]
fn an_idle_flow_keeps_little_memory() {
    let mut queue = FlowQueue::default();
    add(&mut queue, Flow::default(), 10_000, 1);
    flows(&mut queue, 10_000);
    assert!(queue.flows[0].waiting.capacity() >= 10_000, "the only flow needs it again");
    add(&mut queue, Flow::new(1, 1), 10_000, 1);
    flows(&mut queue, 10_000);
    assert!(queue.flows[1].waiting.capacity() <= IDLE_CAPACITY);
}

#[test]
fn virtual_time_does_not_overflow() {
    let mut queue = FlowQueue::default();
    let (a, b) = (Flow::new(1, 1), Flow::new(2, 1));
    for _ in 0..3000 {
        add(&mut queue, a, 1, u32::MAX);
        add(&mut queue, b, 1, u32::MAX);
        flows(&mut queue, 1);
    }
    assert!(queue.now < REBASED_AT + (1 << 53));
    let order = flows(&mut queue, 3000);
    let of_a = order.iter().filter(|&&flow| flow == 1).count();
    assert!((1499..=1501).contains(&of_a), "{of_a} turns of 3000");
}

/// An operation on the queue.
#[derive(Clone, Debug)]
enum Step {
    Push { flow: u64, cost: u32 },
    Pop,
}

const WEIGHTS: [u32; 4] = [1, 1, 3, 10];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0..4u64, prop_oneof![Just(1u32), 1..20u32, Just(500u32)])
        .prop_map(|(flow, cost)| Step::Push { flow, cost });
    prop::collection::vec(prop_oneof![3 => push, 2 => Just(Step::Pop)], 1..400)
}

proptest! {
    /// Compares the queue with the definition of fairness: while two flows both have work waiting, the service that
    /// each has received, divided by its weight, differs by at most one piece of work of each. The bound uses the
    /// largest piece of each flow, so it holds for intervals that begin at any time.
    #[test]
    fn service_is_in_proportion_while_flows_wait(steps in steps()) {
        let mut queue = FlowQueue::default();
        let mut waiting = [(); 4].map(|()| VecDeque::new());
        let mut largest = [0u32; 4];
        // For each pair of flows, the normalized service of each since both have had work waiting.
        let mut since = [[[0.0f64; 2]; 4]; 4];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { flow, cost } => {
                    let at = flow as usize;
                    queue.push(piece(flow + 1, number, cost), Flow::new(flow + 1, WEIGHTS[at]));
                    waiting[at].push_back((number, cost));
                    largest[at] = largest[at].max(cost);
                }
                Step::Pop => {
                    let Some(popped) = queue.pop() else {
                        prop_assert!(waiting.iter().all(VecDeque::is_empty));
                        continue;
                    };
                    let at = popped.flow as usize - 1;
                    prop_assert_eq!(waiting[at].pop_front(), Some((popped.number, popped.cost)));
                    let service = f64::from(popped.cost) / f64::from(WEIGHTS[at]);
                    since[at].iter_mut().for_each(|pair| pair[0] += service);
                    since.iter_mut().for_each(|pairs| pairs[at][1] += service);
                }
            }
            for one in 0..4 {
                for other in 0..4 {
                    if one == other {
                        continue;
                    }
                    if waiting[one].is_empty() || waiting[other].is_empty() {
                        since[one][other] = [0.0; 2];
                    }
                    let [a, b] = since[one][other];
                    let bound = |at: usize| f64::from(largest[at]) / f64::from(WEIGHTS[at]);
                    let most = (bound(one) + bound(other)) * 1.001;
                    prop_assert!((a - b).abs() <= most, "{one} got {a}, {other} got {b}, of {most}");
                }
            }
            let len: usize = waiting.iter().map(VecDeque::len).sum();
            prop_assert_eq!(queue.len(), len);
            for (at, left) in waiting.iter().enumerate() {
                let cost: u64 = left.iter().map(|(_, cost)| u64::from(*cost)).sum();
                prop_assert_eq!(queue.cost_of(Flow::new(at as u64 + 1, 1)), cost);
            }
        }
    }

    /// Work of a new flow waits for at most one piece of each other flow, however long the other queues are.
    #[test]
    fn new_work_waits_for_one_piece_of_each_other_flow(
        before in prop::collection::vec((1..4u64, 1..600u32), 1..200),
        served in 0..200usize,
    ) {
        let mut queue = FlowQueue::default();
        for (number, (flow, cost)) in before.iter().enumerate() {
            queue.push(piece(*flow, number, *cost), Flow::new(*flow, WEIGHTS[*flow as usize]));
        }
        flows(&mut queue, served);
        queue.push(piece(9, 0, 1), Flow::new(9, 1));
        let mut ahead = [0; 4];
        while let Some(popped) = queue.pop().filter(|popped| popped.flow != 9) {
            ahead[popped.flow as usize] += 1;
        }
        prop_assert!(ahead.iter().all(|&count| count <= 1), "{ahead:?}");
    }
}
