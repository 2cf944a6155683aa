//! Follows a source. Each valid list updates the view; a refused list leaves the last view in use.

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
use crate::view::{View, ViewMember};
use crate::{dns, file, kubernetes};

/// The maximum time that [`Membership::follow`] waits for the source's first result. It waits so that an invalid list
/// fails the start. If there is no result in time, the node starts without members.
const FIRST_RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings for following a source.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The interval at which a file or DNS is read.
    pub refresh: Duration,
    /// The durations of holds and of slow starts.
    pub policy: Policy,
}

/// Counters and the last error of a source.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lists accepted since the start.
    pub lists: u64,
    /// Lists refused since the start. Consecutive refusals with the same error count once.
    pub refused: u64,
    /// Failed reads of the source since the start. Consecutive failures with the same error count once.
    pub failures: u64,
    /// The current error. The last list stays in use until the error is resolved.
    pub error: Option<Arc<MembershipError>>,
    /// The time of the last change of the members. `None` before the first list.
    pub changed: Option<Instant>,
}

/// The members of a source. The source is followed until this is dropped.
#[derive(Debug)]
pub struct Membership {
    source: String,
    views: watch::Receiver<View>,
    reports: watch::Receiver<Report>,
    /// The tasks that publish views and read the source. Empty for a fixed list.
    tasks: Vec<JoinHandle<()>>,
}

impl Membership {
    /// Creates a membership with a list that never changes. Status shows `source` as its origin.
    pub fn fixed(list: &MemberList, source: &str) -> Self {
        let mut publisher =
            Publisher::new(Policy { hold: Duration::ZERO, slow_start: Duration::ZERO });
        publisher.accept(list, Instant::now());
        let (views, reports) = (publisher.views.subscribe(), publisher.reports.subscribe());
        Self { source: source.to_owned(), views, reports, tasks: Vec::new() }
    }

    /// Follows `source`. Waits up to 5 s for its first result. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`MembershipError::Startup`] if the first list is refused or the file can't be read. It is no error if DNS
    /// or the Kubernetes API is out of reach: there are no members until it can be read.
    pub async fn follow(source: &Source, settings: Settings) -> Result<Self> {
        let (sender, lists) = mpsc::channel(1);
        let Settings { refresh, mut policy } = settings;
        if let Source::File(path) = source {
            // A node that is removed from a hand-written list was removed on purpose.
            policy.hold = Duration::ZERO;
            // A missing file at the start is likely a mistyped path. Later the file may be missing for a while.
            if let Ok(Err(error)) =
                tokio::time::timeout(FIRST_RESULT_TIMEOUT, file::list(path)).await
            {
                return Err(MembershipError::Startup {
                    source_name: source.to_string(),
                    error: error.into(),
                });
            }
        }
        let reader = match source.clone() {
            Source::File(path) => {
                tokio::spawn(async move { file::follow(&path, refresh, sender).await })
            }
            Source::Dns { host, port } => {
                let lookup = dns::Lookup { host, port };
                tokio::spawn(async move { dns::follow(lookup, None, refresh, sender).await })
            }
            Source::Kubernetes { namespace, services, port } => {
                let services = kubernetes::Services { namespace, names: services, port };
                tokio::spawn(kubernetes::follow(services, None, sender))
            }
        };
        let membership = Self::follow_lists(source.to_string(), policy, lists, reader);
        membership.wait_for_first_result().await?;
        Ok(membership)
    }

    fn follow_lists(
        source: String,
        policy: Policy,
        lists: mpsc::Receiver<Result<MemberList>>,
        reader: JoinHandle<()>,
    ) -> Self {
        let publisher = Publisher::new(policy);
        let (views, reports) = (publisher.views.subscribe(), publisher.reports.subscribe());
        let name = source.clone();
        let publishing = tokio::spawn(async move { publisher.run(&name, lists).await });
        // `drop` aborts the tasks in this order. A publisher that outlives its reader would report the reader's end as
        // a bug.
        Self { source, views, reports, tasks: vec![publishing, reader] }
    }

    async fn wait_for_first_result(&self) -> Result<()> {
        let mut reports = self.reports.clone();
        let first = reports.wait_for(|report| report.lists > 0 || report.error.is_some());
        let error = match tokio::time::timeout(FIRST_RESULT_TIMEOUT, first).await {
            Ok(Ok(report)) => report.error.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        match error {
            Some(error) if error.is_refusal() => {
                Err(MembershipError::Startup { source_name: self.source.clone(), error })
            }
            _ => Ok(()),
        }
    }

    /// Returns the source of the members, as configured.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns a channel with the current view.
    pub fn views(&self) -> watch::Receiver<View> {
        self.views.clone()
    }

    /// Returns a channel with the current report.
    pub fn reports(&self) -> watch::Receiver<Report> {
        self.reports.clone()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Applies a source's lists and the passing of time to a roster, and publishes the resulting views and reports.
struct Publisher {
    roster: Roster,
    views: watch::Sender<View>,
    reports: watch::Sender<Report>,
}

impl Publisher {
    fn new(policy: Policy) -> Self {
        let (views, reports) = Default::default();
        Self { roster: Roster::new(policy), views, reports }
    }

    /// Runs until aborted. Holds still end and shares still grow after the source's task has ended.
    async fn run(mut self, source: &str, mut lists: mpsc::Receiver<Result<MemberList>>) {
        let mut is_source_running = true;
        loop {
            let change = self.roster.next_change(Instant::now());
            let changed = async {
                match change {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                list = lists.recv(), if is_source_running => match list {
                    Some(Ok(list)) => {
                        if self.reports.borrow().error.is_some() {
                            info!(source, "the list of I/O nodes can be read again");
                        }
                        self.accept(&list, Instant::now());
                    }
                    Some(Err(error)) => self.record_error(source, error),
                    None => {
                        is_source_running = false;
                        let problem = "its reader has ended, which is a defect; restart this node";
                        let (source_name, problem) = (source.to_owned(), problem.to_owned());
                        self.record_error(source, MembershipError::Unreachable { source_name, problem });
                    }
                },
                () = changed => {
                    let now = Instant::now();
                    self.roster.pass(now);
                    self.publish(now);
                }
            }
        }
    }

    fn accept(&mut self, list: &MemberList, now: Instant) {
        self.roster.take(list, now);
        // Publish the view before the report, so that a task that waits for `Report::lists` finds the view.
        self.publish(now);
        self.reports.send_modify(|report| {
            report.lists += 1;
            report.error = None;
        });
    }

    fn record_error(&self, source: &str, error: MembershipError) {
        let message = error.to_string();
        if self.reports.borrow().error.as_ref().is_some_and(|error| error.to_string() == message) {
            return;
        }
        let members = self.views.borrow().members.len();
        let is_refusal = error.is_refusal();
        match is_refusal {
            true => error!(
                source,
                members,
                "the list of I/O nodes is refused and the last one stays in use: {message}"
            ),
            false => warn!(source, members, "{message}; trying again"),
        }
        self.reports.send_modify(|report| {
            report.refused += u64::from(is_refusal);
            report.failures += u64::from(!is_refusal);
            report.error = Some(Arc::new(error));
        });
    }

    fn publish(&self, now: Instant) {
        let members = self.roster.members(now);
        let changed = self.views.send_if_modified(|view| {
            let is_changed = view.generation == 0 || *view.members != *members;
            if is_changed {
                log_changes(&view.members, &members);
                *view = View { generation: view.generation + 1, members: members.into() };
            }
            is_changed
        });
        if changed {
            self.reports.send_modify(|report| report.changed = Some(now));
        }
    }
}

/// Logs members that were added, changed or removed.
fn log_changes(before: &[ViewMember], after: &[ViewMember]) {
    let find =
        |members: &[ViewMember], name: &str| members.iter().find(|it| it.name == name).cloned();
    for new in after {
        let (member, endpoint, state) = (&new.name, &new.endpoint, new.state);
        match find(before, member) {
            None => info!(member, %endpoint, ?state, "an I/O node was added"),
            Some(old) if old.state != state || old.endpoint != *endpoint => {
                info!(member, %endpoint, ?state, "an I/O node changed");
            }
            Some(_) => {}
        }
    }
    for removed in before.iter().filter(|it| find(after, &it.name).is_none()) {
        info!(member = removed.name, "an I/O node was removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IoNodeConfig;
    use crate::source::ListSender;
    use crate::view::MemberState;

    fn list(names: &[&str]) -> MemberList {
        let node =
            |name: &&str| IoNodeConfig::at(format!("{name}:1")).named(*name).entry().unwrap();
        MemberList::new(names.iter().map(node).collect()).unwrap()
    }

    fn refused(name: &str) -> MembershipError {
        MembershipError::NoName { endpoint: name.into() }
    }

    /// Returns a membership and the channel on which the test sends lists in place of a source.
    fn follow_test(policy: Policy) -> (Membership, ListSender) {
        let (sender, lists) = mpsc::channel(1);
        (Membership::follow_lists("test".into(), policy, lists, tokio::spawn(async {})), sender)
    }

    fn shown(view: &View) -> Vec<(&str, MemberState)> {
        view.members.iter().map(|it| (it.name.as_str(), it.state)).collect()
    }

    const POLICY: Policy =
        Policy { hold: Duration::from_secs(60), slow_start: Duration::from_secs(80) };

    #[tokio::test]
    async fn a_refused_list_counts_once_and_the_last_list_stays_in_use() {
        let (membership, sender) = follow_test(POLICY);
        let mut reports = membership.reports();
        sender.send(Ok(list(&["a", "b"]))).await.unwrap();
        reports.wait_for(|report| report.lists == 1).await.unwrap();
        for endpoint in ["x", "x", "y"] {
            sender.send(Err(refused(endpoint))).await.unwrap();
        }
        let report = reports.wait_for(|report| report.refused == 2).await.unwrap().clone();
        assert!(report.error.unwrap().to_string().contains("at y"));
        assert_eq!(membership.views().borrow().generation, 1);
        sender.send(Ok(list(&["a", "b"]))).await.unwrap();
        let report = reports.wait_for(|report| report.lists == 2).await.unwrap().clone();
        assert!(report.error.is_none());
        assert_eq!(report.refused, 2);
        assert_eq!(membership.views().borrow().generation, 1, "the members are the same");
    }

    #[tokio::test]
    async fn views_change_with_time_alone() {
        let ms = Duration::from_millis;
        let (membership, sender) = follow_test(Policy { hold: ms(20), slow_start: ms(40) });
        let mut views = membership.views();
        sender.send(Ok(list(&["a", "b"]))).await.unwrap();
        views.wait_for(|view| view.generation == 1).await.unwrap();
        sender.send(Ok(list(&["a", "c"]))).await.unwrap();
        let grown = [("a", MemberState::Ready), ("c", MemberState::Ready)];
        let view = views.wait_for(|view| shown(view) == grown).await.unwrap().clone();
        assert_eq!(view.members[1].share, 1.0);
        assert!(view.generation > 2, "the second list alone made generation 2");
    }

    #[tokio::test]
    async fn holds_end_after_the_source_task_has_ended() {
        let ms = Duration::from_millis;
        let (membership, sender) = follow_test(Policy { hold: ms(20), slow_start: ms(40) });
        let (mut views, mut reports) = (membership.views(), membership.reports());
        sender.send(Ok(list(&["a", "b"]))).await.unwrap();
        sender.send(Ok(list(&["a"]))).await.unwrap();
        drop(sender);
        let report = reports.wait_for(|report| report.error.is_some()).await.unwrap().clone();
        assert!(report.error.unwrap().to_string().contains("its reader has ended"));
        views.wait_for(|view| shown(view) == [("a", MemberState::Ready)]).await.unwrap();
    }

    #[tokio::test]
    async fn a_refused_list_fails_the_start_and_an_unreachable_source_does_not() {
        let (membership, sender) = follow_test(POLICY);
        sender.send(Err(refused("x"))).await.unwrap();
        let error = membership.wait_for_first_result().await.unwrap_err().to_string();
        assert_eq!(
            error,
            "test: an I/O node at x has an empty name; name it, or leave the name out"
        );
        let (membership, sender) = follow_test(POLICY);
        let unreachable =
            || MembershipError::Unreachable { source_name: "test".into(), problem: "down".into() };
        sender.send(Err(unreachable())).await.unwrap();
        membership.wait_for_first_result().await.unwrap();
        assert_eq!(membership.views().borrow().generation, 0);
    }

    #[tokio::test]
    async fn a_missing_file_fails_the_start_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing.toml");
        let source = Source::File(path.clone());
        let settings = Settings { refresh: Duration::from_millis(1), policy: POLICY };
        let message = Membership::follow(&source, settings).await.unwrap_err().to_string();
        assert!(
            message.contains(&format!("from file:{}: No such file", path.display())),
            "{message}"
        );
        assert!(
            message.ends_with("this node does not start: write the file, or name another"),
            "{message}"
        );
        std::fs::write(&path, "[[io_nodes]]\nendpoint = \"h:1\"\n").unwrap();
        let membership = Membership::follow(&source, settings).await.unwrap();
        let reports = membership.reports();
        std::fs::remove_file(&path).unwrap();
        let mut lost = reports.clone();
        let report = lost.wait_for(|report| report.error.is_some()).await.unwrap().clone();
        assert_eq!((report.lists, report.failures), (1, 1), "a running node keeps its last list");
        drop(membership);
        while lost.changed().await.is_ok() {}
        let last = reports.borrow().error.as_ref().unwrap().to_string();
        assert!(last.contains("No such file"), "dropping the membership reports no defect: {last}");
    }
}
