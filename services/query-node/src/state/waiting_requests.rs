//! The requests for rows by key that wait on one core, and their division into groups. Does no I/O.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::{Array, ArrayRef};
use key_proof::FoundRows;
use lake::DIRECT_KEYS_MAX;
use scheduler::{Flow, Priority};
use tokio::sync::oneshot;

use super::held_rows::HeldRows;
use crate::request_context::RequestContext;
use crate::tables::{OpenTable, Projection};

/// Maximum number of keys that are looked up together in the key index. Looking them up takes some 50 µs if the key
/// index is in memory (`docs/decisions/key-index.md`).
const GROUP_KEYS_MAX: usize = 1024;

/// Minimum time that a request that shares work has left. The group ends at the first deadline of its requests, and the
/// others then begin anew. So a request that may not even have the time of a usual fetch is done alone.
const LEFT_MIN: Duration = Duration::from_millis(10);

/// The requests that wait on a core. All of them are on its thread, so the lock is never contended.
#[derive(Default)]
pub struct WaitingRequests(Mutex<Vec<WaitingRequest>>);

/// A request that waits: a Get, or a group of batches of one Lookup stream.
pub struct WaitingRequest {
    pub table: Arc<OpenTable>,
    pub column: String,
    pub wanted: Arc<Projection>,
    pub keys: ArrayRef,
    pub context: RequestContext,
    /// Receives the rows; `None` if the request has to be done alone.
    pub answer: oneshot::Sender<Option<MemberRows>>,
}

/// The rows of one request of a group, and the memory that all rows of the group hold.
pub struct MemberRows(pub FoundRows, pub Arc<HeldRows>);

impl WaitingRequests {
    /// Adds a request. Returns whether it is the first one that waits.
    pub fn join(&self, request: WaitingRequest) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(request);
        waiting.len() == 1
    }

    /// Takes all requests that wait.
    pub fn take(&self) -> Vec<WaitingRequest> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Divides requests into groups that can share work. Leaves out requests whose callers have gone away, and those that
/// have less time left than [`LEFT_MIN`].
pub fn groups(waiting: Vec<WaitingRequest>) -> Vec<Vec<WaitingRequest>> {
    let mut groups: Vec<(usize, Vec<WaitingRequest>)> = Vec::new();
    let may_share = |it: &WaitingRequest| !it.answer.is_closed() && it.context.left() >= LEFT_MIN;
    for request in waiting.into_iter().filter(may_share) {
        let keys = request.keys.len();
        let fits = |(held, group): &(usize, Vec<WaitingRequest>)| {
            group[0].shares_with(&request) && *held + keys <= request.group_keys_max()
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some((held, group)) => {
                *held += keys;
                group.push(request);
            }
            None => groups.push((keys, vec![request])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WaitingRequest {
    fn shares_with(&self, other: &Self) -> bool {
        let of = |it: &Self| -> (Flow, Priority) { (it.context.flow(), it.context.priority()) };
        Arc::ptr_eq(&self.table, &other.table)
            && Arc::ptr_eq(&self.wanted, &other.wanted)
            && self.column == other.column
            && self.keys.data_type() == other.keys.data_type()
            && of(self) == of(other)
    }

    /// Returns the maximum number of keys of the request's group. Unless the key index answers the look-up alone, a
    /// group has no more keys than a look-up that goes straight to the BTREE, because a plan costs more than what the
    /// requests save.
    fn group_keys_max(&self) -> usize {
        let index = self.table.keys.as_ref().filter(|index| index.column() == self.column);
        match index.is_some_and(|index| index.covers_all()) {
            true => GROUP_KEYS_MAX,
            false => DIRECT_KEYS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, Int64Array, RecordBatch, RecordBatchIterator};
    use lake::{Lake, LakeOptions};
    use lance::Dataset;
    use tokio::runtime::Handle;
    use tokio::sync::oneshot::Receiver;

    use super::*;
    use crate::key_index::KeyIndexes;
    use crate::recall_curves::TableCurves;

    /// A table with the columns `id`, whose key index covers it if it is said so, and `other`.
    struct Served {
        _folder: tempfile::TempDir,
        lake: Lake,
        uri: String,
        indexes: KeyIndexes,
    }

    impl Served {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let uri = folder.path().join("table").to_str().unwrap().to_owned();
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
            let rows = RecordBatch::try_from_iter([("id", Arc::clone(&ids)), ("other", ids)]);
            let rows = rows.unwrap();
            let reader = RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
            Dataset::write(reader, &uri, None).await.unwrap();
            let indexes = KeyIndexes::new(1 << 20, Handle::current());
            Self { _folder: folder, lake: Lake::new(LakeOptions::default()), uri, indexes }
        }

        async fn open(&self) -> Arc<OpenTable> {
            let table = self.lake.open(&self.uri).await.unwrap();
            let curves = Arc::new(TableCurves::new("t", &[], Arc::default()));
            Arc::new(OpenTable::new("t", table, Some("id"), &self.indexes, &curves).unwrap())
        }
    }

    async fn covered(open: &OpenTable) {
        let index = open.keys.as_ref().unwrap();
        index.want();
        index.covered().await;
        assert!(index.covers_all());
    }

    fn numbers(count: usize) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(0..count as i64))
    }

    fn long() -> RequestContext {
        RequestContext::after(Duration::from_secs(60))
    }

    type Answer = Receiver<Option<MemberRows>>;

    /// A request for the column `id` of the rows of some keys, which has a minute left.
    fn request(table: &Arc<OpenTable>, keys: ArrayRef) -> (WaitingRequest, Answer) {
        let (answer, answered) = oneshot::channel();
        let request = WaitingRequest {
            table: Arc::clone(table),
            column: "id".into(),
            wanted: table.project(&["id".into()]).unwrap(),
            keys,
            context: long(),
            answer,
        };
        (request, answered)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_that_differ_in_what_they_want_or_who_asks_share_no_work() {
        let served = Served::new().await;
        let (open, reopened) = (served.open().await, served.open().await);
        covered(&open).await;
        covered(&reopened).await;
        type Change<'a> = Box<dyn Fn(&mut WaitingRequest) + 'a>;
        let under =
            |flow| move |it: &mut WaitingRequest| it.context = long().with_flow(Flow::new(flow, 1));
        let changes: [(&str, Change<'_>, usize); 8] = [
            ("nothing", Box::new(|_| {}), 1),
            ("the deadline", Box::new(|it| it.context = long().with_timeout(LEFT_MIN * 9)), 1),
            ("the grant", Box::new(under(7)), 2),
            ("the priority", Box::new(|it| it.context = it.context.as_batch()), 2),
            ("the version", Box::new(|it| it.table = Arc::clone(&reopened)), 2),
            ("the key column", Box::new(|it| it.column = "other".into()), 2),
            (
                "the columns",
                Box::new(|it| it.wanted = it.table.project(&["other".into()]).unwrap()),
                2,
            ),
            (
                "the keys' type",
                Box::new(|it| it.keys = Arc::new(Int32Array::from_iter_values(0..3))),
                2,
            ),
        ];
        for (what, change, expected) in changes {
            let (one, _one) = request(&open, numbers(3));
            let (mut other, _other) = request(&open, numbers(3));
            change(&mut other);
            let sizes: Vec<_> = groups(vec![one, other]).iter().map(Vec::len).collect();
            assert_eq!(sizes, vec![2 / expected; expected], "requests differ in {what}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_without_time_and_those_whose_callers_are_gone_are_left_out() {
        let open = Served::new().await.open().await;
        let (stays, _stays) = request(&open, numbers(3));
        let (gone, answered) = request(&open, numbers(3));
        drop(answered);
        let (mut late, _late) = request(&open, numbers(3));
        late.context = late.context.with_timeout(Duration::ZERO);
        let (mut hasty, _hasty) = request(&open, numbers(3));
        hasty.context = hasty.context.with_timeout(LEFT_MIN / 2);
        let sizes: Vec<_> = groups(vec![late, hasty, stays, gone]).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_group_has_few_keys_unless_the_key_index_covers_the_version() {
        let served = Served::new().await;
        let sizes = |open: &Arc<OpenTable>, column: &str| -> Vec<usize> {
            let request = |_| {
                let (mut request, answer) = request(open, numbers(DIRECT_KEYS_MAX / 4));
                request.column = column.into();
                (request, answer)
            };
            let (requests, _answers): (Vec<_>, Vec<_>) = (0..70).map(request).unzip();
            groups(requests).iter().map(Vec::len).collect()
        };
        let open = served.open().await;
        let few = [&[4; 17][..], &[2]].concat();
        assert_eq!(sizes(&open, "id"), few, "not covered");
        covered(&open).await;
        assert_eq!(sizes(&open, "id"), [64, 6]);
        assert_eq!(sizes(&open, "other"), few, "not indexed");
    }
}
