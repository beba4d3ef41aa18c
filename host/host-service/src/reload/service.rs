//! A service: models served under one generation at a time, replaced as a whole while requests run.
//!
//! The request path has no lock: [`Service::admit`] loads one pointer. Everything that changes what serves (a reload, a
//! rollback, the health gate) happens one after another behind one lock that no request takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use host_core::{Report, Reported as _};
use host_plugins::Clock;
use host_registry::Sha256Digest;

use super::check::{Check, CheckCache, Refusal, Scope};
use super::error::ReloadError;
use super::event::Event;
use super::gate::Verdict;
use super::generation::{Generation, ServedModel};
use super::id::GenerationId;
use super::pin::Pin;
use super::settings::ReloadSettings;
use super::snapshot::Snapshot;
use super::standing::{KeptOut, Refused, Replaced, Standing, State};
use super::store::{GenerationStore, Kept};
use crate::failure::Failure;
use crate::host::Folders;
use crate::machine::Machine;
use crate::progress::{NoProgress, OpenProgress};

/// What a service is to do.
pub struct ServiceOptions {
    /// Where plugins and profiles lie.
    pub folders: Folders,
    /// The models that are served.
    pub served: Vec<ServedModel>,
    /// How much must be sound.
    pub scope: Scope,
    /// The numbers.
    pub settings: ReloadSettings,
    /// What to do where the folders do not load at the start.
    pub cold_start: ColdStart,
    /// Where good generations are kept.
    pub store: GenerationStore,
}

/// What to do where the folders do not load at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdStart {
    /// Fail.
    Folders,
    /// Serve the newest good generation that was stored, and say so.
    LastGood,
}

/// What became of a reload.
#[derive(Clone, Debug, PartialEq)]
pub enum Reload {
    /// The folders say what serves, or what was refused already.
    Unchanged,
    /// Another generation serves.
    Swapped(GenerationId),
    /// Nothing changed, for these reasons.
    Refused(Vec<Report>),
}

/// Hears what happens.
type Listener = dyn Fn(&Event) + Send + Sync;

/// Models under service.
pub struct Service {
    machine: Arc<Machine>,
    pub(crate) options: ServiceOptions,
    pub(crate) clock: Arc<dyn Clock>,
    cache: CheckCache,
    pub(crate) current: ArcSwap<Generation>,
    /// Held by whoever changes what serves.
    standing: Mutex<Standing>,
    /// What people are told; held for a moment.
    state: Mutex<State>,
    tell: Arc<Listener>,
}

impl Service {
    /// Loads the folders and serves them.
    ///
    /// # Errors
    /// Everything that is wrong with the folders; with [`ColdStart::LastGood`] only where nothing stored loads either.
    pub fn start(
        machine: Arc<Machine>,
        options: ServiceOptions,
        clock: Arc<dyn Clock>,
        progress: &mut dyn OpenProgress,
        tell: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Arc<Service>, Failure> {
        let (began, cache) = (clock.now(), CheckCache::default());
        let check = check(&machine, &cache, &options);
        let loaded = Snapshot::settled(&options.folders, None, options.settings.watch, std::thread::sleep)
            .map_err(|error| vec![error.report()])
            .and_then(|snapshot| check.generation(snapshot, progress).map_err(|refusal| refusal.reports));
        let (generation, degraded) = match loaded {
            Ok(generation) => (generation, None),
            Err(reports) => match options.cold_start {
                ColdStart::Folders => return Err(Failure::of(reports)),
                ColdStart::LastGood => (last_good(&check, &options, &reports, progress)?, Some(reports)),
            },
        };
        let (id, now) = (generation.id, clock.now());
        let event = match degraded.clone() {
            None => Event::Started { id, took: now.saturating_sub(began) },
            Some(reports) => Event::LastGood { id, reports },
        };
        let from_folders = degraded.is_none();
        let service = Service {
            standing: Mutex::new(Standing::new(now)),
            state: Mutex::new(State::new(id, unix_ms(), degraded)),
            current: ArcSwap::from_pointee(generation),
            machine,
            options,
            clock,
            cache,
            tell: Arc::new(tell),
        };
        // Stored before anybody is told of it: what was told is never lost.
        let kept = from_folders.then(|| service.keep(&service.current.load_full())).flatten();
        (service.tell)(&event);
        service.sync(id, kept);
        Ok(Arc::new(service))
    }

    /// Admits a request: whatever it asks for comes from the generation that serves now. One atomic load, no lock.
    pub fn admit(&self) -> Pin {
        Pin::new(self.current.load_full())
    }

    /// How the service stands.
    pub fn state(&self) -> State {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        state.running = self.current.load().counts.running();
        state
    }

    /// What the process has whatever the folders say.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The numbers.
    pub fn settings(&self) -> &ReloadSettings {
        &self.options.settings
    }

    /// Where plugins and profiles lie.
    pub fn folders(&self) -> &Folders {
        &self.options.folders
    }

    /// Good generations on disk.
    pub fn store(&self) -> &GenerationStore {
        &self.options.store
    }

    /// What all loaded models hold, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.cache.models.held_bytes()
    }

    /// Reads the folders and serves what they say, where that is sound and not what serves already.
    pub fn reload(&self) -> Reload {
        let mut standing = self.standing();
        let began = self.clock.now();
        let current = self.current.load_full();
        let (folders, watch) = (&self.options.folders, self.options.settings.watch);
        let snapshot = match Snapshot::settled(folders, Some(&current.snapshot), watch, std::thread::sleep) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.refuse(&mut standing, None, vec![error.report()]),
        };
        let digest = snapshot.digest();
        if digest == current.snapshot.digest() {
            return self.mended(&mut standing);
        }
        if standing.is_left_aside(digest, began, watch.rescan()) {
            return Reload::Unchanged;
        }
        if let Some(KeptOut { id, tally }) = standing.kept_out.get(&digest).copied() {
            let error = ReloadError::KeptOut { id, failed: tally.failed, ended: tally.ended };
            return self.refuse(&mut standing, Some(digest), vec![error.report()]);
        }
        standing.left_aside = None;
        self.replace(&mut standing, current, snapshot, began)
    }

    /// Serves a stored generation again, after the same checks as any other. The folders are left as they are, and
    /// not loaded until they change.
    ///
    /// # Errors
    /// No such generation, or one whose files are damaged.
    pub fn rollback(&self, digits: &str) -> Result<Reload, ReloadError> {
        let mut standing = self.standing();
        let began = self.clock.now();
        let store = &self.options.store;
        let snapshot = store.load(&store.find(digits)?, &self.options.folders)?;
        let current = self.current.load_full();
        if snapshot.digest() == current.snapshot.digest() {
            return Ok(Reload::Unchanged);
        }
        let found = Snapshot::read(&self.options.folders, Some(&current.snapshot))?;
        let outcome = self.replace(&mut standing, current, snapshot, began);
        if matches!(outcome, Reload::Swapped(_)) {
            standing.left_aside = Some(found.digest());
        }
        Ok(outcome)
    }

    /// Looks at the health gate and lets go of old generations whose requests are over.
    pub fn tick(&self) {
        let mut standing = self.standing();
        self.let_go(&mut standing);
        self.judge(&mut standing);
        self.note(&standing);
    }

    /// Checks a snapshot and swaps.
    fn replace(
        &self,
        standing: &mut Standing,
        current: Arc<Generation>,
        snapshot: Snapshot,
        began: Duration,
    ) -> Reload {
        let (digest, changes) = (snapshot.digest(), snapshot.changes_since(&current.snapshot));
        let from_id = current.id;
        let checked = self.check(snapshot.clone());
        let generation = match checked {
            Ok(generation) => {
                self.let_go(standing);
                if let Err(error) = self.make_room(standing, &current) {
                    return self.refuse(standing, Some(digest), vec![error.report()]);
                }
                generation
            }
            // Every other fault would be there afterwards as well.
            Err(refusal) if refusal.drain_first.len() == refusal.reports.len() => {
                match self.drain_first(standing, current, snapshot, &refusal.drain_first) {
                    Ok(generation) => generation,
                    Err(reports) => return self.refuse(standing, Some(digest), reports),
                }
            }
            Err(refusal) => return self.refuse(standing, Some(digest), refusal.reports),
        };
        let generation = Arc::new(generation);
        let kept = self.keep(&generation);
        let before = self.clock.now();
        let from = self.current.swap(Arc::clone(&generation));
        let now = self.clock.now();
        standing.replaced(from, now, &self.options.settings.gate);
        let id = generation.id;
        *self.told_state() = State::new(id, unix_ms(), None);
        self.note(standing);
        let (took, swap) = (now.saturating_sub(began), now.saturating_sub(before));
        (self.tell)(&Event::Swapped { id, from: from_id, changes, took, swap });
        self.sync(id, kept);
        Reload::Swapped(id)
    }

    /// A generation of a snapshot, or why it is none.
    pub(crate) fn check(&self, snapshot: Snapshot) -> Result<Generation, Refusal> {
        let current = self.current.load();
        let check = check(&self.machine, &self.cache, &self.options);
        let check = Check { before: Some(&current.host), ..check };
        check.generation(snapshot, &mut NoProgress::default())
    }

    /// Notes why nothing changes; what was told already is not told again.
    fn refuse(&self, standing: &mut Standing, digest: Option<Sha256Digest>, reports: Vec<Report>) -> Reload {
        let refused = Refused { digest, reports: reports.clone(), at: self.clock.now() };
        let is_known = standing
            .refused
            .replace(refused)
            .is_some_and(|last| last.digest == digest && last.reports == reports);
        if !is_known {
            let id = self.current.load().id;
            self.told_state().degrade(unix_ms(), reports.clone());
            (self.tell)(&Event::Refused { id, reports: reports.clone() });
        }
        Reload::Refused(reports)
    }

    /// The folders are what serves.
    fn mended(&self, standing: &mut Standing) -> Reload {
        standing.left_aside = None;
        if standing.refused.take().is_some() {
            let id = self.current.load().id;
            *self.told_state() = State::new(id, unix_ms(), None);
            self.note(standing);
            (self.tell)(&Event::Mended { id });
        }
        Reload::Unchanged
    }

    /// Lets go of generations without requests.
    fn let_go(&self, standing: &mut Standing) {
        for old in standing.drained() {
            (self.tell)(&Event::Drained { id: old.generation.id });
        }
    }

    /// Keeps the number of old generations with requests within bounds, once `current` is one of them.
    fn make_room(&self, standing: &mut Standing, current: &Generation) -> Result<(), ReloadError> {
        use super::settings::Overflow;
        let drain = self.options.settings.drain;
        let found = standing.old.len() + usize::from(current.counts.running() > 0);
        if found <= drain.at_most {
            return Ok(());
        }
        if drain.then == Overflow::Refuse {
            return Err(ReloadError::Draining { at_most: drain.at_most, found: standing.old.len() });
        }
        for Replaced { generation, .. } in standing.oldest(found - drain.at_most) {
            let running = generation.counts.running();
            generation.ended.cancel();
            (self.tell)(&Event::Ended { id: generation.id, running });
        }
        Ok(())
    }

    /// Takes a generation back whose requests fail more often than those of the one before.
    fn judge(&self, standing: &mut Standing) {
        let Some(before) = &standing.before else { return };
        let current = self.current.load_full();
        let age = self.clock.now().saturating_sub(standing.swapped_at);
        let tally = current.counts.tally();
        match self.options.settings.gate.judge(age, before.counts.tally(), tally) {
            Verdict::Watching => {}
            Verdict::Passed => standing.before = None,
            Verdict::Worse => {
                let before = Arc::clone(before);
                let kept_out = KeptOut { id: current.id, tally };
                let error = ReloadError::KeptOut { id: current.id, failed: tally.failed, ended: tally.ended };
                let bad = self.current.swap(Arc::clone(&before));
                standing.taken_back(bad, kept_out, self.clock.now());
                let mut state = State::new(before.id, unix_ms(), None);
                state.degrade(unix_ms(), vec![error.report()]);
                *self.told_state() = state;
                (self.tell)(&Event::TakenBack { id: before.id, kept_out: current.id, tally });
                self.stored(before.id, self.options.store.forget(current.id));
            }
        }
    }

    /// Stores a good generation, so that it outlives the process. One that cannot be stored serves all the same.
    fn keep(&self, generation: &Generation) -> Option<Kept> {
        let kept = self.options.store.keep(generation.id, &generation.snapshot, true, unix_ms());
        self.stored(generation.id, kept)
    }

    /// Has a thread wait until it is on disk; neither a request nor a reload does.
    fn sync(&self, id: GenerationId, kept: Option<Kept>) {
        let Some(kept) = kept else { return };
        let (tell, keep) = (Arc::clone(&self.tell), self.options.settings.store.keep);
        let sync = move || {
            if let Err(error) = kept.sync(keep) {
                tell(&Event::NotStored { id, report: error.report() });
            }
        };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(sync);
        self.stored(id, thread.map_err(|source| ReloadError::Thread { what: "the store", source }));
    }

    fn stored<T>(&self, id: GenerationId, outcome: Result<T, ReloadError>) -> Option<T> {
        outcome.map_err(|error| (self.tell)(&Event::NotStored { id, report: error.report() })).ok()
    }

    fn note(&self, standing: &Standing) {
        standing.tell(&mut self.told_state(), self.clock.now());
    }

    /// Both are as good after a panic elsewhere as before: each change of them is whole.
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check<'a>(machine: &'a Arc<Machine>, cache: &'a CheckCache, options: &'a ServiceOptions) -> Check<'a> {
    let ServiceOptions { served, scope, settings, .. } = options;
    Check { machine, cache, served, scope: *scope, settings, before: None }
}

/// The newest good generation that was stored and still loads.
///
/// # Errors
/// What is wrong with the folders, and that nothing stored loads.
fn last_good(
    check: &Check<'_>,
    options: &ServiceOptions,
    reports: &[Report],
    progress: &mut dyn OpenProgress,
) -> Result<Generation, Failure> {
    let mut all = reports.to_vec();
    for stored in options.store.list()?.iter().filter(|stored| stored.is_good) {
        match options.store.load(stored, &options.folders) {
            Ok(snapshot) => match check.generation(snapshot, progress) {
                Ok(generation) => return Ok(generation),
                Err(refusal) => all.extend(refusal.reports),
            },
            Err(error) => all.push(error.report()),
        }
    }
    let known = options.store.list()?.iter().map(|stored| stored.id.to_string()).collect();
    all.push(ReloadError::NotStored { asked: String::new(), known }.report());
    Err(Failure::of(all))
}

/// Milliseconds since 1970, for people.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
