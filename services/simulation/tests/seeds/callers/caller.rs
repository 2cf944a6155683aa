//! Callers with grants. Each makes calls of several kinds, and compares every decision about a call and every row of
//! its answers with the policies that were in force.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::{Authorization, Credentials, NotAuthorized, Permission, RENEWED_EVERY};
use access_model::{ABSENT, May, TABLES, Who};
use address::RowAddr;
use arrow_array::cast::AsArray;
use client::fetch::{Instant, Outcome, Projection, Reply};

use super::front::Front;
use super::policies::{Credential, Decision, PolicyFiles};
use super::tables::{ORIGIN, origin};
use crate::clients::{Around, count};
use crate::dice::Dice;
use crate::happened::Happened;
use crate::truth::Version;

/// The maximum time for which a call that is authorized at intervals lasts.
const WATCHED: Duration = Duration::from_secs(12);

/// One caller.
pub struct Caller {
    pub number: usize,
    pub dice: Dice,
    pub credential: Credential,
    pub front: Rc<Front>,
    pub files: Rc<PolicyFiles>,
    pub around: Around,
    pub happened: Rc<RefCell<Happened>>,
}

/// Some rows of a version.
struct Ask {
    version: &'static Version,
    columns: Vec<String>,
    addrs: Vec<RowAddr>,
    node: usize,
    deadline: Instant,
}

/// A call that is authorized.
struct Granted {
    caller: Arc<access::Caller>,
    authorization: Authorization,
    /// The grant under which the call began. The call stays in its flow.
    first: Arc<access::Grant>,
}

impl Caller {
    /// Makes calls until [`Wishes::is_to_end`](crate::clients::Wishes::is_to_end) is set.
    pub async fn run(mut self) {
        while !self.is_to_end() {
            self.pause(0..=60).await;
            let is_stale = self.credential.has_expired(self.now()) && self.dice.per_mille(300);
            if is_stale || self.dice.per_mille(30) {
                let who = self.credential.who;
                self.credential = self.files.credential(who, self.now(), &mut self.dice);
            }
            match self.dice.below(10) {
                0..=5 => self.call().await,
                6..=7 => self.stream().await,
                8 => self.session().await,
                _ => self.watch().await,
            }
        }
    }

    /// Gets some rows.
    async fn call(&mut self) {
        let (table, began) = (self.table(), self.now());
        if let Some(granted) = self.begin(table, May::Read).await {
            let ask = self.ask(self.front.current(table));
            self.rows(&granted, &ask, began).await;
        }
    }

    /// Gets rows in pieces, as a Take does, and is authorized again for each. The stream stays at one version.
    async fn stream(&mut self) {
        let table = self.table();
        let Some(mut granted) = self.begin(table, May::Read).await else { return };
        let version = self.front.current(table);
        for _ in 0..2 + self.dice.below(12) {
            let began = self.now();
            if !self.renew(&mut granted, table, May::Read) {
                return self.count("streams ended by a policy");
            }
            let ask = self.ask(version);
            if !self.rows(&granted, &ask, began).await || self.is_to_end() {
                return;
            }
            self.pause(0..=400).await;
        }
    }

    /// Makes several calls on a stream, as a Lookup or a GetStream does. The caller is identified once, and each call
    /// is authorized with the rights that the caller has by then.
    async fn session(&mut self) {
        let caller = match self.identify().await {
            Ok(caller) => caller,
            Err(decision) => return self.decided(decision, (TABLES[0], true), May::Read),
        };
        for _ in 0..2 + self.dice.below(8) {
            let (table, began) = (self.table(), self.now());
            let Ok(caller) = self.front.access.renewed(&caller) else {
                self.count("sessions ended by a policy");
                return self.decided(Decision::Unauthenticated, (table, true), May::Read);
            };
            if let Some(granted) = self.authorize(caller, table, May::Read) {
                let ask = self.ask(self.front.current(table));
                self.rows(&granted, &ask, began).await;
            }
            if self.is_to_end() {
                return;
            }
            self.pause(0..=600).await;
        }
    }

    /// Gets a row now and then, and is authorized at intervals only, as a Warm is.
    async fn watch(&mut self) {
        let (table, may) = (self.table(), [May::Read, May::Warm][self.dice.below(2)]);
        let Some(granted) = self.begin(table, may).await else { return };
        let Granted { mut caller, mut authorization, first } = granted;
        let until = Instant::now() + WATCHED;
        let (front, version) = (Rc::clone(&self.front), self.front.current(table));
        let is_served = |name: &str| front.is_served(name);
        let withdrawn = authorization.withdrawn(&front.access, &mut caller, table, is_served);
        tokio::pin!(withdrawn);
        while Instant::now() < until && !self.is_to_end() {
            let began = self.now();
            let ask = self.ask(version);
            let reply = front.fetch(
                ask.node,
                version,
                &ask.columns,
                ask.addrs.clone(),
                (&first, ask.deadline),
            );
            let pause = self.dice.ms(50..=400);
            let piece = async {
                let reply = reply.await;
                tokio::time::sleep(pause).await;
                reply
            };
            let reply = tokio::select! {
                biased;
                reason = &mut withdrawn => {
                    self.count("watches ended by a policy");
                    return self.lost(&reason, table, may);
                }
                reply = piece => reply,
            };
            // The call may still last for the interval after its grant is gone.
            let interval = RENEWED_EVERY.as_millis() as u64;
            let from = began.saturating_sub(interval);
            let was_allowed = self.was(from, self.now(), |at, regime| {
                regime.decision(&self.credential, at, (table, true), may) == Decision::Allowed
            });
            if !was_allowed {
                self.wrong("a call goes on, although it was not allowed in the last interval");
            }
            match reply {
                Ok((projection, reply)) => self.check(&ask, &projection, reply, from),
                Err(fault) => {
                    self.around.refused(format_args!("caller {}", self.number), &fault);
                }
            }
        }
    }

    /// Identifies the caller and authorizes a call. Checks the decision.
    async fn begin(&self, table: &'static str, may: May) -> Option<Granted> {
        match self.identify().await {
            Ok(caller) => self.authorize(caller, table, may),
            Err(decision) => {
                self.decided(decision, (table, true), may);
                None
            }
        }
    }

    async fn identify(&self) -> Result<Arc<access::Caller>, Decision> {
        let Credential { who, secret, names, .. } = &self.credential;
        let bearer = secret.as_ref().map(|secret| format!("Bearer {secret}"));
        let mut credentials = Credentials { names, ..Credentials::default() };
        match who {
            Who::Key(_) => credentials.api_key = secret.as_ref().map(String::as_bytes),
            _ => credentials.authorization = bearer.as_ref().map(String::as_bytes),
        }
        let caller = self.front.access.caller(&credentials).await;
        caller.map_err(|_| Decision::Unauthenticated)
    }

    fn authorize(
        &self,
        caller: Arc<access::Caller>,
        table: &'static str,
        may: May,
    ) -> Option<Granted> {
        let is_served = |name: &str| self.front.is_served(name);
        match Authorization::of(&caller, table, permission(may), is_served) {
            Ok(authorization) => {
                self.decided(Decision::Allowed, (table, is_served(table)), may);
                self.check_grant(&authorization, table, may);
                let first = Arc::clone(authorization.grant());
                Some(Granted { caller, authorization, first })
            }
            Err(reason) => {
                self.decided(decision(&reason), (table, is_served(table)), may);
                self.check_names(&reason);
                None
            }
        }
    }

    /// Authorizes a running call again. Returns whether it is still allowed.
    fn renew(&self, granted: &mut Granted, table: &'static str, may: May) -> bool {
        let Granted { caller, authorization, .. } = granted;
        let is_served = |name: &str| self.front.is_served(name);
        match authorization.renew(&self.front.access, caller, table, is_served) {
            Ok(()) => {
                // A running call goes on although its table is no longer served, so the table counts as served here.
                self.decided(Decision::Allowed, (table, true), may);
                self.check_grant(authorization, table, may);
                true
            }
            Err(reason) => {
                self.lost(&reason, table, may);
                false
            }
        }
    }

    /// Checks the reason for which a running call is no longer allowed.
    fn lost(&self, reason: &NotAuthorized, table: &'static str, may: May) {
        self.check_names(reason);
        self.decided(decision(reason), (table, self.front.is_served(table)), may);
    }

    /// Checks a decision against the policy that is in force.
    fn decided(&self, decision: Decision, (table, is_served): (&'static str, bool), may: May) {
        let regime = self.files.current();
        let is_served = is_served && !ABSENT.contains(&table);
        let right = regime.decision(&self.credential, self.now(), (table, is_served), may);
        let Self { number, credential: Credential { who, .. }, .. } = self;
        self.around
            .trace
            .say(format_args!("caller {number}, {who:?}: {may:?} {table}: {decision:?}"));
        self.count(match (decision, is_served) {
            (Decision::Allowed, _) => "calls allowed",
            (Decision::Unauthenticated, _) if self.credential.has_expired(self.now()) => {
                "calls with an expired token"
            }
            (Decision::Unauthenticated, _) => "calls unauthenticated",
            (Decision::Unknown, true) => "calls for tables that the caller may not see",
            (Decision::Unknown, false) => "calls for tables that are not served",
            (Decision::Forbidden, _) => "calls forbidden",
        });
        if decision != right {
            self.wrong(format_args!("{may:?} {table}: {decision:?}, not {right:?}"));
        }
    }

    /// Checks the name and the weight of a call's grant.
    fn check_grant(&self, authorization: &Authorization, table: &str, may: May) {
        let regime = self.files.current();
        let right = regime.policy.grant(self.credential.who, table, may);
        let grant = authorization.grant();
        let is_right =
            right.is_some_and(|it| it.name == grant.name() && it.weight == grant.flow().weight());
        if !is_right {
            let who = self.credential.who;
            self.wrong(format_args!("{who:?} may {may:?} {table} by {grant:?}, not by {right:?}"));
        }
    }

    /// Checks the tables that the error for an unknown table may name.
    fn check_names(&self, reason: &NotAuthorized) {
        let NotAuthorized::Unknown { caller } = reason else { return };
        let regime = self.files.current();
        let sees = |table: &&str| regime.sees(&self.credential, self.now(), table);
        let (named, right): (Vec<&str>, Vec<&str>) = (
            TABLES.into_iter().filter(|table| caller.sees(table)).collect(),
            TABLES.into_iter().filter(sees).collect(),
        );
        if named != right {
            self.wrong(format_args!("the error names {named:?}, not {right:?}"));
        }
    }

    /// Gets rows and checks them. `began` is the time at which their call was authorized. Returns whether they came.
    async fn rows(&self, granted: &Granted, ask: &Ask, began: u64) -> bool {
        let Ask { version, columns, addrs, node, deadline } = ask;
        let under = (&*granted.first, *deadline);
        match self.front.fetch(*node, version, columns, addrs.clone(), under).await {
            Ok((projection, reply)) => {
                self.check(ask, &projection, reply, began);
                true
            }
            Err(fault) => {
                self.around.refused(format_args!("caller {}", self.number), &fault);
                false
            }
        }
    }

    /// Checks rows: they are the requested ones, and a policy that was in force at some time since `from` lets the
    /// caller see the tables that they are from.
    fn check(&self, ask: &Ask, projection: &Projection, reply: Reply, from: u64) {
        let Ask { version, columns, addrs, .. } = ask;
        let (uri, number) = (version.uri, version.version);
        let places = (0..).zip(addrs);
        let missing: Vec<u32> =
            places.filter(|(_, addr)| !version.has(**addr)).map(|(at, _)| at).collect();
        if reply.missing != missing {
            self.wrong(format_args!(
                "{uri} {number}: missing are {:?}, not {missing:?}",
                reply.missing
            ));
        }
        let Outcome::Rows(rows) = reply.outcome else { return self.wrong("distances for rows") };
        let origins = projection.schema().index_of(ORIGIN).map(|at| rows.column(at));
        let Ok(origins) = origins else { return self.wrong("the origins are missing") };
        for text in origins.as_string::<i32>().iter().flatten() {
            let Some((table, _)) = origin(text) else {
                return self.wrong(format_args!("a row is from {text:?}"));
            };
            let was_seen =
                |at, regime: &super::policies::Regime| regime.sees(&self.credential, at, table);
            if !self.was(from, self.now(), was_seen) {
                let who = self.credential.who;
                self.wrong(format_args!("{who:?} gets a row of {table}, which it may not see"));
            }
        }
        let there: Vec<_> = addrs.iter().copied().filter(|&addr| version.has(addr)).collect();
        if version.rows(&there, columns).columns() != rows.columns() {
            self.wrong(format_args!("rows of {uri} {number} are not the truth"));
        }
        count(&self.around.seen.answers, 1);
        count(&self.around.seen.rows, there.len() as u64);
        self.count("answers to callers");
    }

    /// Returns whether a condition held under a policy that was in force between two times. The condition gets the
    /// first time in this range at which the policy was in force, and the policy.
    fn was(
        &self,
        from: u64,
        until: u64,
        is_so: impl Fn(u64, &super::policies::Regime) -> bool,
    ) -> bool {
        self.files.in_force(from, until).iter().any(|(at, regime)| is_so(*at, regime))
    }

    /// Returns the name of a table, which may be absent.
    fn table(&mut self) -> &'static str {
        let names = if self.dice.per_mille(50) { &ABSENT[..] } else { &TABLES[..] };
        names[self.dice.below(names.len())]
    }

    fn ask(&mut self, version: &'static Version) -> Ask {
        let dice = &mut self.dice;
        let mut columns: Vec<String> = ["id", ORIGIN, "note"].map(String::from).into();
        match dice.below(4) {
            0 => columns.truncate(2),
            1 => columns = vec![ORIGIN.into()],
            2 => columns.swap(0, 2),
            _ => {}
        }
        let address = |dice: &mut Dice| {
            let info = dice.pick(&version.infos);
            RowAddr::new(info.id, dice.below(info.physical_rows as usize) as u32)
        };
        let rows = [1, 3, 40][dice.below(3)];
        let addrs = (0..rows).map(|_| address(dice)).collect();
        let node = dice.below(self.front.nodes.len());
        Ask { version, columns, addrs, node, deadline: Instant::now() + dice.ms(20..=1_500) }
    }

    async fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        let pause = self.dice.ms(ms);
        tokio::time::sleep(pause).await;
    }

    fn is_to_end(&self) -> bool {
        self.around.wishes.is_to_end.get()
    }

    fn now(&self) -> u64 {
        self.around.trace.now_ms()
    }

    fn count(&self, what: &str) {
        self.happened.borrow_mut().count(what, 1);
    }

    fn wrong(&self, what: impl std::fmt::Display) {
        self.around.wrong(format_args!("caller {}", self.number), what);
    }
}

fn permission(may: May) -> Permission {
    match may {
        May::Read => Permission::Read,
        May::Warm => Permission::Warm,
        May::Observe => Permission::Observe,
    }
}

fn decision(reason: &NotAuthorized) -> Decision {
    match reason {
        NotAuthorized::Denied(_) => Decision::Unauthenticated,
        NotAuthorized::Unknown { .. } => Decision::Unknown,
        NotAuthorized::Forbidden(_) => Decision::Forbidden,
        NotAuthorized::LimitReached(reached) => unreachable!("no grant has limits: {reached}"),
        NotAuthorized::PartChanged => unreachable!("all grants show whole tables"),
    }
}
