//! Follows a source: what it says becomes a view, or is refused and the last view stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::error::{MembershipError, Result};
use crate::list::MemberList;
use crate::roster::{Policy, Roster};
use crate::source::Source;
use crate::view::{Seat, View};
use crate::{dns, file, kubernetes};

/// How long a start waits for a source's first word, so that a bad list is found at the start. Without
/// one the node starts all the same, and has no members until there is one.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// Where a source's lists go; a source that is ahead waits.
pub(crate) type Heard = mpsc::Sender<Result<MemberList>>;

/// How a source is followed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often a file or DNS is asked.
    pub refresh: Duration,
    /// How long places are held, and shares grow.
    pub policy: Policy,
}

/// How the following goes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lists that were taken over since the start.
    pub lists: u64,
    /// Lists that were refused since the start; one that is told again and again counts once.
    pub refused: u64,
    /// How often the source could not be read since the start, counted alike.
    pub failures: u64,
    /// What is wrong now, if anything: the last list stays meanwhile.
    pub error: Option<Arc<MembershipError>>,
    /// When the members changed last; `None` before the first list.
    pub changed: Option<Instant>,
}

/// The members, followed until it is dropped.
#[derive(Debug)]
pub struct Membership {
    source: String,
    views: watch::Receiver<View>,
    reports: watch::Receiver<Report>,
    /// What keeps the book, and what reads; nothing for a list that stays.
    tasks: Vec<JoinHandle<()>>,
}

impl Membership {
    /// A list that stays as it is. `source` says whose, in Status.
    pub fn fixed(list: &MemberList, source: &str) -> Self {
        let mut book = Book::new(Policy { hold: Duration::ZERO, slow_start: Duration::ZERO });
        book.take(list, Instant::now());
        let (views, reports) = (book.views.subscribe(), book.reports.subscribe());
        Self { source: source.to_owned(), views, reports, tasks: Vec::new() }
    }

    /// Follows `source`, within a runtime. Waits up to 5 s for its first word.
    ///
    /// # Errors
    /// When the first word is a list that is refused, or a file that can't be read. Where DNS or the
    /// Kubernetes API can't be reached yet, there are no members yet.
    pub async fn follow(source: &Source, settings: Settings) -> Result<Self> {
        let (heard, lists) = mpsc::channel(1);
        let Settings { refresh, mut policy } = settings;
        if let Source::File(path) = source {
            // Whoever takes a node off a list that people write means it.
            policy.hold = Duration::ZERO;
            // A name that is mistyped is told of once, by who starts; from then on a file may be away.
            if let Ok(Err(error)) = tokio::time::timeout(FIRST_WORD, file::list(path)).await {
                return Err(MembershipError::First {
                    source_name: source.to_string(),
                    error: error.into(),
                });
            }
        }
        let reader = match source.clone() {
            Source::File(path) => {
                tokio::spawn(async move { file::follow(&path, refresh, heard).await })
            }
            Source::Dns { host, port } => {
                let names = dns::Names { host, port };
                tokio::spawn(async move { dns::follow(names, None, refresh, heard).await })
            }
            Source::Kubernetes { namespace, services, port } => {
                let services = kubernetes::Services { namespace, names: services, port };
                tokio::spawn(kubernetes::follow(services, None, heard))
            }
        };
        let followed = Self::follow_lists(source.to_string(), policy, lists, reader);
        followed.first_word().await?;
        Ok(followed)
    }

    fn follow_lists(
        source: String,
        policy: Policy,
        lists: mpsc::Receiver<Result<MemberList>>,
        reader: JoinHandle<()>,
    ) -> Self {
        let book = Book::new(policy);
        let (views, reports) = (book.views.subscribe(), book.reports.subscribe());
        let name = source.clone();
        let writer = tokio::spawn(async move { book.keep(&name, lists).await });
        // In the order in which they are ended: without its reader the book would tell of a defect.
        Self { source, views, reports, tasks: vec![writer, reader] }
    }

    async fn first_word(&self) -> Result<()> {
        let mut reports = self.reports.clone();
        let spoke = reports.wait_for(|report| report.lists > 0 || report.error.is_some());
        let error = match tokio::time::timeout(FIRST_WORD, spoke).await {
            Ok(Ok(report)) => report.error.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        match error {
            Some(error) if error.is_refusal() => {
                Err(MembershipError::First { source_name: self.source.clone(), error })
            }
            _ => Ok(()),
        }
    }

    /// Where the members come from, as it is configured.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The members, now and whenever they change.
    pub fn views(&self) -> watch::Receiver<View> {
        self.views.clone()
    }

    /// How the following goes, now and whenever it changes.
    pub fn reports(&self) -> watch::Receiver<Report> {
        self.reports.clone()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What is written down of a source.
struct Book {
    roster: Roster,
    views: watch::Sender<View>,
    reports: watch::Sender<Report>,
}

impl Book {
    fn new(policy: Policy) -> Self {
        let (views, reports) = Default::default();
        Self { roster: Roster::new(policy), views, reports }
    }

    /// For as long as anybody listens: holds end and shares grow also if the source does.
    async fn keep(mut self, source: &str, mut lists: mpsc::Receiver<Result<MemberList>>) {
        let mut is_told = true;
        loop {
            let change = self.roster.next_change(Instant::now());
            let changed = async {
                match change {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                list = lists.recv(), if is_told => match list {
                    Some(Ok(list)) => {
                        if self.reports.borrow().error.is_some() {
                            info!(source, "the I/O nodes can be learnt again");
                        }
                        self.take(&list, Instant::now());
                    }
                    Some(Err(error)) => self.refuse(source, error),
                    None => {
                        is_told = false;
                        let problem = "it is not followed any more: a defect; start this node again";
                        let (source_name, problem) = (source.to_owned(), problem.to_owned());
                        self.refuse(source, MembershipError::Unreachable { source_name, problem });
                    }
                },
                () = changed => {
                    let now = Instant::now();
                    self.roster.pass(now);
                    self.show(now);
                }
            }
        }
    }

    fn take(&mut self, list: &MemberList, now: Instant) {
        self.roster.take(list, now);
        // The view first: who waits for a list finds it.
        self.show(now);
        self.reports.send_modify(|report| {
            report.lists += 1;
            report.error = None;
        });
    }

    fn refuse(&self, source: &str, error: MembershipError) {
        let said = error.to_string();
        if self.reports.borrow().error.as_ref().is_some_and(|error| error.to_string() == said) {
            return;
        }
        let members = self.views.borrow().seats.len();
        let is_refusal = error.is_refusal();
        match is_refusal {
            true => error!(
                source,
                members, "the list of I/O nodes is refused, the last one stays: {said}"
            ),
            false => warn!(source, members, "{said}; trying again"),
        }
        self.reports.send_modify(|report| {
            report.refused += u64::from(is_refusal);
            report.failures += u64::from(!is_refusal);
            report.error = Some(Arc::new(error));
        });
    }

    fn show(&self, now: Instant) {
        let seats = self.roster.seats(now);
        let changed = self.views.send_if_modified(|view| {
            let is_news = view.generation == 0 || *view.seats != *seats;
            if is_news {
                log(&view.seats, &seats);
                *view = View { generation: view.generation + 1, seats: seats.into() };
            }
            is_news
        });
        if changed {
            self.reports.send_modify(|report| report.changed = Some(now));
        }
    }
}

/// Says who came, left, or stands otherwise now.
fn log(before: &[Seat], after: &[Seat]) {
    let find = |seats: &[Seat], name: &str| seats.iter().find(|seat| seat.name == name).cloned();
    for seat in after {
        let (member, endpoint, state) = (&seat.name, &seat.endpoint, seat.state);
        match find(before, member) {
            None => info!(member, %endpoint, ?state, "an I/O node has a place"),
            Some(old) if old.state != state || old.endpoint != *endpoint => {
                info!(member, %endpoint, ?state, "an I/O node has changed");
            }
            Some(_) => {}
        }
    }
    for seat in before.iter().filter(|seat| find(after, &seat.name).is_none()) {
        info!(member = seat.name, "an I/O node has no place any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IoNodeConfig;
    use crate::view::State;

    fn list(names: &[&str]) -> MemberList {
        let node =
            |name: &&str| IoNodeConfig::at(format!("{name}:1")).named(*name).entry().unwrap();
        MemberList::new(names.iter().map(node).collect()).unwrap()
    }

    fn refused(name: &str) -> MembershipError {
        MembershipError::NoName { endpoint: name.into() }
    }

    /// A membership whose source the test plays.
    fn played(policy: Policy) -> (Membership, Heard) {
        let (heard, lists) = mpsc::channel(1);
        (Membership::follow_lists("test".into(), policy, lists, tokio::spawn(async {})), heard)
    }

    fn shown(view: &View) -> Vec<(&str, State)> {
        view.seats.iter().map(|seat| (seat.name.as_str(), seat.state)).collect()
    }

    const POLICY: Policy =
        Policy { hold: Duration::from_secs(60), slow_start: Duration::from_secs(80) };

    #[tokio::test]
    async fn a_bad_list_is_counted_once_and_the_last_one_stays() {
        let (membership, heard) = played(POLICY);
        let mut reports = membership.reports();
        heard.send(Ok(list(&["a", "b"]))).await.unwrap();
        reports.wait_for(|report| report.lists == 1).await.unwrap();
        for said in ["x", "x", "y"] {
            heard.send(Err(refused(said))).await.unwrap();
        }
        let report = reports.wait_for(|report| report.refused == 2).await.unwrap().clone();
        assert!(report.error.unwrap().to_string().contains("at y"));
        assert_eq!(membership.views().borrow().generation, 1);
        heard.send(Ok(list(&["a", "b"]))).await.unwrap();
        let report = reports.wait_for(|report| report.lists == 2).await.unwrap().clone();
        assert!(report.error.is_none());
        assert_eq!(report.refused, 2);
        assert_eq!(membership.views().borrow().generation, 1, "nothing has changed");
    }

    #[tokio::test]
    async fn time_alone_changes_views() {
        let ms = Duration::from_millis;
        let (membership, heard) = played(Policy { hold: ms(20), slow_start: ms(40) });
        let mut views = membership.views();
        heard.send(Ok(list(&["a", "b"]))).await.unwrap();
        views.wait_for(|view| view.generation == 1).await.unwrap();
        heard.send(Ok(list(&["a", "c"]))).await.unwrap();
        let grown = [("a", State::Ready), ("c", State::Ready)];
        let view = views.wait_for(|view| shown(view) == grown).await.unwrap().clone();
        assert_eq!(view.seats[1].share, 1.0);
        assert!(view.generation > 2, "the list alone was the second");
    }

    #[tokio::test]
    async fn a_source_that_ends_is_told_of_and_time_goes_on() {
        let ms = Duration::from_millis;
        let (membership, heard) = played(Policy { hold: ms(20), slow_start: ms(40) });
        let (mut views, mut reports) = (membership.views(), membership.reports());
        heard.send(Ok(list(&["a", "b"]))).await.unwrap();
        heard.send(Ok(list(&["a"]))).await.unwrap();
        drop(heard);
        let report = reports.wait_for(|report| report.error.is_some()).await.unwrap().clone();
        assert!(report.error.unwrap().to_string().contains("not followed any more"));
        views.wait_for(|view| shown(view) == [("a", State::Ready)]).await.unwrap();
    }

    #[tokio::test]
    async fn a_start_fails_with_a_bad_list_and_not_with_a_source_out_of_reach() {
        let (membership, heard) = played(POLICY);
        heard.send(Err(refused("x"))).await.unwrap();
        let error = membership.first_word().await.unwrap_err().to_string();
        assert_eq!(
            error,
            "test: an I/O node at x has an empty name; name it, or leave the name out"
        );
        let (membership, heard) = played(POLICY);
        let unreachable =
            || MembershipError::Unreachable { source_name: "test".into(), problem: "down".into() };
        heard.send(Err(unreachable())).await.unwrap();
        membership.first_word().await.unwrap();
        assert_eq!(membership.views().borrow().generation, 0);
    }

    #[tokio::test]
    async fn a_start_fails_with_a_file_that_is_not_there_and_says_what_happens_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing.toml");
        let source = Source::File(path.clone());
        let settings = Settings { refresh: Duration::from_millis(1), policy: POLICY };
        let said = Membership::follow(&source, settings).await.unwrap_err().to_string();
        assert!(said.contains(&format!("from file:{}: No such file", path.display())), "{said}");
        assert!(
            said.ends_with("this node is not started: write the file, or name another"),
            "{said}"
        );
        std::fs::write(&path, "[[io_nodes]]\nendpoint = \"h:1\"\n").unwrap();
        let membership = Membership::follow(&source, settings).await.unwrap();
        let reports = membership.reports();
        std::fs::remove_file(&path).unwrap();
        let mut lost = reports.clone();
        let report = lost.wait_for(|report| report.error.is_some()).await.unwrap().clone();
        assert_eq!((report.lists, report.failures), (1, 1), "from then on it may be away");
        drop(membership);
        while lost.changed().await.is_ok() {}
        let last = reports.borrow().error.as_ref().unwrap().to_string();
        assert!(last.contains("No such file"), "no defect: {last}");
    }
}
